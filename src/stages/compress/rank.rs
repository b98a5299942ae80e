//! Ranking: how important each component of the parent is, from a calibration pass.

use super::Compression;
use crate::Result;
use crate::data::passes;
use crate::supernet::Calibrator;

pub const IMPORTANCE: &str = "rank/importance.json";

/// Reads the training data's sequences and writes `rank/importance.json`.
pub fn run(c: &Compression) -> Result<()> {
    let options = &c.recipe.rank;
    let source = c.source();
    let passes = passes(&source, options.seed, options.sequences, options.length);
    let mut progress = c.progress("rank", passes.len() as u64);
    let placed = c.parent.at_current_place()?;
    let mut calibrator = Calibrator::new(placed.as_ref().unwrap_or(&c.parent));
    for (pass, batch) in passes.enumerate() {
        let batch = batch?;
        calibrator.add(&batch.tokens, &batch.rows()?)?;
        progress.tick(pass as u64 + 1);
    }
    c.run.folder("rank")?;
    calibrator.finish()?.write(&c.path(IMPORTANCE))
}
