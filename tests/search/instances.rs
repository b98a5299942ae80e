//! Search spaces and resources made of random numbers.

use std::path::Path;

use autocompress::cost::{CountTerm, LayerTerm, Resource};
use autocompress::model::Config;
use autocompress::numerics::Philox;
use autocompress::supernet::{Axis, Choice, Gate, SearchSpace, Space};

pub fn preset(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("presets").join(path)
}

pub fn preset_space(parent: &str, space: &str) -> SearchSpace {
    let parent = Config::from_file(&preset(parent)).unwrap();
    SearchSpace::new(&Space::from_file(&preset(space)).unwrap(), &parent).unwrap()
}

/// Numbers one after another.
pub struct Random {
    noise: Philox,
    next: u64,
}

impl Random {
    pub fn new(seed: u64, stream: u64) -> Random {
        Random { noise: Philox::new(seed, stream), next: 0 }
    }

    /// In (0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.next += 1;
        self.noise.uniform(self.next)
    }

    pub fn normal(&mut self) -> f64 {
        self.next += 1;
        self.noise.normal(self.next)
    }

    pub fn below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n - 1)
    }
}

/// Gates of a model that only its gates matter of: `layers` entries name each layer's axes and numbers of candidates.
pub fn bare_space(globals: &[(Axis, usize)], layers: &[Vec<(Axis, usize)>], routed_zero: bool) -> SearchSpace {
    let parent = Config::from_file(&preset("parents/lightning.json")).unwrap();
    let gate = |axis, layer: Option<usize>, count: usize| {
        let first = usize::from(!(axis == Axis::KeepMamba || (axis == Axis::Routed && routed_zero)));
        let candidates = (first..first + count).collect();
        Gate { axis, layer, candidates, name: format!("{axis:?}.{layer:?}") }
    };
    let mut gates: Vec<Gate> = globals.iter().map(|(axis, n)| gate(*axis, None, *n)).collect();
    for (layer, axes) in layers.iter().enumerate() {
        gates.extend(axes.iter().map(|(axis, n)| gate(*axis, Some(layer), *n)));
    }
    SearchSpace { parent, gates }
}

/// Costs that grow with every candidate, more or less; no cost of experts without routed width. Each group of widest layers
/// holds every second layer; `by_shape`: layers of one shape are as wide as each other. `limit` stays to be set.
pub fn random_resource(
    space: &SearchSpace,
    random: &mut Random,
    widest: usize,
    by_shape: bool,
    name: &str,
) -> Resource {
    let candidates: Vec<usize> = space.gates.iter().map(|gate| gate.candidates.len()).collect();
    let global_gates: Vec<usize> = (0..candidates.len()).filter(|g| space.gates[*g].layer.is_none()).collect();
    let contexts: usize = global_gates.iter().map(|g| candidates[*g]).product();
    let constant = (0..contexts).map(|c| 2.0 * random.uniform() + c as f64 / contexts as f64).collect();
    let mut numbers: Vec<usize> = space.gates.iter().filter_map(|gate| gate.layer).collect();
    numbers.dedup();
    let mut term = |layer: usize| {
        let gates: Vec<usize> = (0..candidates.len()).filter(|g| space.gates[*g].layer == Some(layer)).collect();
        let weights: Vec<f64> = gates.iter().map(|_| 0.2 + random.uniform()).collect();
        let combinations: usize = gates.iter().map(|g| candidates[*g]).product();
        let values = (0..contexts).map(|context| {
            let scale = 0.6 + 0.4 * context as f64 / contexts as f64;
            let value = |at: usize| {
                let mut rest = at;
                let mut picks = vec![0; gates.len()];
                for (i, g) in gates.iter().enumerate().rev() {
                    picks[i] = rest % candidates[*g];
                    rest /= candidates[*g];
                }
                let size = |i: usize| space.gates[gates[i]].candidates[picks[i]] as f64;
                let axis = |axis| gates.iter().position(|g| space.gates[*g].axis == axis);
                let dense = axis(Axis::Routed).is_some_and(|f| size(f) == 0.0);
                let part = |i: usize| {
                    let ignored = dense && space.gates[gates[i]].axis == Axis::Experts;
                    if ignored { 0.0 } else { weights[i] * size(i) }
                };
                (scale * (0..gates.len()).map(part).sum::<f64>(), dense)
            };
            let noisy: Vec<f64> = (0..combinations)
                .map(|at| {
                    let (value, dense) = value(at);
                    if dense { value } else { value * (0.9 + 0.2 * random.uniform()) }
                })
                .collect();
            noisy
        });
        LayerTerm { values: values.collect(), gates }
    };
    let layers = numbers.iter().map(|layer| term(*layer)).collect();
    let mut group = |first: usize| {
        let mut terms: Vec<LayerTerm> = numbers.iter().skip(first).step_by(2).map(|layer| term(*layer)).collect();
        for i in 1..terms.len() {
            let shape = |term: &LayerTerm| term.gates.iter().map(|g| candidates[*g]).collect::<Vec<_>>();
            let first = terms[..i].iter().find(|other| by_shape && shape(other) == shape(&terms[i]));
            if let Some(values) = first.map(|first| first.values.clone()) {
                terms[i].values = values;
            }
        }
        terms
    };
    let widest = (0..widest).map(&mut group).collect();
    Resource {
        name: name.into(),
        unit: "s".into(),
        limit: 1.0,
        candidates,
        global_gates,
        constant,
        layers,
        widest,
        counted: None,
    }
}

/// The resource with caches that are paged by groups of layers: steps of the number of kept Mamba layers.
pub fn paged(space: &SearchSpace, random: &mut Random, resource: Resource) -> Resource {
    let removable: Vec<usize> = (0..space.gates.len()).filter(|g| space.gates[*g].axis == Axis::KeepMamba).collect();
    let contexts = resource.constant.len();
    let term = |gate: &usize| LayerTerm {
        gates: vec![*gate],
        values: vec![space.gates[*gate].candidates.iter().map(|c| f64::from(u8::from(*c > 0))).collect(); contexts],
    };
    let group = 1 + random.below(3);
    let values = (0..contexts).map(|_| {
        let page = 0.2 + random.uniform();
        // Fewer layers can need more: then they make smaller groups.
        (0..=removable.len()).map(|kept| page * (kept.div_ceil(group) as f64 + 0.4 * random.uniform())).collect()
    });
    let counted = CountTerm { values: values.collect(), kept: removable.iter().map(term).collect() };
    Resource { counted: (!removable.is_empty()).then_some(counted), ..resource }
}

/// Per gate the logarithms of random probabilities; the larger `sharp`, the surer they are.
pub fn log_probabilities(space: &SearchSpace, random: &mut Random, sharp: f64) -> Vec<Vec<f64>> {
    let gate = |gate: &Gate| {
        let z: Vec<f32> = gate.candidates.iter().map(|_| (sharp * random.normal()) as f32).collect();
        autocompress::search::log_probabilities(&z, 1.0)
    };
    space.gates.iter().map(gate).collect()
}

/// All architectures.
pub fn choices(space: &SearchSpace) -> Vec<Choice> {
    let all = space.gates.iter().fold(vec![Vec::new()], |all: Vec<Vec<usize>>, gate| {
        all.iter().flat_map(|head| (0..gate.candidates.len()).map(move |i| [head.as_slice(), &[i]].concat())).collect()
    });
    all.into_iter().map(Choice).collect()
}
