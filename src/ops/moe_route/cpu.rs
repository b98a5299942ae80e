use super::RouteOptions;
use crate::autograd::MaskRows;
use crate::device::parallel::for_rows2;
use crate::numerics::sigmoid;

pub struct Inputs<'a> {
    /// [R, E].
    pub logits: &'a [f32],
    /// `[E]`.
    pub bias: &'a [f32],
    pub mask: Option<&'a MaskRows>,
}

impl Inputs<'_> {
    fn experts(&self) -> usize {
        self.bias.len()
    }

    /// The score of one expert for one row, and its mask.
    fn score(&self, row: usize, expert: usize) -> (f32, f32) {
        let s = sigmoid(self.logits[row * self.experts() + expert]);
        (s, self.mask.map_or(1.0, |m| m.row(row)[expert]))
    }
}

pub fn forward(inputs: &Inputs, o: &RouteOptions, weights: &mut [f32], chosen: &mut [u32]) {
    let k = o.top_k;
    for_rows2((weights, k), (chosen, k), |first, weights, chosen| {
        let mut choice = vec![0.0; inputs.experts()];
        for (i, (weights, chosen)) in weights.chunks_exact_mut(k).zip(chosen.chunks_exact_mut(k)).enumerate() {
            let row = first + i;
            for (e, c) in choice.iter_mut().enumerate() {
                let (s, m) = inputs.score(row, e);
                let corrected = m * s + inputs.bias[e];
                *c = if m == 0.0 || corrected.is_nan() { f32::NEG_INFINITY } else { corrected };
            }
            limit_groups(&mut choice, o);
            top_k(&mut choice, chosen);
            weigh(inputs, o, row, chosen, weights);
        }
    });
}

/// What an expert that cannot be chosen adds to its group's rank: below any sum of scores.
const INELIGIBLE: f32 = -1e30;

/// Sets the choices outside the `topk_group` best groups to −∞. A group's rank is the sum of its two best choices.
fn limit_groups(choice: &mut [f32], o: &RouteOptions) {
    if o.topk_group == o.n_group {
        return;
    }
    let size = choice.len() / o.n_group;
    let mut ranks: Vec<(usize, f32)> = (choice.chunks_exact(size))
        .map(|group| {
            let (mut best, mut second) = (f32::NEG_INFINITY, f32::NEG_INFINITY);
            for c in group {
                if *c > best {
                    second = std::mem::replace(&mut best, *c);
                } else if *c > second {
                    second = *c;
                }
            }
            // Not −∞ + x: a group with one eligible expert ranks above one with none.
            if size == 1 { best } else { best.max(INELIGIBLE) + second.max(INELIGIBLE) }
        })
        .enumerate()
        .collect();
    ranks.sort_by(|a, b| b.1.total_cmp(&a.1)); // stable: the lower group wins a tie
    for (group, _) in &ranks[o.topk_group..] {
        choice[group * size..][..size].fill(f32::NEG_INFINITY);
    }
}

/// The indices of the K largest, best first, lower index first among equals. −∞ marks what was not eligible; it is taken only
/// when nothing else is left, and what was taken is marked by NaN so that it cannot come twice.
fn top_k(choice: &mut [f32], chosen: &mut [u32]) {
    for slot in chosen {
        let mut best: Option<usize> = None;
        for (e, c) in choice.iter().enumerate() {
            if !c.is_nan() && best.is_none_or(|b| *c > choice[b]) {
                best = Some(e);
            }
        }
        let best = best.unwrap_or_else(|| unreachable!("K is at most E"));
        choice[best] = f32::NAN;
        *slot = best as u32;
    }
}

fn weigh(inputs: &Inputs, o: &RouteOptions, row: usize, chosen: &[u32], weights: &mut [f32]) {
    let mut sum = 0.0;
    for (w, e) in weights.iter_mut().zip(chosen) {
        let (s, m) = inputs.score(row, *e as usize);
        *w = m * s;
        sum += *w;
    }
    let factor = if o.norm_topk_prob { o.routed_scaling_factor / (sum + 1e-20) } else { o.routed_scaling_factor };
    weights.iter_mut().for_each(|w| *w *= factor);
}

/// The weights [R, K] of a choice that was made elsewhere.
pub fn weigh_all(inputs: &Inputs, o: &RouteOptions, chosen: &[u32], weights: &mut [f32]) {
    let rows = chosen.chunks_exact(o.top_k).zip(weights.chunks_exact_mut(o.top_k));
    rows.enumerate().for_each(|(row, (chosen, weights))| weigh(inputs, o, row, chosen, weights));
}

/// Adds to dlogits (zeros where an expert was not chosen); returns the score mask's gradient [draws, C].
pub fn backward(inputs: &Inputs, o: &RouteOptions, chosen: &[u32], dweights: &[f32], dlogits: &mut [f32]) -> Vec<f32> {
    let (k, experts) = (o.top_k, inputs.experts());
    let mut dkeep = vec![0.0; inputs.mask.map_or(0, MaskRows::grad_len)];
    let rows = chosen.chunks_exact(k).zip(dweights.chunks_exact(k)).zip(dlogits.chunks_exact_mut(experts));
    for (row, ((chosen, dw), dlogits)) in rows.enumerate() {
        let scores: Vec<(f32, f32)> = chosen.iter().map(|e| inputs.score(row, *e as usize)).collect();
        let sum: f32 = scores.iter().map(|(s, m)| s * m).sum::<f32>() + 1e-20;
        let along: f32 = dw.iter().zip(&scores).map(|(dw, (s, m))| dw * s * m).sum::<f32>() / sum;
        for ((e, dw), (s, m)) in chosen.iter().zip(dw).zip(&scores) {
            // d(m·s): with normalisation, the part along the weights themselves cancels.
            let d = if o.norm_topk_prob { (dw - along) / sum } else { *dw } * o.routed_scaling_factor;
            dlogits[*e as usize] = d * m * s * (1.0 - s);
            if let Some(mask) = inputs.mask {
                mask.row_grad(&mut dkeep, row)[mask.interval(*e as usize)] += d * s;
            }
        }
    }
    dkeep
}
