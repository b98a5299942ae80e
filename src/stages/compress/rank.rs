//! Ranking: how important each component of the parent is, from a calibration pass.

use super::{Compression, RankRecipe};
use crate::Result;
use crate::supernet::Calibrator;

pub const IMPORTANCE: &str = "rank/importance.json";

/// Rows of one forward pass.
const ROWS: usize = 4096;

/// Sequences of one forward pass.
pub fn batch_of(recipe: &RankRecipe) -> usize {
    (ROWS / recipe.length).clamp(1, recipe.sequences)
}

/// Reads the training data's sequences and writes `rank/importance.json`.
pub fn run(c: &Compression) -> Result<()> {
    let options = &c.recipe.rank;
    let source = c.source();
    let together = batch_of(options);
    let passes = options.sequences.div_ceil(together);
    let mut progress = c.progress("rank", passes as u64);
    let mut calibrator = Calibrator::new(&c.parent);
    for pass in 0..passes {
        let sequences = together.min(options.sequences - pass * together);
        let batch = source.batch(options.seed, pass as u64, sequences, options.length)?;
        calibrator.add(&batch.tokens, &batch.rows()?)?;
        progress.tick(pass as u64 + 1);
    }
    c.run.folder("rank")?;
    calibrator.finish()?.write(&c.path(IMPORTANCE))
}
