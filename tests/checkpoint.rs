//! Checkpoints: what is loaded is what was saved, and nothing broken is loaded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use autocompress::model::checkpoint::{
    Checkpoint, CheckpointInfo, DiskDtype, LoadOptions, Loaded, MtpChoice, SaveOptions, SaveReport, TensorToSave, save,
};
use autocompress::model::config::{Config, Layer, Moe};
use autocompress::{Error, Result};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const KEEP: LoadOptions = LoadOptions { mtp: MtpChoice::Keep };
const DROP: LoadOptions = LoadOptions { mtp: MtpChoice::Drop };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference").join(name)
}

fn load(dir: &Path) -> Result<Loaded> {
    Checkpoint::open(dir)?.load(KEEP)
}

fn save_loaded(dir: &Path, loaded: &Loaded, options: &SaveOptions) -> Result<SaveReport> {
    let tensors: Vec<TensorToSave> = loaded
        .tensors
        .iter()
        .map(|t| TensorToSave { name: &t.name, shape: &t.shape, dtype: t.dtype, data: &t.data })
        .collect();
    save(dir, &loaded.config, &tensors, &SaveOptions { carried: &loaded.carried, ..*options })
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A tensor as a test file holds it.
#[derive(Debug, Clone, PartialEq)]
struct Stored {
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

type Tensors = BTreeMap<String, Stored>;

/// Reads a safetensors file with nothing of the crate's own.
fn read_file(path: &Path) -> Tensors {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let of = |(name, entry): (String, Value)| {
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let at = |i: usize| 8 + length + number(&entry["data_offsets"][i]);
        let shape = entry["shape"].as_array().unwrap().iter().map(number).collect();
        let dtype = entry["dtype"].as_str().unwrap().to_owned();
        (name, Stored { dtype, shape, bytes: bytes[at(0)..at(1)].to_vec() })
    };
    header.into_iter().filter(|(name, _)| name != "__metadata__").map(of).collect()
}

fn read_all(dir: &Path) -> Tensors {
    let weights = names(dir).into_iter().filter(|name| name.ends_with(".safetensors"));
    weights.flat_map(|name| read_file(&dir.join(name))).collect()
}

/// Equal, without printing megabytes where they are not.
#[track_caller]
fn same(a: &Tensors, b: &Tensors) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    a.iter().for_each(|(name, tensor)| assert!(tensor == &b[name], "{name} differs"));
}

fn header_of(tensors: &[(&str, &Stored)]) -> Map<String, Value> {
    let (mut header, mut offset) = (Map::new(), 0);
    for (name, tensor) in tensors {
        let end = offset + tensor.bytes.len();
        header.insert(
            (*name).into(),
            json!({"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    header
}

fn file_bytes(header: &str, tensors: &[(&str, &Stored)]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    tensors.iter().for_each(|(_, tensor)| bytes.extend(&tensor.bytes));
    bytes
}

fn write_file(path: &Path, tensors: &Tensors) {
    let list: Vec<(&str, &Stored)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    fs::write(path, file_bytes(&Value::Object(header_of(&list)).to_string(), &list)).unwrap();
}

/// A folder with a fixture's configuration and tensors that a test has changed.
fn changed(name: &str, change: impl FnOnce(&mut Tensors)) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture(name).join("config.json"), dir.path().join("config.json")).unwrap();
    let mut tensors = read_file(&fixture(name).join("model.safetensors"));
    change(&mut tensors);
    write_file(&dir.path().join("model.safetensors"), &tensors);
    dir
}

fn set_config(dir: &Path, changes: &[(&str, Value)]) {
    let path = dir.join("config.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    changes.iter().for_each(|(key, value)| json[*key] = value.clone());
    fs::write(path, json.to_string()).unwrap();
}

#[track_caller]
fn refused(dir: &Path, parts: &[&str]) {
    let error = load(dir).expect_err("must be refused");
    assert!(matches!(error, Error::Input { .. }), "{error}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}

fn f32s(shape: &[usize], values: impl Iterator<Item = f32>) -> Stored {
    let bytes: Vec<u8> = values.take(shape.iter().product()).flat_map(f32::to_le_bytes).collect();
    Stored { dtype: "F32".into(), shape: shape.to_vec(), bytes }
}

// ---- loading what is right ----

#[test]
fn a_fixture_loads_whole() {
    for (name, dtype) in [("base", DiskDtype::F32), ("base_bf16", DiskDtype::BF16), ("latent", DiskDtype::F32)] {
        let loaded = load(&fixture(name)).unwrap();
        let stored = read_file(&fixture(name).join("model.safetensors"));
        assert_eq!(loaded.report.tensors, stored.len());
        assert_eq!((loaded.report.dropped.len(), loaded.report.carried), (0, 0));
        assert_eq!(loaded.report.parameters, loaded.config.parameters().total);
        assert!(loaded.tensors.iter().all(|tensor| tensor.dtype == dtype));
        let up = loaded.tensors.iter().find(|t| t.name == "backbone.layers.1.mixer.experts.up_proj.weight").unwrap();
        for expert in 0..8 {
            let one = &stored[&format!("backbone.layers.1.mixer.experts.{expert}.up_proj.weight")];
            let each = up.data.len() / 8;
            let expected: Vec<f32> = match dtype {
                DiskDtype::F32 => one.bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
                _ => one.bytes.chunks(2).map(|b| half::bf16::from_le_bytes(b.try_into().unwrap()).to_f32()).collect(),
            };
            assert_eq!(up.data[expert * each..][..each], expected);
        }
    }
}

#[test]
fn every_name_that_is_in_use_is_understood() {
    let expected = load(&fixture("base")).unwrap().tensors;
    let renamed = changed("base", |tensors| {
        let old = std::mem::take(tensors);
        let mut stacks: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
        for (name, tensor) in old {
            let name = name.replace("backbone.", "model.").replace("embeddings", "embed_tokens");
            match name.split_once(".experts.").filter(|_| !name.contains("shared")) {
                // transformers' own name, stacked; eight experts, so the names' order is the experts'.
                Some((before, after)) => {
                    let (_, projection) = after.split_once('.').unwrap();
                    let name = format!("{before}.experts.{}", projection.trim_end_matches(".weight"));
                    stacks.entry(name).or_default().push(tensor);
                }
                None => drop(tensors.insert(name, tensor)),
            }
        }
        for (name, parts) in stacks {
            let shape = [&[parts.len()], &parts[0].shape[..]].concat();
            let bytes = parts.iter().flat_map(|part| part.bytes.clone()).collect();
            tensors.insert(name, Stored { dtype: "F32".into(), shape, bytes });
        }
    });
    let loaded = load(renamed.path()).unwrap();
    assert_eq!(loaded.report.tensors, 50 - 16 + 2);
    for (a, b) in loaded.tensors.iter().zip(&expected) {
        assert_eq!((&a.name, &a.shape, &a.data), (&b.name, &b.shape, &b.data));
    }
}

#[test]
fn dtypes_are_each_tensors_own() {
    let dir = changed("base_bf16", |tensors| {
        let bias = tensors.get_mut("backbone.layers.1.mixer.gate.e_score_correction_bias").unwrap();
        *bias = f32s(&[8], (0..8).map(|i| i as f32 * 1.1));
        let norm = tensors.get_mut("backbone.norm_f.weight").unwrap();
        norm.dtype = "F16".into();
        norm.bytes = (0..64).flat_map(|i| half::f16::from_f32(i as f32 / 7.0).to_le_bytes()).collect();
    });
    let loaded = load(dir.path()).unwrap();
    let bias = loaded.tensors.iter().find(|t| t.name.ends_with("correction_bias")).unwrap();
    assert_eq!((bias.dtype, bias.data[3]), (DiskDtype::F32, 3.0 * 1.1));
    let again = tempfile::tempdir().unwrap();
    save_loaded(again.path(), &loaded, &SaveOptions::default()).unwrap();
    same(&read_all(again.path()), &read_all(dir.path()));
}

// ---- saving ----

#[test]
fn loading_then_saving_is_the_identity() {
    for name in ["base", "base_bf16", "latent"] {
        for max_shard_bytes in [u64::MAX, 100_000, 20_000, 0] {
            let dir = tempfile::tempdir().unwrap();
            let loaded = load(&fixture(name)).unwrap();
            let report =
                save_loaded(dir.path(), &loaded, &SaveOptions { max_shard_bytes, ..Default::default() }).unwrap();
            let before = read_file(&fixture(name).join("model.safetensors"));
            same(&read_all(dir.path()), &before);
            assert_eq!(report.tensors, before.len());
            assert_eq!(report.bytes, before.values().map(|t| t.bytes.len() as u64).sum::<u64>());
            assert_eq!(report.files > 1, max_shard_bytes != u64::MAX);
            assert_eq!(load(dir.path()).unwrap().tensors.len(), loaded.tensors.len());
        }
    }
}

#[test]
fn shards_keep_to_their_size_and_the_index_is_right() {
    let dir = tempfile::tempdir().unwrap();
    let loaded = load(&fixture("base")).unwrap();
    let limit = 70_000;
    let report =
        save_loaded(dir.path(), &loaded, &SaveOptions { max_shard_bytes: limit, ..Default::default() }).unwrap();
    let index: Value =
        serde_json::from_slice(&fs::read(dir.path().join("model.safetensors.index.json")).unwrap()).unwrap();
    assert_eq!(index["metadata"]["total_size"], report.bytes);
    assert_eq!(index["weight_map"].as_object().unwrap().len(), report.tensors);
    for i in 1..=report.files {
        let name = format!("model-{i:05}-of-{:05}.safetensors", report.files);
        let tensors = read_file(&dir.path().join(&name));
        let bytes: usize = tensors.values().map(|t| t.bytes.len()).sum();
        assert!(bytes as u64 <= limit || tensors.len() == 1, "{name}: {bytes} bytes");
        tensors.keys().for_each(|tensor| assert_eq!(index["weight_map"][tensor], name));
    }
}

#[test]
fn saving_over_a_checkpoint_leaves_no_old_weights_and_keeps_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    let loaded = load(&fixture("base")).unwrap();
    save_loaded(&target, &loaded, &SaveOptions { max_shard_bytes: 50_000, ..Default::default() }).unwrap();
    fs::write(target.join("README.md"), "mine").unwrap();
    fs::write(target.join("tokenizer.json"), "{}").unwrap();
    // From the very folder it is saved to, whose files are still mapped.
    let sharded = load(&target).unwrap();
    save_loaded(&target, &sharded, &SaveOptions::default()).unwrap();
    assert_eq!(names(&target), ["README.md", "config.json", "model.safetensors", "tokenizer.json"]);
    assert_eq!(names(dir.path()), ["model"]);
    same(&read_all(&target), &read_file(&fixture("base").join("model.safetensors")));

    let other = dir.path().join("other");
    let from = SaveOptions { copy_from: Some(&target), ..Default::default() };
    let report = save_loaded(&other, &loaded, &from).unwrap();
    assert_eq!(report.copied, ["tokenizer.json"]);
    assert_eq!(names(&other), ["config.json", "model.safetensors", "tokenizer.json"]);
}

#[test]
fn saved_numbers_are_rounded_to_their_format_and_the_config_says_which() {
    let dir = tempfile::tempdir().unwrap();
    let mut loaded = load(&fixture("base")).unwrap();
    loaded.tensors.iter_mut().for_each(|tensor| tensor.dtype = DiskDtype::BF16);
    save_loaded(dir.path(), &loaded, &SaveOptions::default()).unwrap();
    let again = load(dir.path()).unwrap();
    assert_eq!(again.config.dtype.as_deref(), Some("bfloat16"));
    for (a, b) in again.tensors.iter().zip(&loaded.tensors) {
        let rounded: Vec<f32> = b.data.iter().map(|&value| half::bf16::from_f32(value).to_f32()).collect();
        assert_eq!(a.data, rounded, "{}", a.name);
    }
}

#[test]
fn wrong_tensors_are_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    let check = |change: &dyn Fn(&mut Loaded), parts: &[&str]| {
        let mut loaded = load(&fixture("base")).unwrap();
        change(&mut loaded);
        let text = save_loaded(&target, &loaded, &SaveOptions::default()).unwrap_err().to_string();
        parts.iter().for_each(|part| assert!(text.contains(part), "{text:?} lacks {part:?}"));
        assert_eq!(names(dir.path()), [""; 0]);
    };
    check(&|l| drop(l.tensors.remove(3)), &["backbone.layers.0.mixer.A_log", "no such tensor"]);
    check(&|l| l.tensors.push(l.tensors[0].clone()), &["backbone.embeddings.weight", "twice"]);
    check(&|l| l.tensors[0].shape = vec![64, 256], &["backbone.embeddings.weight", "[64, 256]", "[256, 64]"]);
    check(&|l| l.tensors[0].data.truncate(9), &["backbone.embeddings.weight", "elements"]);
    check(&|l| l.tensors[4].data[2] = f32::NAN, &["backbone.layers.0.mixer.D", "NaN", "element 2"]);
    check(
        &|l| {
            l.tensors[4].data[5] = 1e6;
            l.tensors[4].dtype = DiskDtype::F16;
        },
        &["1000000", "element 5", "F16"],
    );
    check(&|l| l.config.layers.truncate(4), &["backbone.layers.4", "no place"]);
}

/// The child of the next test: saves a model where files may not grow that large.
#[test]
fn child_that_saves_too_much() {
    let Ok(path) = std::env::var("AUTOCOMPRESS_TEST_SAVE") else { return };
    let target = Path::new(&path);
    let error = save_loaded(target, &load(&fixture("latent")).unwrap(), &SaveOptions::default()).unwrap_err();
    let expected = target.join("model.safetensors");
    assert!(matches!(&error, Error::Io { path, .. } if *path == expected), "{error}");
    fs::write(target.join("refused"), "").unwrap();
}

#[test]
fn a_save_that_the_system_stops_midway_leaves_the_old_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("model");
    save_loaded(&target, &load(&fixture("base")).unwrap(), &SaveOptions::default()).unwrap();
    // The limit's signal ignored, write(2) itself fails part of the way, as on a full disk.
    let status = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 200; exec \"$0\" --exact child_that_saves_too_much"])
        .arg(std::env::current_exe().unwrap())
        .env("AUTOCOMPRESS_TEST_SAVE", &target)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(names(dir.path()), ["model"]);
    // Among them the child's own word that it came to the end.
    assert_eq!(names(&target), ["config.json", "model.safetensors", "refused"]);
    same(&read_all(&target), &read_file(&fixture("base").join("model.safetensors")));
}

#[test]
fn layers_of_different_sizes_are_saved_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = load(&fixture("latent")).unwrap().config;
    let Layer::Moe(moe) = config.layers[1] else { panic!() };
    config.layers.push(Layer::Moe(Moe { experts: 3, top_k: 2, intermediate: 16, shared_intermediate: 0, ..moe }));
    let specs = config.tensors();
    let data: Vec<Vec<f32>> = specs.iter().enumerate().map(|(i, spec)| vec![i as f32; spec.elements()]).collect();
    let tensors: Vec<TensorToSave> = specs
        .iter()
        .zip(&data)
        .map(|(spec, data)| TensorToSave { name: &spec.name, shape: &spec.shape, dtype: DiskDtype::BF16, data })
        .collect();
    save(dir.path(), &config, &tensors, &SaveOptions::default()).unwrap();
    let loaded = load(dir.path()).unwrap();
    assert_eq!(loaded.config.layers, config.layers);
    assert_eq!(loaded.config.json["model_type"], "nemotron_h_puzzle");
    loaded.tensors.iter().zip(&data).for_each(|(tensor, data)| assert_eq!(&tensor.data, data, "{}", tensor.name));
}

