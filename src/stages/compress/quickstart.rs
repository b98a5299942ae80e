//! The embedded first run: the tiny parent, half of its latency and half of its memory.

use std::path::{Path, PathBuf};

use crate::run::RunDir;
use crate::{Error, Result, files};

macro_rules! preset {
    ($path:literal) => {
        ($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/presets/", $path)).as_slice())
    };
}

/// What the run reads, by its path below the presets.
const PRESETS: [(&str, &[u8]); 5] = [
    preset!("parents/tiny/config.json"),
    preset!("parents/tiny/model.safetensors"),
    preset!("spaces/tiny.toml"),
    preset!("contracts/half.toml"),
    preset!("recipes/quickstart.toml"),
];

/// The run directory, in the same folder.
pub const RUN: &str = "run";

/// Writes the recipe and all it names below `folder`, where they are not there yet. Returns the recipe's path.
///
/// # Errors
/// [`Error::Input`] where a file of the same name is another, or [`RUN`] is no place for a run; nothing is written then.
pub fn unpack(folder: &Path) -> Result<PathBuf> {
    files::check_folder_place(folder)?;
    let mut missing = Vec::new();
    for (name, bytes) in PRESETS {
        let path = folder.join(name);
        match files::read(&path) {
            Ok(found) if found == bytes => {}
            Ok(_) => {
                let expected = "the preset of this version, or no such file: give another --out";
                return Err(Error::input(&path, "file", "another content", expected));
            }
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                missing.push((path, bytes))
            }
            Err(error) => return Err(error),
        }
    }
    RunDir::check_place(&folder.join(RUN))?;
    for (path, bytes) in missing {
        let parent = files::parent(&path);
        std::fs::create_dir_all(parent).map_err(Error::io(parent, "create"))?;
        files::write_atomic(&path, |file| file.write_all(bytes))?;
    }
    Ok(folder.join("recipes/quickstart.toml"))
}
