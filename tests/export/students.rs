//! Students on disk: read back with the same logits, in the form that other programs expect, tokenizer beside the weights.

use std::fs;
use std::path::Path;
use std::process::Command;

use autocompress::autograd::Tape;
use autocompress::model::checkpoint::{DiskDtype, MtpChoice, SaveOptions};
use autocompress::model::{Input, Lm, load, save};
use autocompress::numerics::Philox;
use autocompress::supernet::{Axis, SearchSpace, Space, extract};
use autocompress::tensor::{Segments, Tensor};

use crate::models::{Folder, preset, tiny_parent};

const LENGTH: usize = 150;

fn tokens(vocab: usize) -> Vec<u32> {
    let noise = Philox::new(1, 0);
    (0..LENGTH as u64).map(|i| (noise.uniform(i) * vocab as f64) as u32).collect()
}

fn logits(lm: &Lm) -> Tensor {
    let tokens = tokens(lm.config.vocab_size);
    let hidden = lm.forward(&Tape::inference(), &Input::new(&tokens, &Segments::uniform(1, LENGTH))).unwrap().hidden;
    lm.logits(hidden.value()).unwrap()
}

fn parent() -> (Lm, SearchSpace) {
    let lm = load(&tiny_parent(), MtpChoice::Drop).unwrap().lm;
    let space = SearchSpace::new(&Space::from_file(&preset("spaces/tiny.toml")).unwrap(), &lm.config).unwrap();
    (lm, space)
}

fn model_type(folder: &Path) -> String {
    let text = fs::read_to_string(folder.join("config.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&text).unwrap()["model_type"].as_str().unwrap().to_owned()
}

/// Uniform and heterogeneous students of the shipped parent; in its own format and in f32.
#[test]
fn students_read_back_have_the_same_logits() {
    let folder = Folder::new();
    let (lm, space) = parent();
    let sizes = [(Axis::Hidden, 96), (Axis::Heads, 12), (Axis::Experts, 12), (Axis::Routed, 48), (Axis::Shared, 96)];
    let mut students = vec![("nemotron_h", space.uniform(&sizes).unwrap())];
    students.extend((0..6).map(|seed| ("nemotron_h_puzzle", space.random(seed))));
    for (i, (form, choice)) in students.iter().enumerate() {
        let student = extract(&lm, &space, choice).unwrap();
        for dtype in [DiskDtype::F32, DiskDtype::BF16] {
            let path = folder.path(&format!("{i}.{}", dtype.name()));
            save(&path, &student, |_| dtype, &SaveOptions::default()).unwrap();
            assert_eq!(model_type(&path), *form);
            let back = load(&path, MtpChoice::Drop).unwrap().lm;
            assert_eq!(back.config.layers, student.config.layers);
            let (was, is) = (logits(&student), logits(&back));
            let off = was.f32().iter().zip(is.f32()).map(|(a, b)| (a - b).abs()).fold(0.0f32, f32::max);
            // The parent is stored in bf16, so its slices are numbers of both formats.
            assert!(off <= 1e-4, "student {i} in {}: off by {off}", dtype.name());
        }
    }
}

/// `logits` writes what the library computes.
#[test]
fn the_command_writes_the_models_logits() {
    let folder = Folder::new();
    let (lm, _) = parent();
    let sequences = vec![tokens(lm.config.vocab_size), vec![1, 2, 3]];
    fs::write(folder.path("tokens.json"), serde_json::to_string(&sequences).unwrap()).unwrap();
    let run = |tokens: &str| {
        let program = env!("CARGO_BIN_EXE_autocompress");
        let (model, out) = (tiny_parent(), folder.path("logits.safetensors"));
        let paths = [folder.path(tokens), out];
        let args = [
            "logits".as_ref(),
            model.as_os_str(),
            "--tokens".as_ref(),
            paths[0].as_os_str(),
            "--out".as_ref(),
            paths[1].as_os_str(),
        ];
        Command::new(program).args(args).output().unwrap()
    };
    assert!(run("tokens.json").status.success());
    let written = crate::reader::read(&folder.path(""));
    assert_eq!(written["0"].shape, [LENGTH, lm.config.vocab_size]);
    assert_eq!(written["1"].shape, [3, lm.config.vocab_size]);
    let computed = logits(&lm);
    let off = crate::reader::f32s(&written["0"].bytes)
        .into_iter()
        .zip(computed.f32())
        .map(|(a, b)| (a - f64::from(*b)).abs());
    assert!(off.fold(0.0, f64::max) <= 1e-5);
    for (text, part) in [
        ("[[1, 999999]]", "999999"),
        ("[]", "no sequence"),
        ("[[]]", "no token"),
        ("{}", "line 1"),
        ("[[-1]]", "line 1"),
    ] {
        fs::write(folder.path("bad.json"), text).unwrap();
        let output = run("bad.json");
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && err.contains("bad.json") && err.contains(part), "{text}: {err}");
    }
}
