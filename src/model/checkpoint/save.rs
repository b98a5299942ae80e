//! From f32 tensors to files.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::Value;

use super::claim::{Offer, claim};
use super::layout::{Stored, header, index, shards};
use super::{DiskDtype, INDEX_FILE, RawTensor};
use crate::model::config::{Config, TensorSpec};
use crate::{Error, Result, files};

/// Elements that are converted at a time: the only copy of weights that saving makes.
const CHUNK: usize = 1 << 16;

/// Files beside the weights that belong to the tokenizer or to text generation.
pub const COMPANIONS: [&str; 11] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
];

/// One tensor to save.
#[derive(Debug, Clone, Copy)]
pub struct TensorToSave<'a> {
    /// The name in memory, see [`TensorSpec::name`].
    pub name: &'a str,
    /// The shape in memory.
    pub shape: &'a [usize],
    /// The format to save it in.
    pub dtype: DiskDtype,
    /// `shape`'s elements, in row-major order.
    pub data: &'a [f32],
}

#[derive(Debug, Clone, Copy)]
pub struct SaveOptions<'a> {
    /// A shard takes tensors up to this many bytes; one that is larger alone gets a shard of its own.
    pub max_shard_bytes: u64,
    /// The MTP head's tensors, as loading carried them; all of them where the configuration has such a head.
    pub carried: &'a [RawTensor],
    /// A checkpoint whose tokenizer and generation files are copied too.
    pub copy_from: Option<&'a Path>,
}

impl Default for SaveOptions<'_> {
    fn default() -> Self {
        SaveOptions { max_shard_bytes: 5_000_000_000, carried: &[], copy_from: None }
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveReport {
    pub files: usize,
    /// Tensors on disk.
    pub tensors: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
    pub copied: Vec<String>,
}

/// One tensor on disk.
struct Planned<'a> {
    name: String,
    shape: &'a [usize],
    dtype: DiskDtype,
    content: Content<'a>,
}

