//! Models and helpers of these tests.

use std::path::Path;

use autocompress::autograd::Tape;
use autocompress::model::checkpoint::MtpChoice;
use autocompress::model::{Config, Input, Lm, Masks, initialise};
use autocompress::numerics::Philox;
use autocompress::supernet::{Importance, LayerImportance, Scores, SearchSpace, Space};
use autocompress::tensor::{Segments, Tensor};

pub fn fixture(name: &str) -> Lm {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference").join(name);
    autocompress::model::load(&dir, MtpChoice::Drop).unwrap().lm
}

pub fn preset(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("presets").join(path)
}

pub fn space(parent: &Config, text: &str) -> SearchSpace {
    SearchSpace::new(&Space::from_toml(Path::new("space.toml"), text).unwrap(), parent).unwrap()
}

/// The base fixture's configuration with other values for some keys.
pub fn config_with(keys: serde_json::Value) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference/base/config.json");
    let mut json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        json[key] = value.clone();
    }
    Config::from_json(&path, json).unwrap()
}

/// A model with random weights; correction biases, norms and scalars too, so that a wrong order shows.
pub fn random_model(config: Config) -> Lm {
    let mut params = initialise(&config, 5).unwrap();
    let ids: Vec<_> = params.iter().map(|(id, _)| id).collect();
    for id in ids {
        let noise = Philox::new(17, id.0 as u64);
        let param = params.get_mut(id);
        if param.value.dims().len() == 1 {
            let values = param.value.f32_mut();
            values.iter_mut().enumerate().for_each(|(i, v)| *v += 0.2 * noise.normal(i as u64) as f32);
        }
    }
    Lm::new(config, params).unwrap()
}

/// Two routing groups, of which one is open to a token.
pub fn grouped_model() -> Lm {
    random_model(config_with(serde_json::json!({ "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2 })))
}

/// Two sequences of `length` tokens below `vocab`.
pub fn batch(vocab: usize, length: usize) -> (Vec<u32>, Segments) {
    let noise = Philox::new(3, 0);
    let tokens = (0..2 * length as u64).map(|i| (noise.uniform(i) * vocab as f64) as u32).collect();
    (tokens, Segments::uniform(2, length))
}

/// [R·V].
pub fn logits(lm: &Lm, tokens: &[u32], segments: &Segments, masks: Option<&Masks>) -> Tensor {
    let tape = Tape::inference();
    let input = Input { tokens, segments, masks, recompute: false, products: None };
    let hidden = lm.forward(&tape, &input).unwrap().hidden.into_value();
    lm.logits(&hidden).unwrap()
}

/// Random scores: an order that has nothing to do with the model.
pub fn random_importance(config: &Config, seed: u64) -> Importance {
    use autocompress::model::config::Layer;
    let stream = std::cell::Cell::new(0);
    let scores = |count: usize| -> Vec<f32> {
        stream.set(stream.get() + 1);
        let noise = Philox::new(seed, stream.get());
        (0..count as u64).map(|i| noise.uniform(i) as f32).collect()
    };
    let layer = |layer: &Layer| LayerImportance {
        change: 0.0,
        scores: match layer {
            Layer::Attention(_) => Scores::Attention,
            Layer::Mamba(m) => Scores::Mamba { heads: scores(m.heads) },
            Layer::Mlp(m) => Scores::Mlp { width: scores(m.intermediate) },
            Layer::Moe(m) => Scores::Moe {
                experts: scores(m.experts),
                routed: (0..m.experts).map(|_| scores(m.intermediate)).collect(),
                shared: scores(m.shared_intermediate),
            },
        },
    };
    let layers = config.layers.iter().map(layer).collect();
    Importance { sequences: 1, tokens: 1, hidden: scores(config.hidden_size), layers }
}
