//! Token shards: one file of flat token ids with its documents' offsets.
//!
//! All numbers are little-endian.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `ACTOKENS` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | bytes per token: 2 (`u16`) or 4 (`u32`) |
//! | 16 | 8 | vocabulary size; every id is below it |
//! | 24 | 8 | tokens |
//! | 32 | 8 | documents |
//! | 40 | 24 | zero |
//! | 64 | tokens · bytes | ids, padded with zeros to a multiple of 8 |
//! | … | 8 · documents | first token of each document: 0, then increasing |
//!
//! The header stands in the file itself, so that a shard is renamed into place as one.

use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::files::AtomicFile;
use crate::{Error, Result, files};

const MAGIC: &[u8; 8] = b"ACTOKENS";
const VERSION: u32 = 1;
const HEADER: usize = 64;

/// A shard in mapped memory.
pub struct Shard {
    path: PathBuf,
    map: Mmap,
    /// Bytes per token.
    width: usize,
    vocab_size: usize,
    tokens: usize,
    documents: usize,
}

impl Shard {
    /// Maps a shard and checks everything but the ids: header, length, document offsets.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be read, [`Error::Input`] naming what is wrong with it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let file = files::open(&path)?;
        let found = file.metadata().map_err(Error::io(&path, "read"))?.len();
        if found < HEADER as u64 {
            return Err(Error::input(&path, "length", format!("{found} bytes"), format!("a header of {HEADER} bytes")));
        }
        // SAFETY: shards are renamed into place and never written again. A program that truncates one while it is mapped
        // ends this process with SIGBUS, as for any reader of mapped files.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io(&path, "map"))?;
        let shard = Self::read_header(path, map)?;
        shard.check_length()?;
        shard.check_documents()?;
        Ok(shard)
    }

    fn read_header(path: PathBuf, map: Mmap) -> Result<Self> {
        let wrong = |at: &str, found: String, expected: &str| Err(Error::input(&path, at, found, expected));
        if map[..8] != *MAGIC {
            return wrong("first 8 bytes", String::from_utf8_lossy(&map[..8]).escape_debug().to_string(), "ACTOKENS");
        }
        let (version, width) = (u32_at(&map, 8), u32_at(&map, 12));
        if version != VERSION {
            return wrong("version", version.to_string(), "1");
        }
        if ![2, 4].contains(&width) {
            return wrong("bytes per token", width.to_string(), "2 or 4");
        }
        let mut counts = [0; 3];
        for (count, (at, key)) in counts.iter_mut().zip([(16, "vocabulary size"), (24, "tokens"), (32, "documents")]) {
            let value = u64_at(&map, at);
            match usize::try_from(value) {
                Ok(value) if value > 0 => *count = value,
                _ => return wrong(key, value.to_string(), "at least 1, within the address space"),
            }
        }
        let [vocab_size, tokens, documents] = counts;
        Ok(Self { path, map, width: width as usize, vocab_size, tokens, documents })
    }

    fn check_length(&self) -> Result<()> {
        let expected = documents_at(self.tokens, self.width)
            .and_then(|at| self.documents.checked_mul(8).and_then(|bytes| at.checked_add(bytes)));
        if expected == Some(self.map.len()) {
            return Ok(());
        }
        let expected = expected.map_or("more than the address space".into(), |bytes| format!("{bytes} bytes"));
        let expected = format!("{expected} for {} tokens and {} documents", self.tokens, self.documents);
        Err(Error::input(&self.path, "length", format!("{} bytes", self.map.len()), expected))
    }

    fn check_documents(&self) -> Result<()> {
        for document in 0..self.documents {
            let start = self.start(document);
            let right = if document == 0 { start == 0 } else { start > self.start(document - 1) };
            if !right || start >= self.tokens as u64 {
                let expected = format!("0 first, then increasing, below {} tokens", self.tokens);
                return Err(Error::input(
                    &self.path,
                    format!("document {document}"),
                    format!("offset {start}"),
                    expected,
                ));
            }
        }
        Ok(())
    }

    /// Reads every id once.
    ///
    /// # Errors
    /// [`Error::Input`] naming the first position whose id is not below `vocab_size`.
    pub fn check_tokens(&self, vocab_size: usize) -> Result<()> {
        let outside = self.ids(0..self.tokens).position(|id| id as usize >= vocab_size);
        let Some(position) = outside else { return Ok(()) };
        let id = self.ids(position..position + 1).next().unwrap_or_default();
        let expected = format!("below the vocabulary size {vocab_size}");
        Err(Error::input(&self.path, format!("token {position}"), format!("id {id}"), expected))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Of the tokenizer that made the ids.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    pub fn tokens(&self) -> usize {
        self.tokens
    }

    pub fn documents(&self) -> usize {
        self.documents
    }

    /// `"u16"` or `"u32"`.
    pub fn dtype(&self) -> &'static str {
        if self.width == 2 { "u16" } else { "u32" }
    }

    /// The tokens of a document, below [`documents`](Self::documents).
    pub fn document(&self, document: usize) -> Range<usize> {
        let end = if document + 1 < self.documents { self.start(document + 1) } else { self.tokens as u64 };
        self.start(document) as usize..end as usize
    }

    /// The ids at `range`, which lies within the shard.
    pub fn ids(&self, range: Range<usize>) -> impl Iterator<Item = u32> + '_ {
        let bytes = &self.map[HEADER + range.start * self.width..HEADER + range.end * self.width];
        let wide = self.width == 4;
        bytes.chunks_exact(self.width).map(move |id| {
            if wide {
                u32::from_le_bytes([id[0], id[1], id[2], id[3]])
            } else {
                u32::from(u16::from_le_bytes([id[0], id[1]]))
            }
        })
    }

    fn start(&self, document: usize) -> u64 {
        // The length check has shown that this does not overflow; it is needed for the check of the offsets itself.
        u64_at(&self.map, documents_at(self.tokens, self.width).unwrap_or(HEADER) + document * 8)
    }
}