#[derive(Clone, Copy)]
enum Content<'a> {
    Values(&'a [f32]),
    Bytes(&'a [u8]),
}

impl Stored for Planned<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn dtype(&self) -> &str {
        self.dtype.name()
    }

    fn element_bytes(&self) -> usize {
        self.dtype.bytes()
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn bytes(&self) -> u64 {
        match self.content {
            Content::Values(values) => (values.len() * self.dtype.bytes()) as u64,
            Content::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// Saves a model as the folder `dir`, in one step: a reader finds the old checkpoint or the new one.
///
/// `tensors` are those of [`Config::tensors`], in any order. Routed experts are written one by one under `backbone.`
/// names. An existing `dir` keeps its other files, but no old weights. Fails before anything is written where a tensor is
/// missing, unknown, doubled or of the wrong shape, or has a value that its format cannot hold.
pub fn save(dir: &Path, config: &Config, tensors: &[TensorToSave], options: &SaveOptions) -> Result<SaveReport> {
    config.validate(&dir.join("config.json"))?;
    let specs = config.tensors();
    let mut planned = plan(&specs, tensors)?;
    if config.tie_word_embeddings {
        planned.extend(tied_head(&planned));
    }
    check_carried(dir, config, options.carried)?;
    planned.extend(options.carried.iter().map(|raw| Planned {
        name: raw.name.clone(),
        shape: &raw.shape,
        dtype: raw.dtype,
        content: Content::Bytes(raw.bytes()),
    }));
    let mut config = config.clone();
    config.dtype = tensors.iter().find(|t| t.name == specs[0].name).map(|t| t.dtype.config_name().to_owned());
    let config_text = pretty(&config.to_json()?);
    let shards = shards(planned, options.max_shard_bytes);
    let mut copied = Vec::new();
    files::replace_dir(dir, is_no_weight, |temporary| {
        write(dir, temporary, "config.json", |file| file.write_all(config_text.as_bytes()))?;
        for (name, tensors) in shards.iter() {
            write(dir, temporary, name, |file| write_tensors(file, tensors))?;
        }
        if shards.len() > 1 {
            let index = pretty(&index(&shards));
            write(dir, temporary, INDEX_FILE, |file| file.write_all(index.as_bytes()))?;
        }
        copied = copy_companions(options.copy_from, temporary)?;
        Ok(())
    })?;
    let all = || shards.iter().flat_map(|(_, tensors)| tensors);
    Ok(SaveReport { files: shards.len(), tensors: all().count(), bytes: all().map(Stored::bytes).sum(), copied })
}

/// What an existing folder keeps: everything but weights, in this or another format.
fn is_no_weight(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    !(name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") || name.starts_with("pytorch_model"))
}

fn broken(argument: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
    Error::Contract {
        op: "save",
        argument: "tensors",
        found: format!("{argument}: {}", found.into()),
        expected: expected.into(),
    }
}

/// The tensors on disk in the model's order.
fn plan<'a>(specs: &'a [TensorSpec], tensors: &[TensorToSave<'a>]) -> Result<Vec<Planned<'a>>> {
    let mut given = HashMap::with_capacity(tensors.len());
    for tensor in tensors {
        if given.insert(tensor.name, tensor).is_some() {
            return Err(broken(tensor.name, "the tensor twice", "each tensor once"));
        }
    }
    let mut planned = Vec::new();
    for spec in specs {
        let tensor = given
            .remove(spec.name.as_str())
            .ok_or_else(|| broken(&spec.name, "no such tensor", "every tensor of the model"))?;
        check_tensor(spec, tensor)?;
        let each = spec.elements() / spec.disk_count();
        planned.extend(tensor.data.chunks(each).enumerate().map(|(part, values)| Planned {
            name: spec.disk_name(part),
            shape: spec.disk_shape(),
            dtype: tensor.dtype,
            content: Content::Values(values),
        }));
    }
    match given.keys().min() {
        Some(name) => Err(broken(name, "a tensor that the configuration has no place for", "only the model's tensors")),
        None => Ok(planned),
    }
}

/// The embedding again under the head's name. transformers does not tie them for this family: it would start a head that
/// is not in the file at random. Readers that do tie them pass over it, ours included.
fn tied_head<'a>(planned: &[Planned<'a>]) -> Option<Planned<'a>> {
    let embedding = planned.iter().find(|tensor| tensor.name == "backbone.embeddings.weight")?;
    let Planned { shape, dtype, content, .. } = *embedding;
    Some(Planned { name: "lm_head.weight".into(), shape, dtype, content })
}

fn check_tensor(spec: &TensorSpec, tensor: &TensorToSave) -> Result<()> {
    if tensor.shape != spec.shape {
        return Err(broken(&spec.name, format!("shape {:?}", tensor.shape), format!("{:?}", spec.shape)));
    }
    if tensor.data.len() != spec.elements() {
        return Err(broken(&spec.name, format!("{} elements", tensor.data.len()), spec.elements().to_string()));
    }
    match tensor.dtype.first_unfit(tensor.data) {
        Some((i, value)) => Err(broken(
            &spec.name,
            format!("{value} at element {i}"),
            format!("numbers that are finite in {}", tensor.dtype.name()),
        )),
        None => Ok(()),
    }
}

/// What is carried must be the MTP head that config.json will announce, whole.
fn check_carried(dir: &Path, config: &Config, carried: &[RawTensor]) -> Result<()> {
    let offers: Vec<Offer> =
        carried.iter().map(|raw| Offer { file: dir, name: &raw.name, shape: &raw.shape }).collect();
    claim(dir, &config.mtp_tensors(), &offers).map(|_| ())
}

/// Writes one file of the temporary folder; an error names its final place.
fn write(
    dir: &Path,
    temporary: &Path,
    name: &str,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let write = || {
        let mut file = BufWriter::with_capacity(1 << 20, File::create_new(temporary.join(name))?);
        content(&mut file)?;
        file.flush()
    };
    write().map_err(Error::io(dir.join(name), "write"))
}

fn write_tensors(file: &mut dyn Write, tensors: &[Planned]) -> io::Result<()> {
    file.write_all(&header(tensors))?;
    let mut buffer = Vec::with_capacity(CHUNK * 4);
    for tensor in tensors {
        match tensor.content {
            Content::Bytes(bytes) => file.write_all(bytes)?,
            Content::Values(values) => {
                for chunk in values.chunks(CHUNK) {
                    buffer.clear();
                    tensor.dtype.encode(chunk, &mut buffer);
                    file.write_all(&buffer)?;
                }
            }
        }
    }
    Ok(())
}

/// Copies the tokenizer and generation files of the model in `from`, those that are there, into the folder `to`.
pub fn copy_companions(from: Option<&Path>, to: &Path) -> Result<Vec<String>> {
    let Some(from) = from else { return Ok(Vec::new()) };
    let there = COMPANIONS.into_iter().filter(|name| from.join(name).is_file());
    let copy = |name: &str| {
        fs::copy(from.join(name), to.join(name)).map_err(Error::io(from.join(name), "copy"))?;
        Ok(name.to_owned())
    };
    there.map(copy).collect()
}

pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
