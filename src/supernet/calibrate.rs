//! Importance from activations: a forward pass over calibration tokens (Minitron, arXiv 2407.14679 §2.2, and its extension
//! to hybrid models, arXiv 2504.11409; the tensors are those of NVIDIA's Model-Optimizer).

use std::cell::RefCell;
use std::ops::Range;

use super::importance::{Importance, LayerImportance, Scores};
use crate::device::parallel::dot;
use crate::model::config::Layer;
use crate::model::{Lm, Probe, Reading};
use crate::ops::moe_permute::Dispatch;
use crate::tensor::{DType, Segments, Tensor};
use crate::{Error, Result};

/// Adds up statistics batch by batch. How sequences are batched makes no difference but rounding.
///
/// The score of a channel c with activations a[b, t, c] is √(Σ_b (mean_t |a|)²) over sequences b. An expert's channels count
/// the sequence's tokens that went to the expert.
pub struct Calibrator<'m> {
    lm: &'m Lm,
    layers: Vec<Sums>,
    sequences: u64,
    tokens: u64,
}

/// A layer's sums.
struct Sums {
    /// `[d]`: Σ_b (mean_t |·|)² of the mixer's input.
    normed: Vec<f64>,
    /// Σ over tokens of 1 − cos.
    change: f64,
    units: UnitSums,
}

enum UnitSums {
    Attention,
    /// [H·P]: of the convolution's x.
    Mamba(Vec<f64>),
    Moe {
        /// [E·F].
        routed: Vec<f64>,
        /// `[S]`.
        shared: Vec<f64>,
        /// `[E]`: Σ‖w·y‖ and the number of terms.
        norms: Vec<f64>,
        hits: Vec<u64>,
    },
    Mlp(Vec<f64>),
}

impl<'m> Calibrator<'m> {
    pub fn new(lm: &'m Lm) -> Calibrator<'m> {
        let sums = |layer: &Layer| Sums {
            normed: vec![0.0; lm.config.hidden_size],
            change: 0.0,
            units: match layer {
                Layer::Attention(_) => UnitSums::Attention,
                Layer::Mamba(m) => UnitSums::Mamba(vec![0.0; m.inner()]),
                Layer::Mlp(m) => UnitSums::Mlp(vec![0.0; m.intermediate]),
                Layer::Moe(m) => UnitSums::Moe {
                    routed: vec![0.0; m.experts * m.intermediate],
                    shared: vec![0.0; m.shared_intermediate],
                    norms: vec![0.0; m.experts],
                    hits: vec![0; m.experts],
                },
            },
        };
        Calibrator { lm, layers: lm.config.layers.iter().map(sums).collect(), sequences: 0, tokens: 0 }
    }

    /// One forward pass over a batch; each segment is a sequence.
    pub fn add(&mut self, tokens: &[u32], segments: &Segments) -> Result<()> {
        let pass = Pass { layers: RefCell::new(&mut self.layers), segments };
        self.lm.forward_probed(tokens, segments, &pass)?;
        self.sequences += segments.iter().filter(|rows| !rows.is_empty()).count() as u64;
        self.tokens += tokens.len() as u64;
        Ok(())
    }

    /// # Errors
    /// [`Error::Contract`] where no token was added, or a score is not finite (the message names the layer).
    pub fn finish(self) -> Result<Importance> {
        if self.tokens == 0 {
            return Err(Error::contract("importance", "tokens", 0, "at least one sequence"));
        }
        let mut hidden = vec![0.0f64; self.lm.config.hidden_size];
        let mut layers = Vec::with_capacity(self.layers.len());
        for (i, sums) in self.layers.into_iter().enumerate() {
            hidden.iter_mut().zip(&sums.normed).for_each(|(total, square)| *total += square.sqrt());
            let change = sums.change / self.tokens as f64;
            if !change.is_finite() || sums.normed.iter().any(|x| !x.is_finite()) || !sums.units.is_finite() {
                let found = format!("activations of layer {i} that are not finite");
                return Err(Error::contract("importance", "model", found, "finite activations"));
            }
            let scores = sums.units.scores(&self.lm.config.layers[i]);
            layers.push(LayerImportance { change: change as f32, scores });
        }
        let hidden = hidden.into_iter().map(|score| score as f32).collect();
        Ok(Importance { sequences: self.sequences, tokens: self.tokens, hidden, layers })
    }
}

impl UnitSums {
    fn is_finite(&self) -> bool {
        let finite = |sums: &[f64]| sums.iter().all(|sum| sum.is_finite());
        match self {
            UnitSums::Attention => true,
            UnitSums::Mamba(sums) | UnitSums::Mlp(sums) => finite(sums),
            UnitSums::Moe { routed, shared, norms, .. } => finite(routed) && finite(shared) && finite(norms),
        }
    }