// ---- MTP heads and tied embeddings ----

/// The base model with an MTP head of attention and MoE.
fn with_mtp() -> tempfile::TempDir {
    let dir = changed("base", |tensors| {
        let mut layer = |from: usize, to: usize| {
            let before = format!("backbone.layers.{from}.");
            let of: Vec<(String, Stored)> = tensors
                .iter()
                .filter(|(name, _)| name.starts_with(&before))
                .map(|(n, t)| (n.clone(), t.clone()))
                .collect();
            tensors.extend(of.into_iter().map(|(n, t)| (n.replace(&before, &format!("mtp.layers.{to}.")), t)));
        };
        layer(2, 0);
        layer(1, 1);
        for (name, shape) in [
            ("0.eh_proj", vec![64, 128]),
            ("0.enorm", vec![64]),
            ("0.hnorm", vec![64]),
            ("1.final_layernorm", vec![64]),
        ] {
            tensors.insert(format!("mtp.layers.{name}.weight"), f32s(&shape, std::iter::repeat(0.5)));
        }
    });
    set_config(dir.path(), &[("num_nextn_predict_layers", json!(1))]);
    dir
}

#[test]
fn an_mtp_head_is_kept_or_dropped_and_said() {
    let dir = with_mtp();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let kept = checkpoint.load(KEEP).unwrap();
    assert_eq!((kept.carried.len(), kept.report.carried, kept.report.dropped.len()), (30, 30, 0));
    assert_eq!(kept.config.disk_tensors().mtp, 30);
    let again = tempfile::tempdir().unwrap();
    save_loaded(again.path(), &kept, &SaveOptions { max_shard_bytes: 90_000, ..Default::default() }).unwrap();
    same(&read_all(again.path()), &read_all(dir.path()));

    let dropped = checkpoint.load(DROP).unwrap();
    assert_eq!((dropped.carried.len(), dropped.report.dropped.len()), (0, 30));
    assert!(dropped.report.dropped.contains(&"mtp.layers.0.eh_proj.weight".to_owned()));
    assert_eq!(dropped.config.mtp, None);
    let again = tempfile::tempdir().unwrap();
    save_loaded(again.path(), &dropped, &SaveOptions::default()).unwrap();
    same(&read_all(again.path()), &read_file(&fixture("base").join("model.safetensors")));
    assert_eq!(load(again.path()).unwrap().config.json["num_nextn_predict_layers"], 0);

    // A head that the configuration does not announce, or announces in vain.
    set_config(dir.path(), &[("num_nextn_predict_layers", json!(0))]);
    refused(dir.path(), &["mtp.layers.0", "no place"]);
    let lacking = changed("base", |_| {});
    set_config(lacking.path(), &[("num_nextn_predict_layers", json!(1))]);
    refused(lacking.path(), &["mtp.layers.0.eh_proj.weight", "no such tensor, and 15 more"]);
    assert!(Checkpoint::open(lacking.path()).unwrap().load(DROP).is_ok());
    // Announced, but not given to be saved.
    let mut kept = checkpoint.load(KEEP).unwrap();
    kept.carried.pop();
    let error = save_loaded(again.path(), &kept, &SaveOptions::default()).unwrap_err().to_string();
    assert!(error.contains("mtp.layers.1"), "{error}");
}

