//! The gated norm of a Mamba layer: y·silu(z), root-mean-square normalised within each group of heads.

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;

use crate::autograd::{Mask, Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

/// y, z [R, W], weight `[W]` → t / √(Σt²/n + eps)·weight with t = y·silu(z), the sum over each of `groups` groups of columns.
///
/// n is W/groups, or with a mask over heads of `head_dim` columns head_dim·Σ m over the group's heads: y is masked already,
/// and a hardened mask must equal the model with fewer heads. A group that is masked entirely gives zeros.
pub fn gated_group_norm(
    tape: &Tape<'_>,
    y: &Var,
    z: &Var,
    weight: &Var,
    groups: usize,
    eps: f32,
    mask: Option<(&Mask, usize)>,
) -> Result<Var> {
    let (rows, width) = (y.shape().rows(), y.shape().last());
    if z.shape() != y.shape() {
        return Err(Error::contract("gated_group_norm", "z", z.dims(), format!("{:?}", y.dims())));
    }
    if weight.dims() != [width] || groups == 0 || width % groups != 0 {
        let expected = format!("[{width}], a multiple of {groups} groups");
        return Err(Error::contract("gated_group_norm", "weight", weight.dims(), expected));
    }
    if let Some((_, head_dim)) = mask
        && (head_dim == 0 || !(width / groups).is_multiple_of(head_dim))
    {
        let expected = format!("a divisor of the group's {} columns", width / groups);
        return Err(Error::contract("gated_group_norm", "head_dim", head_dim, expected));
    }
    if let Some(gpu) = y.value().gpu() {
        return cuda::gated_group_norm(gpu, tape, [y, z, weight], cuda::Norm { groups, eps, mask });
    }
    let mask_rows = match mask {
        None => None,
        Some((mask, head_dim)) => Some((mask.rows(width / head_dim, rows)?, head_dim)),
    };
    let keep = mask.map_or_else(|| Var::constant(Tensor::zeros([0])), |(mask, _)| mask.keep.clone());
    let norm = cpu::Norm { weight: weight.value().clone(), groups, eps, mask: mask_rows };
    let out = Tensor::build([rows, width], |out| norm.forward(y.f32(), z.f32(), out));
    let (yv, zv, keep_shape) = (y.value().clone(), z.value().clone(), keep.shape().clone());
    Ok(tape.record1("gated_group_norm", &[y, z, weight, &keep], out, move |ctx| {
        let Some(dout) = ctx.output(0) else { return Ok(()) };
        let mut dy = Tensor::build([rows, width], |_| {});
        let mut dz = Tensor::build([rows, width], |_| {});
        let (dweight, dkeep) = norm.backward([yv.f32(), zv.f32(), dout.f32()], dy.f32_mut(), dz.f32_mut());
        ctx.add(0, dy);
        ctx.add(1, dz);
        ctx.add(2, Tensor::from_slice([width], &dweight));
        if ctx.needs(3) {
            ctx.add(3, Tensor::from_slice(keep_shape, &dkeep));
        }
        Ok(())
    }))
}
