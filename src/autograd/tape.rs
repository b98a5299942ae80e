//! The tape: ops in execution order, walked backwards once.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::param::{GradientSink, ParamId, Params, WriteGradient};
use super::stored::{Narrow, stored};
use crate::tensor::{DType, Shape, Tensor};
use crate::{Error, Result};

type Slot = usize;

/// A value on a tape. Without a slot it is a constant: nothing flows back to it.
#[derive(Clone, Debug)]
pub struct Var {
    value: Tensor,
    slot: Option<Slot>,
    /// What its gradient is stored as: the value's dtype, except of f32 results that a bf16 op reads back.
    grad: DType,
}

impl Var {
    pub fn constant(value: Tensor) -> Var {
        Var { grad: value.dtype(), value, slot: None }
    }

    /// What a gradient of the value is stored as.
    pub fn grad_dtype(&self) -> DType {
        self.grad
    }

    /// The same value, whose gradient is wanted as `grad`.
    pub(crate) fn with_grad_dtype(self, grad: DType) -> Var {
        Var { grad, ..self }
    }

    pub fn value(&self) -> &Tensor {
        &self.value
    }

    pub fn into_value(self) -> Tensor {
        self.value
    }

    pub fn f32(&self) -> &[f32] {
        self.value.f32()
    }

    pub fn dims(&self) -> &[usize] {
        self.value.dims()
    }

    pub fn shape(&self) -> &Shape {
        self.value.shape()
    }

    pub fn needs_grad(&self) -> bool {
        self.slot.is_some()
    }

    /// The same value in another shape. The gradient has the old shape's elements in the same order, so nothing is recorded.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Var {
        Var { value: self.value.reshape(shape), ..self.clone() }
    }

    /// The value, cut off from the tape.
    pub fn detach(&self) -> Var {
        Var::constant(self.value.clone())
    }
}

impl From<Tensor> for Var {
    fn from(value: Tensor) -> Var {
        Var::constant(value)
    }
}

type BackwardFn<'a> = Box<dyn FnOnce(&mut Backward<'_>) -> Result<()> + 'a>;

struct Node<'a> {
    op: &'static str,
    inputs: Vec<Option<Slot>>,
    outputs: Vec<Slot>,
    backward: BackwardFn<'a>,
}

/// Where a slot's gradient goes.
#[derive(Clone, Copy)]
enum Leaf {
    /// Computed by a node: its gradient is dropped once the node has used it.
    Inner(Option<Narrow>),
    /// Kept for [`Tape::backward`]'s caller.
    Kept,
    /// Goes to the sink.
    Param(ParamId),
}

#[derive(Default)]
struct Recorded<'a> {
    nodes: Vec<Node<'a>>,
    slots: Vec<Leaf>,
    profile: Option<Profile>,
}

struct Profile {
    last: Instant,
    times: Vec<OpTime>,
}

/// Time spent in one op, forward and backward, summed over its calls.
#[derive(Clone, Debug)]
pub struct OpTime {
    pub op: &'static str,
    pub calls: usize,
    pub forward: Duration,
    pub backward: Duration,
}

impl Profile {
    fn entry(&mut self, op: &'static str) -> &mut OpTime {
        let at = self.times.iter().position(|t| t.op == op).unwrap_or_else(|| {
            self.times.push(OpTime { op, calls: 0, forward: Duration::ZERO, backward: Duration::ZERO });
            self.times.len() - 1
        });
        &mut self.times[at]
    }

    /// Ops run one after another, so the time since the last one ended is the time of this one.
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.last, now))
    }
}

/// Records what is computed, for one backward pass. `'a` outlives the tape: what backward closures may borrow.
pub struct Tape<'a> {
    recorded: Option<RefCell<Recorded<'a>>>,
}

