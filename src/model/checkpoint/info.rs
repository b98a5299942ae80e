//! What a checkpoint is, without reading its weights.

use std::collections::BTreeMap;
use std::path::Path;

use super::open::open_files;
use crate::Result;
use crate::model::config::{Config, Parameters, TensorCount, TensorSpec};

/// Sizes and counts, from a checkpoint's folder or from a bare `config.json`.
#[derive(Debug, Clone)]
pub struct CheckpointInfo {
    pub config: Config,
    pub parameters: Parameters,
    pub tensors: TensorCount,
    /// Bytes of all weights with the MTP head, were they stored so.
    pub bytes_at: BytesAt,
    /// What the weight files hold; `None` where there are none.
    pub stored: Option<StoredInfo>,
}

/// Bytes of a model's weights by precision, from shapes alone.
///
/// In the two low precisions the linear layers' weights (the head too) are stored low and everything else in bf16: the
/// embedding, norms, the gate, the convolution, the state-space parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytesAt {
    pub f32: u64,
    pub bf16: u64,
    /// One byte a weight and one f32 scale a tensor.
    pub fp8: u64,
    /// Half a byte a weight, an e4m3 scale for every 16, and one f32 scale a tensor.
    pub nvfp4: u64,
}

/// What weight files hold, from their headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredInfo {
    pub files: usize,
    pub tensors: usize,
    pub bytes: u64,
    /// Tensors and bytes of each dtype, by its name in the headers.
    pub by_dtype: BTreeMap<String, (usize, u64)>,
}

impl CheckpointInfo {
    /// Reads `path`: a folder with `config.json` and perhaps weights, or a configuration file.
    pub fn read(path: &Path) -> Result<CheckpointInfo> {
        let (config, stored) = match path.is_dir() {
            true => (Config::from_file(&path.join("config.json"))?, stored(path)?),
            false => (Config::from_file(path)?, None),
        };
        Ok(CheckpointInfo {
            parameters: config.parameters(),
            tensors: config.disk_tensors(),
            bytes_at: BytesAt::of(&config),
            stored,
            config,
        })
    }
}

impl BytesAt {
    /// Estimates from the configuration alone.
    pub fn of(config: &Config) -> BytesAt {
        let mut sum = BytesAt { f32: 0, bf16: 0, fp8: 0, nvfp4: 0 };
        for spec in config.tensors().iter().chain(&config.mtp_tensors()) {
            let elements = spec.elements() as u64;
            sum.f32 += 4 * elements;
            sum.bf16 += 2 * elements;
            let (fp8, nvfp4) = if spec.is_linear() { low(spec) } else { (2 * elements, 2 * elements) };
            sum.fp8 += fp8;
            sum.nvfp4 += nvfp4;
        }
        sum
    }
}

fn low(spec: &TensorSpec) -> (u64, u64) {
    let (elements, scales) = (spec.elements() as u64, 4 * spec.disk_count() as u64);
    (elements + scales, elements.div_ceil(2) + elements.div_ceil(16) + scales)
}

fn stored(dir: &Path) -> Result<Option<StoredInfo>> {
    let Some(files) = open_files(dir)? else { return Ok(None) };
    let mut info = StoredInfo { files: files.len(), tensors: 0, bytes: 0, by_dtype: BTreeMap::new() };
    for entry in files.iter().flat_map(|file| &file.entries) {
        let of_dtype = info.by_dtype.entry(entry.dtype.clone()).or_default();
        of_dtype.0 += 1;
        of_dtype.1 += entry.range.len() as u64;
        info.tensors += 1;
        info.bytes += entry.range.len() as u64;
    }
    Ok(Some(info))
}
