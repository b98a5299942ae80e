//! Whether the search helps: searched, random and uniform architectures and those of the baseline Minitron++ within the same
//! limits, recovered on the same batches, scored on the same held-out set.
//!
//! Ranking and profiling are done once, in a run directory. A unit is one architecture of one share of the limits, one seed
//! and one [`Arm`]:
//!
//! ```text
//! RUN/study/inputs.json                 what the results were made from
//! RUN/study/parent.json                 the parent's score
//! RUN/study/SHARE/uniform.json          the uniform candidates
//! RUN/study/SHARE/SEED/ARM[/I]/result.json
//! RUN/study.json  RUN/study.md  RUN/study.svg
//! ```
//!
//! A unit with a result is not done again; one that was stopped goes on from its last checkpoint.

mod candidates;
mod clock;
mod limits;
mod outcome;
mod plot;
mod summary;
mod table;
mod unit;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;

pub use candidates::{CandidatesTold, Listed};
pub use limits::LimitLine;
pub use outcome::{ExpertTokens, SearchOutcome};
pub use plot::svg;
pub use summary::{ArmResult, SeedResult, ShareResult, Spread, StudyResult};
pub use table::{markdown, text};
pub use unit::{Arm, ScreeningOutcome, UnitResult};

use candidates::Candidates;
use clock::Clock;
use limits::Share;
use unit::Unit;

use crate::data::Batch;
use crate::model::Lm;
use crate::ops::distill_loss::DistillOptions;
use crate::run::digest_file;
use crate::stages::compress::{Compression, Stage, evaluate};
use crate::{Error, Result, files};

/// More is a slip of the pen.
const MOST_SEEDS: u64 = 10_000;

/// What is compared, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyOptions {
    /// What is compared, in any order.
    pub arms: Vec<Arm>,
    /// Repeats of everything with other seeds of search and recovery.
    pub seeds: u64,
    /// Limits as shares of the parent's cost; see [`study`]. None: the contract's own limits.
    pub shares: Vec<f64>,
    /// Random architectures of each share and seed.
    pub random: usize,
    /// Uniform architectures that are recovered, at most.
    pub uniform: usize,
    pub quiet: bool,
}

impl StudyOptions {
    fn check(&self) -> Result<()> {
        let fault = |option: &str, found: String, expected: &str| {
            Err(Error::Usage(format!("{option}: found {found}, expected {expected}")))
        };
        if !(1..=MOST_SEEDS).contains(&self.seeds) {
            return fault("--seeds", self.seeds.to_string(), &format!("from 1 to {MOST_SEEDS}"));
        }
        for (i, share) in self.shares.iter().enumerate() {
            if !(*share > 0.0 && *share <= 1.0) {
                return fault("--shares", share.to_string(), "numbers above 0, at most 1");
            }
            if self.shares[..i].contains(share) {
                return fault("--shares", format!("{share} twice"), "every share once");
            }
        }
        for (i, arm) in self.arms.iter().enumerate() {
            if self.arms[..i].contains(arm) {
                return fault("--arms", format!("{} twice", arm.name()), "every arm once");
            }
        }
        let empty = |arm: &Arm| match arm {
            Arm::Random => self.random == 0,
            Arm::Uniform => self.uniform == 0,
            _ => false,
        };
        if self.arms.iter().all(empty) {
            return fault("--arms", "nothing to compare".into(), "an arm with an architecture");
        }
        Ok(())
    }

    /// Whether an arm has uniform candidates.
    fn lists_uniform(&self) -> bool {
        self.arms.contains(&Arm::Minitron) || self.arms.contains(&Arm::Uniform) && self.uniform > 0
    }
}

/// A study in its run directory.
pub struct Study<'c> {
    c: &'c Compression,
    shares: Vec<Share>,
    /// One per share.
    uniform: Vec<Candidates>,
    bench: OnceCell<Bench>,
}

/// What units are made from and scored on: made where a unit is left to do.
struct Bench {
    sorted: Lm,
    batches: Vec<Batch>,
}

impl Bench {
    /// KL from the parent to `student` on the held-out set.
    fn held_out(&self, c: &Compression, student: &Lm) -> Result<f64> {
        Ok(evaluate::mean_loss(&c.parent, student, &self.batches, &DistillOptions::default())?.0)
    }
}

impl Study<'_> {
    fn bench(&self) -> Result<&Bench> {
        if let Some(bench) = self.bench.get() {
            return Ok(bench);
        }
        let bench = Bench { sorted: self.c.sorted()?, batches: evaluate::held_out(self.c)? };
        Ok(self.bench.get_or_init(|| bench))
    }

    /// All units: seed by seed, so that what is there of a study that was stopped compares.
    fn units(&self, options: &StudyOptions) -> Vec<Unit> {
        let mut units = Vec::new();
        for share in 0..self.shares.len() {
            let uniform = self.uniform.get(share).map_or(0, |uniform| uniform.choices.len());
            for seed in 0..options.seeds {
                for arm in Arm::ALL.into_iter().filter(|arm| options.arms.contains(arm)) {
                    let unit = |candidate| Unit { share, seed, arm, candidate };
                    match arm {
                        Arm::Random => units.extend((0..options.random).map(|i| unit(Some(i)))),
                        Arm::Uniform => units.extend((0..uniform.min(options.uniform)).map(|i| unit(Some(i)))),
                        // Nothing to screen is no arm.
                        Arm::Minitron => units.extend((uniform > 0).then(|| unit(None))),
                        Arm::Search | Arm::RouterInit | Arm::ScoreMasking => units.push(unit(None)),
                    }
                }
            }
        }
        units
    }
}