impl<'a> Tape<'a> {
    /// A tape that records.
    pub fn new() -> Tape<'a> {
        Tape { recorded: Some(RefCell::default()) }
    }

    /// A tape that records nothing: inference.
    pub fn inference() -> Tape<'a> {
        Tape { recorded: None }
    }

    /// A tape that also measures the time of every op.
    pub fn profiled() -> Tape<'a> {
        let profile = Some(Profile { last: Instant::now(), times: Vec::new() });
        Tape { recorded: Some(RefCell::new(Recorded { profile, ..Recorded::default() })) }
    }

    pub fn is_recording(&self) -> bool {
        self.recorded.is_some()
    }

    /// A value whose gradient is wanted: [`Tape::backward`] returns it.
    pub fn leaf(&self, value: Tensor) -> Var {
        Var { grad: value.dtype(), value, slot: self.new_slot(Leaf::Kept) }
    }

    /// A parameter; its gradient goes to the sink. One that is frozen is a constant.
    pub fn param(&self, params: &Params, id: ParamId) -> Var {
        let param = params.get(id);
        let slot = if param.trainable { self.new_slot(Leaf::Param(id)) } else { None };
        Var { value: params.weight(id).clone(), slot, grad: DType::F32 }
    }

    fn new_slot(&self, leaf: Leaf) -> Option<Slot> {
        self.recorded.as_ref().map(|recorded| {
            let slots = &mut recorded.borrow_mut().slots;
            slots.push(leaf);
            slots.len() - 1
        })
    }

    /// Ends an op: its outputs become [`Var`]s, and `backward` is kept if any input needs a gradient.
    ///
    /// `backward` reads the outputs' gradients from its argument and adds to the inputs', by position in `inputs`.
    pub fn record(
        &self,
        op: &'static str,
        inputs: &[&Var],
        outputs: Vec<Tensor>,
        backward: impl FnOnce(&mut Backward<'_>) -> Result<()> + 'a,
    ) -> Vec<Var> {
        let wanted = inputs.iter().any(|input| input.needs_grad());
        self.push(op, inputs, outputs, wanted, backward)
    }

    fn push(
        &self,
        op: &'static str,
        inputs: &[&Var],
        outputs: Vec<Tensor>,
        wanted: bool,
        backward: impl FnOnce(&mut Backward<'_>) -> Result<()> + 'a,
    ) -> Vec<Var> {
        let outputs: Vec<Tensor> = outputs.into_iter().map(|output| stored(Narrow::result(op), output)).collect();
        let constant = || outputs.iter().map(|value| Var::constant(value.clone())).collect();
        let Some(recorded) = &self.recorded else { return constant() };
        let mut recorded = recorded.borrow_mut();
        if let Some(profile) = &mut recorded.profile {
            let lap = profile.lap();
            let entry = profile.entry(op);
            entry.calls += 1;
            entry.forward += lap;
        }
        if !wanted {
            return constant();
        }
        let first = recorded.slots.len();
        recorded.slots.extend(outputs.iter().map(|_| Leaf::Inner(Narrow::gradient(op))));
        recorded.nodes.push(Node {
            op,
            inputs: inputs.iter().map(|input| input.slot).collect(),
            outputs: (first..first + outputs.len()).collect(),
            backward: Box::new(backward),
        });
        let var = |(i, value): (usize, Tensor)| Var { grad: value.dtype(), value, slot: Some(first + i) };
        outputs.into_iter().enumerate().map(var).collect()
    }

    /// [`Tape::record`] for an op with one output.
    pub fn record1(
        &self,
        op: &'static str,
        inputs: &[&Var],
        output: Tensor,
        backward: impl FnOnce(&mut Backward<'_>) -> Result<()> + 'a,
    ) -> Var {
        let mut outputs = self.record(op, inputs, vec![output], backward);
        outputs.pop().unwrap_or_else(|| unreachable!("one output in, one out"))
    }

    /// Runs `forward` without keeping what it computes inside; backward runs it again (activation checkpointing).
    ///
    /// `forward` must give the same values when it runs again: every op here does.
    pub fn checkpoint(
        &self,
        inputs: &[&Var],
        forward: impl Fn(&Tape<'a>, &[Var]) -> Result<Vec<Var>> + 'a,
    ) -> Result<Vec<Var>> {
        if !self.is_recording() {
            let inputs: Vec<Var> = inputs.iter().map(|v| (*v).clone()).collect();
            return forward(self, &inputs);
        }
        let values: Vec<Tensor> = inputs.iter().map(|v| v.value.clone()).collect();
        let constants: Vec<Var> = values.iter().cloned().map(Var::constant).collect();
        let outputs = forward(&Tape::inference(), &constants)?.into_iter().map(Var::into_value).collect();
        // Parameters inside `forward` want gradients even where no input does.
        Ok(self.push("checkpoint", inputs, outputs, true, move |ctx| {
            let inner = Tape::new();
            let leaves: Vec<Var> = values.into_iter().map(|value| inner.leaf(value)).collect();
            let outputs = forward(&inner, &leaves)?;
            let seeds = (0..outputs.len()).map(|i| ctx.output(i)).collect();
            let grads = inner.run_backward(&outputs, seeds, ctx.sink)?;
            for (i, leaf) in leaves.iter().enumerate() {
                if let Some(grad) = grads.take(leaf) {
                    ctx.add(i, grad);
                }
            }
            Ok(())
        }))
    }

    /// Walks the tape backwards from the scalar `loss`, whose gradient is `seed` (1, or the loss's weight among several
    /// micro-batches). Parameters' gradients go to `sink`, leaves' are returned.
    pub fn backward(self, loss: &Var, seed: f32, sink: &mut dyn GradientSink) -> Result<LeafGrads> {
        let seed = Tensor::full(loss.shape().clone(), seed);
        self.run_backward(std::slice::from_ref(loss), vec![Some(seed)], sink)
    }

    /// [`Tape::backward`] from several outputs with given gradients.
    pub fn backward_from(self, outputs: &[Var], seeds: Vec<Tensor>, sink: &mut dyn GradientSink) -> Result<LeafGrads> {
        self.run_backward(outputs, seeds.into_iter().map(Some).collect(), sink)
    }

    fn run_backward(
        self,
        outputs: &[Var],
        seeds: Vec<Option<Tensor>>,
        sink: &mut dyn GradientSink,
    ) -> Result<LeafGrads> {
        let Some(recorded) = self.recorded else { return Ok(LeafGrads::default()) };
        let mut recorded = recorded.into_inner();
        let mut grads = SlotGrads { slots: recorded.slots, grads: Vec::new(), fault: None };
        grads.grads.resize_with(grads.slots.len(), || None);
        for (output, seed) in outputs.iter().zip(seeds) {
            if let (Some(slot), Some(seed)) = (output.slot, seed) {
                grads.add(slot, seed, sink);
            }
        }
        if let Some(profile) = &mut recorded.profile {
            profile.lap();
        }
        for node in recorded.nodes.into_iter().rev() {
            let outputs: Vec<Option<Tensor>> = node.outputs.iter().map(|slot| grads.grads[*slot].take()).collect();
            if outputs.iter().any(Option::is_some) {
                (node.backward)(&mut Backward { outputs, inputs: &node.inputs, grads: &mut grads, sink })?;
            }
            if let Some(fault) = grads.fault.take() {
                return Err(fault);
            }
            if let Some(profile) = &mut recorded.profile {
                let lap = profile.lap();
                profile.entry(node.op).backward += lap;
            }
        }
        Ok(LeafGrads {
            grads: RefCell::new(grads.grads),
            profile: recorded.profile.map(|p| p.times).unwrap_or_default(),
        })
    }
}

impl Default for Tape<'_> {
    fn default() -> Self {
        Tape::new()
    }
}

struct SlotGrads {
    slots: Vec<Leaf>,
    grads: Vec<Option<Tensor>>,
    /// Why a gradient could not be added; told when the node that added it returns.
    fault: Option<Error>,
}

impl SlotGrads {
    fn add(&mut self, slot: Slot, grad: Tensor, sink: &mut dyn GradientSink) {
        let added = if let Leaf::Param(id) = self.slots[slot] {
            let mut grad = Some(grad);
            sink.accumulate(id, &mut |sum, accumulate| match grad.take() {
                Some(grad) if accumulate => sum.add_assign(&grad),
                Some(grad) => {
                    *sum = grad.reshape(sum.shape().clone());
                    Ok(())
                }
                None => Ok(()),
            })
        } else {
            // Each gradient is stored before they are added up, and so is their sum.
            let store = |grad: Tensor| match self.slots[slot] {
                Leaf::Inner(narrow) => stored(narrow, grad),
                _ => grad,
            };
            let grad = store(grad);
            match self.grads[slot].take() {
                Some(mut sum) => {
                    let added = sum.add_assign(&grad);
                    self.grads[slot] = Some(store(sum));
                    added
                }
                None => {
                    self.grads[slot] = Some(grad);
                    Ok(())
                }
            }
        };
        self.fault = self.fault.take().or(added.err());
    }
}

/// What a backward closure sees: its outputs' gradients and where its inputs' go.
pub struct Backward<'b> {
    outputs: Vec<Option<Tensor>>,
    inputs: &'b [Option<Slot>],
    grads: &'b mut SlotGrads,
    sink: &'b mut dyn GradientSink,
}

impl Backward<'_> {
    /// The gradient of output `i`, moved out; `None` if nothing that was computed from it reached the loss.
    pub fn output(&mut self, i: usize) -> Option<Tensor> {
        self.outputs[i].take()
    }

    /// The gradient of output `i`, zeros if there is none.
    pub fn output_or_zeros(&mut self, i: usize, shape: &Shape) -> Tensor {
        self.outputs[i].take().unwrap_or_else(|| Tensor::zeros(shape.clone()))
    }

    /// Whether input `i`'s gradient is wanted.
    pub fn needs(&self, i: usize) -> bool {
        self.inputs[i].is_some()
    }

    /// Adds to input `i`'s gradient; dropped if it is not wanted.
    pub fn add(&mut self, i: usize, grad: Tensor) {
        if let Some(slot) = self.inputs[i] {
            self.grads.add(slot, grad, self.sink);
        }
    }

    /// Lets `write(values, accumulate)` write input `i`'s gradient in place: it adds to `values` if `accumulate`, else it
    /// overwrites all of them. For weight gradients, which are large and come from a product that can add by itself.
    pub fn accumulate(&mut self, i: usize, shape: &Shape, mut write: impl FnMut(&mut [f32], bool)) {
        let done = self.write(i, || Ok(Tensor::build(shape.clone(), |_| {})), &mut |sum, accumulate| {
            write(sum.f32_mut(), accumulate);
            Ok(())
        });
        self.grads.fault = self.grads.fault.take().or(done.err());
    }

    /// [`Backward::accumulate`] for a gradient wherever it is; `room` makes what is overwritten where there is nothing yet.
    pub fn write(
        &mut self,
        i: usize,
        room: impl FnOnce() -> Result<Tensor>,
        write: &mut WriteGradient<'_>,
    ) -> Result<()> {
        let Some(slot) = self.inputs[i] else { return Ok(()) };
        if let Leaf::Param(id) = self.grads.slots[slot] {
            return self.sink.accumulate(id, write);
        }
        match &mut self.grads.grads[slot] {
            Some(sum) => write(sum, true),
            empty => {
                let mut sum = room()?;
                write(&mut sum, false)?;
                *empty = Some(sum);
                Ok(())
            }
        }
    }
}

/// Gradients of the leaves after a backward pass.
#[derive(Default)]
pub struct LeafGrads {
    grads: RefCell<Vec<Option<Tensor>>>,
    profile: Vec<OpTime>,
}

impl LeafGrads {
    /// The gradient of a leaf, moved out; `None` if the loss does not depend on it.
    pub fn take(&self, leaf: &Var) -> Option<Tensor> {
        self.grads.borrow_mut().get_mut(leaf.slot?)?.take()
    }

    /// Time per op, of a [`Tape::profiled`] tape.
    pub fn op_times(&self) -> &[OpTime] {
        &self.profile
    }
}
