//! Opening and reading files that may be something else.

use std::fs::{self, File, FileType};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::{Error, Result};

/// Opens a file to read: a regular one. All else is refused before it is opened, since a pipe waits for whoever writes to it,
/// maybe for ever, and some devices never end (`/dev/zero`).
///
/// Every file of a folder is opened here or by [`open_to_change`]; what a user names and is read once, by [`open_input`].
pub fn open(path: &Path) -> Result<File> {
    regular(path, fs::metadata(path).map_err(Error::io(path, "read"))?.file_type())?;
    File::open(path).map_err(Error::io(path, "read"))
}

/// The same to read and to write, made where there is nothing.
pub fn open_to_change(path: &Path) -> Result<File> {
    match fs::metadata(path) {
        Ok(found) => regular(path, found.file_type())?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io(path, "read")(error)),
    }
    let options = File::options().read(true).write(true).create(true).truncate(false).open(path);
    options.map_err(Error::io(path, "write"))
}

/// Opens what a user names to be read once, from its beginning: a file, a pipe (`<(…)`) or a terminal.
pub fn open_input(path: &Path) -> Result<File> {
    let kind = fs::metadata(path).map_err(Error::io(path, "read"))?.file_type();
    if !kind.is_fifo() && !kind.is_char_device() {
        return open(path);
    }
    let file = File::open(path).map_err(Error::io(path, "read"))?;
    if kind.is_char_device() && !file.is_terminal() { regular(path, kind).map(|()| file) } else { Ok(file) }
}

fn regular(path: &Path, kind: FileType) -> Result<()> {
    if kind.is_file() { Ok(()) } else { Err(Error::input(path, "path", name_of(kind), "a file")) }
}

/// What stands at a path, in words.
pub(super) fn name_of(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_file() => "a file",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Reads a whole file, as [`open`] opens it.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    rest(path, open(path)?)
}

/// Reads a whole text file; text that is not UTF-8 is an input error.
pub fn read_text(path: &Path) -> Result<String> {
    text(path, read(path)?)
}

/// Reads all of what [`open_input`] opens.
pub fn read_input(path: &Path) -> Result<Vec<u8>> {
    rest(path, open_input(path)?)
}

/// The same, as [`read_text`].
pub fn read_input_text(path: &Path) -> Result<String> {
    text(path, read_input(path)?)
}

fn rest(path: &Path, mut file: File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    Ok(bytes)
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        Error::input(path, format!("byte {}", error.utf8_error().valid_up_to()), "no valid UTF-8", "UTF-8 text")
    })
}

/// Reads a value from JSON; `whole` says what it should be.
pub fn read_json<T: serde::de::DeserializeOwned>(path: &Path, whole: &str) -> Result<T> {
    from_json(path, &read_text(path)?, whole)
}

/// The same of what [`open_input`] opens.
pub fn read_input_json<T: serde::de::DeserializeOwned>(path: &Path, whole: &str) -> Result<T> {
    from_json(path, &read_input_text(path)?, whole)
}

fn from_json<T: serde::de::DeserializeOwned>(path: &Path, text: &str, whole: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Error::input(path, format!("line {}", error.line()), error.to_string(), whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_devices_are_refused() {
        for refused in [read_text, read_input_text] {
            let error = refused(Path::new("/dev/zero")).unwrap_err();
            assert!(error.to_string().contains("found a device, expected a file") && error.exit_code() == 2, "{error}");
        }
    }

    #[test]
    fn what_nobody_writes_to_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let [pipe, socket] = ["pipe", "socket"].map(|name| dir.path().join(name));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, found) in [(&pipe, "a pipe"), (&socket, "a socket"), (&dir.path().to_path_buf(), "a folder")] {
            for error in [open(path).unwrap_err(), open_to_change(path).unwrap_err()] {
                assert!(error.to_string().contains(&format!("found {found}, expected a file")), "{error}");
                assert_eq!(error.exit_code(), 2);
            }
        }
        // A user's pipe that somebody writes to is read.
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::write(pipe, "content")
        });
        assert_eq!(read_input_text(&pipe).unwrap(), "content");
        writer.join().unwrap().unwrap();
    }
}
