//! The penalties that hold a search to its limits.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::autograd::{Tape, Var};
use crate::cost::Resource;
use crate::tensor::Tensor;
use crate::{Error, Result};

/// Which unused budget is penalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Slack {
    /// Every resource's own: Σ_r max(0, 1 − δ − ρ_r), the paper's.
    #[default]
    Each,
    /// That of the resource which binds: max(0, 1 − δ − max_r ρ_r). One limit alone may stay unused.
    Binding,
}

/// α·(Σ_r max(0, ρ_r − 1) + slack), ρ_r = expected cost / limit (docs/method.md, "Objective").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    pub alpha: f64,
    /// The part of a limit that may stay unused without a penalty.
    pub delta: f64,
    pub slack: Slack,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { alpha: 1.0, delta: 0.02, slack: Slack::Each }
    }
}

impl Budget {
    /// The penalty at these ρ, without α, and its derivative by each.
    pub fn penalty(&self, rho: &[f64]) -> (f64, Vec<f64>) {
        let mut value: f64 = rho.iter().map(|rho| (rho - 1.0).max(0.0)).sum();
        let mut slope: Vec<f64> = rho.iter().map(|rho| f64::from(u8::from(*rho > 1.0))).collect();
        let floor = 1.0 - self.delta;
        let mut unused = |r: usize| {
            if rho[r] < floor {
                value += floor - rho[r];
                slope[r] -= 1.0;
            }
        };
        match self.slack {
            Slack::Each => (0..rho.len()).for_each(&mut unused),
            Slack::Binding if rho.is_empty() => {}
            Slack::Binding => unused(super::router::argmax(rho)),
        }
        (value, slope)
    }
}

/// What draws cost.
#[derive(Clone, Debug)]
pub struct Penalty {
    /// α times the penalty, mean over draws.
    pub value: f64,
    /// Per resource, mean over draws.
    pub rho: Vec<f64>,
}

/// The mean over draws of each draw's budget penalty, on the tape with its exact gradient.
///
/// `y`: per gate the candidates' probabilities [draws, C], as the resources know them. Returns a scalar and its parts.
///
/// # Errors
/// [`Error::Contract`] where `y` has other gates, candidates or draws than the resources.
pub fn budget_penalty(tape: &Tape<'_>, resources: &[Resource], y: &[Var], budget: &Budget) -> Result<(Var, Penalty)> {
    let draws = y.first().map_or(0, |y| y.shape().rows());
    for resource in resources {
        let fits = y.len() == resource.candidates.len()
            && y.iter().zip(&resource.candidates).all(|(y, c)| y.dims() == [draws, *c]);
        if !fits || draws == 0 {
            let found: Vec<&[usize]> = y.iter().map(Var::dims).collect();
            let expected = format!("[draws ≥ 1, C] for each gate of {}: C = {:?}", resource.name, resource.candidates);
            return Err(Error::contract("budget_penalty", "y", found, expected));
        }
    }
    let costs: Vec<DrawCost> =
        (0..draws).into_par_iter().map(|draw| DrawCost::new(resources, y, draw, budget)).collect();
    let share = 1.0 / draws.max(1) as f64;
    let mut penalty = Penalty { value: 0.0, rho: vec![0.0; resources.len()] };
    for cost in &costs {
        penalty.value += share * budget.alpha * cost.penalty;
        penalty.rho.iter_mut().zip(&cost.rho).for_each(|(sum, rho)| *sum += share * rho);
    }
    let gradients: Vec<Tensor> = (y.iter().enumerate())
        .map(|(gate, y)| {
            let rows = costs.iter().flat_map(|cost| &cost.dy[gate]);
            let values: Vec<f32> = rows.map(|dy| (share * budget.alpha * dy) as f32).collect();
            Tensor::from_slice(y.shape().clone(), &values)
        })
        .collect();
    let inputs: Vec<&Var> = y.iter().collect();
    let value = tape.record1("budget_penalty", &inputs, Tensor::scalar(penalty.value as f32), move |ctx| {
        let Some(seed) = ctx.output(0).map(|seed| seed.item()) else { return Ok(()) };
        for (gate, mut gradient) in gradients.into_iter().enumerate() {
            gradient.f32_mut().iter_mut().for_each(|g| *g *= seed);
            ctx.add(gate, gradient);
        }
        Ok(())
    });
    Ok((value, penalty))
}

/// One draw's costs, its penalty without α, and the penalty's gradient.
struct DrawCost {
    rho: Vec<f64>,
    penalty: f64,
    /// Per gate `[C]`.
    dy: Vec<Vec<f64>>,
}

impl DrawCost {
    fn new(resources: &[Resource], y: &[Var], draw: usize, budget: &Budget) -> DrawCost {
        let row = |y: &Var| {
            let c = y.shape().last();
            y.f32()[draw * c..][..c].iter().map(|y| f64::from(*y)).collect()
        };
        let y: Vec<Vec<f64>> = y.iter().map(row).collect();
        let expected: Vec<(f64, Vec<Vec<f64>>)> = resources.iter().map(|resource| resource.expectation(&y)).collect();
        let rho: Vec<f64> =
            resources.iter().zip(&expected).map(|(resource, (cost, _))| cost / resource.limit).collect();
        let (penalty, slope) = budget.penalty(&rho);
        let mut dy: Vec<Vec<f64>> = y.iter().map(|y| vec![0.0; y.len()]).collect();
        for ((resource, (_, gradient)), slope) in resources.iter().zip(&expected).zip(&slope) {
            let scale = slope / resource.limit;
            for (sum, gradient) in dy.iter_mut().zip(gradient) {
                sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += scale * g);
            }
        }
        DrawCost { rho, penalty, dy }
    }
}
