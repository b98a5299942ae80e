//! Models to export.

use std::path::{Path, PathBuf};

use autocompress::model::checkpoint::{DiskDtype, SaveOptions};
use autocompress::model::{Config, Lm, initialise, save};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder that goes with the test.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn names(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Saves `lm` as `name`.
    pub fn save(&self, name: &str, lm: &Lm, dtype: DiskDtype) -> PathBuf {
        save(&self.path(name), lm, |_| dtype, &SaveOptions::default()).unwrap();
        self.path(name)
    }
}

/// A layer of each kind, widths that are no multiples of 16 among them; `keys` are other values for some.
pub fn config(keys: Value) -> Config {
    let mut json = json!({
        "model_type": "nemotron_h", "vocab_size": 130, "hidden_size": 48,
        "layers_block_type": ["mamba", "moe", "attention", "mlp"],
        "mamba_num_heads": 4, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 8, "conv_kernel": 4, "chunk_size": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 80, "n_shared_experts": 1, "intermediate_size": 96,
        "norm_topk_prob": true, "routed_scaling_factor": 2.5, "initializer_range": 0.1,
    });
    keys.as_object().unwrap().iter().for_each(|(key, value)| json[key] = value.clone());
    Config::from_json(Path::new("config.json"), json).unwrap()
}

pub fn model(keys: Value) -> Lm {
    let config = config(keys);
    let params = initialise(&config, 3).unwrap();
    Lm::new(config, params).unwrap()
}

/// Edits one parameter's values.
pub fn edit(lm: &mut Lm, name: &str, edit: impl FnOnce(&mut [f32])) {
    let id = lm.params.find(name).unwrap_or_else(|| panic!("{name}"));
    edit(lm.params.get_mut(id).value.f32_mut());
}

pub fn tiny_parent() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("presets/parents/tiny")
}

pub fn preset(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("presets").join(path)
}
