//! Costs that are sums over layers, given the global choices: hard, and in expectation.

use crate::supernet::{Choice, SearchSpace};
use crate::{Error, Result};

/// One layer's values: for every global choice and every combination of the layer's own gates.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerTerm {
    /// The layer's own gates, as indices into the search space's gates. None for a layer without a choice.
    pub gates: Vec<usize>,
    /// `[contexts][combinations]`: combinations row by row, the last gate fastest.
    pub values: Vec<Vec<f64>>,
}

/// What depends on how many of some layers are kept: caches that are paged by groups of layers.
#[derive(Clone, Debug, PartialEq)]
pub struct CountTerm {
    /// The layers that may be removed: 1 for a combination that keeps the layer, 0 for one that removes it.
    pub kept: Vec<LayerTerm>,
    /// `[contexts][kept layers, 0..=kept.len()]`.
    pub values: Vec<Vec<f64>>,
}

/// A limited quantity of an architecture: constant(context) + Σ layers + Σ over `widest` of the largest layer + what the
/// number of kept layers costs.
///
/// A context is a combination of the global gates (hidden size, Mamba heads), row by row, the last gate fastest. The cost is
/// additive over layers and, in each group of `widest`, the maximum over layers (docs/method.md: buffers).
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// "latency", "memory", …
    pub name: String,
    pub unit: String,
    /// What the cost must not exceed; in `unit`, above 0.
    pub limit: f64,
    /// Candidates of every gate of the search space.
    pub candidates: Vec<usize>,
    pub global_gates: Vec<usize>,
    /// `[contexts]`.
    pub constant: Vec<f64>,
    pub layers: Vec<LayerTerm>,
    pub widest: Vec<Vec<LayerTerm>>,
    pub counted: Option<CountTerm>,
}

impl Resource {
    /// The cost of one candidate per gate.
    pub fn cost(&self, choice: &[usize]) -> f64 {
        let context = self.combination(&self.global_gates, choice);
        let value = |term: &LayerTerm| term.values[context][self.combination(&term.gates, choice)];
        let widest = self.widest.iter().map(|group| group.iter().map(value).fold(0.0, f64::max));
        let counted = self.counted.as_ref().map_or(0.0, |counted| {
            // Sums of 0s and 1s.
            counted.values[context][counted.kept.iter().map(value).sum::<f64>() as usize]
        });
        self.constant[context] + self.layers.iter().map(value).sum::<f64>() + widest.sum::<f64>() + counted
    }

    /// That no architecture within the limits of `kept` meets this one: `choice` comes closest.
    ///
    /// # Errors
    /// Those of [`SearchSpace::choice_to_json`].
    pub(crate) fn unreachable(&self, space: &SearchSpace, choice: &Choice, kept: Vec<String>) -> Result<Error> {
        Ok(Error::Unreachable {
            resource: self.name.clone(),
            unit: self.unit.clone(),
            limit: self.limit,
            smallest: self.cost(&choice.0),
            at_least: false,
            kept,
            architecture: space.choice_to_json(choice)?.to_string(),
        })
    }

    /// Cost over limit.
    pub fn rho(&self, choice: &[usize]) -> f64 {
        self.cost(choice) / self.limit
    }

    /// What no choice is below: in each context every term's cheapest value. Where all is a sum over layers a choice reaches
    /// it, unless that were one of no layer at all.
    pub fn smallest(&self) -> f64 {
        let within = |context: usize| {
            let least = |term: &LayerTerm| term.values[context].iter().copied().fold(f64::INFINITY, f64::min);
            let widest = self.widest.iter().map(|group| group.iter().map(least).fold(0.0, f64::max));
            let counted = self
                .counted
                .as_ref()
                .map_or(0.0, |counted| counted.values[context].iter().copied().fold(f64::INFINITY, f64::min));
            self.constant[context] + self.layers.iter().map(least).sum::<f64>() + widest.sum::<f64>() + counted
        };
        (0..self.constant.len()).map(within).fold(f64::INFINITY, f64::min)
    }

