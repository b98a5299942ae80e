//! One safetensors file: eight bytes of header length, a JSON header, the tensors' bytes.
//!
//! The header is checked here first, for errors that name the tensor, and then by the `safetensors` crate.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::{Error, Result, files};

/// The `safetensors` crate's own limit.
const LARGEST_HEADER: u64 = 100_000_000;
const LENGTH_BYTES: u64 = 8;

/// A mapped file whose header holds.
#[derive(Debug)]
pub struct MappedFile {
    pub path: PathBuf,
    pub map: Arc<Mmap>,
    pub entries: Vec<Entry>,
}

/// One tensor of a file.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    /// As the header says; may be one that this crate does not read.
    pub dtype: String,
    pub shape: Vec<usize>,
    /// Where its bytes are in the file.
    pub range: Range<usize>,
}

/// A JSON object with its keys in order, duplicates too (a map would keep only the last).
pub struct InOrder<T>(pub Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for InOrder<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Pairs<T> {
            type Value = InOrder<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        pairs.push((key, map.next_value()?));
                    }
                }
                Ok(InOrder(pairs))
            }
        }
        deserializer.deserialize_map(Pairs(std::marker::PhantomData))
    }
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Maps `path` and checks its header.
pub fn open(path: &Path) -> Result<MappedFile> {
    let file = files::open(path)?;
    let size = file.metadata().map_err(Error::io(path, "read"))?.len();
    if size < LENGTH_BYTES {
        return Err(Error::input(path, "file", format!("{size} bytes"), "a safetensors file of at least 8 bytes"));
    }
    // SAFETY: the map is read only. Another process that shortens the file while it is read ends this one with SIGBUS;
    // that is the price of not copying it, as in every reader of this format.
    let map = unsafe { Mmap::map(&file) }.map_err(Error::io(path, "map"))?;
    let entries = entries(path, &map)?;
    safetensors::SafeTensors::read_metadata(&map)
        .map_err(|error| Error::input(path, "header", error.to_string(), "a valid safetensors header"))?;
    Ok(MappedFile { path: path.to_path_buf(), map: Arc::new(map), entries })
}

fn entries(path: &Path, bytes: &[u8]) -> Result<Vec<Entry>> {
    let size = bytes.len() as u64;
    let length = bytes.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length));
    if length > LARGEST_HEADER || length > size - LENGTH_BYTES {
        let expected = format!("at most {}", LARGEST_HEADER.min(size - LENGTH_BYTES));
        return Err(Error::input(path, "header length", format!("{length} bytes of a file of {size}"), expected));
    }
    let start = (LENGTH_BYTES + length) as usize;
    let InOrder(raw) = serde_json::from_slice::<InOrder<RawEntry>>(&bytes[LENGTH_BYTES as usize..start])
        .map_err(|error| Error::input(path, "header", error.to_string(), "a JSON object of tensors"))?;
    let data = size - start as u64;
    let mut entries: Vec<Entry> =
        raw.into_iter().map(|(name, raw)| entry(path, name, raw, start, data)).collect::<Result<_>>()?;
    check_names(path, &entries)?;
    check_layout(path, &mut entries, start, bytes.len())?;
    Ok(entries)
}

fn entry(path: &Path, name: String, raw: RawEntry, start: usize, data: u64) -> Result<Entry> {
    let (from, to) = raw.data_offsets;
    if from > to || to > data {
        let expected = format!("an increasing pair within the file's {data} bytes of data (is it cut short?)");
        return Err(Error::input(path, name, format!("data_offsets [{from}, {to}]"), expected));
    }
    let Some(bits) = bits(&raw.dtype) else {
        return Err(Error::input(path, name, format!("dtype {:?}", raw.dtype), "a safetensors dtype"));
    };
    let total = raw.shape.iter().try_fold(bits, |product, &size| product.checked_mul(size));
    if total != Some((to - from) * 8) {
        let expected = format!("{} elements' worth for shape {:?} of {}", show(total, bits), raw.shape, raw.dtype);
        return Err(Error::input(path, name, format!("{} bytes", to - from), expected));
    }
    // Each size divides a number of bytes that is in the file, or is beside a 0.
    let shape = raw.shape.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
    Ok(Entry { name, dtype: raw.dtype, shape, range: start + from as usize..start + to as usize })
}

fn show(total_bits: Option<u64>, bits: u64) -> String {
    total_bits.map_or("more than 2^64".into(), |total| (total / bits).to_string())
}

fn check_names(path: &Path, entries: &[Entry]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match entries.iter().find(|entry| !seen.insert(&entry.name)) {
        Some(entry) => Err(Error::input(path, &entry.name, "the name twice in the header", "each tensor once")),
        None => Ok(()),
    }
}

/// The tensors must fill the data exactly, without overlaps, gaps or a rest. Leaves them in the order of their bytes.
fn check_layout(path: &Path, entries: &mut [Entry], start: usize, end: usize) -> Result<()> {
    entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
    let mut next = start;
    for entry in entries.iter() {
        let (at, what) = (entry.range.start, if entry.range.start < next { "an overlap" } else { "a gap" });
        if at != next {
            let found = format!("{what}: its bytes start at {}", at - start);
            return Err(Error::input(path, &entry.name, found, format!("{}, where the one before ends", next - start)));
        }
        next = entry.range.end;
    }
    if next != end {
        let found = format!("{} bytes of data", end - start);
        return Err(Error::input(path, "file", found, format!("the {} that the header lists", next - start)));
    }
    Ok(())
}

/// Bits of one element of a dtype of the format.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}
