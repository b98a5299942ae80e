//! Parameters, and where their gradients go.

use crate::tensor::Tensor;

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
}

impl Params {
    pub fn push(&mut self, param: Param) -> ParamId {
        self.entries.push(param);
        ParamId(self.entries.len() - 1)
    }

    pub fn get(&self, id: ParamId) -> &Param {
        &self.entries[id.0]
    }

    pub fn get_mut(&mut self, id: ParamId) -> &mut Param {
        &mut self.entries[id.0]
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

/// Takes parameters' gradients as they leave the tape.
pub trait GradientSink {
    /// Calls `write(values, accumulate)` with the gradient's storage: `write` adds to it if `accumulate`, else it overwrites
    /// every element.
    fn accumulate(&mut self, id: ParamId, write: &mut dyn FnMut(&mut [f32], bool));
}

/// One gradient per parameter, summed over the backward passes since [`Gradients::clear`].
pub struct Gradients {
    grads: Vec<Tensor>,
    filled: Vec<bool>,
}

impl Gradients {
    pub fn new(params: &Params) -> Gradients {
        Gradients {
            grads: params.iter().map(|(_, p)| Tensor::zeros(p.value.shape().clone())).collect(),
            filled: vec![false; params.len()],
        }
    }

    /// The gradient, if any backward pass reached the parameter.
    pub fn get(&self, id: ParamId) -> Option<&Tensor> {
        self.filled[id.0].then(|| &self.grads[id.0])
    }

    /// Forgets all gradients, keeps their memory.
    pub fn clear(&mut self) {
        self.filled.fill(false);
    }

    pub fn iter(&self) -> impl Iterator<Item = (ParamId, &Tensor)> {
        let filled = self.grads.iter().zip(&self.filled).enumerate();
        filled.filter(|(_, (_, filled))| **filled).map(|(i, (grad, _))| (ParamId(i), grad))
    }
}

impl GradientSink for Gradients {
    fn accumulate(&mut self, id: ParamId, write: &mut dyn FnMut(&mut [f32], bool)) {
        let filled = std::mem::replace(&mut self.filled[id.0], true);
        write(self.grads[id.0].f32_mut(), filled);
    }
}

/// For passes in which no parameter gets a gradient.
impl GradientSink for () {
    fn accumulate(&mut self, id: ParamId, _: &mut dyn FnMut(&mut [f32], bool)) {
        unreachable!("parameter {id:?} got a gradient in a pass without parameters")
    }
}
