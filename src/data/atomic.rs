//! Files that appear complete or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// A file written under a temporary name beside its target, synced, then renamed over it.
///
/// Dropped before [`commit`](Self::commit), it removes the temporary file and leaves the target as it was.
pub struct AtomicFile {
    target: PathBuf,
    temporary: PathBuf,
    /// None once sealed.
    writer: Option<BufWriter<File>>,
    committed: bool,
}

impl AtomicFile {
    /// # Errors
    /// [`Error::Usage`] where `target` names no file, [`Error::Io`] where its folder cannot be written.
    pub fn create(target: impl AsRef<Path>) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let target = target.as_ref().to_path_buf();
        let name = target
            .file_name()
            .ok_or_else(|| Error::Usage(format!("{}: found no file name, expected one", target.display())))?;
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let temporary = target.with_file_name(format!(".{}.{process}.{number}.tmp", name.to_string_lossy()));
        let file = File::create(&temporary).map_err(Error::io(&target, "create"))?;
        Ok(Self { target, temporary, writer: Some(BufWriter::with_capacity(1 << 18, file)), committed: false })
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
        fs::rename(&self.temporary, &self.target).map_err(Error::io(&self.target, "rename"))?;
        self.committed = true;
        // The rename itself is on disk only once the folder is.
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::io(folder, "sync"))
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            drop(self.writer.take());
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
