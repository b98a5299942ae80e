//! Coefficients of the roofline's terms, fitted to measured rows.

use std::collections::{BTreeMap, BTreeSet};

use super::work::{FEATURES, Phase, Work};
use super::{Part, key, parts, phases};
use crate::Result;
use crate::cost::contract::Contract;
use crate::cost::device_spec::DeviceSpec;
use crate::cost::table::{Table, quantile};
use crate::model::Config;
use crate::model::config::{Layer, LayerKind};
use crate::numerics::Philox;
use crate::supernet::SearchSpace;

/// How one kind of layer in one phase is fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// What each of [`Work::features`] is multiplied with, at least 0.
    pub coefficients: [f64; FEATURES],
    /// Measured rows behind it; 0 where the coefficients are all 1.
    pub rows: usize,
    /// Median of |fitted − measured| / measured over these rows.
    pub median_error: f64,
}

/// A kind of layer (`None`: what is no layer), and whether it decodes.
type Group = (Option<LayerKindOrder>, bool);

/// [`LayerKind`] in a fixed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LayerKindOrder(u8);

/// Fits by kind of layer and phase.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    fits: BTreeMap<Group, Fit>,
}

fn group(part: &Part, phase: Phase) -> Group {
    let order = |layer: &Layer| {
        LayerKindOrder(match layer.kind() {
            LayerKind::Mamba => 0,
            LayerKind::Moe => 1,
            LayerKind::Attention => 2,
            LayerKind::Mlp => 3,
        })
    };
    (part.1.as_ref().map(order), phase != Phase::Prefill)
}

fn group_name(group: &Group) -> String {
    let kind = match group.0 {
        Some(LayerKindOrder(order)) => ["mamba", "moe", "attention", "mlp"][order as usize % 4],
        None => "rest",
    };
    format!("{kind} {}", if group.1 { "decode" } else { "prefill" })
}

impl Calibration {
    /// Fits every group that `measured` has rows of.
    pub fn of(space: &SearchSpace, contract: &Contract, device: &DeviceSpec, measured: &Table) -> Result<Calibration> {
        let mut groups: BTreeMap<Group, Vec<([f64; FEATURES], f64)>> = BTreeMap::new();
        for part in parts(space)? {
            for phase in phases(contract) {
                // An estimate is no measurement.
                let row = measured.rows.get(&key(&part, phase)).filter(|cost| cost.repeats > 0 && cost.median > 0.0);
                if let Some(cost) = row {
                    let work = Work::of(part.1.as_ref(), part.0, phase, &space.parent, contract, device);
                    groups.entry(group(&part, phase)).or_default().push((work.features(), cost.median));
                }
            }
        }
        Ok(Calibration { fits: groups.into_iter().map(|(group, rows)| (group, fit(&rows))).collect() })
    }

    /// The estimated time of a part.
    pub fn seconds(&self, part: &Part, phase: Phase, parent: &Config, contract: &Contract, device: &DeviceSpec) -> f64 {
        let features = Work::of(part.1.as_ref(), part.0, phase, parent, contract, device).features();
        let ones = [1.0; FEATURES];
        let coefficients = self.fits.get(&group(part, phase)).map_or(&ones, |fit| &fit.coefficients);
        dot(coefficients, &features)
    }

    /// The fits with the names of their groups: "moe decode".
    pub fn fits(&self) -> Vec<(String, Fit)> {
        self.fits.iter().map(|(group, fit)| (group_name(group), *fit)).collect()
    }
}

fn dot(a: &[f64; FEATURES], b: &[f64; FEATURES]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The weight of staying at the coefficients of a perfect device, against one row's relative error: it decides only where
/// rows do not.
const PRIOR: f64 = 1e-6;
const SWEEPS: usize = 2000;

/// Least squares of relative errors with coefficients of at least 0, by coordinate descent.
fn fit(rows: &[([f64; FEATURES], f64)]) -> Fit {
    let scaled: Vec<[f64; FEATURES]> = rows.iter().map(|(x, t)| x.map(|x| x / t)).collect();
    // Features differ by orders of magnitude: each is divided by its size.
    let size: [f64; FEATURES] = std::array::from_fn(|i| {
        let mean = scaled.iter().map(|x| x[i] * x[i]).sum::<f64>() / rows.len().max(1) as f64;
        if mean > 0.0 { mean.sqrt() } else { 1.0 }
    });
    let mut gram = [[0.0; FEATURES]; FEATURES];
    let mut right = [0.0; FEATURES];
    for x in &scaled {
        let x: [f64; FEATURES] = std::array::from_fn(|i| x[i] / size[i]);
        for i in 0..FEATURES {
            right[i] += x[i];
            for j in 0..FEATURES {
                gram[i][j] += x[i] * x[j];
            }
        }
    }
    let mut c = size;
    for _ in 0..SWEEPS {
        for i in 0..FEATURES {
            let others: f64 = (0..FEATURES).filter(|j| *j != i).map(|j| gram[i][j] * c[j]).sum();
            let prior = PRIOR / (size[i] * size[i]).max(1.0);
            c[i] = ((right[i] - others + prior * size[i]) / (gram[i][i] + prior)).max(0.0);
        }
    }
    let coefficients: [f64; FEATURES] = std::array::from_fn(|i| c[i] / size[i]);
    let mut errors: Vec<f64> = scaled.iter().map(|x| (dot(&coefficients, x) - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    Fit { coefficients, rows: rows.len(), median_error: quantile(&errors, 0.5) }
}

/// Cuts a table into two halves by chance, all rows of a layer configuration in the same: to calibrate on one and predict
/// the other.
pub fn halves(table: &Table, seed: u64) -> (Table, Table) {
    let noise = Philox::new(seed, 0);
    let parts: BTreeSet<(usize, &str)> = table.rows.keys().map(|key| (key.hidden_size, key.part.as_str())).collect();
    let first = |(i, _): &(usize, (usize, &str))| noise.uniform(*i as u64) < 0.5;
    let first: BTreeSet<(usize, &str)> = parts.into_iter().enumerate().filter(first).map(|(_, part)| part).collect();
    let (mut a, mut b) = (Table::default(), Table::default());
    for (key, cost) in &table.rows {
        let half = if first.contains(&(key.hidden_size, key.part.as_str())) { &mut a } else { &mut b };
        half.rows.insert(key.clone(), *cost);
    }
    (a, b)
}