/// Where the document offsets begin; None where that passes the address space.
fn documents_at(tokens: usize, width: usize) -> Option<usize> {
    tokens.checked_mul(width)?.checked_next_multiple_of(8)?.checked_add(HEADER)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Writes a shard. Nothing appears under its name before [`commit`](Self::commit).
pub struct ShardWriter {
    path: PathBuf,
    file: AtomicFile,
    vocab_size: usize,
    width: usize,
    tokens: usize,
    /// First token of each document.
    starts: Vec<usize>,
    sealed: bool,
}

impl ShardWriter {
    /// Ids are stored as `u16` where the vocabulary allows it.
    ///
    /// # Errors
    /// [`Error::Usage`] where `vocab_size` is 0 or passes 32 bits, [`Error::Io`] where nothing can be written there.
    pub fn create(path: impl AsRef<Path>, vocab_size: usize) -> Result<Self> {
        if vocab_size == 0 || vocab_size as u64 > 1 << 32 {
            return Err(Error::Usage(format!("vocab_size: found {vocab_size}, expected 1 to 2^32")));
        }
        let path = path.as_ref().to_path_buf();
        let mut file = AtomicFile::create(&path)?;
        file.write(&[0; HEADER])?;
        let width = if vocab_size <= 1 << 16 { 2 } else { 4 };
        Ok(Self { path, file, vocab_size, width, tokens: 0, starts: Vec::new(), sealed: false })
    }

    pub fn tokens(&self) -> usize {
        self.tokens
    }

    pub fn documents(&self) -> usize {
        self.starts.len()
    }

    /// Appends a document. An empty one leaves no trace.
    ///
    /// # Errors
    /// [`Error::Input`] where an id is not below the vocabulary size, [`Error::Contract`] after [`seal`](Self::seal).
    pub fn push(&mut self, document: &[u32]) -> Result<()> {
        if self.sealed {
            return Err(Error::contract("shard writer", "push", "a sealed shard", "an open one"));
        }
        if document.is_empty() {
            return Ok(());
        }
        if let Some(at) = document.iter().position(|&id| id as usize >= self.vocab_size) {
            let place = format!("document {}, token {at}", self.starts.len());
            let expected = format!("below the vocabulary size {}", self.vocab_size);
            return Err(Error::input(&self.path, place, format!("id {}", document[at]), expected));
        }
        let mut bytes = Vec::with_capacity(document.len() * self.width);
        document.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()[..self.width]));
        self.file.write(&bytes)?;
        self.starts.push(self.tokens);
        self.tokens += document.len();
        Ok(())
    }

    /// Completes the file under its temporary name.
    ///
    /// # Errors
    /// [`Error::Usage`] where the shard has no document.
    pub fn seal(&mut self) -> Result<()> {
        if self.sealed {
            return Ok(());
        }
        if self.starts.is_empty() {
            return Err(Error::Usage(format!("{}: found no documents, expected at least one", self.path.display())));
        }
        let used = self.tokens * self.width;
        self.file.write(&[0; 8][..used.next_multiple_of(8) - used])?;
        let starts: Vec<u8> = self.starts.iter().flat_map(|&start| (start as u64).to_le_bytes()).collect();
        self.file.write(&starts)?;
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend((self.width as u32).to_le_bytes());
        for count in [self.vocab_size, self.tokens, self.starts.len()] {
            header.extend((count as u64).to_le_bytes());
        }
        self.file.write_at_start(&header)?;
        self.file.seal()?;
        self.sealed = true;
        Ok(())
    }

    /// Seals the shard and gives it its name.
    pub fn commit(mut self) -> Result<()> {
        self.seal()?;
        self.file.commit()
    }
}
