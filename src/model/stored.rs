//! Models from checkpoints and back.

use std::path::Path;

use super::checkpoint::{
    Checkpoint, DiskDtype, LoadOptions, LoadReport, MtpChoice, RawTensor, SaveOptions, SaveReport, TensorToSave,
    save as write,
};
use super::{Lm, param};
use crate::Result;
use crate::autograd::Params;
use crate::tensor::{DType, Tensor};

/// A model as it was read.
pub struct StoredLm {
    pub lm: Lm,
    /// The format on disk of each parameter, by its id.
    pub dtypes: Vec<DiskDtype>,
    /// The multi-token prediction head's tensors, where they are kept.
    pub carried: Vec<RawTensor>,
    pub report: LoadReport,
}

/// Reads the checkpoint in `dir`.
pub fn load(dir: &Path, mtp: MtpChoice) -> Result<StoredLm> {
    let loaded = Checkpoint::open(dir)?.load(LoadOptions { mtp })?;
    let mut params = Params::default();
    let mut dtypes = Vec::with_capacity(loaded.tensors.len());
    for tensor in loaded.tensors {
        params.push(param(tensor.name, Tensor::from_slice(tensor.shape.as_slice(), &tensor.data)));
        dtypes.push(tensor.dtype);
    }
    let lm = Lm::new(loaded.config, params)?;
    Ok(StoredLm { lm, dtypes, carried: loaded.carried, report: loaded.report })
}

/// Writes a model to `dir` in one step; `dtype(name)` is the format of each parameter.
pub fn save(dir: &Path, lm: &Lm, dtype: impl Fn(usize) -> DiskDtype, options: &SaveOptions<'_>) -> Result<SaveReport> {
    let values: Vec<Tensor> =
        lm.params.iter().map(|(_, p)| Ok(p.value.to_host()?.cast(DType::F32))).collect::<Result<_>>()?;
    let tensors: Vec<TensorToSave<'_>> = (lm.params.iter().zip(&values))
        .map(|((id, p), value)| TensorToSave {
            name: &p.name,
            shape: p.value.dims(),
            dtype: dtype(id.0),
            data: value.f32(),
        })
        .collect();
    write(dir, &lm.config, &tensors, options)
}