#[test]
fn a_tied_head_is_optional_on_disk_and_written_as_a_copy() {
    let tied = [("tie_word_embeddings", json!(true))];
    let none = changed("base", |tensors| drop(tensors.remove("lm_head.weight")));
    refused(none.path(), &["lm_head.weight", "no such tensor"]);
    set_config(none.path(), &tied);
    let loaded = load(none.path()).unwrap();
    assert_eq!(loaded.report.dropped.len(), 0);
    let again = tempfile::tempdir().unwrap();
    save_loaded(again.path(), &loaded, &SaveOptions::default()).unwrap();
    // transformers does not tie them for this family: without the copy its head would be random.
    let saved = read_all(again.path());
    assert_eq!(saved["lm_head.weight"], saved["backbone.embeddings.weight"]);
    let reloaded = load(again.path()).unwrap();
    assert_eq!(reloaded.report.dropped, ["lm_head.weight"]);
    assert_eq!(reloaded.tensors.len(), loaded.tensors.len());

    let copy = changed("base", |tensors| {
        let embedding = tensors["backbone.embeddings.weight"].clone();
        tensors.insert("lm_head.weight".into(), embedding);
    });
    set_config(copy.path(), &tied);
    assert_eq!(load(copy.path()).unwrap().report.dropped, ["lm_head.weight"]);

    let other = changed("base", |_| {});
    set_config(other.path(), &tied);
    refused(other.path(), &["lm_head.weight", "differs from the embedding", "tie_word_embeddings"]);
}