    fn scores(&self, layer: &Layer) -> Scores {
        let roots = |sums: &[f64]| sums.iter().map(|sum| sum.sqrt() as f32).collect::<Vec<f32>>();
        match (self, layer) {
            (UnitSums::Mamba(sums), Layer::Mamba(m)) => {
                // The L2 norm of the channels' scores.
                Scores::Mamba {
                    heads: sums.chunks_exact(m.head_dim).map(|h| h.iter().sum::<f64>().sqrt() as f32).collect(),
                }
            }
            (UnitSums::Mlp(sums), _) => Scores::Mlp { width: roots(sums) },
            (UnitSums::Moe { routed, shared, norms, hits }, Layer::Moe(m)) => Scores::Moe {
                experts: norms.iter().zip(hits).map(|(norm, hits)| (norm / (*hits).max(1) as f64) as f32).collect(),
                routed: routed.chunks_exact(m.intermediate).map(roots).collect(),
                shared: roots(shared),
            },
            _ => Scores::Attention,
        }
    }
}

/// The probe of one batch.
struct Pass<'p> {
    layers: RefCell<&'p mut Vec<Sums>>,
    segments: &'p Segments,
}

impl Probe for Pass<'_> {
    fn read(&self, layer: usize, reading: Reading<'_>) -> Result<()> {
        let sums = &mut self.layers.borrow_mut()[layer];
        let add = |sums: &mut [f64], x: &Tensor| -> Result<()> {
            add_sequences(sums, wide(x)?.f32(), x.shape().last(), self.segments.iter());
            Ok(())
        };
        match (reading, &mut sums.units) {
            (Reading::Normed(x), _) => add(&mut sums.normed, x)?,
            (Reading::Stream { before, after }, _) => {
                sums.change += change(wide(before)?.f32(), wide(after)?.f32(), before.shape().last());
            }
            (Reading::MambaInput(x), UnitSums::Mamba(sums)) => add(sums, x)?,
            (Reading::Dense(x), UnitSums::Mlp(sums) | UnitSums::Moe { shared: sums, .. }) => add(sums, x)?,
            (Reading::Experts { activation, output, weights, dispatch }, UnitSums::Moe { routed, norms, hits, .. }) => {
                let (activation, output, weights) = (wide(activation)?, wide(output)?, wide(weights)?);
                let dispatch = dispatch.to_host()?;
                let width = activation.shape().last();
                let tokens = dispatch.tokens_of_rows();
                for (e, sums) in routed.chunks_exact_mut(width).enumerate() {
                    let rows = dispatch.offsets[e]..dispatch.offsets[e + 1];
                    add_sequences(sums, activation.f32(), width, runs(&tokens, rows, self.segments));
                }
                add_norms(norms, hits, output.f32(), weights.f32(), &dispatch);
            }
            _ => {}
        }
        Ok(())
    }
}

/// An activation in f32 in this machine's memory, wherever the model computes.
fn wide(x: &Tensor) -> Result<Tensor> {
    Ok(x.to_host()?.cast(DType::F32))
}

/// The rows of one expert, which are in the tokens' order, sequence by sequence.
fn runs<'r>(tokens: &'r [u32], rows: Range<usize>, segments: &'r Segments) -> impl Iterator<Item = Range<usize>> + 'r {
    let mut start = rows.start;
    segments.iter().map(move |sequence| {
        let count = tokens[start..rows.end].partition_point(|token| (*token as usize) < sequence.end);
        let run = start..start + count;
        start = run.end;
        run
    })
}

/// acc[c] += (mean over the rows |x[row, c]|)² for each sequence's rows; the first `acc.len()` of `width` columns.
fn add_sequences(acc: &mut [f64], x: &[f32], width: usize, sequences: impl Iterator<Item = Range<usize>>) {
    let mut sums = vec![0.0f64; acc.len()];
    for rows in sequences.filter(|rows| !rows.is_empty()) {
        sums.fill(0.0);
        for row in rows.clone() {
            let x = &x[row * width..][..acc.len()];
            sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += f64::from(x.abs()));
        }
        let count = rows.len() as f64;
        acc.iter_mut().zip(&sums).for_each(|(acc, sum)| *acc += (sum / count).powi(2));
    }
}

/// Σ over rows of 1 − cos(a, b). A row of zeros has no direction: it counts as unchanged only if both are zero.
fn change(a: &[f32], b: &[f32], width: usize) -> f64 {
    let rows = a.chunks_exact(width).zip(b.chunks_exact(width));
    let one = |(a, b): (&[f32], &[f32])| {
        let (aa, bb, ab) = (f64::from(dot(a, a)), f64::from(dot(b, b)), f64::from(dot(a, b)));
        match (aa == 0.0, bb == 0.0) {
            (false, false) => 1.0 - ab / (aa * bb).sqrt(),
            (true, true) => 0.0,
            _ => 1.0,
        }
    };
    rows.map(one).sum()
}

fn add_norms(norms: &mut [f64], hits: &mut [u64], output: &[f32], weights: &[f32], dispatch: &Dispatch) {
    let width = output.len() / dispatch.rows().max(1);
    for (e, (norm, hits)) in norms.iter_mut().zip(hits).enumerate() {
        let rows = dispatch.offsets[e]..dispatch.offsets[e + 1];
        *hits += rows.len() as u64;
        for row in rows {
            let y = &output[row * width..][..width];
            let weight = f64::from(weights[dispatch.pairs[row] as usize].abs());
            *norm += weight * f64::from(dot(y, y)).sqrt();
        }
    }
}
