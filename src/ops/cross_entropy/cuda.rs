use std::sync::Arc;

use super::{NOT_COUNTED, TokenLoss};
use crate::Result;
use crate::autograd::{Backward, Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Cuda, DeviceBuffer};
use crate::ops::gpu::{check, launch, own, room, size, symbol};
use crate::ops::linear::cuda as product;
use crate::tensor::{DType, Tensor};

/// Logits that exist at a time.
const MOST_LOGITS: usize = 64 << 20;

/// Blocks of rows whose logits fit: first row and rows.
pub(in crate::ops) fn blocks(rows: usize, vocab: usize) -> impl Iterator<Item = (usize, usize)> {
    let block = (MOST_LOGITS / vocab.max(1)).max(1);
    (0..rows).step_by(block).map(move |first| (first, block.min(rows - first)))
}

/// Rows `first .. first + count` of a matrix.
pub(in crate::ops) fn rows_of(matrix: &Tensor, (first, count): (usize, usize)) -> Tensor {
    let width = matrix.shape().last();
    matrix.part(first * width, [count, width])
}

/// What both directions read.
struct Problem {
    gpu: Arc<Cuda>,
    hidden: Tensor,
    head: Tensor,
    targets: DeviceBuffer<u32>,
    /// 1 / counted rows.
    mean: f32,
}

impl Problem {
    fn new(gpu: &Arc<Cuda>, hidden: &Tensor, head: &Tensor, targets: &[u32]) -> Result<Problem> {
        check("cross_entropy", &[("head", head, Some(hidden.dtype()))])?;
        let counted = targets.iter().filter(|target| **target != NOT_COUNTED).count();
        Ok(Problem {
            gpu: gpu.clone(),
            hidden: hidden.clone(),
            head: head.clone(),
            targets: gpu.upload(targets)?,
            mean: 1.0 / counted.max(1) as f32,
        })
    }

    /// Each row's loss and likeliest token.
    fn forward(&self) -> Result<(Tensor, Tensor)> {
        let rows = self.targets.len();
        let (losses, tops) = (room(&self.gpu, DType::F32, &[rows, 1])?, room(&self.gpu, DType::U32, &[rows, 1])?);
        for block in blocks(rows, self.head.dims()[0]) {
            let logits = self.logits(block)?;
            self.rows(block, &logits, None, (&rows_of(&losses, block), &rows_of(&tops, block)), 0.0)?;
        }
        Ok((losses, tops))
    }

    fn logits(&self, block: (usize, usize)) -> Result<Tensor> {
        let logits = room(&self.gpu, DType::F32, &[block.1, self.head.dims()[0]])?;
        product::forward(&self.gpu, &rows_of(&self.hidden, block), &self.head, &logits)?;
        Ok(logits)
    }

    /// The gradient of the logits of a block, times `scale`.
    fn logits_grad(&self, block: (usize, usize), scale: f32) -> Result<Tensor> {
        let logits = self.logits(block)?;
        let dlogits = room(&self.gpu, self.hidden.dtype(), logits.dims())?;
        let (losses, tops) = (room(&self.gpu, DType::F32, &[block.1])?, room(&self.gpu, DType::U32, &[block.1])?);
        self.rows(block, &logits, Some(&dlogits), (&losses, &tops), scale)?;
        Ok(dlogits)
    }

    fn rows(
        &self,
        (first, count): (usize, usize),
        logits: &Tensor,
        dlogits: Option<&Tensor>,
        (losses, tops): (&Tensor, &Tensor),
        scale: f32,
    ) -> Result<()> {
        let args = abi::CrossEntropy {
            logits: logits.ptr(),
            targets: self.targets.ptr::<u32>().wrapping_add(first),
            dlogits: dlogits.map_or(std::ptr::null_mut(), Tensor::ptr),
            losses: losses.ptr(),
            tops: tops.ptr(),
            rows: size(count)?,
            vocab: size(logits.dims()[1])?,
            scale,
            unused: 0,
        };
        launch(&self.gpu, &symbol("cross_entropy_rows", self.hidden.dtype()), &args)
    }
}

/// Backward makes the logits again, block by block.
pub(super) fn cross_entropy(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    hidden: &Var,
    head: &Var,
    targets: &[u32],
) -> Result<Var> {
    let problem = Problem::new(gpu, hidden.value(), head.value(), targets)?;
    let (losses, _) = problem.forward()?;
    let loss = room(gpu, DType::F32, &[])?;
    let args = abi::CrossEntropyMean {
        losses: losses.ptr(),
        targets: problem.targets.ptr(),
        loss: loss.ptr(),
        rows: size(targets.len())?,
        unused: 0,
    };
    launch(gpu, "cross_entropy_mean_f32", &args)?;
    Ok(tape.record1("cross_entropy", &[hidden, head], loss, move |ctx| {
        let Some(seed) = ctx.output(0) else { return Ok(()) };
        let scale = problem.mean * seed.read_item()?;
        let grads = |block| problem.logits_grad(block, scale);
        head_grads(&problem.gpu, ctx, (&problem.hidden, &problem.head), grads)
    }))
}

/// From the gradients of the logits, block by block, to those of the hidden states (input 0) and of the head (input 1).
pub(in crate::ops) fn head_grads(
    gpu: &Arc<Cuda>,
    ctx: &mut Backward<'_>,
    (hidden, head): (&Tensor, &Tensor),
    dlogits: impl Fn((usize, usize)) -> Result<Tensor>,
) -> Result<()> {
    let (rows, vocab) = (hidden.dims()[0], head.dims()[0]);
    let d_hidden = ctx.needs(0).then(|| room(gpu, hidden.dtype(), hidden.dims())).transpose()?;
    let walk = |d_head: Option<(&Tensor, bool)>| -> Result<()> {
        for (at, block) in blocks(rows, vocab).enumerate() {
            let dlogits = dlogits(block)?;
            if let Some(d_hidden) = &d_hidden {
                product::input_grad(gpu, &dlogits, head, &rows_of(d_hidden, block), false)?;
            }
            if let Some((d_head, accumulate)) = d_head {
                product::weight_grad(gpu, &dlogits, &rows_of(hidden, block), d_head, accumulate || at > 0)?;
            }
        }
        Ok(())
    };
    if ctx.needs(1) {
        // One walk over the logits serves both gradients.
        let zeros = || Tensor::zeros_on(gpu, DType::F32, head.dims());
        ctx.write(1, zeros, &mut |d_head, accumulate| {
            own(d_head, accumulate)?;
            if rows == 0 && !accumulate {
                *d_head = zeros()?;
            }
            walk(Some((d_head, accumulate)))
        })?;
    } else {
        walk(None)?;
    }
    if let Some(d_hidden) = d_hidden {
        ctx.add(0, d_hidden);
    }
    Ok(())
}

pub(super) fn token_losses(gpu: &Arc<Cuda>, hidden: &Tensor, head: &Tensor, targets: &[u32]) -> Result<Vec<TokenLoss>> {
    let (losses, tops) = Problem::new(gpu, hidden, head, targets)?.forward()?;
    let read = Tensor::to_host_together(&[&losses, &tops])?;
    let rows = read[0].f32().iter().zip(read[1].values::<u32>());
    Ok(rows.map(|(nats, top)| TokenLoss { nats: *nats, top: *top }).collect())
}
