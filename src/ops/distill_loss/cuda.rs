use std::sync::Arc;

use super::{Head, TeacherHead};
use crate::Result;
use crate::autograd::{Tape, Var};
use crate::device::cuda::embedded::abi;
use crate::device::cuda::{Cuda, DeviceBuffer};
use crate::ops::cross_entropy::cuda::{blocks, head_grads, rows_of};
use crate::ops::gpu::{check, launch, room, size, symbol};
use crate::ops::linear::cuda as product;
use crate::tensor::{DType, Tensor};

/// f64 numbers of a row's statistics.
const STATISTICS: usize = size_of::<abi::DistillStatistics>() / size_of::<f64>();

/// What both directions read. Blocks of rows are cut, so that the logits of a block exist over the whole vocabulary: the
/// gradient of its hidden states is then one product, rounded once.
struct Problem {
    gpu: Arc<Cuda>,
    /// Hidden states and weight.
    student: (Tensor, Tensor),
    teacher: (Tensor, Tensor),
    valid: DeviceBuffer<u32>,
    /// 1 / valid rows.
    mean: f32,
    /// 1 / temperature.
    scale: f32,
    statistics: DeviceBuffer<f64>,
}

/// Backward makes the logits again, block by block.
pub(super) fn distill_loss(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    student: Head<'_>,
    teacher: TeacherHead<'_>,
    valid: &[bool],
    temperature: f32,
) -> Result<Var> {
    let dtype = Some(student.hidden.value().dtype());
    check(super::OP, &[("student weight", student.weight.value(), dtype), ("teacher hidden", teacher.hidden, None)])?;
    check(super::OP, &[("teacher weight", teacher.weight, Some(teacher.hidden.dtype()))])?;
    let flags: Vec<u32> = valid.iter().map(|valid| u32::from(*valid)).collect();
    let problem = Problem {
        gpu: gpu.clone(),
        student: (student.hidden.value().clone(), student.weight.value().clone()),
        teacher: (teacher.hidden.clone(), teacher.weight.clone()),
        mean: 1.0 / flags.iter().sum::<u32>().max(1) as f32,
        valid: gpu.upload(&flags)?,
        scale: 1.0 / temperature,
        statistics: gpu.buffer(valid.len() * STATISTICS)?,
    };
    for block in blocks(valid.len(), problem.student.1.dims()[0]) {
        problem.sums(block)?;
    }
    let loss = room(gpu, DType::F32, &[])?;
    let args = abi::DistillMean {
        statistics: problem.statistics.ptr(),
        valid: problem.valid.ptr(),
        loss: loss.ptr(),
        rows: size(valid.len())?,
        unused: 0,
    };
    launch(gpu, "distill_loss_mean_f32", &args)?;
    Ok(tape.record1(super::OP, &[student.hidden, student.weight], loss, move |ctx| {
        let Some(seed) = ctx.output(0) else { return Ok(()) };
        let factor = problem.mean * seed.read_item()?;
        let grads = |block| problem.logits_grad(block, factor);
        head_grads(&problem.gpu, ctx, (&problem.student.0, &problem.student.1), grads)
    }))
}

impl Problem {
    fn sums(&self, block: (usize, usize)) -> Result<()> {
        let (teacher, student) = (self.logits(&self.teacher, block)?, self.logits(&self.student, block)?);
        let args = abi::DistillSums {
            teacher: teacher.ptr(),
            student: student.ptr(),
            valid: self.valid_at(block),
            statistics: self.statistics_at(block),
            rows: size(block.1)?,
            vocab: size(student.dims()[1])?,
            scale: self.scale,
            first: 1,
        };
        launch(&self.gpu, "distill_loss_sums_f32", &args)
    }

    /// The gradient of the student's logits of a block, times `factor`.
    fn logits_grad(&self, block: (usize, usize), factor: f32) -> Result<Tensor> {
        let (teacher, student) = (self.logits(&self.teacher, block)?, self.logits(&self.student, block)?);
        let dtype = self.student.0.dtype();
        let dstudent = room(&self.gpu, dtype, student.dims())?;
        let args = abi::DistillGrad {
            teacher: teacher.ptr(),
            student: student.ptr(),
            valid: self.valid_at(block),
            statistics: self.statistics_at(block),
            dstudent: dstudent.ptr(),
            rows: size(block.1)?,
            vocab: size(student.dims()[1])?,
            scale: self.scale,
            factor,
        };
        launch(&self.gpu, &symbol("distill_loss_grad", dtype), &args)?;
        Ok(dstudent)
    }

    fn logits(&self, (hidden, weight): &(Tensor, Tensor), block: (usize, usize)) -> Result<Tensor> {
        let logits = room(&self.gpu, DType::F32, &[block.1, weight.dims()[0]])?;
        product::forward(&self.gpu, &rows_of(hidden, block), weight, &logits)?;
        Ok(logits)
    }

    fn valid_at(&self, block: (usize, usize)) -> *const u32 {
        self.valid.ptr::<u32>().wrapping_add(block.0)
    }

    fn statistics_at(&self, block: (usize, usize)) -> *mut abi::DistillStatistics {
        self.statistics.ptr::<abi::DistillStatistics>().wrapping_add(block.0)
    }
}
