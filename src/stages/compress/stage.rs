//! The stages of a compression and what each reads and leaves.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::{Error, Result};

/// How a compression comes to its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The search over router and supernet.
    Search,
    /// Minitron++: uniform architectures, screened (docs/method.md, "Baseline").
    Minitron,
}

impl Method {
    /// In the order they are done.
    pub fn stages(self) -> impl Iterator<Item = Stage> {
        let other = match self {
            Method::Search => Stage::Screen,
            Method::Minitron => Stage::Search,
        };
        Stage::ALL.into_iter().filter(move |stage| *stage != other)
    }

    /// The command that does all of them.
    pub fn command(self) -> &'static str {
        match self {
            Method::Search => "run",
            Method::Minitron => "baseline minitron",
        }
    }

    /// The stage of this name.
    ///
    /// # Errors
    /// [`Error::Usage`] listing the stages of the method.
    pub fn stage(self, name: &str) -> Result<Stage> {
        self.stages().find(|stage| stage.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.stages().map(Stage::name).collect();
            Error::Usage(format!("found {name:?}, expected one of {}", names.join(", ")))
        })
    }
}

/// In the order they are done; [`Search`](Stage::Search) or [`Screen`](Stage::Screen), as the [`Method`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Rank,
    Profile,
    Search,
    Screen,
    Extract,
    Recover,
    Evaluate,
    Measure,
    Report,
}

impl Stage {
    pub const ALL: [Stage; 9] = [
        Stage::Rank,
        Stage::Profile,
        Stage::Search,
        Stage::Screen,
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
            Stage::Screen => "screen",
            Stage::Extract => "extract",
            Stage::Recover => "recover",
            Stage::Evaluate => "evaluate",
            Stage::Measure => "measure",
            Stage::Report => "report",
        }
    }

    /// The stages whose outputs it reads, those of every method.
    pub fn reads(self) -> &'static [Stage] {
        match self {
            Stage::Rank | Stage::Profile => &[],
            Stage::Search | Stage::Screen => &[Stage::Rank, Stage::Profile],
            Stage::Extract => &[Stage::Rank, Stage::Profile, Stage::Search, Stage::Screen],
            Stage::Recover => &[Stage::Extract],
            Stage::Evaluate => &[Stage::Extract, Stage::Recover],
            Stage::Measure => &[Stage::Profile, Stage::Extract, Stage::Recover],
            Stage::Report => &[
                Stage::Rank,
                Stage::Profile,
                Stage::Search,
                Stage::Screen,
                Stage::Extract,
                Stage::Recover,
                Stage::Evaluate,
                Stage::Measure,
            ],
        }
    }

    /// Whether it serves models and measures them.
    pub fn measures(self) -> bool {
        matches!(self, Stage::Profile | Stage::Extract | Stage::Measure)
    }

    /// The files and folders that later stages read, in the run directory.
    pub fn outputs(self) -> &'static [&'static str] {
        match self {
            Stage::Rank => &["rank/importance.json"],
            Stage::Profile => &["cost/table.csv", "cost/profile.json"],
            Stage::Search => &["search/search.json"],
            Stage::Screen => &["screen/screen.json"],
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

/// A stage of a search's compression.
impl FromStr for Stage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Stage> {
        Method::Search.stage(text)
    }
}