    /// The place of a choice among the combinations of `gates`.
    pub fn combination(&self, gates: &[usize], choice: &[usize]) -> usize {
        gates.iter().fold(0, |at, gate| at * self.candidates[*gate] + choice[*gate])
    }

    /// The probability of every combination of `gates`, row by row, where gates are drawn independently.
    fn probabilities(&self, gates: &[usize], y: &[Vec<f64>]) -> Vec<f64> {
        gates.iter().fold(vec![1.0], |p, gate| p.iter().flat_map(|p| y[*gate].iter().map(move |y| p * y)).collect())
    }

    /// Turns gradients of the combinations' probabilities into those of the gates', times `scale`.
    fn spread(&self, gates: &[usize], y: &[Vec<f64>], dp: &[f64], scale: f64, dy: &mut [Vec<f64>]) {
        for (position, gate) in gates.iter().enumerate() {
            let others: Vec<Vec<f64>> = (gates.iter().enumerate())
                .map(|(i, g)| if i == position { vec![1.0; y[*g].len()] } else { y[*g].clone() })
                .collect();
            let weights = others
                .iter()
                .fold(vec![1.0], |p, y| p.iter().flat_map(|p| y.iter().map(move |y| p * y)).collect::<Vec<f64>>());
            let inner: usize = gates[position + 1..].iter().map(|g| self.candidates[*g]).product();
            for (at, (dp, w)) in dp.iter().zip(&weights).enumerate() {
                dy[*gate][at / inner % self.candidates[*gate]] += scale * dp * w;
            }
        }
    }

    /// The exact expected cost where each gate's candidate is drawn independently with probabilities `y` (`[gates][C]`), and its
    /// gradient with respect to every entry of `y`.
    pub fn expectation(&self, y: &[Vec<f64>]) -> (f64, Vec<Vec<f64>>) {
        let mut dy: Vec<Vec<f64>> = y.iter().map(|y| vec![0.0; y.len()]).collect();
        let contexts = self.probabilities(&self.global_gates, y);
        let mut within = Vec::with_capacity(contexts.len());
        for (context, weight) in contexts.iter().enumerate() {
            let mut sum = self.constant[context];
            for term in &self.layers {
                let values = &term.values[context];
                sum += self.probabilities(&term.gates, y).iter().zip(values).map(|(p, v)| p * v).sum::<f64>();
                self.spread(&term.gates, y, values, *weight, &mut dy);
            }
            for group in &self.widest {
                sum += self.expected_maximum(group, context, *weight, y, &mut dy);
            }
            if let Some(counted) = &self.counted {
                sum += self.expected_of_count(counted, context, *weight, y, &mut dy);
            }
            within.push(sum);
        }
        let expected = contexts.iter().zip(&within).map(|(p, v)| p * v).sum();
        self.spread(&self.global_gates, y, &within, 1.0, &mut dy);
        (expected, dy)
    }

    /// E[max over the layers] in a context: v₁ + Σ_k (v_{k+1} − v_k)·(1 − Π_ℓ P_ℓ(value ≤ v_k)) over the sorted values, from
    /// 0 up. Adds `scale` times the gradient to `dy`.
    fn expected_maximum(
        &self,
        group: &[LayerTerm],
        context: usize,
        scale: f64,
        y: &[Vec<f64>],
        dy: &mut [Vec<f64>],
    ) -> f64 {
        let mut steps: Vec<f64> = group.iter().flat_map(|term| term.values[context].iter().copied()).collect();
        steps.push(0.0);
        steps.retain(|v| *v >= 0.0);
        steps.sort_by(f64::total_cmp);
        steps.dedup();
        let probabilities: Vec<Vec<f64>> = group.iter().map(|term| self.probabilities(&term.gates, y)).collect();
        let mut dp: Vec<Vec<f64>> = probabilities.iter().map(|p| vec![0.0; p.len()]).collect();
        let mut expected = 0.0;
        for pair in steps.windows(2) {
            let (low, gap) = (pair[0], pair[1] - pair[0]);
            let below: Vec<f64> = (group.iter().zip(&probabilities))
                .map(|(term, p)| p.iter().zip(&term.values[context]).filter(|(_, v)| **v <= low).map(|(p, _)| p).sum())
                .collect();
            expected += gap * (1.0 - below.iter().product::<f64>());
            for (layer, term) in group.iter().enumerate() {
                let others: f64 = below.iter().enumerate().filter(|(l, _)| *l != layer).map(|(_, b)| b).product();
                for (dp, v) in dp[layer].iter_mut().zip(&term.values[context]) {
                    *dp -= if *v <= low { gap * others } else { 0.0 };
                }
            }
        }
        for (term, dp) in group.iter().zip(&dp) {
            self.spread(&term.gates, y, dp, scale, dy);
        }
        expected
    }

