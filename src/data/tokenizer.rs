//! Text to token ids and back.

use std::path::{Path, PathBuf};

use crate::{Error, Result, files};

/// Byte vocabulary: padding.
pub const PAD: u32 = 0;
/// Byte vocabulary: beginning of a document.
pub const BOS: u32 = 1;
/// Byte vocabulary: end of a document.
pub const EOS: u32 = 2;

pub enum Tokenizer {
    /// A token is a byte, 256 ids; [`PAD`], [`BOS`] and [`EOS`] are control bytes that text does not use.
    Bytes,
    /// Hugging Face `tokenizer.json`.
    File(Box<FileTokenizer>),
}

pub struct FileTokenizer {
    tokenizer: tokenizers::Tokenizer,
    /// Largest id + 1: ids may have gaps.
    vocab_size: usize,
    eos: Option<u32>,
}

impl Tokenizer {
    /// `"bytes"`, a model's folder, or a `tokenizer.json`.
    pub fn open(name: &str) -> Result<Self> {
        match name {
            "bytes" => Ok(Self::Bytes),
            _ if Path::new(name).is_dir() => Self::from_dir(name),
            _ => Self::from_file(name),
        }
    }

    /// The files that [`Tokenizer::open`] reads for `name`.
    pub fn files(name: &str) -> Vec<PathBuf> {
        let path = Path::new(name);
        match name {
            "bytes" => Vec::new(),
            _ if path.is_dir() => ["tokenizer.json", "tokenizer_config.json"]
                .into_iter()
                .map(|file| path.join(file))
                .filter(|path| path.exists())
                .collect(),
            _ => vec![path.to_path_buf()],
        }
    }

    /// The tokenizer of the model in `dir`: the one that `name` opens where it is given, else the folder's own, else bytes.
    pub fn of_model(dir: &Path, name: Option<&str>) -> Result<Self> {
        match name {
            Some(name) => Self::open(name),
            None if dir.join("tokenizer.json").exists() => Self::from_dir(dir),
            None => Ok(Self::Bytes),
        }
    }

    /// The `tokenizer.json` of a model's folder; the end-of-sequence token is the one its `tokenizer_config.json` names,
    /// if there is one.
    pub fn from_dir(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        let mut file = load(&dir.join("tokenizer.json"))?;
        let config = dir.join("tokenizer_config.json");
        if config.exists() {
            file.eos = eos_id(&config, &file.tokenizer)?;
        }
        Ok(Self::File(Box::new(file)))
    }

    /// # Errors
    /// [`Error::Io`] where the file cannot be read, [`Error::Input`] where it is no tokenizer.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        load(path.as_ref()).map(|file| Self::File(Box::new(file)))
    }

    /// Largest id + 1.
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Bytes => 256,
            Self::File(file) => file.vocab_size,
        }
    }

    /// The token that ends a document.
    pub fn eos(&self) -> Option<u32> {
        match self {
            Self::Bytes => Some(EOS),
            Self::File(file) => file.eos,
        }
    }

    /// The text's ids alone, without special tokens.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Self::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Self::File(file) => file.encode(text, false),
        }
    }

    /// A whole document: the special tokens that the tokenizer's post-processor puts around a text ([`BOS`] for bytes),
    /// and the end-of-sequence token at the end where one is known.
    pub fn encode_document(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = match self {
            Self::Bytes => std::iter::once(BOS).chain(text.bytes().map(u32::from)).collect(),
            Self::File(file) => file.encode(text, true)?,
        };
        match self.eos() {
            Some(eos) if ids.last() != Some(&eos) => ids.push(eos),
            _ => {}
        }
        Ok(ids)
    }

    /// The beginning of a document that a model continues: as [`Tokenizer::encode_document`], without the end.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = match self {
            Self::Bytes => std::iter::once(BOS).chain(text.bytes().map(u32::from)).collect(),
            Self::File(file) => file.encode(text, true)?,
        };
        if let (Self::File(_), Some(eos)) = (self, self.eos())
            && ids.last() == Some(&eos)
        {
            ids.pop(); // a post-processor may end every text
        }
        Ok(ids)
    }

    /// The text without special tokens. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`Error::Contract`] where an id is outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        if let Some(id) = ids.iter().find(|&&id| id as usize >= self.vocab_size()) {
            return Err(Error::contract("decode", "ids", id, format!("below {}", self.vocab_size())));
        }
        match self {
            Self::Bytes => {
                let bytes: Vec<u8> =
                    ids.iter().filter(|id| ![PAD, BOS, EOS].contains(id)).map(|&id| id as u8).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Self::File(file) => {
                let text = file.tokenizer.decode(ids, true);
                text.map_err(|error| Error::contract("decode", "ids", error.to_string(), "ids of this tokenizer"))
            }
        }
    }
}

impl FileTokenizer {
    fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = self.tokenizer.encode_fast(text, special);
        let encoding = encoding
            .map_err(|error| Error::contract("encode", "text", error.to_string(), "text this tokenizer can encode"))?;
        Ok(encoding.get_ids().to_vec())
    }
}

fn load(path: &Path) -> Result<FileTokenizer> {
    // Read here, so that a missing file and a wrong one are different errors.
    let bytes = files::read(path)?;
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(&bytes)
        .map_err(|error| Error::input(path, "whole file", error.to_string(), "a Hugging Face tokenizer.json"))?;
    // Length limits that a model's file carries would cut or pad documents without a word.
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(|error| Error::input(path, "truncation", error.to_string(), "none"))?;
    let vocab_size = tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
    if vocab_size == 0 {
        return Err(Error::input(path, "model.vocab", "no tokens", "at least one"));
    }
    Ok(FileTokenizer { tokenizer, vocab_size, eos: None })
}

/// `eos_token` of a `tokenizer_config.json`: a string, or an object whose `content` is one; null where there is none.
fn eos_id(config: &Path, tokenizer: &tokenizers::Tokenizer) -> Result<Option<u32>> {
    let text = files::read_text(config)?;
    let json: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| Error::input(config, format!("line {}", error.line()), error.to_string(), "JSON"))?;
    let value = match json.get("eos_token") {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let token = value.as_str().or_else(|| value.get("content").and_then(|content| content.as_str()));
    let id = token.and_then(|token| tokenizer.token_to_id(token));
    let missing = || Error::input(config, "eos_token", value.to_string(), "a token of tokenizer.json");
    id.map(Some).ok_or_else(missing)
}
