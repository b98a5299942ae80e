//! Files and folders that appear whole or not at all.
//!
//! Everything is built under a temporary name beside its place (`.NAME.PID-N.tmp`), synced to the disk, then renamed;
//! the folder that holds it is synced too, so that the rename itself survives a power cut. A failure on the way (a full
//! disk, a kill) leaves what was there before.

mod leftovers;
mod read;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use leftovers::{hold, temporary_beside};
pub use leftovers::{is_temporary, remove_leftovers};
pub use read::{
    open, open_input, open_to_change, read, read_input, read_input_json, read_input_text, read_json, read_text,
};

use crate::{Error, Result};

/// Writes the file `path` through `write`, atomically.
///
/// A reader sees the old file or the new one, never a part. On an error the temporary file is removed, an existing file
/// stays as it was, and the error names `path`. The folder must exist.
pub fn write_atomic(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    if let Some(writer) = &mut file.writer {
        write(writer).map_err(Error::io(path, "write"))?;
    }
    file.commit()
}

/// A file written under a temporary name beside its target, synced, then renamed over it.
///
/// Dropped before [`commit`](Self::commit), it removes the temporary file and leaves the target as it was.
pub struct AtomicFile {
    target: PathBuf,
    temporary: PathBuf,
    /// None once sealed.
    writer: Option<BufWriter<File>>,
    committed: bool,
    /// Says that the temporary file is no leftover.
    _held: Option<File>,
}

impl AtomicFile {
    /// # Errors
    /// [`Error::Usage`] where `target` names no file, or something that is none (a folder, a device); [`Error::Io`] where its
    /// folder cannot be written.
    pub fn create(target: &Path) -> Result<Self> {
        // A link stays a link: what it points to is replaced.
        let target = &fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        if target.metadata().is_ok_and(|there| !there.is_file()) {
            let found = if target.is_dir() { "a folder" } else { "no regular file" };
            return Err(Error::Usage(format!("{}: found {found}, expected a file or nothing", target.display())));
        }
        let temporary = temporary_beside(target)?;
        let file = File::create_new(&temporary).map_err(Error::io(target, "create"))?;
        let (held, writer) = (hold(&temporary), Some(BufWriter::with_capacity(1 << 18, file)));
        Ok(Self { target: target.to_path_buf(), temporary, writer, committed: false, _held: held })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let target = &self.target;
        self.writer.as_mut().map_or(Ok(()), |writer| writer.write_all(bytes)).map_err(Error::io(target, "write"))
    }

    /// Overwrites `bytes` at the file's beginning, for a header known only at the end.
    pub fn write_at_start(&mut self, bytes: &[u8]) -> Result<()> {
        let target = &self.target;
        let Some(writer) = self.writer.as_mut() else { return Ok(()) };
        let result = writer.seek(SeekFrom::Start(0)).and_then(|_| writer.write_all(bytes));
        result.and_then(|()| writer.seek(SeekFrom::End(0)).map(drop)).map_err(Error::io(target, "write"))
    }

    /// Flushes, syncs and closes the temporary file; nothing can be written after it.
    pub fn seal(&mut self) -> Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        writer.flush().and_then(|()| writer.get_ref().sync_all()).map_err(Error::io(&self.target, "write"))
    }

    /// Gives the file its name.
    pub fn commit(mut self) -> Result<()> {
        self.seal()?;
        fs::rename(&self.temporary, &self.target).map_err(Error::io(&self.target, "write"))?;
        self.committed = true;
        sync_dir(parent(&self.target)) // the rename itself is on disk only once the folder is
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            drop(self.writer.take());
            // It may not exist any more; the error worth telling is the one that led here.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Builds a folder through `build`, which gets the path of an empty temporary folder, then puts it in place of `target`
/// in one step.
///
/// Entries of an existing `target` that the new folder lacks and that `carry` accepts by name are carried over (hard
/// links where possible). Every file is synced before the swap. On an error the temporary folder is removed and `target`
/// stays as it was. Parents of `target` are created.
pub fn replace_dir(
    target: &Path,
    carry: impl Fn(&OsStr) -> bool,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    check_folder_place(target)?;
    // A link to a folder stays a link: what it points to is replaced.
    let target = &fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
    let exists = target.is_dir();
    fs::create_dir_all(parent(target)).map_err(Error::io(parent(target), "create"))?;
    let temporary = temporary_beside(target)?;
    fs::create_dir(&temporary).map_err(Error::io(target, "create"))?;
    let _held = hold(&temporary);
    let result = build(&temporary)
        .and_then(|()| if exists { carry_over(target, &temporary, &carry) } else { Ok(()) })
        .and_then(|()| sync_tree(&temporary))
        .and_then(|()| swap_in(&temporary, target, exists));
    if result.is_err() {
        let _ = fs::remove_dir_all(&temporary);
    }
    result
}

/// Removes the folder `path` so that no reader ever sees it half removed.
pub fn remove_dir(path: &Path) -> Result<()> {
    let (temporary, _held) = (temporary_beside(path)?, hold(path));
    fs::rename(path, &temporary).map_err(Error::io(path, "remove"))?;
    fs::remove_dir_all(&temporary).map_err(Error::io(path, "remove"))
}

/// Writes a value as indented JSON, atomically.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::io(path, "write")(error.into()))?;
    write_atomic(path, |file| writeln!(file, "{text}"))
}

