//! Promise: recovery with products of 8-bit and 4-bit floats learns nearly what it learns in bf16, and gives the same bits again, for
//! any number of threads.

use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use autocompress::autograd::{ParamId, Stored, store};
use autocompress::data::{DataConfig, TasksConfig};
use autocompress::device::{Precision, with_threads};
use autocompress::model::checkpoint::MtpChoice;
use autocompress::model::{Lm, load};
use autocompress::numerics::Philox;
use autocompress::ops::adamw::AdamWOptions;
use autocompress::ops::distill_loss::DistillOptions;
use autocompress::run::RunDir;
use autocompress::stages::recover::Recover;
use autocompress::train::{Job, Options, Progress, Schedule, train};

/// Rounding to bf16 is switched for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn parent() -> Lm {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("presets/parents/tiny"), MtpChoice::Drop).unwrap().lm
}

/// The parent with noise on all of its matrices.
fn damaged(parent: &Lm) -> Lm {
    let mut params = parent.params.clone();
    for i in 0..params.len() {
        let mut value = params.get(ParamId(i)).value.clone();
        if value.dims().len() < 2 {
            continue;
        }
        let noise = Philox::new(6, i as u64);
        let values = value.f32_mut();
        let size = (values.iter().map(|v| f64::from(v * v)).sum::<f64>() / values.len() as f64).sqrt();
        values.iter_mut().enumerate().for_each(|(j, v)| *v += (0.4 * size * noise.normal(j as u64)) as f32);
        params.replace(ParamId(i), value).unwrap();
    }
    Lm::new(parent.config.clone(), params).unwrap()
}

/// Losses of the steps, and the student's weights.
fn recovered(precision: Precision, steps: u64) -> (Vec<f64>, Vec<Vec<f32>>) {
    let parent = parent();
    let mut job = Recover::new(damaged(&parent), &parent, DistillOptions::default(), false);
    let options = Options {
        table: "recover.training",
        steps,
        sequences: 4,
        length: 96,
        micro_batches: 2,
        schedule: Schedule { peak: 2e-3, floor: 1e-4, warmup: 2, steps },
        max_norm: 1.0,
        optimizer: AdamWOptions { weight_decay: 0.0, ..AdamWOptions::default() },
        seed: 4,
        checkpoint_every: 1000,
        precision: Some(precision),
        wide_layers: None,
    };
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create_or_open(&folder.path().join("run"), "a recipe", &[]).unwrap();
    let source = DataConfig::Tasks(TasksConfig::default()).source(256).unwrap();
    train(&mut job, source, &options, &run, "recover", &mut Progress::new("recover", steps, true)).unwrap();
    let text = std::fs::read_to_string(folder.path().join("run/recover/metrics.jsonl")).unwrap();
    let loss = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["loss"].as_f64().unwrap();
    (text.lines().map(loss).collect(), job.params().iter().map(|(_, p)| p.value.f32().to_vec()).collect())
}

#[test]
fn recovery_in_few_bits_learns_nearly_what_it_learns_in_bf16() {
    let _alone = alone();
    let (steps, last) = (24, 6);
    let end = |losses: &[f64]| losses[losses.len() - last..].iter().sum::<f64>() / last as f64;
    store(Stored::Nearest);
    let (bf16, _) = recovered(Precision::Bf16, steps);
    store(Stored::Own);
    println!("bf16: {:.4} → {:.4}", bf16[0], end(&bf16));
    assert!(end(&bf16) < 0.6 * bf16[0], "{bf16:?}");
    for (precision, most) in [(Precision::Fp8, 1.15), (Precision::Nvfp4, 1.4)] {
        let (losses, _) = recovered(precision, steps);
        let ratio = end(&losses) / end(&bf16);
        println!("{precision:?}: {:.4} → {:.4}, {ratio:.3} of bf16's", losses[0], end(&losses));
        assert!(losses != bf16 && end(&losses) < 0.7 * losses[0] && ratio < most, "{precision:?}: {ratio}");
    }
}

#[test]
fn steps_in_few_bits_give_the_same_bits_for_any_number_of_threads() {
    let _alone = alone();
    for precision in [Precision::Fp8, Precision::Nvfp4] {
        let one = with_threads(1, || recovered(precision, 3)).unwrap();
        assert!(one == with_threads(2, || recovered(precision, 3)).unwrap(), "{precision:?}");
        assert!(one == with_threads(1, || recovered(precision, 3)).unwrap(), "{precision:?}, again");
    }
}
