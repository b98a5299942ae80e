//! Soft masks: their values, and their gradient per interval against the gradient per component.

use autocompress::autograd::{Draws, Gradients, Mask, Tape, Var};
use autocompress::model::{Config, ExpertMasking, Input, Masks};
use autocompress::numerics::Philox;
use autocompress::supernet::{Gate, SearchSpace, Space};
use autocompress::tensor::Tensor;

use crate::common::relative_difference;
use crate::models::{batch, fixture, grouped_model, preset, space};

const SPACE: &str = "hidden_size = [64, 48, 8]\n[mamba]\nheads = [8, 6, 2]\nremove = true\n\
    [moe]\nexperts = [8, 6, 4]\nintermediate = [48, 31, 0]\nshared_intermediate = [80, 16, 0]";
const DRAWS: usize = 2;

#[test]
fn the_published_example() {
    let parent = Config::from_file(&preset("parents/lightning.json")).unwrap();
    let space = SearchSpace::new(&Space::from_file(&preset("spaces/lightning.toml")).unwrap(), &parent).unwrap();
    let y: Vec<Var> = (space.gates.iter())
        .map(|gate| {
            let c = gate.candidates.len();
            let mut y = vec![1.0 / c as f32; c];
            if gate.name == "layers.1.intermediate" {
                assert_eq!(gate.candidates, [1024, 1280, 1536, 1856]);
                y = vec![0.05, 0.10, 0.15, 0.70];
            }
            Var::constant(Tensor::from_slice([1, c], &y))
        })
        .collect();
    let masks = space.masks(&y, &Tape::inference(), Draws::One, ExpertMasking::Output).unwrap();
    let rows = masks.layers[1].routed.as_ref().unwrap().rows(1856, 1).unwrap();
    for (channel, m) in [(0, 1.0), (1023, 1.0), (1024, 0.95), (1279, 0.95), (1280, 0.85), (1535, 0.85), (1536, 0.70)] {
        assert!((rows.row(0)[channel] - m).abs() < 1e-6, "channel {channel}: {}", rows.row(0)[channel]);
    }
    assert!((rows.row(0)[1855] - 0.70).abs() < 1e-6);
}

fn probabilities(gate: &Gate, g: usize) -> Tensor {
    let c = gate.candidates.len();
    let noise = Philox::new(8, g as u64);
    let mut y: Vec<f32> = (0..(DRAWS * c) as u64).map(|i| 0.1 + noise.uniform(i) as f32).collect();
    for row in y.chunks_mut(c) {
        let total: f32 = row.iter().sum();
        row.iter_mut().for_each(|y| *y /= total);
    }
    Tensor::from_slice([DRAWS, c], &y)
}

/// The mask with an interval and a probability of its own for each component of a group.
fn dense(mask: &Mask, tape: &Tape<'_>) -> (Mask, Var) {
    let (c, period) = (mask.ends.len(), mask.ends[mask.ends.len() - 1]);
    let mut values = Vec::new();
    for keep in mask.keep.f32().chunks_exact(c) {
        values.extend((0..period).map(|i| keep[mask.ends.iter().position(|end| i < *end).unwrap()]));
    }
    let leaf = tape.leaf(Tensor::from_slice([DRAWS, period], &values));
    let ends: Vec<usize> = (1..=period).collect();
    (Mask::new(&ends, leaf.clone(), mask.draws.clone()).unwrap(), leaf)
}

/// The masks of gate g, wherever they act.
fn places<'m>(masks: &'m mut Masks, space: &SearchSpace, g: usize) -> Vec<&'m mut Option<Mask>> {
    use autocompress::supernet::Axis;
    let gate = &space.gates[g];
    let Masks { hidden, layers } = masks;
    match (gate.axis, gate.layer) {
        (Axis::Hidden, _) => std::iter::once(hidden).chain(layers.iter_mut().map(|l| &mut l.hidden)).collect(),
        (Axis::Heads, _) => layers.iter_mut().map(|l| &mut l.heads).filter(|heads| heads.is_some()).collect(),
        (Axis::KeepMamba, Some(i)) => vec![&mut layers[i].keep],
        (Axis::Experts, Some(i)) => vec![&mut layers[i].experts],
        (Axis::Routed, Some(i)) => vec![&mut layers[i].routed],
        (Axis::Shared, Some(i)) => vec![&mut layers[i].shared],
        (axis, None) => panic!("{axis:?} of no layer"),
    }
}

#[test]
fn interval_gradients_are_sums_of_component_gradients() {
    for lm in [fixture("base"), fixture("latent"), grouped_model()] {
        let space = space(&lm.config, SPACE);
        let (tokens, segments) = batch(lm.config.vocab_size, 19);
        let draws = Draws::Sequences { length: 19, of_sequence: [1, 0].as_slice().into() };
        let seed = {
            let noise = Philox::new(21, 0);
            let values: Vec<f32> = (0..(tokens.len() * 64) as u64).map(|i| noise.normal(i) as f32).collect();
            Tensor::from_slice([tokens.len(), 64], &values)
        };
        for masking in [ExpertMasking::Output, ExpertMasking::Score] {
            for g in 0..space.gates.len() {
                let run = |spell_out: bool| {
                    let tape = Tape::new();
                    let y: Vec<Var> =
                        space.gates.iter().enumerate().map(|(g, gate)| tape.leaf(probabilities(gate, g))).collect();
                    let mut masks = space.masks(&y, &tape, draws.clone(), masking).unwrap();
                    let mut leaf = y[g].clone();
                    if spell_out {
                        let mut places = places(&mut masks, &space, g);
                        let (mask, components) = dense(places[0].as_ref().unwrap(), &tape);
                        places.iter_mut().for_each(|place| **place = Some(mask.clone()));
                        leaf = components;
                    }
                    let input = Input {
                        tokens: &tokens,
                        segments: &segments,
                        masks: Some(&masks),
                        recompute: false,
                        products: None,
                    };
                    let hidden = lm.forward(&tape, &input).unwrap().hidden;
                    let mut sink = Gradients::new(&lm.params);
                    let grads = tape.backward_from(&[hidden], vec![seed.clone()], &mut sink).unwrap();
                    grads.take(&leaf).unwrap()
                };
                let (got, components) = (run(false), run(true));
                let period = components.dims()[1];
                let size = *space.gates[g].candidates.last().unwrap();
                let mut want = Vec::new();
                for row in components.f32().chunks_exact(period) {
                    want.extend(space.gates[g].candidates.iter().map(|c| row[..c * period / size].iter().sum::<f32>()));
                }
                let off = relative_difference(got.f32(), &want);
                assert!(off < 1e-4, "{} under {masking:?}: off by {off:e}", space.gates[g].name);
                assert!(want.iter().any(|g| *g != 0.0), "{} has no gradient", space.gates[g].name);
            }
        }
    }
}

#[test]
fn probabilities_of_another_shape_are_refused() {
    let lm = fixture("base");
    let space = space(&lm.config, SPACE);
    let tape = Tape::inference();
    let masks = |y: &[Var]| space.masks(y, &tape, Draws::One, ExpertMasking::Output);
    let mut y: Vec<Var> =
        space.gates.iter().enumerate().map(|(g, gate)| Var::constant(probabilities(gate, g))).collect();
    assert!(masks(&y).is_ok());
    assert!(masks(&y[1..]).err().unwrap().to_string().contains("gates"));
    y[2] = Var::constant(Tensor::zeros([DRAWS, 7]));
    assert!(masks(&y).err().unwrap().to_string().contains(&space.gates[2].name));
}