/// Refuses a place where no folder can be or be made: a file or a device is there or on the way to it, or a link that leads
/// nowhere. Nothing is made.
pub fn check_folder_place(path: &Path) -> Result<()> {
    for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
        let found = match (fs::metadata(part), fs::symlink_metadata(part)) {
            (Ok(found), _) if found.is_dir() => return Ok(()),
            (Ok(found), _) => read::name_of(found.file_type()).to_owned(),
            (Err(_), Ok(link)) if link.is_symlink() => {
                let to = fs::read_link(part).map(|to| to.display().to_string()).unwrap_or_default();
                format!("a link to {to}, where nothing is")
            }
            (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Error::io(part, "read")(error));
            }
            // Nothing is there yet, or it is below a file: what it is in decides.
            _ => continue,
        };
        return Err(Error::input(part, "path", found, "a folder, or nothing"));
    }
    Ok(())
}

/// Syncs the folder itself: the names in it, not the files.
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(Error::io(dir, "sync"))
}

/// The folder that holds `path`; `.` for a bare name.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn carry_over(from: &Path, to: &Path, carry: &dyn Fn(&OsStr) -> bool) -> Result<()> {
    for entry in fs::read_dir(from).map_err(Error::io(from, "read"))? {
        let entry = entry.map_err(Error::io(from, "read"))?;
        let place = to.join(entry.file_name());
        if carry(&entry.file_name()) && !is_temporary(&entry.file_name()) && fs::symlink_metadata(&place).is_err() {
            carry_entry(&entry.path(), &place)?;
        }
    }
    Ok(())
}

fn carry_entry(from: &Path, to: &Path) -> Result<()> {
    let kind = fs::symlink_metadata(from).map_err(Error::io(from, "read"))?.file_type();
    if kind.is_dir() {
        fs::create_dir(to).map_err(Error::io(to, "create"))?;
        carry_over(from, to, &|_| true)
    } else if kind.is_symlink() {
        let points_to = fs::read_link(from).map_err(Error::io(from, "read"))?;
        std::os::unix::fs::symlink(points_to, to).map_err(Error::io(to, "create"))
    } else {
        // Some file systems have no hard links. A pipe's content cannot be copied.
        let copy = |error| if kind.is_file() { fs::copy(from, to).map(drop) } else { Err(error) };
        fs::hard_link(from, to).or_else(copy).map_err(Error::io(to, "copy"))
    }
}

fn sync_tree(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(Error::io(dir, "read"))? {
        let path = entry.map_err(Error::io(dir, "read"))?.path();
        let kind = fs::symlink_metadata(&path).map_err(Error::io(&path, "read"))?.file_type();
        if kind.is_dir() {
            sync_tree(&path)?;
        } else if kind.is_file() {
            File::open(&path).and_then(|file| file.sync_all()).map_err(Error::io(&path, "sync"))?;
        }
    }
    sync_dir(dir)
}

fn swap_in(built: &Path, target: &Path, exists: bool) -> Result<()> {
    if exists {
        let _held = hold(target);
        match renameat_with(CWD, built, CWD, target, RenameFlags::EXCHANGE) {
            // `built` now names the old folder.
            Ok(()) => fs::remove_dir_all(built).map_err(Error::io(built, "remove"))?,
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => swap_by_two_renames(built, target)?,
            Err(error) => return Err(Error::io(target, "replace")(error.into())),
        }
    } else if let Err(error) = fs::rename(built, target) {
        return Err(match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                Error::input(target, "path", "what another process has put there meanwhile", "nothing, as at the start")
            }
            _ => Error::io(target, "create")(error),
        });
    }
    sync_dir(parent(target))
}

