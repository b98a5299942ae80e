//! A model's weights in the formats that it is deployed in, as serving engines read them.
//!
//! FP8: `weight` F8_E4M3 `[out, in]`, `weight_scale` F32. NVFP4: `weight` U8 `[out, in / 2]`, two e2m1 values in a byte, the
//! first in the lower half; `weight_scale` F8_E4M3 `[out, in / 16]`; `weight_scale_2` F32. A value is code × scales. The
//! layout is that of NVIDIA's Model-Optimizer, which vLLM, SGLang and TensorRT-LLM read; `quantization_config` says what is
//! quantised. Tensors are converted one by one: no whole model is held.

mod card;
mod config;
mod encode;
mod plan;
mod report;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use report::{ComponentError, ExportReport, Kept, TensorError};

use crate::cost::{Format, Precision};
use crate::files::replace_dir;
use crate::model::checkpoint::{
    COMPANIONS, Checkpoint, INDEX_FILE, MtpChoice, Stored, StoredTensor, Stream, copy_companions, header, index,
    pretty, shards,
};
use crate::{Error, Result};
use config::{Module, quantization};
use encode::{Deviation, Encoded};
use plan::{Form, Planned};

/// What errors per tensor are written to, beside the weights.
pub const ERRORS: &str = "quantization_error";

/// How to export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The format of each component of weights; that of the KV cache is told to the engine.
    pub precision: Precision,
    /// A shard takes tensors up to this many bytes.
    pub max_shard_bytes: u64,
}

/// All linear layers, the head too, in one low format, and everything else in bf16 at most.
pub fn all_linear(format: Format) -> Precision {
    Precision {
        experts: format,
        shared_experts: format,
        mamba: format,
        attention: format,
        latent: format,
        lm_head: format,
        ..Precision::BF16
    }
}

/// Writes the model in `model` to the folder `out` in other formats, in one step: a reader finds nothing, or all.
///
/// The folder gets the configuration, weights, tokenizer files, a model card, and the error of every tensor. A tensor that
/// a format cannot hold stays as it is, which is told. The MTP head is carried as it is.
///
/// # Errors
/// Those of [`Checkpoint::load`]; [`Error::Input`] naming the tensor with a NaN or an infinity; [`Error::Usage`] where `out`
/// holds something else than an earlier export. Nothing is left at `out` then but what was there.
pub fn export(model: &Path, out: &Path, options: &ExportOptions) -> Result<ExportReport> {
    check_place(model, out)?;
    let checkpoint = Checkpoint::open(model)?;
    let stream = checkpoint.stream(MtpChoice::Keep)?;
    let planned = plan::plan(&stream.config, &stream.tensors, &options.precision);
    let mut report = ExportReport {
        out: out.to_path_buf(),
        files: 0,
        tensors: 0,
        bytes: 0,
        source_bytes: stream.tensors.iter().map(|tensor| tensor.bytes().len() as u64).sum::<u64>()
            + stream.carried.iter().map(|raw| raw.bytes().len() as u64).sum::<u64>(),
        components: Vec::new(),
        changed: Vec::new(),
        kept: kept(&stream, &planned),
        copied: Vec::new(),
    };
    replace_dir(
        out,
        |_| false,
        |folder| {
            let job = Job { stream: &stream, planned: &planned, folder, out };
            job.write_weights(options.max_shard_bytes, &mut report)?;
            if !job.write_config(options.precision.kv_cache)? && options.precision.kv_cache == Format::Fp8 {
                report.kept.push(Kept {
                    tensor: "KV cache".into(),
                    format: "the engine's default",
                    because: "no weight is quantised, so no configuration tells; serve with --kv-cache-dtype fp8"
                        .into(),
                });
            }
            report.copied = copy_companions(Some(model), folder)?;
            job.write("README.md", card::card(model, &stream.config, &report)?.as_bytes())?;
            job.write(&format!("{ERRORS}.csv"), report.csv().as_bytes())?;
            let json = serde_json::to_value(&report).map_err(|error| Error::io(out, "write")(error.into()))?;
            job.write(&format!("{ERRORS}.json"), pretty(&json).as_bytes())
        },
    )?;
    Ok(report)
}

/// Refuses to write over anything but an earlier export, and over the model itself.
fn check_place(model: &Path, out: &Path) -> Result<()> {
    let Ok(place) = out.canonicalize() else { return Ok(()) };
    let is_model = model.canonicalize().is_ok_and(|model| model.starts_with(&place));
    let is_empty = place.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    let is_export = place.join(format!("{ERRORS}.json")).is_file();
    let foreign = place.read_dir().ok().and_then(|entries| {
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| !is_exported(name)).min()
    });
    if !is_model && (is_empty || is_export && foreign.is_none()) {
        return Ok(());
    }
    let found = match foreign {
        _ if is_model => "the folder of the model itself".into(),
        Some(name) => format!("{name}, which no export writes"),
        None => "something else".into(),
    };
    let expected = "a new or empty folder, or an earlier export";
    Err(Error::Usage(format!("--out {}: found {found}, expected {expected}", out.display())))
}

