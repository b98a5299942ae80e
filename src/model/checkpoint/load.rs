//! From files to f32 tensors.

use rayon::prelude::*;

use super::claim::{Offer, canonical, claim};
use super::header::{Entry, MappedFile};
use super::{Checkpoint, DiskDtype, RawTensor};
use crate::device::memory;
use crate::model::config::{Config, TensorSpec};
use crate::{Error, Result};

/// What to do with a multi-token prediction head (`mtp.*`), which the model itself does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtpChoice {
    /// Carry its tensors unread, to be saved again.
    Keep,
    /// Leave them out; the loaded configuration then has no MTP head.
    Drop,
}

#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    pub mtp: MtpChoice,
}

/// One tensor in memory.
#[derive(Debug, Clone)]
pub struct LoadedTensor {
    /// See [`TensorSpec::name`].
    pub name: String,
    /// The shape in memory, see [`TensorSpec::shape`].
    pub shape: Vec<usize>,
    /// The format on disk.
    pub dtype: DiskDtype,
    pub data: Vec<f32>,
}

/// A whole model in memory.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// In the order of [`Config::tensors`].
    pub tensors: Vec<LoadedTensor>,
    /// The MTP head, where it is kept.
    pub carried: Vec<RawTensor>,
    pub report: LoadReport,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadReport {
    pub files: usize,
    /// Tensors on disk that were converted.
    pub tensors: usize,
    pub parameters: u64,
    /// Tensors on disk that are carried unread.
    pub carried: usize,
    /// Names of those that were left out: the MTP head, or the copy of a tied embedding.
    pub dropped: Vec<String>,
}

/// One tensor of one file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub file: &'a MappedFile,
    pub entry: &'a Entry,
    pub dtype: DiskDtype,
}

impl<'a> Source<'a> {
    fn new(file: &'a MappedFile, entry: &'a Entry) -> Result<Source<'a>> {
        match DiskDtype::from_name(&entry.dtype) {
            Some(dtype) => Ok(Source { file, entry, dtype }),
            None => {
                let expected = "F32, BF16 or F16 (quantised checkpoints are not read yet)";
                Err(Error::input(&file.path, &entry.name, format!("dtype {}", entry.dtype), expected))
            }
        }
    }

    pub fn bytes(&self) -> &'a [u8] {
        &self.file.map[self.entry.range.clone()]
    }

    fn offer(&self) -> Offer<'a> {
        Offer { file: &self.file.path, name: &self.entry.name, shape: &self.entry.shape }
    }

    pub fn raw(&self) -> RawTensor {
        RawTensor {
            name: self.entry.name.clone(),
            dtype: self.dtype,
            shape: self.entry.shape.clone(),
            file: self.file.map.clone(),
            range: self.entry.range.clone(),
        }
    }
}

impl Checkpoint {
    /// Reads the whole model.
    ///
    /// Fails, naming the tensor, where one is missing, has no place, is there twice (also under two names), has another
    /// shape or an unsupported dtype, or holds a NaN or an infinity.
    pub fn load(&self, options: LoadOptions) -> Result<Loaded> {
        let Sources { config, model, mtp, dropped } = self.sources(options.mtp)?;
        let tensors = self.convert(&config.tensors(), &model)?;
        let report = LoadReport {
            files: self.files.len(),
            tensors: model.len(),
            parameters: tensors.iter().map(|tensor| tensor.data.len() as u64).sum(),
            carried: mtp.len(),
            dropped,
        };
        Ok(Loaded { config, tensors, carried: mtp.iter().map(Source::raw).collect(), report })
    }

