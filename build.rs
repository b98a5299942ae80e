//! Embeds the device code: the committed `ptx/`, or where `NVCC` names a compiler, what it makes of `cuda/` here and now.
//!
//! Writes `$OUT_DIR/ptx.rs`, which src/device/cuda/embedded.rs includes. A build needs neither CUDA nor a GPU.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// As in scripts/ptx.
const FLAGS: [&str; 2] = ["-O3", "--std=c++17"];
const PORTABLE: &str = "compute_80";

fn main() {
    if let Err(problem) = embed() {
        eprintln!("{problem}");
        std::process::exit(1);
    }
}

fn embed() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=cuda");
    println!("cargo::rerun-if-changed=ptx");
    println!("cargo::rerun-if-env-changed=NVCC");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo set no CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo set no OUT_DIR")?);
    let (cuda, ptx) = (root.join("cuda"), root.join("ptx"));
    let manifest = read(&ptx.join("manifest.json"))?;

    // The arguments' layout is a matter of safety: it is never taken from a stale file, not even with NVCC.
    fresh(&manifest, "abi", &cuda, &[cuda.join("abi.h")])?;
    let modules = match env::var_os("NVCC") {
        Some(nvcc) => compile(Path::new(&nvcc), &cuda, &out)?,
        None => {
            fresh(&manifest, "sources", &cuda, &sources(&cuda)?)?;
            files(&ptx, "ptx")?
        }
    };
    let text = generated(&modules, &ptx, &cuda)?;
    fs::write(out.join("ptx.rs"), text).map_err(|e| format!("{}: {e}", out.join("ptx.rs").display()))
}

/// An error unless the manifest's digest under `key` is that of the files as they are.
fn fresh(manifest: &str, key: &str, cuda: &Path, files: &[PathBuf]) -> Result<(), String> {
    let recorded = manifest.split_once(&format!("\"{key}\": \"")).and_then(|(_, rest)| rest.split('"').next());
    let found = digest(cuda, files)?;
    if recorded == Some(found.as_str()) {
        return Ok(());
    }
    Err(format!(
        "ptx/ was not made from cuda/ as it is now (digest of {key}: ptx/manifest.json has {}, cuda/ is {found}).\n\
         Run scripts/ptx and commit ptx/. To try changed kernels without it, set NVCC to a CUDA 13 nvcc.",
        recorded.unwrap_or("none"),
    ))
}

/// What device code depends on, in the order that the digest takes it.
fn sources(cuda: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![cuda.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in listed(&folder)? {
            match entry.extension().and_then(|e| e.to_str()) {
                _ if entry.is_dir() => folders.push(entry),
                Some("cu" | "cuh" | "h" | "toml") => found.push(entry),
                _ => {}
            }
        }
    }
    found.sort_by_key(|file| name_in(cuda, file));
    Ok(found)
}

/// 64-bit FNV-1a over names and contents, as in scripts/ptx: it notices stale output, it is no signature.
fn digest(cuda: &Path, files: &[PathBuf]) -> Result<String, String> {
    let mut value = 0xCBF2_9CE4_8422_2325u64;
    for file in files {
        let data = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let head = format!("{} {}\n", name_in(cuda, file), data.len());
        for byte in head.bytes().chain(data) {
            value = (value ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
    Ok(format!("{value:016x}"))
}

/// Compiles cuda/*.cu for the portable tier into `out`.
fn compile(nvcc: &Path, cuda: &Path, out: &Path) -> Result<Vec<PathBuf>, String> {
    let mut made = Vec::new();
    for source in files(cuda, "cu")? {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let target = out.join(format!("{stem}.{PORTABLE}.ptx"));
        let mut command = Command::new(nvcc);
        command.arg(format!("-arch={PORTABLE}")).args(FLAGS).arg("-ptx").arg(&source).arg("-o").arg(&target);
        let done = command.output().map_err(|e| format!("NVCC={}: {e}", nvcc.display()))?;
        if !done.status.success() {
            return Err(format!("{}: {}", source.display(), String::from_utf8_lossy(&done.stderr)));
        }
        made.push(target);
    }
    Ok(made)
}

/// The Rust text: the modules by name and tier, and the tables that describe their kernels.
fn generated(modules: &[PathBuf], ptx: &Path, cuda: &Path) -> Result<String, String> {
    let mut text =
        String::from("/// Device code, one module per source file and tier.\npub const MODULES: &[Module] = &[\n");
    for file in modules {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let mut parts = name.split('.');
        let (Some(module), Some(tier)) = (parts.next(), parts.next()) else {
            return Err(format!("{}: expected NAME.TIER.ptx", file.display()));
        };
        let _ = writeln!(text, "    Module {{ name: {module:?}, tier: {tier:?}, ptx: include_str!({file:?}) }},");
    }
    let _ = writeln!(text, "];");
    let _ = writeln!(
        text,
        "/// ptx/manifest.json.\npub const MANIFEST: &str = include_str!({:?});",
        ptx.join("manifest.json")
    );
    let _ = writeln!(
        text,
        "/// cuda/kernels.toml.\npub const KERNELS: &str = include_str!({:?});",
        cuda.join("kernels.toml")
    );
    let _ = writeln!(
        text,
        "/// The kernels' arguments, from cuda/abi.h.\n#[allow(clippy::all, rustdoc::all)]\npub mod abi {{ include!({:?}); }}",
        ptx.join("abi.rs")
    );
    Ok(text)
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let mut found: Vec<PathBuf> =
        listed(folder)?.into_iter().filter(|f| f.extension().is_some_and(|e| e == extension)).collect();
    found.sort();
    Ok(found)
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let read = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>();
    read().map_err(|e| format!("{}: {e}", folder.display()))
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|e| format!("{}: {e}\nRun scripts/ptx.", file.display()))
}

/// A file's name below `folder`, with forward slashes.
fn name_in(folder: &Path, file: &Path) -> String {
    file.strip_prefix(folder).unwrap_or(file).to_string_lossy().replace('\\', "/")
}