    /// E[value of the number of kept layers] in a context, from the exact distribution of that number. Adds `scale` times the
    /// gradient to `dy`.
    fn expected_of_count(
        &self,
        counted: &CountTerm,
        context: usize,
        scale: f64,
        y: &[Vec<f64>],
        dy: &mut [Vec<f64>],
    ) -> f64 {
        let values = &counted.values[context];
        // Per layer the probabilities of being removed and of being kept, which need not add up to 1 beside a one-hot draw.
        let layer = |term: &LayerTerm| {
            let (p, kept) = (self.probabilities(&term.gates, y), &term.values[context]);
            let keep: f64 = p.iter().zip(kept).map(|(p, kept)| p * kept).sum();
            [p.iter().sum::<f64>() - keep, keep]
        };
        let layers: Vec<[f64; 2]> = counted.kept.iter().map(layer).collect();
        // Before layer l: the distribution of the number kept among the layers before it.
        let mut before = vec![vec![1.0]];
        for [removed, kept] in &layers {
            let last = &before[before.len() - 1];
            let mut next = vec![0.0; last.len() + 1];
            for (n, p) in last.iter().enumerate() {
                next[n] += p * removed;
                next[n + 1] += p * kept;
            }
            before.push(next);
        }
        // From the last layer back: the expected value where n layers are kept before layer l.
        let mut after = values.clone();
        for (l, term) in counted.kept.iter().enumerate().rev() {
            let gradient = |kept: usize| before[l].iter().enumerate().map(|(n, p)| p * after[n + kept]).sum::<f64>();
            let (removed, kept) = (gradient(0), gradient(1));
            let dp: Vec<f64> = term.values[context].iter().map(|k| k * kept + (1.0 - k) * removed).collect();
            self.spread(&term.gates, y, &dp, scale, dy);
            after = (0..=l).map(|n| layers[l][0] * after[n] + layers[l][1] * after[n + 1]).collect();
        }
        after[0]
    }

