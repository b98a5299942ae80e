//! Temporary names, and what killed processes leave under them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FsWord, statfs};

use super::parent;
use crate::{Error, Result};

/// Machines that share a disk do not see each other's processes and locks: what one of them is writing changes more often.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// File systems of this machine alone, on which a lock is seen by all that could hold it: ext2 to ext4, XFS, Btrfs, F2FS, ZFS,
/// tmpfs and overlays of them, as `statfs` numbers them.
const LOCAL: [FsWord; 7] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0x0102_1994, 0x794c_7630];

/// `.NAME.PID-N.tmp` in the same folder: no other process or thread has that name.
pub(super) fn temporary_beside(path: &Path) -> Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| Error::Usage(format!("{}: not the name of a file", path.display())))?;
    remove_abandoned(parent(path), name);
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}-{}.tmp", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    Ok(parent(path).join(temporary))
}

/// Locks what stands under a temporary name, until it is dropped or the process dies: who finds it unlocked may remove it.
/// `None` where the file system has no locks.
pub(super) fn hold(path: &Path) -> Option<File> {
    File::open(path).ok().filter(|file| file.try_lock().is_ok())
}

/// Removes what earlier processes that were killed left half-built in `dir` and in the folders below it; links are not
/// followed. The caller must know that no other process writes there.
pub fn remove_leftovers(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(Error::io(dir, "read"))? {
        let entry = entry.map_err(Error::io(dir, "read"))?;
        let path = entry.path();
        let is_dir = entry.file_type().map_err(Error::io(&path, "read"))?.is_dir();
        if is_temporary(&entry.file_name()) {
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(Error::io(&path, "remove"))?;
        } else if is_dir {
            remove_leftovers(&path)?;
        }
    }
    Ok(())
}

/// Removes what killed processes left of earlier attempts at `name` in `dir`: of processes that this machine does not have, and
/// either nobody's by its lock, on a disk of this machine, or unchanged for [`ABANDONED`]. It is only a courtesy: what cannot be
/// removed stays.
fn remove_abandoned(dir: &Path, name: &OsStr) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let prefix = format!(".{}.", name.to_string_lossy());
    for entry in entries.flatten() {
        let found = entry.file_name();
        let text = found.to_string_lossy();
        let process =
            text.strip_prefix(&prefix).and_then(|numbers| numbers.split_once('-')).map(|(process, _)| process);
        let Some(process) = process.filter(|_| is_temporary(&found)) else { continue };
        let Ok(meta) = entry.metadata() else { continue };
        let age = meta.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
        let known = meta.is_dir() || meta.is_file();
        if !known || Path::new("/proc").join(process).exists() {
            continue;
        }
        // Processes of another container are not in /proc, but their locks are seen.
        if age >= ABANDONED || is_local(dir) && hold(&entry.path()).is_some() {
            let _ = if meta.is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        }
    }
}

fn is_local(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|found| LOCAL.contains(&found.f_type))
}

/// True for a name that this module gives to what it has not finished: `.NAME.PID-N.tmp`. Other programs' temporary
/// files have other names.
pub fn is_temporary(name: &OsStr) -> bool {
    let numbers = |name: &str| {
        let (rest, numbers) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
        let (process, count) = numbers.split_once('-')?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        Some(!rest.is_empty() && digits(process) && digits(count))
    };
    // A name may hold anything; what this module adds to it is ASCII.
    numbers(&name.to_string_lossy()).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::super::replace_dir;
    use super::super::tests::names;
    use super::*;

    #[test]
    fn leftovers_of_a_killed_process_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".a.12-0.tmp"), "").unwrap();
        fs::create_dir(dir.path().join(".b.12-1.tmp")).unwrap();
        let below = dir.path().join("search/checkpoints");
        fs::create_dir_all(below.join(".step-00000002.7-3.tmp")).unwrap();
        fs::write(below.join(".step-00000002.7-3.tmp/state"), "").unwrap();
        let others = [".mine.tmp", ".mine.1.tmp", ".mine.a-1.tmp", ".1-1.tmp", "kept.1-1.tmp"];
        others.iter().for_each(|name| fs::write(below.join(name), "").unwrap());
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(".a.12-0.tmp"), "").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        remove_leftovers(dir.path()).unwrap();
        assert_eq!(names(dir.path()), ["link", "search"]);
        assert_eq!(names(elsewhere.path()), [".a.12-0.tmp"]);
        assert_eq!(names(&below), [".1-1.tmp", ".mine.1.tmp", ".mine.a-1.tmp", ".mine.tmp", "kept.1-1.tmp"]);
    }

    #[test]
    fn leftovers_of_the_same_name_go_when_it_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let (gone, running) = (u32::MAX, std::process::id());
        let at = |name: &str| dir.path().join(name);
        let make = |name: &str, age: Duration| {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("part"), "").unwrap();
            File::open(at(name)).unwrap().set_modified(std::time::SystemTime::now() - age).unwrap();
        };
        let old = ABANDONED + Duration::from_secs(1);
        let [mine, others] = [format!(".model.{running}-77.tmp"), format!(".other.{gone}-0.tmp")];
        make(&format!(".model.{gone}-0.tmp"), old);
        make(&mine, old);
        make(&others, old);
        // A moment old: of a process that holds it, wherever that is, and of one that is dead.
        let [held, dead] = [1, 2].map(|n| format!(".model.{gone}-{n}.tmp"));
        make(&held, Duration::ZERO);
        make(&dead, Duration::ZERO);
        let lock = hold(&at(&held)).unwrap();
        replace_dir(&at("model"), |_| true, |_| Ok(())).unwrap();
        let mut kept = vec![mine, others, held.clone(), "model".to_owned()];
        // Where others might write whose locks are not seen, a day must pass.
        kept.extend((!is_local(dir.path())).then_some(dead));
        kept.sort();
        assert_eq!(names(dir.path()), kept);
        drop(lock);
        replace_dir(&at("model"), |_| true, |_| Ok(())).unwrap();
        assert_eq!(at(&held).exists(), !is_local(dir.path()));
    }

    #[test]
    fn what_is_being_written_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        let mut file = super::super::AtomicFile::create(&dir.path().join("shard")).unwrap();
        file.seal().unwrap();
        replace_dir(
            &target,
            |_| true,
            |_| {
                let temporary = names(dir.path()).into_iter().filter(|name| is_temporary(OsStr::new(name)));
                let free: Vec<String> = temporary.filter(|name| hold(&dir.path().join(name)).is_some()).collect();
                assert_eq!(free, Vec::<String>::new());
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(names(dir.path()).len(), 2, "the file's, which is not committed, and the folder");
    }
}
