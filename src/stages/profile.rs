//! Profiling: measures the layers of a search space on the deployment, and makes the cost model of them.

use crate::cost::{Contract, CostModel, ProfileOptions, Table, profile};
use crate::run::{RunDir, digest_bytes};
use crate::supernet::SearchSpace;
use crate::{Result, files};

const STAGE: &str = "profile";

/// Measures into `RUN/cost/`: `runs.jsonl` as it goes, `table.csv` at the end. A profile that was stopped goes on; one that
/// is complete is read.
pub fn run(
    run: &RunDir,
    space: &SearchSpace,
    contract: &Contract,
    options: &ProfileOptions,
    progress: &mut (dyn FnMut(usize, usize) + Send),
) -> Result<CostModel> {
    let folder = run.folder("cost")?;
    let path = folder.join("table.csv");
    let digest = digest(space, contract, options);
    if path.exists() && run.is_complete(STAGE, &digest)? {
        return CostModel::new(space, contract, &Table::from_file(&path)?);
    }
    let table = profile(space, contract, options, &folder.join("runs.jsonl"), progress)?;
    let model = CostModel::new(space, contract, &table)?;
    table.save(&path)?;
    files::sync_dir(&folder)?;
    run.mark_complete(STAGE, &digest)?;
    Ok(model)
}

/// Of what the table depends on; limits are no part of it.
fn digest(space: &SearchSpace, contract: &Contract, options: &ProfileOptions) -> String {
    let Contract { device, engine, precision, threads, workload, .. } = contract;
    let text = format!(
        "{:?} {:?} {:?} {} {} {device:?} {engine:?} {precision:?} {threads} {workload:?} {options:?}",
        space.gates,
        space.parent.layers,
        space.parent.hidden_size,
        space.parent.vocab_size,
        space.parent.tie_word_embeddings,
    );
    digest_bytes(text.as_bytes())
}