// ---- wrong tensors ----

#[test]
fn tensors_that_do_not_fit_the_model_are_refused_by_name() {
    let up = "backbone.layers.1.mixer.experts.5.up_proj.weight";
    let dir = changed("base", |tensors| drop(tensors.remove(up)));
    refused(dir.path(), &[up, "no such tensor"]);
    let dir = changed("base", |tensors| {
        tensors.remove("backbone.layers.3.mixer.D");
        tensors.remove("backbone.norm_f.weight");
    });
    refused(dir.path(), &["backbone.layers.3.mixer.D", "and 1 more"]);
    for stranger in [
        "backbone.layers.1.mixer.experts.8.up_proj.weight",
        "backbone.layers.1.mixer.experts.05.up_proj.weight",
        "backbone.layers.9.norm.weight",
        "extra",
    ] {
        let dir = changed("base", |tensors| drop(tensors.insert(stranger.into(), f32s(&[1], [0.0].into_iter()))));
        refused(dir.path(), &["model.safetensors", stranger, "no place"]);
    }
    let dir = changed("base", |tensors| {
        let old = tensors[up].clone();
        tensors.insert("model.layers.1.mixer.experts.5.up_proj.weight".into(), old);
    });
    refused(dir.path(), &["model.layers.1.mixer.experts.5", "also as backbone.layers.1.mixer.experts.5", "once"]);
    let dir = changed("base", |tensors| {
        let stacked = f32s(&[8, 48, 64], std::iter::repeat(0.0));
        tensors.insert("backbone.layers.1.mixer.experts.up_proj".into(), stacked);
    });
    refused(dir.path(), &["backbone.layers.1.mixer.experts.up_proj", "also as", "once"]);
    let dir = changed("base", |tensors| tensors.get_mut(up).unwrap().shape.reverse());
    refused(dir.path(), &[up, "[64, 48]", "[48, 64]"]);
    let dir = changed("base", |tensors| {
        let conv = tensors.get_mut("backbone.layers.0.mixer.conv1d.weight").unwrap();
        conv.shape = vec![192, 4];
    });
    refused(dir.path(), &["conv1d.weight", "[192, 4]", "[192, 1, 4]"]);
    let dir = changed("base_bf16", |tensors| drop(tensors.insert(up.into(), f32s(&[48, 64], std::iter::repeat(0.0)))));
    refused(dir.path(), &[up, "F32", "BF16"]);
}