    /// What the files hold, sorted into the model's tensors and the MTP head's; those of the head are claimed.
    pub(super) fn sources(&self, choice: MtpChoice) -> Result<Sources<'_>> {
        let mut config = self.config.clone();
        let mut dropped = Vec::new();
        let (mut model, mut mtp) = (Vec::new(), Vec::new());
        for (file, entry) in self.files.iter().flat_map(|file| file.entries.iter().map(move |entry| (file, entry))) {
            match (entry.name.starts_with("mtp."), choice) {
                (true, MtpChoice::Drop) => dropped.push(entry.name.clone()),
                (true, MtpChoice::Keep) => mtp.push(Source::new(file, entry)?),
                (false, _) => model.push(Source::new(file, entry)?),
            }
        }
        match choice {
            MtpChoice::Drop => config.mtp = None,
            MtpChoice::Keep => drop(claim(&self.dir, &config.mtp_tensors(), &offers(&mtp))?),
        }
        if config.tie_word_embeddings {
            dropped.extend(take_tied_head(&mut model)?);
        }
        Ok(Sources { config, model, mtp, dropped })
    }

    fn convert(&self, specs: &[TensorSpec], sources: &[Source]) -> Result<Vec<LoadedTensor>> {
        let claims = claim(&self.dir, specs, &offers(sources))?;
        let bytes = specs.iter().try_fold(0u64, |sum, spec| sum.checked_add(4 * spec.elements() as u64));
        memory::require(&format!("{}: its weights in f32", self.dir.display()), bytes)?;
        let converted: Vec<Result<LoadedTensor>> = specs
            .par_iter()
            .enumerate()
            .map(|(i, spec)| {
                let parts: Vec<Source> = claims.parts(i, spec).into_iter().map(|part| sources[part]).collect();
                convert(spec, &parts)
            })
            .collect();
        // The first error in the model's order, whichever thread met one first.
        converted.into_iter().collect()
    }
}

/// See [`Checkpoint::sources`].
pub(super) struct Sources<'a> {
    pub config: Config,
    pub model: Vec<Source<'a>>,
    pub mtp: Vec<Source<'a>>,
    /// Names of what was left out.
    pub dropped: Vec<String>,
}

pub(super) fn offers<'a>(sources: &[Source<'a>]) -> Vec<Offer<'a>> {
    sources.iter().map(Source::offer).collect()
}

/// Takes out a head that is saved beside the embedding it is tied to. It must be the same bytes: which of two different
/// ones is meant, nobody could tell.
fn take_tied_head(sources: &mut Vec<Source>) -> Result<Option<String>> {
    let find = |name: &str| sources.iter().position(|source| canonical(&source.entry.name).name == name);
    let (Some(head), Some(embedding)) = (find("lm_head.weight"), find("backbone.embeddings.weight")) else {
        return Ok(None);
    };
    let (head_source, embedding) = (sources[head], sources[embedding]);
    let same = head_source.dtype == embedding.dtype && head_source.entry.shape == embedding.entry.shape;
    if !same || head_source.bytes() != embedding.bytes() {
        let expected = "none, or the embedding's own bytes: the configuration has tie_word_embeddings = true";
        let found = "a head that differs from the embedding";
        return Err(Error::input(&head_source.file.path, &head_source.entry.name, found, expected));
    }
    Ok(Some(sources.remove(head).entry.name.clone()))
}

/// One tensor from its parts, which are all there and of the right shapes.
fn convert(spec: &TensorSpec, parts: &[Source]) -> Result<LoadedTensor> {
    let dtype = parts[0].dtype;
    if let Some(other) = parts.iter().find(|part| part.dtype != dtype) {
        let expected = format!("{}, as the layer's first expert has", dtype.name());
        return Err(Error::input(&other.file.path, &other.entry.name, other.dtype.name(), expected));
    }
    let mut data = vec![0.0; spec.elements()];
    let pieces = data.par_chunks_mut(spec.elements() / parts.len()).zip(parts);
    let bad = pieces.map(|(out, part)| Some((part, dtype.decode(part.bytes(), out)?))).find_map_first(|bad| bad);
    match bad {
        None => Ok(LoadedTensor { name: spec.name.clone(), shape: spec.shape.clone(), dtype, data }),
        Some((part, (index, value))) => {
            let found = format!("{value} at element {index}");
            Err(Error::input(&part.file.path, &part.entry.name, found, "finite numbers"))
        }
    }
}