/// Does what is left of a study of `recipe` in the run directory `out`, and writes `study.json`, `study.md`
/// and `study.svg`.
///
/// A share replaces every limit of the contract that is a share of the parent's cost, and multiplies every other one (a
/// throughput is divided by it). All arms are held to the same targets, the limits less the cost model's errors.
///
/// # Errors
/// [`Error::Usage`] where an option is out of range; those of [`Compression::open`]; [`Error::Unreachable`] for a share that
/// no architecture meets; [`Error::Input`] where the recipe's baseline has a space of its own, which a study does not price, or the ranking or the cost table is not what earlier units were made from.
pub fn study(recipe: &Path, out: &Path, options: &StudyOptions) -> Result<StudyResult> {
    options.check()?;
    let c = Compression::open(recipe, out, options.quiet)?.of_study();
    if let (true, Some(space)) = (options.lists_uniform(), &c.recipe.minitron.space) {
        let expected = "none: all arms of a study choose from one space";
        return Err(Error::input(recipe, "minitron.space", space.display().to_string(), expected));
    }
    c.run(None, Stage::Profile)?;
    let shares = limits::shares(&c, &options.shares)?;
    keep_inputs(&c)?;
    let mut study = Study { c: &c, shares, uniform: Vec::new(), bench: OnceCell::new() };
    if options.lists_uniform() {
        for share in 0..study.shares.len() {
            let candidates = Candidates::of(&study, share)?;
            study.uniform.push(candidates);
        }
    }
    let results = results(&study, options)?;
    let parent = parent_score(&c)?;
    let result = summary::summarise(&study, parent, results);
    files::write_json(&c.path("study.json"), &result)?;
    files::write_atomic(&c.path("study.md"), |file| file.write_all(markdown(&result).as_bytes()))?;
    files::write_atomic(&c.path("study.svg"), |file| file.write_all(svg(&result).as_bytes()))?;
    Ok(result)
}

fn results(study: &Study<'_>, options: &StudyOptions) -> Result<Vec<UnitResult>> {
    let units = study.units(options);
    let read = |unit: &Unit| unit.read(study.c, &study.shares[unit.share]);
    let mut results = units.iter().map(read).collect::<Result<Vec<_>>>()?;
    let mut clock = Clock::new(&study.c.recipe, options.quiet);
    results.iter().flatten().for_each(|result| clock.done(result.arm, result.seconds));
    let mut waiting: Vec<usize> = (0..units.len()).filter(|i| results[*i].is_none()).rev().collect();
    while let Some(i) = waiting.pop() {
        let left = std::iter::once(i).chain(waiting.iter().copied()).map(|i| units[i].arm);
        let Unit { share, seed, arm, candidate } = units[i];
        let number = candidate.map_or_else(String::new, |candidate| format!(" {candidate}"));
        let what = format!("share {}, seed {seed}, {}{number}", study.shares[share].label, arm.name());
        clock.show(units.len() - waiting.len(), units.len(), &what, left);
        let result = units[i].run(study)?;
        clock.done(arm, result.seconds);
        results[i] = Some(result);
    }
    Ok(results.into_iter().flatten().collect())
}

/// Refuses results that were made from another ranking or cost table.
fn keep_inputs(c: &Compression) -> Result<()> {
    let mut now = BTreeMap::new();
    for output in [Stage::Rank, Stage::Profile].iter().flat_map(|stage| stage.outputs()) {
        now.insert((*output).to_owned(), digest_file(&c.path(output))?);
    }
    let path = c.path("study/inputs.json");
    if !path.exists() {
        c.run.folder("study")?;
        return files::write_json(&path, &now);
    }
    let before: BTreeMap<String, String> = files::read_json(&path, "digests by name")?;
    match now.iter().find(|(name, digest)| before.get(*name) != Some(*digest)) {
        Some((name, digest)) => {
            let found = before.get(name).map_or("none", String::as_str);
            let study = c.path("study");
            let expected = format!("{digest}: it has changed since; remove {}, or give another --out", study.display());
            Err(Error::input(&path, name, format!("digest {found}"), expected))
        }
        None => Ok(()),
    }
}

/// The parent's mean score, from `study/parent.json` where it is there.
fn parent_score(c: &Compression) -> Result<Option<f64>> {
    let path = c.path("study/parent.json");
    if !path.exists() {
        let score = evaluate::score(c, &c.parent)?.and_then(|evaluation| evaluation.mean_accuracy);
        files::write_json(&path, &score)?;
    }
    files::read_json(&path, "a score, or null").map_err(unit::made_again)
}
