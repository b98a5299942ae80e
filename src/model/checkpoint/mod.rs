//! Checkpoints: a folder of `config.json` and safetensors files, as Hugging Face libraries read and write them.
//!
//! Nothing is loaded silently wrong: every tensor on disk is claimed by the configuration or refused by name, and every
//! tensor that the configuration has must be there. Values are f32 in memory; each tensor's own header says its dtype
//! on disk, and loading then saving gives the same bytes.

mod claim;
mod dtype;
mod header;
mod info;
mod layout;
mod load;
mod open;
mod save;
mod stream;

use std::sync::Arc;

use memmap2::Mmap;

pub use dtype::DiskDtype;
pub use info::{BytesAt, CheckpointInfo, StoredInfo};
pub use layout::{Stored, header, index, shards};
pub use load::{LoadOptions, LoadReport, Loaded, LoadedTensor, MtpChoice};
pub use open::Checkpoint;
pub use save::{COMPANIONS, SaveOptions, SaveReport, TensorToSave, copy_companions, pretty, save};
pub use stream::{StoredTensor, Stream};

/// A tensor that passes through unread: the MTP head's, where it is kept. Its bytes stay in the mapped file.
#[derive(Debug, Clone)]
pub struct RawTensor {
    /// As on disk.
    pub name: String,
    pub dtype: DiskDtype,
    /// As on disk.
    pub shape: Vec<usize>,
    file: Arc<Mmap>,
    range: std::ops::Range<usize>,
}

impl RawTensor {
    /// The elements, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.file[self.range.clone()]
    }
}

/// The one file of a small checkpoint, and the list of shards of a large one.
const SINGLE_FILE: &str = "model.safetensors";
pub const INDEX_FILE: &str = "model.safetensors.index.json";