#[test]
fn unsupported_dtypes_are_named() {
    let weight = "backbone.layers.2.mixer.q_proj.weight";
    for (dtype, bytes) in [("U8", 1), ("F8_E4M3", 1), ("I64", 8), ("F64", 8)] {
        let dir = changed("base", |tensors| {
            let tensor = tensors.get_mut(weight).unwrap();
            tensor.bytes = vec![0; bytes * 64 * 64];
            tensor.dtype = dtype.into();
        });
        refused(dir.path(), &[weight, dtype, "quantised checkpoints are not read yet"]);
    }
    let dir = changed("base", |tensors| tensors.get_mut(weight).unwrap().dtype = "F99".into());
    refused(dir.path(), &[weight, "F99", "a safetensors dtype"]);
}

#[test]
fn numbers_that_are_not_finite_are_told() {
    let name = "backbone.layers.1.mixer.experts.6.down_proj.weight";
    for (value, text) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let dir = changed("base", |tensors| {
            let bytes = &mut tensors.get_mut(name).unwrap().bytes;
            bytes[4 * 77..][..4].copy_from_slice(&value.to_le_bytes());
        });
        refused(dir.path(), &[name, text, "element 77"]);
    }
}

// ---- broken files ----

/// A folder with the base configuration and the given bytes as weights.
fn with_bytes(bytes: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::copy(fixture("base").join("config.json"), dir.path().join("config.json")).unwrap();
    fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
    dir
}

