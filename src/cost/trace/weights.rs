//! Weights that mean nothing, in the formats of a deployment, written as they are made.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::cost::contract::{Format, Precision};
use crate::cost::vllm::component;
use crate::model::Config;
use crate::{Error, Result, files};

/// A safetensors file that is known but not made.
#[derive(Clone, Debug)]
pub struct WeightFile {
    /// The header with its length before it.
    header: Vec<u8>,
    tensors: Vec<Filled>,
}

#[derive(Clone, Debug)]
struct Filled {
    bytes: u64,
    fill: Fill,
}

/// What a tensor's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// ± 2⁻⁷ … 2⁻⁶ in bf16.
    Bf16,
    /// The same in f32.
    F32,
    /// Any e2m1 pair.
    Fp4,
    /// Any e4m3 but NaN.
    Fp8,
    /// Bytes over and over.
    Same([u8; 4]),
}

impl WeightFile {
    /// All tensors of a model, low formats in ModelOpt's layout: `weight`, `weight_scale`, and of NVFP4 `weight_scale_2`.
    ///
    /// # Errors
    /// [`Error::Usage`] naming the tensor whose rows no NVFP4 block fits.
    pub fn of(config: &Config, precision: &Precision) -> Result<WeightFile> {
        let formats = precision.weights();
        let mut list = List::default();
        for spec in config.tensors() {
            let name_of = component(&spec);
            let format = formats.iter().find(|(name, _)| *name == name_of).map_or(Format::Bf16, |(_, format)| *format);
            for part in 0..spec.disk_count() {
                list.add(
                    &spec.disk_name(part),
                    spec.disk_shape(),
                    if spec.is_linear() { format } else { plain(format) },
                )?;
            }
        }
        let text = Value::Object(list.header).to_string();
        let padded = text.len().next_multiple_of(8);
        let mut header = (padded as u64).to_le_bytes().to_vec();
        header.extend(text.as_bytes());
        header.resize(8 + padded, b' ');
        Ok(WeightFile { header, tensors: list.tensors })
    }

    /// Of the whole file.
    pub fn bytes(&self) -> u64 {
        self.header.len() as u64 + self.tensors.iter().map(|t| t.bytes).sum::<u64>()
    }
}

/// What is no product's weight is never low.
fn plain(format: Format) -> Format {
    if format == Format::F32 { Format::F32 } else { Format::Bf16 }
}

#[derive(Default)]
struct List {
    header: Map<String, Value>,
    tensors: Vec<Filled>,
    end: u64,
}

impl List {
    fn add(&mut self, name: &str, shape: &[usize], format: Format) -> Result<()> {
        let values = shape.iter().map(|n| *n as u64).product::<u64>();
        let leaf = name.rsplit('.').next().unwrap_or(name);
        let ones = name.contains("norm") || leaf == "A_log" || leaf == "D";
        match format {
            Format::F32 => {
                self.push(name, "F32", shape, 4 * values, if ones { Fill::Same(1f32.to_le_bytes()) } else { Fill::F32 })
            }
            Format::Bf16 => {
                let one = [0x80, 0x3F, 0x80, 0x3F];
                self.push(name, "BF16", shape, 2 * values, if ones { Fill::Same(one) } else { Fill::Bf16 });
            }
            Format::Fp8 => {
                self.push(name, "F8_E4M3", shape, values, Fill::Fp8);
                self.scale(name, "weight_scale");
                self.scale(name, "input_scale");
            }
            Format::Nvfp4 => {
                let (rows, columns) = match shape {
                    [rows, columns] if columns.is_multiple_of(16) => (*rows, *columns),
                    _ => {
                        let expected = "rows of a multiple of 16 values for NVFP4";
                        return Err(Error::Usage(format!("{name}: found the shape {shape:?}, expected {expected}")));
                    }
                };
                self.push(name, "U8", &[rows, columns / 2], values / 2, Fill::Fp4);
                // 2⁻⁶ in e4m3.
                let scales = Fill::Same([0x08; 4]);
                self.push(&sibling(name, "weight_scale"), "F8_E4M3", &[rows, columns / 16], values / 16, scales);
                self.scale(name, "weight_scale_2");
                self.scale(name, "input_scale");
            }
        }
        Ok(())
    }

    fn scale(&mut self, name: &str, leaf: &str) {
        self.push(&sibling(name, leaf), "F32", &[], 4, Fill::Same(0.01f32.to_le_bytes()));
    }

    fn push(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: u64, fill: Fill) {
        let offsets = [self.end, self.end + bytes];
        self.end += bytes;
        self.header.insert(name.to_owned(), json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }));
        self.tensors.push(Filled { bytes, fill });
    }
}

fn sibling(name: &str, leaf: &str) -> String {
    format!("{}.{leaf}", name.trim_end_matches(".weight"))
}

/// Bytes that are made at a time; a multiple of 8.
const CHUNK: usize = 1 << 20;

/// Writes the file through a buffer of one MiB, whatever its size.
pub fn write_weights(path: &Path, file: &WeightFile) -> Result<()> {
    files::write_atomic(path, |out| {
        out.write_all(&file.header)?;
        let mut buffer = vec![0u8; CHUNK];
        let mut noise = 0;
        for tensor in &file.tensors {
            let mut left = tensor.bytes;
            while left > 0 {
                let length = left.min(CHUNK as u64) as usize;
                // Whole words are filled; what is over is not written.
                fill(&mut buffer[..length.next_multiple_of(8)], tensor.fill, &mut noise);
                out.write_all(&buffer[..length])?;
                left -= length as u64;
            }
        }
        Ok(())
    })
}

fn fill(bytes: &mut [u8], fill: Fill, noise: &mut u64) {
    for word in bytes.chunks_exact_mut(8) {
        let random = splitmix(noise);
        let value = match fill {
            Fill::Bf16 => (random & 0x807F_807F_807F_807F) | 0x3C00_3C00_3C00_3C00,
            Fill::F32 => (random & 0x807F_FFFF_807F_FFFF) | 0x3C00_0000_3C00_0000,
            Fill::Fp4 => random,
            // Bits 0x7F are NaN: one bit of the exponent stays 0.
            Fill::Fp8 => random & 0xBFBF_BFBF_BFBF_BFBF,
            Fill::Same(b) => u64::from_le_bytes([b[0], b[1], b[2], b[3], b[0], b[1], b[2], b[3]]),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