/// Whether an export writes a file of this name.
fn is_exported(name: &str) -> bool {
    let weights = name.starts_with("model") && name.ends_with(".safetensors");
    let own = ["config.json", "hf_quant_config.json", "README.md", INDEX_FILE];
    let errors = name.strip_prefix(ERRORS).is_some_and(|rest| matches!(rest, ".csv" | ".json"));
    weights || errors || own.contains(&name) || COMPANIONS.contains(&name)
}

fn kept(stream: &Stream<'_>, planned: &[Planned]) -> Vec<Kept> {
    let kept = |(tensor, planned): (&StoredTensor<'_>, &Planned)| {
        let because = planned.kept_because.clone()?;
        Some(Kept { tensor: tensor.name.clone(), format: planned.form.name(), because })
    };
    stream.tensors.iter().zip(planned).filter_map(kept).collect()
}

/// Which of a tensor's parts lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Weight,
    /// `weight_scale` of NVFP4.
    BlockScales,
    /// `weight_scale` of FP8, `weight_scale_2` of NVFP4.
    TensorScale,
    /// A tensor of the MTP head.
    Carried,
}

/// A tensor of the export.
struct Slot {
    /// The number of the model's tensor, or of the carried one.
    of: usize,
    part: Part,
    name: String,
    dtype: &'static str,
    element_bytes: usize,
    shape: Vec<usize>,
    bytes: u64,
}

impl Stored for Slot {
    fn name(&self) -> &str {
        &self.name
    }

    fn dtype(&self) -> &str {
        self.dtype
    }

    fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// One export under its temporary name.
struct Job<'j> {
    stream: &'j Stream<'j>,
    planned: &'j [Planned],
    folder: &'j Path,
    /// Its final place, for errors.
    out: &'j Path,
}