#[test]
fn broken_headers_are_told_apart() {
    let whole = fs::read(fixture("base").join("model.safetensors")).unwrap();
    let check = |bytes: &[u8], parts: &[&str]| {
        let parts = [&["model.safetensors"], parts].concat();
        refused(with_bytes(bytes).path(), &parts);
    };
    check(b"", &["0 bytes"]);
    check(&whole[..7], &["7 bytes"]);
    check(&whole[..100], &["header length", "of a file of 100"]);
    check(&whole[..whole.len() - 1], &["cut short"]);
    check(&whole[..whole.len() / 2], &["cut short"]);
    check(&[&whole[..], b"more"].concat(), &["bytes of data", "that the header lists"]);
    check(&[&u64::MAX.to_le_bytes(), &whole[8..]].concat(), &["header length", "18446744073709551615"]);
    check(&[&2u64.to_le_bytes()[..], b"{]"].concat(), &["header"]);
    check(&[&2u64.to_le_bytes()[..], b"\xff\xff"].concat(), &["header"]);
    check(&[&2u64.to_le_bytes()[..], b"[]"].concat(), &["header"]);
    // No tensors: a valid file, and none of the model.
    refused(
        with_bytes(&[&2u64.to_le_bytes()[..], b"{}"].concat()).path(),
        &["backbone.embeddings.weight", "no such tensor"],
    );
}

#[test]
fn broken_offsets_and_names_are_told_apart() {
    let tensors = read_file(&fixture("base").join("model.safetensors"));
    let list: Vec<(&str, &Stored)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let header = header_of(&list);
    let check = |change: &dyn Fn(&mut Map<String, Value>), parts: &[&str]| {
        let mut header = header.clone();
        change(&mut header);
        refused(with_bytes(&file_bytes(&Value::Object(header).to_string(), &list)).path(), parts);
    };
    let d = "backbone.layers.0.mixer.D";
    let at = |i: usize| header[d]["data_offsets"][i].as_u64().unwrap();
    let set = |header: &mut Map<String, Value>, from: u64, to: u64| header[d]["data_offsets"] = json!([from, to]);
    check(&|h| set(h, at(0) - 4, at(1) - 4), &[d, "an overlap"]);
    check(&|h| set(h, at(0) + 4, at(1) + 4), &["a gap"]);
    check(&|h| set(h, at(1), at(0)), &[d, "data_offsets"]);
    check(&|h| set(h, at(0), 1 << 50), &[d, "data_offsets", "cut short"]);
    check(&|h| h[d]["data_offsets"] = json!([-1, 3]), &["header"]);
    check(&|h| h[d]["shape"] = json!([9]), &[d, "32 bytes", "9 elements"]);
    check(&|h| h[d]["shape"] = json!([1u64 << 40, 1u64 << 40]), &[d, "more than 2^64"]);
    check(&|h| h[d] = json!({"dtype": "F32"}), &["header", "shape"]);
    check(&|h| h[d] = json!(3), &["header"]);
    let twice = Value::Object(header.clone()).to_string().replace("layers.3.mixer.D\"", "layers.0.mixer.D\"");
    refused(with_bytes(&file_bytes(&twice, &list)).path(), &[d, "twice"]);
}

/// A sharded copy of the base fixture, and its index.
fn sharded() -> (tempfile::TempDir, Value) {
    let dir = tempfile::tempdir().unwrap();
    let options = SaveOptions { max_shard_bytes: 300_000, ..Default::default() };
    let report = save_loaded(dir.path(), &load(&fixture("base")).unwrap(), &options).unwrap();
    assert_eq!(report.files, 3);
    let index = serde_json::from_slice(&fs::read(dir.path().join("model.safetensors.index.json")).unwrap()).unwrap();
    (dir, index)
}

