//! The limits that all arms of a study are held to.

use serde::{Deserialize, Serialize};

use crate::cost::{Contract, CostModel, Limits, Resource};
use crate::stages::compress::Compression;
use crate::stages::compress::measure::{in_unit, unit_of};
use crate::stages::compress::profile;
use crate::{Error, Result};

/// One setting of the limits.
pub struct Share {
    /// `contract` where the limits are the contract's own.
    pub label: String,
    pub contract: Contract,
    pub model: CostModel,
    /// What architectures are chosen by: the limits, smaller by the cost model's errors where one can meet that.
    pub targets: Vec<Resource>,
}

/// A limit as it is told, in `unit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitLine {
    pub resource: String,
    pub unit: String,
    pub limit: f64,
    pub target: f64,
}

impl Share {
    pub fn lines(&self) -> Vec<LimitLine> {
        let line = |(limited, target): (&Resource, &Resource)| LimitLine {
            resource: limited.name.clone(),
            unit: unit_of(&limited.name).into(),
            limit: in_unit(&self.contract, &limited.name, limited.limit),
            target: in_unit(&self.contract, &limited.name, target.limit),
        };
        self.model.resources.iter().zip(&self.targets).map(line).collect()
    }
}

/// The settings of `shares`, or that of the contract where there are none. All can be met.
///
/// # Errors
/// [`Error::Unreachable`] naming the first share that no architecture meets.
pub fn shares(c: &Compression, shares: &[f64]) -> Result<Vec<Share>> {
    let settings: Vec<(String, Contract)> = match shares {
        [] => vec![("contract".into(), c.contract.clone())],
        _ => shares.iter().map(|share| (share.to_string(), scaled(&c.contract, *share))).collect(),
    };
    settings.into_iter().map(|(label, contract)| setting(c, label, &contract)).collect()
}

fn setting(c: &Compression, label: String, contract: &Contract) -> Result<Share> {
    let profile = profile::read(c)?.under(c, contract)?;
    profile.check_reachable().map_err(|mut error| {
        if let Error::Unreachable { resource, .. } = &mut error {
            *resource = format!("share {label}: {resource}");
        }
        error
    })?;
    let targets = profile.targets();
    Ok(Share { label, contract: profile.contract, model: profile.model, targets })
}

/// The contract with every share of the parent's cost set to `share`, every absolute limit multiplied by it. Throughput is
/// the inverse of a cost: at least 1 / `share` times the parent's, or the limit divided by `share`.
fn scaled(contract: &Contract, share: f64) -> Contract {
    let l = contract.limits;
    let limits = Limits {
        latency_ms: l.latency_ms.map(|limit| limit * share),
        memory_mib: l.memory_mib.map(|limit| limit * share),
        throughput: l.throughput.map(|limit| limit / share),
        latency_of_parent: l.latency_of_parent.map(|_| share),
        memory_of_parent: l.memory_of_parent.map(|_| share),
        throughput_of_parent: l.throughput_of_parent.map(|_| 1.0 / share),
    };
    Contract { limits, ..contract.clone() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_share_makes_every_limit_tighter() {
        let text = |limits: &str| {
            format!(
                "device = 'cpu'\nengine = 'builtin'\nprecision = 'f32'\nthreads = 1\n[workload]\nbatch = 1\n\
                 input_tokens = 8\noutput_tokens = 2\nprefill_chunk = 8\n[limits]\n{limits}"
            )
        };
        let scaled = |limits: &str| {
            let contract = Contract::from_toml(Path::new("contract.toml"), &text(limits)).unwrap();
            scaled(&contract, 0.5).limits
        };
        let shares = scaled("latency_of_parent = 0.9\nmemory_of_parent = 0.8\nthroughput_of_parent = 1.5");
        let expected = Limits {
            latency_of_parent: Some(0.5),
            memory_of_parent: Some(0.5),
            throughput_of_parent: Some(2.0),
            ..Limits::default()
        };
        assert_eq!(shares, expected);
        let numbers = scaled("latency_ms = 40\nmemory_mib = 6\nthroughput = 900");
        let expected =
            Limits { latency_ms: Some(20.0), memory_mib: Some(3.0), throughput: Some(1800.0), ..Limits::default() };
        assert_eq!(numbers, expected);
    }
}
