//! The uniform architectures of a share, the closest to the parent first.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Study;
use super::limits::Share;
use super::unit::made_again;
use crate::baseline::{self, Reach, Uniform};
use crate::stages::compress::MinitronRecipe;
use crate::supernet::{Choice, extract};
use crate::{Result, files};

/// A share's candidates.
pub struct Candidates {
    pub told: CandidatesTold,
    pub choices: Vec<Choice>,
}

/// `study/SHARE/uniform.json`: all candidates of a share, by their loss before any training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidatesTold {
    /// Uniform architectures within the targets.
    pub within: usize,
    /// Those that cannot grow.
    pub maximal: usize,
    /// Which limits the listed ones come close to.
    pub reach: Reach,
    /// The share of a target that says so.
    #[serde(default = "usual_floor")]
    pub floor: f64,
    /// Where there is none: which target keeps all out, and the one that comes closest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    pub listed: Vec<Listed>,
}

fn usual_floor() -> f64 {
    MinitronRecipe::default().floor
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    pub architecture: Value,
    /// KL from the parent on the held-out set as cut out, nats per token.
    pub held_out_before: f64,
}

impl Candidates {
    /// Reads the list of the study's share `share`, or makes it.
    pub fn of(study: &Study<'_>, share: usize) -> Result<Candidates> {
        let (c, share) = (study.c, &study.shares[share]);
        let folder = format!("study/{}", share.label);
        let path = c.path(&folder).join("uniform.json");
        if !path.exists() {
            let told = Candidates::list(study, share)?;
            c.run.folder(&folder)?;
            files::write_json(&path, &told)?;
        }
        let told: CandidatesTold = files::read_json(&path, "uniform architectures").map_err(made_again)?;
        let choices = told.listed.iter().map(|listed| c.space.choice_from_json(&path, &listed.architecture));
        Ok(Candidates { choices: choices.collect::<Result<_>>().map_err(made_again)?, told })
    }

    /// What a screening takes.
    pub fn uniform(&self) -> Uniform {
        let CandidatesTold { within, maximal, reach, .. } = self.told;
        Uniform { choices: self.choices.clone(), reach, within, maximal }
    }

    fn list(study: &Study<'_>, share: &Share) -> Result<CandidatesTold> {
        let c = study.c;
        let floor = c.recipe.minitron.floor;
        let found = baseline::uniform(&c.space, &share.targets, floor)?;
        let missed = match found.choices.is_empty() {
            true => Some(baseline::nearest(&c.space, &share.targets)?.to_string()),
            false => None,
        };
        let bench = study.bench()?;
        let mut progress = c.progress("uniform architectures", found.choices.len() as u64);
        let mut scored = Vec::new();
        for (i, choice) in found.choices.into_iter().enumerate() {
            let loss = bench.held_out(c, &extract(&bench.sorted, &c.space, &choice)?)?;
            scored.push((loss, choice));
            progress.tick(i as u64 + 1);
        }
        scored.sort_by(|a, b| a.0.total_cmp(&b.0));
        let list = |(loss, choice): &(f64, Choice)| {
            Ok(Listed { architecture: c.space.choice_to_json(choice)?, held_out_before: *loss })
        };
        let listed = scored.iter().map(list).collect::<Result<_>>()?;
        Ok(CandidatesTold { within: found.within, maximal: found.maximal, reach: found.reach, floor, missed, listed })
    }
}
