//! Token shards from documents.

use std::path::{Path, PathBuf};

use crate::data::shards::ShardWriter;
use crate::data::tokenizer::Tokenizer;
use crate::{Error, Result, files};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildOptions {
    /// The vocabulary that ids must lie in: the model's.
    pub vocab_size: usize,
    /// A shard is closed with the document that brings it to this many tokens. Documents are never split.
    pub tokens_per_shard: usize,
}

/// What was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// `shard-00000.bin`, …, in the order of the documents.
    pub shards: Vec<PathBuf>,
    pub documents: usize,
    pub tokens: usize,
}

/// Tokenizes documents into shards in `folder`, which is made where it does not exist.
///
/// All shards get their names at the end, so that an error among the documents leaves the folder as it was.
///
/// # Errors
/// [`Error::Input`] where the folder has shards already or an id is outside the vocabulary, [`Error::Usage`] where there
/// are no documents, and what `documents` or the tokenizer return.
pub fn build_shards(
    documents: impl IntoIterator<Item = Result<String>>,
    tokenizer: &Tokenizer,
    folder: impl AsRef<Path>,
    options: BuildOptions,
) -> Result<Built> {
    let folder = folder.as_ref();
    files::check_folder_place(folder)?;
    let is_new = !folder.exists();
    std::fs::create_dir_all(folder).map_err(Error::io(folder, "create"))?;
    let built = build_in(documents, tokenizer, folder, options);
    if built.is_err() && is_new {
        // Empty by now; if not, what is there is worth more than this.
        let _ = std::fs::remove_dir(folder);
    }
    built
}

fn build_in(
    documents: impl IntoIterator<Item = Result<String>>,
    tokenizer: &Tokenizer,
    folder: &Path,
    options: BuildOptions,
) -> Result<Built> {
    if let Some(old) = shards_in(folder)?.first() {
        return Err(Error::input(folder, "folder", old.display().to_string(), "no .bin files from before"));
    }
    let mut built = Built { shards: Vec::new(), documents: 0, tokens: 0 };
    let mut writers: Vec<ShardWriter> = Vec::new();
    let mut open = false;
    for document in documents {
        let ids = tokenizer.encode_document(&document?)?;
        if !open {
            built.shards.push(folder.join(format!("shard-{:05}.bin", writers.len())));
            writers.push(ShardWriter::create(&built.shards[writers.len()], options.vocab_size)?);
            open = true;
        }
        let Some(writer) = writers.last_mut() else { continue };
        writer.push(&ids)?;
        if writer.tokens() >= options.tokens_per_shard {
            writer.seal()?;
            open = false;
        }
    }
    if writers.is_empty() {
        return Err(Error::Usage(format!("{}: found no documents, expected at least one", folder.display())));
    }
    for writer in &mut writers {
        writer.seal()?;
    }
    for writer in writers {
        built.documents += writer.documents();
        built.tokens += writer.tokens();
        writer.commit()?;
    }
    Ok(built)
}

/// The `.bin` files of a folder, sorted by name.
pub fn shards_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut shards = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder, "read"))? {
        let path = entry.map_err(Error::io(folder, "read"))?.path();
        if path.extension().is_some_and(|ending| ending == "bin") {
            shards.push(path);
        }
    }
    shards.sort();
    Ok(shards)
}