fn set_index(dir: &Path, index: &Value) {
    fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

#[test]
fn a_broken_index_is_refused() {
    let (first, last) = ("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors");
    let check = |change: &dyn Fn(&Path, &mut Value), parts: &[&str]| {
        let (dir, mut index) = sharded();
        change(dir.path(), &mut index);
        set_index(dir.path(), &index);
        refused(dir.path(), parts);
    };
    let embedding = "backbone.embeddings.weight";
    check(&|dir, _| fs::remove_file(dir.join(last)).unwrap(), &["index.json", last, "not there"]);
    check(&|_, index| index["weight_map"][embedding] = json!(last), &["index.json", embedding, last, first]);
    check(&|_, index| index["weight_map"]["ghost"] = json!(last), &["index.json", "ghost", "lacks it"]);
    check(
        &|_, index| drop(index["weight_map"].as_object_mut().unwrap().remove(embedding)),
        &[first, embedding, "does not list"],
    );
    check(&|_, index| index["weight_map"][embedding] = json!("../model.safetensors"), &[embedding, "../model"]);
    check(&|_, index| index["weight_map"][embedding] = json!(7), &["index.json", "weight_map"]);
    check(&|_, index| *index = json!({}), &["index.json", "weight_map"]);
    check(
        &|dir, _| {
            let mut tensors = read_file(&dir.join(last));
            tensors.extend(read_file(&dir.join(first)).into_iter().filter(|(name, _)| name == embedding));
            write_file(&dir.join(last), &tensors);
        },
        &[last, embedding, "it also in", first],
    );
    check(&|dir, _| fs::rename(dir.join(last), dir.join("model.safetensors")).unwrap(), &["both"]);
    let (dir, index) = sharded();
    let text =
        index.to_string().replacen("\"weight_map\":{", &format!("\"weight_map\":{{\"{embedding}\":\"{first}\","), 1);
    fs::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
    refused(dir.path(), &[embedding, "twice"]);
}

#[test]
fn a_folder_without_a_model_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let error = load(dir.path()).unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("cannot read"), "{error}");
    fs::copy(fixture("base").join("config.json"), dir.path().join("config.json")).unwrap();
    refused(dir.path(), &["neither file", "model.safetensors"]);
    fs::write(dir.path().join("config.json"), "{\"model_type\": ").unwrap();
    refused(dir.path(), &["config.json", "line 1"]);
}

#[test]
fn a_configuration_of_a_million_gigabytes_costs_nothing_to_refuse() {
    let dir = changed("base", |_| {});
    set_config(dir.path(), &[("vocab_size", json!(1u64 << 28)), ("hidden_size", json!(1u64 << 20))]);
    refused(dir.path(), &["[256, 64]", "[268435456, 1048576]"]);
    set_config(dir.path(), &[("hidden_size", json!(1u64 << 21))]);
    refused(dir.path(), &["config.json", "backbone.embeddings.weight", "2^48"]);
}

// ---- inspection ----

#[test]
fn inspection_reads_headers_or_a_configuration_alone() {
    let info = CheckpointInfo::read(&fixture("base_bf16")).unwrap();
    let stored = info.stored.unwrap();
    let total = info.parameters.total;
    assert_eq!((stored.files, stored.tensors, stored.bytes), (1, info.tensors.model, 2 * total));
    assert_eq!(stored.by_dtype["BF16"], (stored.tensors, 2 * total));
    assert_eq!((info.bytes_at.f32, info.bytes_at.bf16), (4 * total, 2 * total));
    // The embedding, the gate, the convolutions and the vectors stay at two bytes.
    let low: u64 = info.config.tensors().iter().filter(|s| s.is_linear()).map(|s| s.elements() as u64).sum();
    let tensors: u64 = info.config.tensors().iter().filter(|s| s.is_linear()).map(|s| s.disk_count() as u64).sum();
    let high = 256 * 64 + 8 * 64 + 2 * 192 * 4 + 2 * (192 + 3 * 8 + 128) + 8 + 6 * 64;
    assert_eq!(total - low, high);
    assert_eq!(info.bytes_at.fp8, low + 4 * tensors + 2 * high);
    assert_eq!(info.bytes_at.nvfp4, low * 9 / 16 + 4 * tensors + 2 * high);

    let bare = CheckpointInfo::read(&fixture("base_bf16").join("config.json")).unwrap();
    assert_eq!((bare.stored, bare.parameters), (None, info.parameters));
    let preset = Path::new(env!("CARGO_MANIFEST_DIR")).join("presets/parents/lightning.json");
    assert_eq!(CheckpointInfo::read(&preset).unwrap().tensors.mtp, 270);
}

// ---- any damage ----

