//! Parameters, and where their gradients go.

use crate::Result;
use crate::tensor::{DType, Tensor};

/// A parameter's place in its [`Params`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParamId(pub usize);

/// A named weight: the f32 master. Optimizer moments are kept beside it, by the same [`ParamId`], in the optimizer.
#[derive(Clone, Debug)]
pub struct Param {
    /// The checkpoint's name.
    pub name: String,
    pub value: Tensor,
    /// Whether weight decay applies: matrices yes; norms, biases and SSM scalars no.
    pub decay: bool,
    /// A frozen parameter gets no gradient and no update.
    pub trainable: bool,
    /// Multiplies the step's learning rate for this parameter alone; 1 for most.
    pub rate: f32,
}

/// All parameters of a model, addressed one by one, so that each could live elsewhere or sharded.
#[derive(Clone, Debug, Default)]
pub struct Params {
    entries: Vec<Param>,
    /// What is computed with instead of the value: a bf16 copy of a master that a GPU trains.
    copies: Vec<Option<Tensor>>,
}

impl Params {
    pub fn push(&mut self, param: Param) -> ParamId {
        self.entries.push(param);
        self.copies.push(None);
        ParamId(self.entries.len() - 1)
    }

    pub fn get(&self, id: ParamId) -> &Param {
        &self.entries[id.0]
    }

    pub fn get_mut(&mut self, id: ParamId) -> &mut Param {
        &mut self.entries[id.0]
    }

    /// What the model computes with: the value, or its copy in fewer bits.
    pub fn weight(&self, id: ParamId) -> &Tensor {
        self.copies[id.0].as_ref().unwrap_or(&self.entries[id.0].value)
    }

    /// The parameter and its copy, to write.
    pub(crate) fn get_both(&mut self, id: ParamId) -> (&mut Param, Option<&mut Tensor>) {
        (&mut self.entries[id.0], self.copies[id.0].as_mut())
    }

    /// The copy beside the value, where there is one.
    pub fn copy(&self, id: ParamId) -> Option<&Tensor> {
        self.copies[id.0].as_ref()
    }

    /// Computes with `copy` instead of the value from now on. Whoever writes the value keeps the copy up to date, as
    /// [`Params::replace`] and the optimizer do.
    pub fn set_copy(&mut self, id: ParamId, copy: Option<Tensor>) {
        self.copies[id.0] = copy;
    }

    /// Brings every value back to the host, in f32, and forgets the copies.
    ///
    /// # Errors
    /// Where a GPU's driver fails.
    pub fn retrieve(&mut self) -> Result<()> {
        for (param, copy) in self.entries.iter_mut().zip(&mut self.copies) {
            if param.value.gpu().is_some() {
                param.value = param.value.to_host()?.cast(DType::F32);
            }
            *copy = None;
        }
        Ok(())
    }

    /// Gives the parameter the values of `host`, wherever its own are.
    ///
    /// # Errors
    /// Where a GPU's driver fails.
    pub fn replace(&mut self, id: ParamId, host: Tensor) -> Result<()> {
        let param = &mut self.entries[id.0];
        let host = host.cast(param.value.dtype());
        if let (Some(gpu), Some(copy)) = (param.value.gpu(), &mut self.copies[id.0]) {
            *copy = host.cast(copy.dtype()).to_gpu(gpu)?;
        }
        param.value = match param.value.gpu() {
            Some(gpu) => host.to_gpu(gpu)?,
            None => host,
        };
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = (ParamId, &Param)> {
        self.entries.iter().enumerate().map(|(i, p)| (ParamId(i), p))
    }

    pub fn find(&self, name: &str) -> Option<ParamId> {
        self.entries.iter().position(|p| p.name == name).map(ParamId)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Elements over all parameters.
    pub fn numel(&self) -> usize {
        self.entries.iter().map(|p| p.value.numel()).sum()
    }
}

/// Writes a gradient: adds to the tensor if told to accumulate, else overwrites every element.
pub type WriteGradient<'w> = dyn FnMut(&mut Tensor, bool) -> Result<()> + 'w;

/// Takes parameters' gradients as they leave the tape.
pub trait GradientSink {
    /// Calls `write(gradient, accumulate)` with the gradient's storage.
    ///
    /// # Errors
    /// Those of `write`, and of a GPU's memory.
    fn accumulate(&mut self, id: ParamId, write: &mut WriteGradient<'_>) -> Result<()>;
}

/// One gradient per parameter, in f32 where the parameter is, summed over the backward passes since [`Gradients::clear`].
pub struct Gradients {
    grads: Vec<Slot>,
    filled: Vec<bool>,
}

/// A GPU's memory is taken when there is something to put there.
enum Slot {
    Waiting { like: Tensor },
    There(Tensor),
}

impl Gradients {
    pub fn new(params: &Params) -> Gradients {
        let slot = |value: &Tensor| match value.gpu() {
            Some(_) => Slot::Waiting { like: value.clone() },
            None => Slot::There(Tensor::zeros(value.shape().clone())),
        };
        Gradients { grads: params.iter().map(|(_, p)| slot(&p.value)).collect(), filled: vec![false; params.len()] }
    }

    /// The gradient, if any backward pass reached the parameter.
    pub fn get(&self, id: ParamId) -> Option<&Tensor> {
        match &self.grads[id.0] {
            Slot::There(grad) => self.filled[id.0].then_some(grad),
            Slot::Waiting { .. } => None,
        }
    }

    /// Forgets all gradients, keeps their memory.
    pub fn clear(&mut self) {
        self.filled.fill(false);
    }

    pub fn iter(&self) -> impl Iterator<Item = (ParamId, &Tensor)> {
        (0..self.grads.len()).filter_map(|i| Some((ParamId(i), self.get(ParamId(i))?)))
    }
}

impl GradientSink for Gradients {
    fn accumulate(&mut self, id: ParamId, write: &mut WriteGradient<'_>) -> Result<()> {
        let filled = std::mem::replace(&mut self.filled[id.0], true);
        if let Slot::Waiting { like } = &self.grads[id.0] {
            let shape = like.shape().clone();
            let grad = match like.gpu() {
                Some(gpu) => Tensor::unwritten_on(gpu, DType::F32, shape)?,
                None => Tensor::zeros(shape),
            };
            self.grads[id.0] = Slot::There(grad);
        }
        let Slot::There(grad) = &mut self.grads[id.0] else { unreachable!("made above") };
        write(grad, filled)
    }
}

/// For passes in which no parameter gets a gradient.
impl GradientSink for () {
    fn accumulate(&mut self, id: ParamId, _: &mut WriteGradient<'_>) -> Result<()> {
        unreachable!("parameter {id:?} got a gradient in a pass without parameters")
    }
}
