//! Opening a run directory: the lock, and whose it is.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result, files};

const LOCK: &str = "lock";
/// The recipe as it was given.
pub const RECIPE: &str = "recipe.toml";
const INPUTS: &str = "inputs.json";

/// Something that a recipe reads: a parent's config, a token file. A run with other inputs is another run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// What it is to the recipe, such as `parent` or `data`.
    pub name: String,
    /// See [`super::digest_file`].
    pub digest: String,
}

/// A run directory that this process holds; the lock goes when it is dropped, or when the process dies.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    is_new: bool,
    _lock: File,
}

impl Input {
    /// An option of the command line that a run's results depend on, as the recipe does not tell it.
    pub fn option(name: &str, value: &str) -> Input {
        Input { name: name.into(), digest: value.into() }
    }

    fn is_option(name: &str) -> bool {
        name.starts_with("--")
    }
}

impl RunDir {
    /// Opens the run directory `path`, or makes it, and locks it. What processes that were killed left half-built anywhere
    /// in it is removed.
    ///
    /// Fails before any work where another process holds it ([`Error::Locked`]), where it cannot be written, where it
    /// holds something that is no run, or where it belongs to another recipe or to other inputs (which is said).
    pub fn create_or_open(path: &Path, recipe_text: &str, inputs: &[Input]) -> Result<RunDir> {
        refuse_foreign(path)?;
        fs::create_dir_all(path).map_err(Error::io(path, "create"))?;
        let lock = lock(path)?;
        // Only the holder of the lock may look further.
        let is_new = !path.join(RECIPE).exists();
        if !is_new {
            check_recipe(&path.join(RECIPE), recipe_text)?;
            check_inputs(&path.join(INPUTS), inputs)?;
        }
        files::remove_leftovers(path)?;
        if is_new {
            let list: BTreeMap<_, _> = inputs.iter().map(|input| (&input.name, &input.digest)).collect();
            files::write_json(&path.join(INPUTS), &list)?;
            // Last: where it is, the directory is complete.
            files::write_atomic(&path.join(RECIPE), |file| file.write_all(recipe_text.as_bytes()))?;
        }
        Ok(RunDir { path: path.to_path_buf(), is_new, _lock: lock })
    }

    /// Opens a run directory that is there, as [`RunDir::create_or_open`] does.
    ///
    /// # Errors
    /// Those of `create_or_open`, and [`Error::Input`] where `path` is no run directory: nothing is made then.
    pub fn open(path: &Path, recipe_text: &str, inputs: &[Input]) -> Result<RunDir> {
        if !is_run(path) {
            return Err(Error::input(path, "run directory", "no run", "one that `run` or its first stages have begun"));
        }
        RunDir::create_or_open(path, recipe_text, inputs)
    }

    /// Refuses a `path` where no run can be made or opened, without making anything: somebody's folder.
    pub fn check_place(path: &Path) -> Result<()> {
        refuse_foreign(path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True where this call made it: nothing to resume.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// A folder inside, made where it is not there.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.path.join(name);
        fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
        Ok(folder)
    }
}

/// Whether `path` is a run directory.
pub fn is_run(path: &Path) -> bool {
    path.join(RECIPE).exists() && path.join(INPUTS).exists()
}

/// A folder with content but without a recipe and its inputs is somebody's, and no run: a recipe alone is a user's own.
fn refuse_foreign(path: &Path) -> Result<()> {
    files::check_folder_place(path)?;
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io(path, "read")(error)),
    };
    if is_run(path) {
        return Ok(());
    }
    for entry in entries {
        let name = entry.map_err(Error::io(path, "read"))?.file_name();
        // What a process that was killed at the start leaves.
        if name != LOCK && name != INPUTS && !files::is_temporary(&name) {
            let found = format!("a folder without {RECIPE} and {INPUTS} that holds {name:?}");
            return Err(Error::input(path, "run directory", found, "a run directory, an empty folder, or nothing"));
        }
    }
    Ok(())
}

fn lock(run: &Path) -> Result<File> {
    let path = run.join(LOCK);
    let mut file = files::open_to_change(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let pid = match file.read_to_string(&mut pid) {
                Ok(_) if !pid.trim().is_empty() => pid.trim().to_owned(),
                _ => "(unknown)".into(),
            };
            return Err(Error::Locked { path: run.to_path_buf(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(Error::io(&path, "lock")(error)),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(Error::io(&path, "write"))?;
    Ok(file)
}

fn check_recipe(path: &Path, recipe: &str) -> Result<()> {
    let before = files::read_text(path)?;
    if before == recipe {
        return Ok(());
    }
    let (mut old, mut new) = (before.lines(), recipe.lines());
    let mut line = 0;
    let (old, new) = loop {
        line += 1;
        match (old.next(), new.next()) {
            (Some(a), Some(b)) if a == b => {}
            (None, None) => break ("another line ending", "the recipe's"),
            (a, b) => break (a.unwrap_or("the end"), b.unwrap_or("the end")),
        }
    };
    let expected = format!(
        "`{new}` as in the recipe given: this run directory belongs to another recipe, which needs another --out"
    );
    Err(Error::input(path, format!("line {line}"), format!("`{old}`"), expected))
}

fn check_inputs(path: &Path, inputs: &[Input]) -> Result<()> {
    let mut before: BTreeMap<String, String> = files::read_json(path, "digests by name")?;
    for Input { name, digest } in inputs {
        match before.remove(name) {
            Some(old) if old == *digest => {}
            Some(old) if Input::is_option(name) => {
                let found = format!("{name} {old} when the run began");
                return Err(Error::input(
                    path,
                    name,
                    found,
                    format!("{name} {old} again, not {digest}; or another --out"),
                ));
            }
            Some(old) => {
                let expected = format!(
                    "{digest}, the digest now: this input has changed since the run began; give another --out for it"
                );
                return Err(Error::input(path, name, format!("digest {old}"), expected));
            }
            None if Input::is_option(name) => {
                let expected = format!("the command without {name}, as the run began; or another --out");
                return Err(Error::input(path, name, format!("{name} {digest} now"), expected));
            }
            None => return Err(Error::input(path, name, "no such input", "one: the run began without this input")),
        }
    }
    match before.pop_first() {
        Some((name, value)) if Input::is_option(&name) => {
            let expected = format!("{name} {value}, as the run began; or another --out");
            Err(Error::input(path, &name, format!("no {name} now"), expected))
        }
        Some((name, _)) => {
            Err(Error::input(path, name, "an input that is not given now", "the inputs the run began with"))
        }
        None => Ok(()),
    }
}