impl Job<'_> {
    /// Files of known headers first, then each tensor's bytes at their place.
    fn write_weights(&self, max_shard_bytes: u64, report: &mut ExportReport) -> Result<()> {
        let shards = shards(self.slots(), max_shard_bytes);
        if shards.len() > 1 {
            self.write(INDEX_FILE, pretty(&index(&shards)).as_bytes())?;
        }
        let mut files = Vec::with_capacity(shards.len());
        let mut places = HashMap::new();
        for (number, (name, slots)) in shards.iter().enumerate() {
            let header = header(slots);
            let file = File::create_new(self.folder.join(name)).map_err(Error::io(self.out.join(name), "create"))?;
            let file = Output { file, path: self.out.join(name) };
            file.put(0, &header)?;
            let mut at = header.len() as u64;
            for slot in slots {
                places.insert((slot.of, slot.part), (number, at));
                at += slot.bytes;
            }
            (report.files, report.bytes) = (report.files + 1, report.bytes + at - header.len() as u64);
            report.tensors += slots.len();
            files.push(file);
        }
        let put = |of: usize, part: Part, bytes: &[u8]| match places.get(&(of, part)) {
            Some((file, at)) => files[*file].put(*at, bytes),
            None => unreachable!("every part of every tensor has a slot"),
        };
        let scales = self.fused_largest()?;
        for (i, (tensor, planned)) in self.stream.tensors.iter().zip(self.planned).enumerate() {
            let shared = planned.fused.as_ref().and_then(|name| scales.get(name)).copied();
            let encoded = encode(tensor, planned.form, shared)?;
            put(i, Part::Weight, &encoded.weight)?;
            let mut bytes = encoded.weight.len() + encoded.block_scales.len();
            if planned.form.is_quantised() {
                put(i, Part::TensorScale, &encoded.tensor_scale.to_le_bytes())?;
                bytes += 4;
            }
            if planned.form == Form::Nvfp4 {
                put(i, Part::BlockScales, &encoded.block_scales)?;
            }
            add(report, tensor, planned, bytes as u64, &encoded.error);
        }
        self.stream.carried.iter().enumerate().try_for_each(|(i, raw)| put(i, Part::Carried, raw.bytes()))
    }

    fn slots(&self) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (of, (tensor, planned)) in self.stream.tensors.iter().zip(self.planned).enumerate() {
            let elements = tensor.elements() as u64;
            let narrowed = |by: usize| {
                let mut shape = tensor.shape.clone();
                shape.iter_mut().last().into_iter().for_each(|width| *width /= by);
                shape
            };
            let mut push = |part, name: &str, dtype, element_bytes, shape, bytes| {
                slots.push(Slot { of, part, name: name.into(), dtype, element_bytes, shape, bytes });
            };
            let scale = |leaf: &str| format!("{}.{leaf}", module(&tensor.name));
            match planned.form {
                Form::Plain(dtype) => {
                    let bytes = elements * dtype.bytes() as u64;
                    push(Part::Weight, &tensor.name, dtype.name(), dtype.bytes(), tensor.shape.clone(), bytes);
                }
                Form::Fp8 => {
                    push(Part::Weight, &tensor.name, "F8_E4M3", 1, tensor.shape.clone(), elements);
                    push(Part::TensorScale, &scale("weight_scale"), "F32", 4, Vec::new(), 4);
                }
                Form::Nvfp4 => {
                    let blocks = narrowed(encode::BLOCK);
                    push(Part::Weight, &tensor.name, "U8", 1, narrowed(2), elements / 2);
                    push(Part::BlockScales, &scale("weight_scale"), "F8_E4M3", 1, blocks, elements / 16);
                    push(Part::TensorScale, &scale("weight_scale_2"), "F32", 4, Vec::new(), 4);
                }
            }
        }
        slots.extend(self.stream.carried.iter().enumerate().map(|(of, raw)| Slot {
            of,
            part: Part::Carried,
            name: raw.name.clone(),
            dtype: raw.dtype.name(),
            element_bytes: raw.dtype.bytes(),
            shape: raw.shape.clone(),
            bytes: raw.bytes().len() as u64,
        }));
        slots
    }

    /// max |w| over the tensors that engines fuse, so that they get one scale.
    fn fused_largest(&self) -> Result<BTreeMap<String, f32>> {
        let mut scales: BTreeMap<String, f32> = BTreeMap::new();
        for (tensor, planned) in self.stream.tensors.iter().zip(self.planned) {
            if let Some(name) = planned.fused.as_ref().filter(|_| planned.form.is_quantised()) {
                let all = scales.entry(name.clone()).or_default();
                *all = all.max(encode::largest(tensor)?);
            }
        }
        Ok(scales)
    }

    /// Returns whether it says that anything is quantised.
    fn write_config(&self, kv_cache: Format) -> Result<bool> {
        let modules: Vec<Module<'_>> = (self.stream.tensors.iter().zip(self.planned))
            .map(|(tensor, planned)| Module {
                name: module(&tensor.name),
                form: planned.form,
                is_product: tensor.shape.len() > 1,
            })
            .collect();
        let carried: &[&str] = if self.stream.carried.is_empty() { &[] } else { &["mtp*"] };
        let mut config = self.stream.config.to_json()?;
        let quantization = quantization(&modules, kv_cache, carried);
        if let Some((in_config, beside)) = &quantization {
            config["quantization_config"] = in_config.clone();
            self.write("hf_quant_config.json", pretty(beside).as_bytes())?;
        }
        self.write("config.json", pretty(&config).as_bytes())?;
        Ok(quantization.is_some())
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<()> {
        std::fs::write(self.folder.join(name), content).map_err(Error::io(self.out.join(name), "write"))
    }
}

/// A file under its temporary name.
struct Output {
    file: File,
    /// Its final place, for errors.
    path: PathBuf,
}

impl Output {
    fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at).map_err(Error::io(&self.path, "write"))
    }
}

/// `shared`: max |w| of what the tensor shares its scale with.
fn encode(tensor: &StoredTensor<'_>, form: Form, shared: Option<f32>) -> Result<Encoded> {
    let largest = || shared.map_or_else(|| encode::largest(tensor), Ok);
    match form {
        Form::Plain(dtype) => encode::plain(tensor, dtype),
        Form::Fp8 => encode::fp8(tensor, largest()?),
        Form::Nvfp4 => encode::nvfp4(tensor, largest()?),
    }
}

fn add(report: &mut ExportReport, tensor: &StoredTensor<'_>, planned: &Planned, bytes: u64, error: &Deviation) {
    let of_tensor = TensorError {
        tensor: tensor.name.clone(),
        component: planned.component,
        format: planned.form.name(),
        shape: tensor.shape.clone(),
        relative_error: error.relative(),
        largest_error: error.largest_error,
        largest: error.largest,
        zeroed_blocks: error.zeroed_blocks,
    };
    let changed = planned.form != Form::Plain(tensor.dtype);
    report.add(of_tensor, tensor.elements() as u64, bytes, error, changed);
}

/// The module of a tensor.
fn module(tensor: &str) -> &str {
    tensor.strip_suffix(".weight").unwrap_or(tensor)
}
