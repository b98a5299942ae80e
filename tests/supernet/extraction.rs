//! A hard choice of the masked supernet gives the logits of the student that is cut out.

use autocompress::autograd::{Draws, Tape, Var};
use autocompress::model::checkpoint::{DiskDtype, MtpChoice, SaveOptions};
use autocompress::model::config::LayerKind;
use autocompress::model::{ExpertMasking, Lm, Masks};
use autocompress::supernet::{Axis, Choice, SearchSpace, extract, sort};
use autocompress::tensor::Tensor;

use crate::common::{largest_difference, same_bits};
use crate::models::{batch, fixture, grouped_model, logits, random_importance, space};

const LENGTH: usize = 21;

const SPACES: [&str; 2] = [
    "hidden_size = [64, 48, 33, 8]\n[mamba]\nheads = [8, 6, 4, 2]\n\
     [moe]\nexperts = [8, 6, 4]\nintermediate = [48, 31, 8, 0]\nshared_intermediate = [80, 50, 16, 0]",
    "hidden_size = [64, 40]\n[mamba]\nheads = [8, 4]\nremove = true\n\
     [moe]\nexperts = [8, 4]\nintermediate = [48, 0]\nshared_intermediate = [80, 0]",
];

/// Certain choices as probabilities: draw n is choices[n].
fn one_hot(space: &SearchSpace, choices: &[&Choice]) -> Vec<Var> {
    let gate = |(g, gate): (usize, &autocompress::supernet::Gate)| {
        let mut y = Tensor::zeros([choices.len(), gate.candidates.len()]);
        for (row, choice) in y.f32_mut().chunks_exact_mut(gate.candidates.len()).zip(choices) {
            row[choice.0[g]] = 1.0;
        }
        Var::constant(y)
    };
    space.gates.iter().enumerate().map(gate).collect()
}

fn hard_masks(space: &SearchSpace, choices: [&Choice; 2]) -> Masks {
    let draws = Draws::Sequences { length: LENGTH, of_sequence: [0, 1].as_slice().into() };
    space.masks(&one_hot(space, &choices), &Tape::inference(), draws, ExpertMasking::Score).unwrap()
}

/// Sequence 0 is drawn with the first choice, sequence 1 with the second: each has its own student's logits.
fn compare(sorted: &Lm, space: &SearchSpace, choices: [&Choice; 2]) -> f32 {
    let (tokens, segments) = batch(sorted.config.vocab_size, LENGTH);
    let supernet = logits(sorted, &tokens, &segments, Some(&hard_masks(space, choices)));
    let mut worst = 0.0f32;
    for (rows, choice) in segments.iter().zip(choices) {
        let student = extract(sorted, space, choice).unwrap();
        assert_eq!(student.config.layers, space.config_of(choice).unwrap().layers);
        for spec in student.config.tensors() {
            let id = student.params.find(&spec.name).unwrap();
            assert_eq!(student.params.get(id).value.dims(), spec.shape, "{}", spec.name);
        }
        assert_eq!(student.params.len(), student.config.tensors().len());
        let student = logits(&student, &tokens, &segments, None);
        let vocab = sorted.config.vocab_size;
        let rows = rows.start * vocab..rows.end * vocab;
        worst = worst.max(largest_difference(&supernet.f32()[rows.clone()], &student.f32()[rows]));
    }
    worst
}

#[test]
fn a_hard_draw_is_the_student() {
    let mut compared = 0;
    for lm in [fixture("base"), fixture("latent"), grouped_model()] {
        let sorted = sort(&lm, &random_importance(&lm.config, 7)).unwrap();
        for text in SPACES {
            let space = space(&sorted.config, text);
            let parent = space.parent_choice();
            // Every candidate of every gate alone, beside the parent; then everything at once.
            let mut pairs = Vec::new();
            for g in 0..space.gates.len() {
                for index in 0..space.gates[g].candidates.len() {
                    let mut choice = parent.clone();
                    choice.0[g] = index;
                    pairs.push((choice, parent.clone()));
                }
            }
            pairs.extend((0..8).map(|seed| (space.random(2 * seed), space.random(2 * seed + 1))));
            for (a, b) in &pairs {
                let off = compare(&sorted, &space, [a, b]);
                assert!(off <= 1e-4, "logits off by {off}: {} and {}", show(&space, a), show(&space, b));
                compared += 1;
            }
        }
    }
    println!("{compared} pairs of students");
    assert!(compared > 100);
}

fn show(space: &SearchSpace, choice: &Choice) -> String {
    space.choice_to_json(choice).unwrap().to_string()
}

#[test]
fn a_width_of_zero_makes_a_dense_layer_or_none() {
    let lm = fixture("base");
    let sorted = sort(&lm, &random_importance(&lm.config, 2)).unwrap();
    let space = space(&sorted.config, SPACES[0]);
    for (routed, shared, pattern) in [(48, 80, "ME*M-"), (8, 0, "ME*M-"), (0, 16, "M-*M-"), (0, 0, "M*M-")] {
        let choice = space.uniform(&[(Axis::Routed, routed), (Axis::Shared, shared)]).unwrap();
        assert_eq!(space.config_of(&choice).unwrap().pattern(), pattern);
        let off = compare(&sorted, &space, [&choice, &choice]);
        assert!(off <= 1e-4, "F {routed}, S {shared}: logits off by {off}");
    }
}

#[test]
fn a_mixed_student_survives_the_disk() {
    let lm = fixture("latent");
    let sorted = sort(&lm, &random_importance(&lm.config, 3)).unwrap();
    let space = space(&sorted.config, SPACES[1]);
    let mut choice = space.uniform(&[(Axis::Routed, 0), (Axis::Hidden, 40), (Axis::Heads, 4)]).unwrap();
    choice.0[space.gate(Axis::KeepMamba, Some(3)).unwrap()] = 0;
    let student = extract(&sorted, &space, &choice).unwrap();
    assert_eq!(student.config.pattern(), "M-*-");
    assert_eq!(student.config.count(LayerKind::Moe), 0);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("student");
    autocompress::model::save(&path, &student, |_| DiskDtype::F32, &SaveOptions::default()).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path.join("config.json")).unwrap()).unwrap();
    assert_eq!(json["model_type"], "nemotron_h_puzzle");
    assert_eq!(json["block_configs"].as_array().unwrap().len(), 4);
    let loaded = autocompress::model::load(&path, MtpChoice::Drop).unwrap().lm;
    let (tokens, segments) = batch(student.config.vocab_size, LENGTH);
    let [a, b] = [&student, &loaded].map(|lm| logits(lm, &tokens, &segments, None));
    assert!(same_bits(&a, &b));
}

#[test]
fn another_model_or_choice_is_refused() {
    let lm = fixture("base");
    let space = space(&lm.config, SPACES[0]);
    let error = extract(&fixture("latent"), &space, &space.parent_choice()).err().unwrap().to_string();
    assert!(error.contains("experts") && error.contains("as in the parent"), "{error}");
    let error = extract(&lm, &space, &Choice(vec![0])).err().unwrap().to_string();
    assert!(error.contains("gates"), "{error}");
    let mut choice = space.parent_choice();
    choice.0[1] = 99;
    let error = extract(&lm, &space, &choice).err().unwrap().to_string();
    assert!(error.contains("99") && error.contains("mamba.heads"), "{error}");
}
