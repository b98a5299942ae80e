//! What is refused, and what a failure leaves.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use autocompress::cost::Format;
use autocompress::export::export;
use autocompress::model::checkpoint::DiskDtype;
use serde_json::{Value, json};

use crate::models::{Folder, edit, model, tiny_parent};
use crate::values::options;

const PROGRAM: &str = env!("CARGO_BIN_EXE_autocompress");

fn run<S: AsRef<OsStr>>(args: &[S]) -> Output {
    Command::new(PROGRAM).args(args).output().unwrap()
}

/// Makes the first element of a tensor in a file of F32 weights something else.
fn damage(model: &Path, tensor: &str, value: f32) {
    let path = model.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let at = 8 + length + header[tensor]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[at + 8..at + 12].copy_from_slice(&value.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn weights_that_are_not_finite_are_refused_by_name_and_nothing_is_left() {
    let folder = Folder::new();
    let tensors = [
        "backbone.layers.1.mixer.experts.2.down_proj.weight",
        "backbone.layers.2.mixer.k_proj.weight",
        "backbone.layers.0.mixer.A_log",
        "lm_head.weight",
    ];
    for (tensor, value, word) in tensors.iter().flat_map(|t| [(t, f32::NAN, "NaN"), (t, f32::INFINITY, "inf")]) {
        let from = folder.save("model", &model(json!({})), DiskDtype::F32);
        damage(&from, tensor, value);
        for format in [Format::Fp8, Format::Nvfp4] {
            let error = export(&from, &folder.path("out"), &options(format)).unwrap_err();
            let text = error.to_string();
            let parts = [*tensor, &format!("{word} at element 2"), "model.safetensors"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert_eq!(error.exit_code(), 2);
            assert_eq!(folder.names(""), ["model"], "{tensor}");
        }
    }
}

#[test]
fn a_failure_keeps_an_earlier_export() {
    let folder = Folder::new();
    let from = folder.save("model", &model(json!({})), DiskDtype::F32);
    let out = folder.path("out");
    export(&from, &out, &options(Format::Fp8)).unwrap();
    let before: Vec<_> = folder.names("out").iter().map(|name| fs::read(out.join(name)).unwrap()).collect();
    let mut lm = model(json!({}));
    edit(&mut lm, "backbone.embeddings.weight", |values| values[7] = 3.4e38);
    let from = folder.save("model", &lm, DiskDtype::F32);
    // Finite in f32, not in bf16.
    let error = export(&from, &out, &options(Format::Nvfp4)).unwrap_err().to_string();
    assert!(error.contains("backbone.embeddings.weight") && error.contains("finite in BF16"), "{error}");
    let after: Vec<_> = folder.names("out").iter().map(|name| fs::read(out.join(name)).unwrap()).collect();
    assert!(before == after);
    // It is replaced by one that succeeds.
    let from = folder.save("model", &model(json!({})), DiskDtype::F32);
    export(&from, &out, &options(Format::Nvfp4)).unwrap();
    assert!(fs::read_to_string(out.join("config.json")).unwrap().contains("W4A16_NVFP4"));
    assert_eq!(folder.names(""), ["model", "out"]);
}

#[test]
fn a_full_disk_leaves_nothing() {
    let folder = Folder::new();
    let (from, out) = (tiny_parent(), folder.path("out"));
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\"", PROGRAM]);
    shell.args([
        "export".as_ref(),
        from.as_os_str(),
        "--weights".as_ref(),
        "fp8".as_ref(),
        "--out".as_ref(),
        out.as_os_str(),
    ]);
    let output = shell.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && err.contains("model.safetensors") && err.contains("write"), "{err}");
    assert!(folder.names("").is_empty());
}

#[test]
fn other_folders_are_never_written_over() {
    let folder = Folder::new();
    let from = folder.save("model", &model(json!({})), DiskDtype::F32);
    fs::create_dir(folder.path("mine")).unwrap();
    fs::write(folder.path("mine/notes.txt"), "a user's").unwrap();
    fs::write(folder.path("file"), "a user's").unwrap();
    std::os::unix::fs::symlink(&from, folder.path("link")).unwrap();
    for (out, part) in [
        ("model", "the model itself"),
        ("link", "the model itself"),
        ("", "the model itself"),
        ("mine", "notes.txt, which no export writes"),
        ("file", "something else"),
    ] {
        let error = export(&from, &folder.path(out), &options(Format::Fp8)).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(part), "{out}: {error}");
    }
    assert_eq!(
        (folder.names("mine"), folder.names("model")),
        (vec!["notes.txt".into()], vec!["config.json".into(), "model.safetensors".into()])
    );
    // An empty folder is as good as none.
    fs::create_dir(folder.path("empty")).unwrap();
    export(&from, &folder.path("empty"), &options(Format::Fp8)).unwrap();
    // An earlier export is replaced, unless somebody has put something beside it.
    export(&from, &folder.path("empty"), &options(Format::Fp8)).unwrap();
    fs::write(folder.path("empty/notes.txt"), "a user's").unwrap();
    let error = export(&from, &folder.path("empty"), &options(Format::Fp8)).unwrap_err();
    assert!(error.to_string().contains("notes.txt, which no export writes"), "{error}");
    fs::remove_file(folder.path("empty/notes.txt")).unwrap();
    // A quantised checkpoint is not quantised again.
    let error = export(&folder.path("empty"), &folder.path("again"), &options(Format::Fp8)).unwrap_err().to_string();
    assert!(error.contains("quantised checkpoints are not read"), "{error}");
}

#[test]
fn the_command_wants_one_format() {
    let folder = Folder::new();
    let (from, out) = (tiny_parent(), folder.path("out"));
    let refused = |more: &[&str], code: i32, parts: &[&str]| {
        let args: Vec<&str> = ["export", from.to_str().unwrap(), "--out", out.to_str().unwrap()]
            .into_iter()
            .chain(more.iter().copied())
            .collect();
        let output = run(&args);
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && parts.iter().all(|part| err.contains(part)), "{err}");
        assert!(folder.names("").is_empty());
    };
    refused(&[], 2, &["--weights", "--contract"]);
    refused(&["--weights", "int4"], 2, &["int4", "nvfp4"]);
    refused(&["--weights", "fp8", "--contract", "a.toml"], 2, &["cannot be used with"]);
    refused(&["--contract", "missing.toml"], 2, &["missing.toml"]);
    let f32 = concat!(env!("CARGO_MANIFEST_DIR"), "/presets/contracts/half.toml");
    refused(&["--contract", f32], 2, &["half.toml", "precision", "below f32"]);
    let output =
        run(&["export", from.to_str().unwrap(), "--out", out.to_str().unwrap(), "--weights", "nvfp4", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && told["changed"].as_array().unwrap().len() > 100, "{told}");
    let output = run(&["export", from.to_str().unwrap(), "--out", out.to_str().unwrap(), "--weights", "nvfp4"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("experts") && text.contains("nvfp4"), "{text}");
    println!("{text}");
}
