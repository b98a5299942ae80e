//! The stages of a compression and what each reads and leaves.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::{Error, Result};

/// In the order they are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Rank,
    Profile,
    Search,
    Extract,
    Recover,
    Evaluate,
    Measure,
    Report,
}

impl Stage {
    pub const ALL: [Stage; 8] = [
        Stage::Rank,
        Stage::Profile,
        Stage::Search,
        Stage::Extract,
        Stage::Recover,
        Stage::Evaluate,
        Stage::Measure,
        Stage::Report,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Rank => "rank",
            Stage::Profile => "profile",
            Stage::Search => "search",
            Stage::Extract => "extract",
            Stage::Recover => "recover",
            Stage::Evaluate => "evaluate",
            Stage::Measure => "measure",
            Stage::Report => "report",
        }
    }

    /// The stages whose outputs it reads.
    pub fn reads(self) -> &'static [Stage] {
        match self {
            Stage::Rank | Stage::Profile => &[],
            Stage::Search => &[Stage::Rank, Stage::Profile],
            Stage::Extract => &[Stage::Rank, Stage::Profile, Stage::Search],
            Stage::Recover => &[Stage::Extract],
            Stage::Evaluate => &[Stage::Extract, Stage::Recover],
            Stage::Measure => &[Stage::Profile, Stage::Extract, Stage::Recover],
            Stage::Report => &[
                Stage::Rank,
                Stage::Profile,
                Stage::Search,
                Stage::Extract,
                Stage::Recover,
                Stage::Evaluate,
                Stage::Measure,
            ],
        }
    }

    /// The files and folders that later stages read, in the run directory.
    pub fn outputs(self) -> &'static [&'static str] {
        match self {
            Stage::Rank => &["rank/importance.json"],
            Stage::Profile => &["cost/table.csv", "cost/profile.json"],
            Stage::Search => &["search/search.json"],
            Stage::Extract => &["extract/extract.json", "student"],
            Stage::Recover => &["recover/recover.json", "recovered"],
            Stage::Evaluate => &["evaluate/evaluate.json"],
            Stage::Measure => &["measure/measure.json"],
            Stage::Report => &["report.json", "report.html"],
        }
    }

    /// What only the report reads, beside the outputs.
    pub fn records(self) -> &'static [&'static str] {
        match self {
            Stage::Search => &["search/metrics.jsonl"],
            Stage::Recover => &["recover/metrics.jsonl"],
            _ => &[],
        }
    }

    /// All that it makes: what its outputs lie in.
    pub fn folders(self) -> Vec<&'static str> {
        let mut folders: Vec<&str> = self.outputs().iter().filter_map(|output| output.split('/').next()).collect();
        folders.dedup();
        folders
    }
}

impl Stage {
    /// The stage that made a file of a run directory; `path` is relative to that.
    pub fn that_made(path: &Path) -> Option<Stage> {
        let mut parts = path.iter().filter_map(|part| part.to_str());
        let (first, second) = (parts.next()?, parts.next());
        let marked = second.filter(|_| first == "stages").and_then(|name| name.strip_suffix(".json"));
        match marked {
            Some(name) => Stage::ALL.into_iter().find(|stage| stage.name() == name),
            None => Stage::ALL.into_iter().find(|stage| stage.folders().contains(&first)),
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Stage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == text).ok_or_else(|| {
            Error::Usage(format!("found {text:?}, expected one of {}", Stage::ALL.map(Stage::name).join(", ")))
        })
    }
}
