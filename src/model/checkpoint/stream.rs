//! A checkpoint's tensors one by one, for jobs that need no whole model in memory.

use std::path::Path;

use super::claim::claim;
use super::load::{MtpChoice, Source, Sources, offers};
use super::{Checkpoint, DiskDtype, RawTensor};
use crate::model::config::{Config, TensorSpec};
use crate::{Error, Result};

/// A whole checkpoint of which nothing is read yet.
pub struct Stream<'c> {
    /// Without the MTP head where that is dropped.
    pub config: Config,
    /// The model's, in the order of [`Config::tensors`], routed experts one by one.
    pub tensors: Vec<StoredTensor<'c>>,
    /// The MTP head's, as they lie on disk.
    pub carried: Vec<RawTensor>,
}

/// A tensor as [`super::save`] would write it; its values lie in a mapped file, by themselves or in a stack of experts.
#[derive(Debug, Clone)]
pub struct StoredTensor<'c> {
    /// [`TensorSpec::disk_name`].
    pub name: String,
    /// [`TensorSpec::disk_shape`].
    pub shape: Vec<usize>,
    /// Its number among [`Config::tensors`], and its expert, or 0.
    pub spec: usize,
    pub part: usize,
    pub dtype: DiskDtype,
    source: Source<'c>,
    /// Little-endian elements.
    bytes: &'c [u8],
}

impl Checkpoint {
    /// The checkpoint's tensors, claimed as [`Checkpoint::load`] does.
    ///
    /// # Errors
    /// Those of `load`, but for values that are not finite: [`StoredTensor::read`] meets them.
    pub fn stream(&self, mtp: MtpChoice) -> Result<Stream<'_>> {
        let Sources { config, model, mtp, .. } = self.sources(mtp)?;
        let specs = config.tensors();
        let claims = claim(&self.dir, &specs, &offers(&model))?;
        let mut tensors = Vec::new();
        for (i, spec) in specs.iter().enumerate() {
            let parts = claims.parts(i, spec);
            for part in 0..spec.disk_count() {
                // A stack of experts is one source of many parts.
                let whole = parts.len() == 1;
                let source = model[parts[if whole { 0 } else { part }]];
                let bytes = source.bytes();
                let each = bytes.len() / if whole { spec.disk_count() } else { 1 };
                let start = if whole { part * each } else { 0 };
                tensors.push(StoredTensor {
                    name: spec.disk_name(part),
                    shape: spec.disk_shape().to_vec(),
                    spec: i,
                    part,
                    dtype: source.dtype,
                    source,
                    bytes: &bytes[start..start + each],
                });
            }
        }
        if config.tie_word_embeddings {
            tensors.extend(tied_head(&specs, &tensors));
        }
        Ok(Stream { config, tensors, carried: mtp.iter().map(Source::raw).collect() })
    }
}

/// See `tied_head` of saving: readers that do not tie find the embedding under the head's name too.
fn tied_head<'c>(specs: &[TensorSpec], tensors: &[StoredTensor<'c>]) -> Option<StoredTensor<'c>> {
    let embedding = tensors.iter().find(|tensor| specs[tensor.spec].name == "backbone.embeddings.weight")?;
    Some(StoredTensor { name: "lm_head.weight".into(), ..embedding.clone() })
}

impl StoredTensor<'_> {
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The file that holds it.
    pub fn file(&self) -> &Path {
        &self.source.file.path
    }

    /// The elements as they lie on disk, little-endian.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Reads `out.len()` elements from number `first` on.
    ///
    /// # Errors
    /// [`Error::Input`] naming the tensor and the element that is a NaN or an infinity.
    pub fn read(&self, first: usize, out: &mut [f32]) -> Result<()> {
        let width = self.dtype.bytes();
        match self.dtype.decode(&self.bytes[first * width..(first + out.len()) * width], out) {
            None => Ok(()),
            Some((index, value)) => {
                let found = format!("{value} at element {}", first + index);
                Err(Error::input(self.file(), &self.name, found, "finite numbers"))
            }
        }
    }
}