    /// The resource of the architectures that keep exactly `kept` of the counted layers, and as another resource the number
    /// that an architecture keeps. `None` where nothing is counted.
    pub fn with_kept(&self, kept: usize) -> Option<(Resource, Resource)> {
        let counted = self.counted.as_ref()?;
        let constant = self.constant.iter().zip(&counted.values).map(|(c, values)| c + values[kept]).collect();
        let number = Resource {
            name: "kept layers".into(),
            unit: String::new(),
            limit: 1.0,
            constant: vec![0.0; self.constant.len()],
            layers: counted.kept.clone(),
            widest: Vec::new(),
            counted: None,
            ..self.clone()
        };
        Some((Resource { constant, counted: None, ..self.clone() }, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Philox;

    /// Gates: two global ones (2 and 3 candidates), a layer with two gates (3 and 2), one with one (2), one with none.
    fn resource(seed: u64) -> Resource {
        let noise = Philox::new(seed, 0);
        let mut next = 0;
        let mut value = || {
            next += 1;
            10.0 * noise.uniform(next)
        };
        let mut term = |gates: &[usize], combinations: usize| LayerTerm {
            gates: gates.to_vec(),
            values: (0..6).map(|_| (0..combinations).map(|_| value()).collect()).collect(),
        };
        let kept = |gates: &[usize], kept: &[f64]| LayerTerm { gates: gates.to_vec(), values: vec![kept.to_vec(); 6] };
        let layers = vec![term(&[2, 3], 6), term(&[4], 2), term(&[], 1)];
        let widest = vec![vec![term(&[2, 3], 6), term(&[4], 2)], vec![term(&[3], 2)]];
        Resource {
            name: "latency".into(),
            unit: "s".into(),
            limit: 20.0,
            candidates: vec![2, 3, 3, 2, 2],
            global_gates: vec![0, 1],
            constant: (0..6).map(f64::from).collect(),
            layers,
            widest,
            counted: Some(CountTerm {
                kept: vec![kept(&[2, 3], &[0.0, 1.0, 1.0, 0.0, 1.0, 0.0]), kept(&[4], &[0.0, 1.0]), kept(&[], &[1.0])],
                values: (0..6).map(|_| (0..4).map(|_| value()).collect()).collect(),
            }),
        }
    }

    fn soft(seed: u64, candidates: &[usize]) -> Vec<Vec<f64>> {
        let noise = Philox::new(seed, 9);
        let mut next = 0;
        candidates
            .iter()
            .map(|c| {
                let p: Vec<f64> = (0..*c)
                    .map(|_| {
                        next += 1;
                        noise.uniform(next)
                    })
                    .collect();
                let sum: f64 = p.iter().sum();
                p.into_iter().map(|p| p / sum).collect()
            })
            .collect()
    }

    fn choices(candidates: &[usize]) -> Vec<Vec<usize>> {
        candidates.iter().fold(vec![Vec::new()], |all, c| {
            all.iter().flat_map(|head| (0..*c).map(move |i| [head.as_slice(), &[i]].concat())).collect()
        })
    }

    #[test]
    fn a_one_hot_choice_has_its_hard_cost() {
        let r = resource(1);
        for choice in choices(&r.candidates) {
            let y: Vec<Vec<f64>> = (choice.iter().zip(&r.candidates))
                .map(|(at, c)| (0..*c).map(|i| f64::from(u8::from(i == *at))).collect())
                .collect();
            let (expected, _) = r.expectation(&y);
            assert!((expected - r.cost(&choice)).abs() < 1e-9, "{choice:?}");
        }
    }

    #[test]
    fn no_choice_is_below_the_smallest_cost_and_of_a_sum_one_reaches_it() {
        for seed in 0..5 {
            let r = resource(seed);
            let sum = Resource { widest: Vec::new(), counted: None, ..r.clone() };
            let cheapest =
                |r: &Resource| choices(&r.candidates).iter().map(|c| r.cost(c)).fold(f64::INFINITY, f64::min);
            assert!(r.smallest() <= cheapest(&r) + 1e-9, "seed {seed}");
            assert!((sum.smallest() - cheapest(&sum)).abs() < 1e-9, "seed {seed}");
        }
    }

    #[test]
    fn the_expectation_is_the_sum_over_all_architectures() {
        for seed in 0..5 {
            let r = resource(seed);
            let y = soft(seed, &r.candidates);
            let sum: f64 = choices(&r.candidates)
                .iter()
                .map(|choice| {
                    let p: f64 = choice.iter().zip(&y).map(|(at, y)| y[*at]).product();
                    p * r.cost(choice)
                })
                .sum();
            assert!((r.expectation(&y).0 - sum).abs() < 1e-9, "seed {seed}");
        }
    }

    #[test]
    fn the_gradient_is_the_difference() {
        let r = resource(3);
        let y = soft(3, &r.candidates);
        let (_, dy) = r.expectation(&y);
        for gate in 0..y.len() {
            for c in 0..y[gate].len() {
                let moved = |by: f64| {
                    let mut y = y.clone();
                    y[gate][c] += by;
                    r.expectation(&y).0
                };
                let difference = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!(
                    (dy[gate][c] - difference).abs() < 1e-6,
                    "gate {gate} candidate {c}: {} {difference}",
                    dy[gate][c]
                );
            }
        }
    }
}
