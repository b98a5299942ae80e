//! A study's end: the best of each arm, over the seeds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Study;
use super::candidates::CandidatesTold;
use super::limits::LimitLine;
use super::unit::{Arm, UnitResult};

/// `study.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyResult {
    /// The mean of the tasks' scores; `None` where nothing is scored.
    pub parent_task_mean: Option<f64>,
    pub shares: Vec<ShareResult>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShareResult {
    pub share: String,
    pub limits: Vec<LimitLine>,
    /// `None` where there is no such arm.
    pub uniform: Option<CandidatesTold>,
    pub arms: Vec<ArmResult>,
}

/// An arm of a share; of each seed the candidate with the least held-out loss counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    pub arm: Arm,
    /// KL from the parent on the held-out set after recovery, nats per token.
    pub held_out: Spread,
    /// KL from the parent in the last steps of recovery.
    pub recovery: Spread,
    pub task_mean: Option<Spread>,
    /// Tokens that one seed took, all candidates together.
    pub tokens: Spread,
    /// Those of them that chose the architecture: all but its own recovery.
    pub search_tokens: Spread,
    /// Predicted cost over limit, by resource.
    pub budget: BTreeMap<String, Spread>,
    /// Seeds in which the search's held-out loss is below the arm's; `None` for the search itself, or without one.
    pub search_wins: Option<usize>,
    pub seeds: Vec<SeedResult>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeedResult {
    pub seed: u64,
    /// Which of `candidates` counts.
    pub best: usize,
    pub candidates: Vec<UnitResult>,
}

impl SeedResult {
    pub fn best(&self) -> &UnitResult {
        &self.candidates[self.best]
    }

    fn tokens(&self) -> u64 {
        self.candidates.iter().map(UnitResult::tokens).sum()
    }
}

/// Over the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub mean: f64,
    /// The sample's standard deviation; `None` of one.
    pub deviation: Option<f64>,
}

impl Spread {
    /// `None` of nothing.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt());
        (!values.is_empty()).then_some(Spread { mean, deviation })
    }
}

pub fn summarise(study: &Study<'_>, parent_task_mean: Option<f64>, results: Vec<UnitResult>) -> StudyResult {
    let share = |(i, share): (usize, &super::limits::Share)| {
        let of_share = results.iter().filter(|result| result.share == share.label);
        ShareResult {
            share: share.label.clone(),
            limits: share.lines(),
            uniform: study.uniform.get(i).map(|candidates| candidates.told.clone()),
            arms: arms(of_share),
        }
    };
    StudyResult { parent_task_mean, shares: study.shares.iter().enumerate().map(share).collect() }
}

/// The results of one share, by arm and seed.
fn arms<'r>(results: impl Iterator<Item = &'r UnitResult>) -> Vec<ArmResult> {
    let mut by_arm: BTreeMap<Arm, BTreeMap<u64, Vec<UnitResult>>> = BTreeMap::new();
    for result in results {
        by_arm.entry(result.arm).or_default().entry(result.seed).or_default().push(result.clone());
    }
    let by_arm: Vec<(Arm, Vec<SeedResult>)> = (by_arm.into_iter())
        .map(|(arm, seeds)| (arm, seeds.into_iter().map(|(seed, candidates)| seed_result(seed, candidates)).collect()))
        .collect();
    let losses = |arm: Arm| by_arm.iter().find(|(of, _)| *of == arm).map_or(&[][..], |(_, seeds)| seeds.as_slice());
    by_arm.iter().filter_map(|(arm, seeds)| arm_result(*arm, seeds, losses(Arm::Search))).collect()
}

fn seed_result(seed: u64, candidates: Vec<UnitResult>) -> SeedResult {
    let least = |best: usize, i: usize| if candidates[i].held_out < candidates[best].held_out { i } else { best };
    SeedResult { seed, best: (1..candidates.len()).fold(0, least), candidates }
}

fn arm_result(arm: Arm, seeds: &[SeedResult], search: &[SeedResult]) -> Option<ArmResult> {
    let spread = |of: &dyn Fn(&SeedResult) -> f64| Spread::of(&seeds.iter().map(of).collect::<Vec<f64>>());
    let scores: Option<Vec<f64>> = seeds.iter().map(|seed| seed.best().task_mean).collect();
    let resources = seeds.first()?.best().rho.keys();
    let used = |seed: &SeedResult, name: &str| seed.best().rho.get(name).copied().unwrap_or(f64::NAN);
    let budget = resources.filter_map(|name| Some((name.clone(), spread(&|seed| used(seed, name))?))).collect();
    let wins = |seed: &&SeedResult| {
        let rival = search.iter().find(|rival| rival.seed == seed.seed);
        rival.is_some_and(|rival| rival.best().held_out < seed.best().held_out)
    };
    Some(ArmResult {
        arm,
        held_out: spread(&|seed| seed.best().held_out)?,
        recovery: spread(&|seed| seed.best().recovery)?,
        task_mean: scores.and_then(|scores| Spread::of(&scores)),
        tokens: spread(&|seed| seed.tokens() as f64)?,
        search_tokens: spread(&|seed| (seed.tokens() - seed.best().recovery_tokens) as f64)?,
        budget,
        search_wins: (arm != Arm::Search && !search.is_empty()).then(|| seeds.iter().filter(wins).count()),
        seeds: seeds.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(arm: Arm, seed: u64, candidate: usize, held_out: f64) -> UnitResult {
        UnitResult {
            share: "0.5".into(),
            seed,
            arm,
            candidate: Some(candidate),
            architecture: serde_json::Value::Null,
            parameters: 0,
            active_parameters: 0,
            rho: BTreeMap::from([("memory".to_owned(), 0.9)]),
            rho_of_target: BTreeMap::new(),
            held_out_before: 1.0,
            held_out,
            recovery: 2.0 * held_out,
            recovery_tokens: 100,
            task_mean: Some(0.5),
            search: None,
            screening: None,
            seconds: 1.0,
        }
    }

    #[test]
    fn the_best_candidate_of_each_seed_counts() {
        let units = [
            unit(Arm::Search, 0, 0, 0.2),
            unit(Arm::Search, 1, 0, 0.4),
            unit(Arm::Random, 0, 0, 0.5),
            unit(Arm::Random, 0, 1, 0.3),
            unit(Arm::Random, 1, 0, 0.35),
            unit(Arm::Random, 1, 1, 0.6),
        ];
        let arms = arms(units.iter());
        let [search, random] = &arms[..] else { panic!("{arms:?}") };
        assert_eq!((search.arm, search.search_wins), (Arm::Search, None));
        assert!((search.held_out.mean - 0.3).abs() < 1e-12);
        assert!((search.held_out.deviation.unwrap() - 0.02f64.sqrt()).abs() < 1e-12);
        assert_eq!((random.arm, random.search_wins), (Arm::Random, Some(1)));
        assert_eq!(random.seeds.iter().map(|seed| seed.best).collect::<Vec<_>>(), [1, 0]);
        assert!((random.held_out.mean - 0.325).abs() < 1e-12 && (random.recovery.mean - 0.65).abs() < 1e-12);
        assert_eq!(random.tokens, Spread { mean: 200.0, deviation: Some(0.0) });
        // Of two recoveries, one is the student's own.
        assert_eq!(random.search_tokens, Spread { mean: 100.0, deviation: Some(0.0) });
        assert_eq!(search.search_tokens.mean, 0.0);
        assert_eq!(random.budget["memory"].mean, 0.9);
        assert_eq!(Spread::of(&[3.0]), Some(Spread { mean: 3.0, deviation: None }));
    }
}
