//! What a training checkpoint holds: parameters, optimizer moments, and the numbers beside them.

use std::path::Path;

use safetensors::{Dtype, SafeTensors, View};
use serde::{Deserialize, Serialize};

use crate::autograd::{ParamId, Params};
use crate::device::ComputedOn;
use crate::ops::adamw::Moments;
use crate::tensor::{DType, Tensor};
use crate::{Error, Result, files};

const TENSORS: &str = "state.safetensors";
const NUMBERS: &str = "state.json";

/// Where training stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Steps done.
    pub step: u64,
    /// Updates that the moments have seen.
    pub updates: u64,
    /// Tokens seen.
    pub tokens: u64,
    /// Whether the job had reached its end by itself.
    #[serde(default)]
    pub finished: bool,
}

/// `state.json`.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    numbers: Numbers,
    /// `None` of an earlier version's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    computed_on: Option<ComputedOn>,
}

/// An f32 tensor, on the host, as the safetensors crate wants it.
struct Bytes(Tensor);

impl View for Bytes {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        self.0.dims()
    }
    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        bytemuck::cast_slice(self.0.f32()).into()
    }
    fn data_len(&self) -> usize {
        self.0.numel() * 4
    }
}

/// Writes the state into `dir`. Frozen parameters are written too: a job may change them (routing biases).
pub fn save(dir: &Path, params: &Params, moments: &Moments, numbers: &Numbers, computed_on: &ComputedOn) -> Result<()> {
    let mut tensors = Vec::new();
    for (id, p) in params.iter() {
        let moments = [("first", &moments.first[id.0]), ("second", &moments.second[id.0])];
        let kinds = std::iter::once(("param", &p.value)).chain(moments.into_iter().filter(|_| p.trainable));
        for (kind, tensor) in kinds {
            tensors.push((format!("{kind}/{}", p.name), Bytes(tensor.to_host()?.cast(DType::F32))));
        }
    }
    let path = dir.join(TENSORS);
    safetensors::serialize_to_file(tensors, None, &path)
        .map_err(|e| Error::io(&path, "write")(std::io::Error::other(e.to_string())))?;
    let path = dir.join(NUMBERS);
    let stored = Stored { numbers: *numbers, computed_on: Some(computed_on.clone()) };
    let text = serde_json::to_string_pretty(&stored).map_err(|e| Error::io(&path, "write")(e.into()))?;
    std::fs::write(&path, text).map_err(Error::io(&path, "write"))
}

/// Refuses the checkpoint `dir` where it is of another device or precision than `now`, and of `steps` some are left to compute.
pub fn check_begun(dir: &Path, now: &ComputedOn, steps: u64) -> Result<()> {
    let Stored { numbers, computed_on } = stored(dir)?;
    let left = !numbers.finished && numbers.step < steps;
    let folder = dir.parent().unwrap_or(dir);
    match computed_on.filter(|_| left) {
        Some(begun) => now.check_begun(&begun, &dir.join(NUMBERS), folder),
        None => Ok(()),
    }
}

fn stored(dir: &Path) -> Result<Stored> {
    let path = dir.join(NUMBERS);
    serde_json::from_str(&files::read_text(&path)?)
        .map_err(|e| Error::input(&path, "state", e.to_string(), "step, updates, tokens"))
}

/// Reads what [`save`] wrote into parameters and moments of the same names and shapes.
pub fn load(dir: &Path, params: &mut Params, moments: &mut Moments) -> Result<Numbers> {
    let numbers = stored(dir)?.numbers;
    let path = dir.join(TENSORS);
    let bytes = files::read(&path)?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|e| Error::input(&path, "header", e.to_string(), "a safetensors file"))?;
    for i in 0..params.len() {
        let id = ParamId(i);
        let param = params.get(id);
        let value = read(&file, &path, &format!("param/{}", param.name), &param.value)?;
        if param.trainable {
            for (kind, tensor) in [("first", &mut moments.first[i]), ("second", &mut moments.second[i])] {
                let read = read(&file, &path, &format!("{kind}/{}", param.name), tensor)?;
                *tensor = tensor.gpu().map_or(Ok(read.clone()), |gpu| read.to_gpu(gpu))?;
            }
        }
        params.replace(id, value)?;
    }
    moments.updates = numbers.updates;
    Ok(numbers)
}

/// A tensor of the shape of `like`, on the host.
fn read(file: &SafeTensors<'_>, path: &Path, name: &str, like: &Tensor) -> Result<Tensor> {
    let found = file.tensor(name).map_err(|_| Error::input(path, name, "no such tensor", "one for every parameter"))?;
    if found.shape() != like.dims() || found.dtype() != Dtype::F32 {
        let (found, expected) = (format!("{:?}{:?}", found.dtype(), found.shape()), format!("F32{:?}", like.dims()));
        return Err(Error::input(path, name, found, expected));
    }
    Ok(Tensor::build(like.dims(), |values| {
        bytemuck::cast_slice_mut::<f32, u8>(values).copy_from_slice(found.data());
    }))
}
