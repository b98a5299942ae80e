//! Spaces, contracts and tables of these tests.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use autocompress::cost::{Contract, Cost, Key, MODEL, Measure, Plan, Table};
use autocompress::model::Config;
use autocompress::supernet::{SearchSpace, Space};

/// The memory pool counts for the whole process: whoever measures holds this.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

pub fn preset(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("presets").join(path)
}

/// The tiny parent with these candidates.
pub fn space(text: &str) -> SearchSpace {
    let parent = Config::from_file(&preset("parents/tiny/config.json")).unwrap();
    SearchSpace::new(&Space::from_toml(Path::new("space.toml"), text).unwrap(), &parent).unwrap()
}

/// All axes, a removal of each kind among them.
pub const ALL_AXES: &str = "hidden_size = [128, 64]
[mamba]
heads = [16, 8, 4]
remove = true
[moe]
experts = [16, 8]
intermediate = [64, 32, 0]
shared_intermediate = [128, 64, 0]
";

/// A global axis and one of layers.
pub const SMALL: &str = "hidden_size = [128, 96]
[moe]
intermediate = [64, 0]
";

pub fn contract(limits: &str) -> Contract {
    let text = format!(
        "device = 'cpu'\nengine = 'builtin'\nprecision = 'f32'\nthreads = 1\n
        [workload]\nbatch = 2\ninput_tokens = 24\noutput_tokens = 8\nprefill_chunk = 16\n[limits]\n{limits}"
    );
    Contract::from_toml(Path::new("contract.toml"), &text).unwrap()
}

/// Every row that the space needs, with an integer of its own.
pub fn synthetic(space: &SearchSpace, contract: &Contract, reserve: f64) -> Table {
    let mut table = Table::default();
    for (i, key) in Plan::new(space, contract, 10, 0).unwrap().keys().into_iter().enumerate() {
        table.rows.insert(key, Cost { median: (1 + i * 37 % 101) as f64, iqr: 0.5, repeats: 3 });
    }
    let key = Key { measure: Measure::Reserve, context: 0, hidden_size: 0, part: MODEL.into() };
    table.rows.insert(key, Cost { median: reserve, iqr: 0.0, repeats: 1 });
    table
}
