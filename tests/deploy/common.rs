//! Presets, and configurations made of them.

use std::path::{Path, PathBuf};

use autocompress::cost::Contract;
use autocompress::model::Config;
use autocompress::model::config::{Layer, LayerKind};
use autocompress::supernet::{SearchSpace, Space};

pub const DEPLOYMENTS: [&str; 4] = ["rtx-5070", "rtx-5080", "h100", "b200"];

pub fn preset(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("presets").join(path)
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deploy/fixtures").join(name)
}

pub fn contract(name: &str) -> Contract {
    Contract::from_file(&preset(&format!("contracts/{name}.toml"))).unwrap()
}

/// The contract's text with `from` replaced.
pub fn edited(name: &str, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(preset(&format!("contracts/{name}.toml"))).unwrap();
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

pub fn parent(name: &str) -> Config {
    let mut config = Config::from_file(&preset(&format!("parents/{name}.json"))).unwrap();
    config.mtp = None;
    config
}

pub fn space(name: &str, parent: &Config) -> SearchSpace {
    SearchSpace::new(&Space::from_file(&preset(&format!("spaces/{name}.toml"))).unwrap(), parent).unwrap()
}

/// A contract's parent and space.
pub fn deployment(name: &str) -> (Contract, SearchSpace) {
    let contract = contract(name);
    let parent = Config::from_file(contract.search.parent.as_ref().unwrap()).unwrap();
    let space = Space::from_file(contract.search.space.as_ref().unwrap()).unwrap();
    let space = SearchSpace::new(&space, &parent).unwrap();
    (contract, space)
}

/// The first layer of a kind.
pub fn layer(config: &Config, kind: LayerKind) -> Layer {
    *config.layers.iter().find(|layer| layer.kind() == kind).unwrap()
}

pub const GIB: f64 = (1u64 << 30) as f64;