/// A model of a few hundred bytes.
fn tiny() -> (Config, Vec<u8>) {
    let mut config = Config::from_file(&fixture("base").join("config.json")).unwrap();
    config.vocab_size = 3;
    config.hidden_size = 2;
    config.layers.truncate(2);
    for layer in &mut config.layers {
        match layer {
            Layer::Mamba(m) => (m.heads, m.head_dim, m.groups, m.state) = (2, 1, 1, 1),
            Layer::Moe(m) => (m.experts, m.top_k, m.intermediate, m.shared_intermediate) = (2, 1, 1, 1),
            _ => {}
        }
    }
    let specs = config.tensors();
    let data: Vec<Vec<f32>> = specs.iter().map(|spec| vec![0.25; spec.elements()]).collect();
    let tensors: Vec<TensorToSave> = specs
        .iter()
        .zip(&data)
        .map(|(spec, data)| TensorToSave { name: &spec.name, shape: &spec.shape, dtype: DiskDtype::BF16, data })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), &config, &tensors, &SaveOptions::default()).unwrap();
    (load(dir.path()).unwrap().config, fs::read(dir.path().join("model.safetensors")).unwrap())
}

#[derive(Debug, Clone)]
enum Damage {
    Flip { at: prop::sample::Index, bit: u8 },
    Truncate { at: prop::sample::Index },
    Length { value: u64 },
    Splice { at: prop::sample::Index, remove: usize, bytes: Vec<u8> },
    Digit { at: prop::sample::Index, digit: u8 },
    Swap { from: prop::sample::Index, to: prop::sample::Index, bytes: usize },
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>;
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        prop::sample::select(vec![
            "\"",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "null",
            "-1",
            "1e99",
            "18446744073709551615",
            "[[[[",
            "\\u0000",
            "__metadata__"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop_oneof![
        (at(), 0u8..8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        at().prop_map(|at| Damage::Truncate { at }),
        prop_oneof![any::<u64>(), 0u64..4000].prop_map(|value| Damage::Length { value }),
        (at(), 0usize..30, piece).prop_map(|(at, remove, bytes)| Damage::Splice { at, remove, bytes }),
        (at(), b'0'..=b'9').prop_map(|(at, digit)| Damage::Digit { at, digit }),
        (at(), at(), 1usize..60).prop_map(|(from, to, bytes)| Damage::Swap { from, to, bytes }),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    if bytes.len() < 8 {
        return;
    }
    match damage {
        Damage::Flip { at, bit } => {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        Damage::Truncate { at } => bytes.truncate(at.index(bytes.len())),
        Damage::Length { value } => bytes[..8].copy_from_slice(&value.to_le_bytes()),
        Damage::Splice { at, remove, bytes: piece } => {
            let at = at.index(bytes.len());
            let end = (at + remove).min(bytes.len());
            bytes.splice(at..end, piece.iter().copied());
        }
        // A digit of the header: sizes and offsets that still parse.
        Damage::Digit { at, digit } => {
            let digits: Vec<usize> = (8..bytes.len()).filter(|&i| bytes[i].is_ascii_digit()).collect();
            if !digits.is_empty() {
                bytes[digits[at.index(digits.len())]] = *digit;
            }
        }
        Damage::Swap { from, to, bytes: length } => {
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let length = (*length).min(bytes.len() - from).min(bytes.len() - to);
            let piece = bytes[from..from + length].to_vec();
            bytes[to..to + length].copy_from_slice(&piece);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    /// Whatever happens to a file, loading it gives the model or a typed error: no panic, no endless loop, no
    /// allocation beyond what the file itself justifies (one that failed would abort the test).
    #[test]
    fn no_damage_to_a_file_breaks_the_loader(damages in prop::collection::vec(damage(), 1..4)) {
        static TINY: std::sync::LazyLock<(Config, Vec<u8>)> = std::sync::LazyLock::new(tiny);
        let (config, whole) = &*TINY;
        let mut bytes = whole.clone();
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), Value::Object(config.json.clone()).to_string()).unwrap();
        fs::write(dir.path().join("model.safetensors"), &bytes).unwrap();
        match load(dir.path()) {
            Ok(loaded) => prop_assert_eq!(loaded.report.parameters, config.parameters().total),
            Err(error) => prop_assert!(matches!(error, Error::Input { .. }), "{}", error),
        }
    }

    /// The same for the configuration.
    #[test]
    fn no_damage_to_a_configuration_breaks_the_parser(damages in prop::collection::vec(damage(), 1..4)) {
        static TEXT: std::sync::LazyLock<Vec<u8>> =
            std::sync::LazyLock::new(|| fs::read(fixture("base").join("config.json")).unwrap());
        let mut bytes = TEXT.clone();
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), &bytes).unwrap();
        if let Ok(info) = CheckpointInfo::read(&dir.path().join("config.json")) {
            // What was accepted can be written and is read back the same.
            let json = info.config.to_json().unwrap();
            let again = Config::from_json(Path::new("again"), json).unwrap();
            prop_assert_eq!(again.layers, info.config.layers);
        }
    }
}