/// For file systems that cannot exchange two names (some network ones). Between the renames the old folder is complete
/// but under a temporary name.
fn swap_by_two_renames(built: &Path, target: &Path) -> Result<()> {
    let (old, _held) = (temporary_beside(target)?, hold(target));
    fs::rename(target, &old).map_err(Error::io(target, "replace"))?;
    if let Err(error) = fs::rename(built, target) {
        fs::rename(&old, target).map_err(Error::io(target, "restore"))?;
        return Err(Error::io(target, "replace")(error));
    }
    fs::remove_dir_all(&old).map_err(Error::io(&old, "remove"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_write_replaces_the_file_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        for text in ["first, longer", "second"] {
            write_atomic(&path, |w| w.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn a_full_disk_is_an_error_that_keeps_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "old").unwrap();
        let error = write_atomic(&path, |w| {
            w.write_all(b"half")?;
            // The kernel's own "No space left on device".
            File::options().write(true).open("/dev/full")?.write_all(b"x")
        })
        .unwrap_err();
        assert!(matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull), "{error}");
        assert!(error.to_string().contains("a.json"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = write_atomic(&dir.path().join("none/a"), |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("none/a"), "{error}");
    }

    #[test]
    fn a_folder_is_replaced_whole_and_carries_what_it_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("deep/model");
        let put = |name: &str, text: &str| {
            replace_dir(&target, |n| n != "stale", |t| fs::write(t.join(name), text).map_err(Error::io(t, "write")))
        };
        put("weights", "1").unwrap();
        fs::write(target.join("tokenizer"), "t").unwrap();
        fs::write(target.join("stale"), "s").unwrap();
        fs::create_dir(target.join("sub")).unwrap();
        fs::write(target.join("sub/x"), "x").unwrap();
        put("weights", "2").unwrap();
        assert_eq!(names(&target), ["sub", "tokenizer", "weights"]);
        assert_eq!(fs::read_to_string(target.join("weights")).unwrap(), "2");
        assert_eq!(fs::read_to_string(target.join("sub/x")).unwrap(), "x");
        assert_eq!(names(target.parent().unwrap()), ["model"]);
    }

    #[test]
    fn a_failed_build_keeps_the_old_folder() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("weights"), "old").unwrap();
        let error = replace_dir(
            &target,
            |_| true,
            |t| {
                fs::write(t.join("weights"), "new").unwrap();
                Err(Error::Usage("stop".into()))
            },
        );
        assert!(matches!(error, Err(Error::Usage(_))));
        assert_eq!(fs::read_to_string(target.join("weights")).unwrap(), "old");
        assert_eq!(names(dir.path()), ["model"]);
    }

    #[test]
    fn a_file_in_the_folders_place_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        fs::write(&target, "a file").unwrap();
        assert!(matches!(replace_dir(&target, |_| true, |_| Ok(())), Err(Error::Input { .. })));
        assert_eq!(fs::read_to_string(&target).unwrap(), "a file");
    }

    #[test]
    fn two_renames_do_what_the_exchange_does() {
        let dir = tempfile::tempdir().unwrap();
        let (built, target) = (dir.path().join("built"), dir.path().join("model"));
        for path in [&built, &target] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("name"), path.to_str().unwrap()).unwrap();
        }
        swap_by_two_renames(&built, &target).unwrap();
        assert_eq!(fs::read_to_string(target.join("name")).unwrap(), built.to_str().unwrap());
        assert_eq!(names(dir.path()), ["model"]);
    }

    #[test]
    fn a_folder_has_no_place_where_a_file_a_device_or_a_broken_link_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "a file").unwrap();
        std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink("folder", at("whole")).unwrap();
        let below = |path: &str| [PathBuf::from(path), at(path), at(path).join("deep/er")];
        for (path, found) in
            [("file", "a file"), ("/dev/null", "a device"), ("link", "a link to nowhere, where nothing is")]
        {
            for place in &below(path)[1..] {
                let error = check_folder_place(place).unwrap_err();
                let text = format!("{}: path: found {found}, expected a folder, or nothing", at(path).display());
                assert!(error.to_string() == text && error.exit_code() == 2, "{error}");
                assert!(matches!(replace_dir(place, |_| true, |_| panic!("built")), Err(Error::Input { .. })));
            }
        }
        for path in ["folder", "whole", "none"] {
            below(path)[1..].iter().for_each(|place| check_folder_place(place).unwrap());
        }
        assert_eq!(names(dir.path()), ["file", "folder", "link", "whole"]);
    }
}
