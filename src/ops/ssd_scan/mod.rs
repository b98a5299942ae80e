//! The selective state-space recurrence of Mamba-2, in chunks (Dao & Gu, "Transformers are SSMs", arXiv 2405.21060 §6).
//!
//! S_t = exp(dt·A)·S_{t−1} + dt·x_t ⊗ B_t,  y_t = C_t·S_t + D·x_t, per head; heads of a group share B and C.

mod backward;
pub mod cases;
mod cpu;
mod cuda;
mod forward;
pub mod reference;

use crate::autograd::{Mask, Tape, Var};
use crate::tensor::{Segments, Tensor};
use crate::{Error, Result};

/// Sizes and options of a scan.
pub struct ScanOptions<'a> {
    /// H.
    pub heads: usize,
    /// P.
    pub head_dim: usize,
    /// G, divides H.
    pub groups: usize,
    /// N.
    pub state: usize,
    /// Tokens per chunk: how it is computed, not what.
    pub chunk: usize,
    /// dt is clamped to this range after softplus.
    pub dt_limit: (f32, f32),
    pub segments: &'a Segments,
    /// [S, H, P, N], the state before each segment; zeros without it.
    pub initial: Option<&'a Var>,
    /// Over heads: width H, period H/G. Multiplies each head's output.
    pub mask: Option<&'a Mask>,
    /// Whether the state after each segment is wanted.
    pub final_state: bool,
}

pub struct Scan {
    /// [R, H·P].
    pub y: Var,
    /// [S, H, P, N].
    pub final_state: Option<Var>,
}

/// xbc [R, H·P + 2·G·N] (x | B | C), dt [R, H] before its bias and softplus, a_log, d and dt_bias `[H]`.
///
/// A = −exp(a_log); dt ← clamp(softplus(dt + dt_bias), dt_limit), with no gradient where the clamp acts. A head mask of
/// exactly 0 gives exactly 0, and still its gradient. Results depend on `chunk` through rounding only.
pub fn ssd_scan(
    tape: &Tape<'_>,
    xbc: &Var,
    dt: &Var,
    a_log: &Var,
    d: &Var,
    dt_bias: &Var,
    options: &ScanOptions<'_>,
) -> Result<Scan> {
    let sizes = check(xbc, dt, [a_log, d, dt_bias], options)?;
    if let Some(gpu) = xbc.value().gpu() {
        return cuda::ssd_scan(gpu, tape, [xbc, dt, a_log, d, dt_bias], options);
    }
    let rows = xbc.dims()[0];
    let state_dims = [options.segments.count(), sizes.heads, sizes.head_dim, sizes.state];
    let mask = options.mask.map(|m| m.rows(sizes.heads, rows)).transpose()?;

    let steps = cpu::Steps::new(dt.f32(), dt_bias.f32(), a_log.f32(), options.dt_limit);
    let mut state = match options.initial {
        Some(initial) => initial.value().clone(),
        None => Tensor::zeros(state_dims),
    };
    let plan = cpu::Plan::new(sizes, options.segments);
    let mut starts = Tensor::build([if tape.is_recording() { plan.saved_len() } else { 0 }], |_| {});
    let mut y = Tensor::build([rows, sizes.heads * sizes.head_dim], |_| {});
    let inputs = cpu::Inputs { xbc: xbc.f32(), d: d.f32(), steps: &steps };
    forward::forward(&plan, &inputs, state.f32_mut(), starts.f32_mut(), y.f32_mut());

    let unmasked = mask.as_ref().map(|_| y.clone());
    if let (Some(mask), Some(unmasked)) = (&mask, &unmasked) {
        y = Tensor::build(y.shape().clone(), |y| cpu::mask_heads(unmasked.f32(), sizes.head_dim, mask, y));
    }

    let none = Var::constant(Tensor::zeros([0]));
    let keep = options.mask.map_or(&none, |m| &m.keep);
    let initial = options.initial.unwrap_or(&none);
    let saved = [xbc, dt, a_log, d, dt_bias].map(|v| v.value().clone());
    let keep_shape = keep.shape().clone();
    let limit = options.dt_limit;
    let inputs = [xbc, dt, a_log, d, dt_bias, initial, keep];
    let outputs = if options.final_state { vec![y, state] } else { vec![y] };
    let has_final = options.final_state;
    let mut vars = tape.record("ssd_scan", &inputs, outputs, move |ctx| {
        let [xbc, dt, a_log, d, dt_bias] = &saved;
        let mut dy = ctx.output_or_zeros(0, &[rows, sizes.heads * sizes.head_dim].into());
        let mut dstate = match has_final {
            true => ctx.output_or_zeros(1, &state_dims.into()),
            false => Tensor::zeros(state_dims),
        };
        if let (Some(mask), Some(y)) = (&mask, &unmasked) {
            if ctx.needs(6) {
                let dkeep = cpu::mask_grad(y.f32(), sizes.head_dim, mask, dy.f32());
                ctx.add(6, Tensor::from_slice(keep_shape, &dkeep));
            }
            dy = Tensor::build(dy.shape().clone(), |out| cpu::mask_heads(dy.f32(), sizes.head_dim, mask, out));
        }
        let inputs = cpu::Inputs { xbc: xbc.f32(), d: d.f32(), steps: &steps };
        let mut dxbc = Tensor::build(xbc.shape().clone(), |_| {});
        let mut grads = backward::Grads::new(&plan, dxbc.f32_mut(), rows);
        backward::backward(&plan, &inputs, starts.f32(), dy.f32(), dstate.f32_mut(), &mut grads);
        let (ddt, per_head) = grads.finish(&steps, dt.f32(), dt_bias.f32(), a_log.f32(), limit);
        ctx.add(0, dxbc);
        ctx.add(1, Tensor::from_slice(dt.shape().clone(), &ddt));
        for (i, grad) in per_head.iter().enumerate() {
            ctx.add(2 + i, Tensor::from_slice([sizes.heads], grad));
        }
        ctx.add(5, dstate);
        Ok(())
    });
    let final_state = if has_final { vars.pop() } else { None };
    let y = vars.pop().unwrap_or_else(|| unreachable!("y is always an output"));
    Ok(Scan { y, final_state })
}

fn check(xbc: &Var, dt: &Var, per_head: [&Var; 3], o: &ScanOptions<'_>) -> Result<cpu::Sizes> {
    let fault = |argument, found: &dyn std::fmt::Debug, expected: String| {
        Err(Error::contract("ssd_scan", argument, found, expected))
    };
    if o.groups == 0 || o.heads == 0 || !o.heads.is_multiple_of(o.groups) {
        return fault("heads", &o.heads, format!("a multiple of {} groups", o.groups));
    }
    if o.chunk == 0 || o.head_dim == 0 || o.state == 0 {
        return fault("chunk, head_dim, state", &[o.chunk, o.head_dim, o.state], "at least 1 each".into());
    }
    let (rows, width) = (o.segments.rows(), o.heads * o.head_dim + 2 * o.groups * o.state);
    if xbc.dims() != [rows, width] {
        return fault("xbc", &xbc.dims(), format!("[{rows}, {width}]"));
    }
    if dt.dims() != [rows, o.heads] {
        return fault("dt", &dt.dims(), format!("[{rows}, {}]", o.heads));
    }
    for (name, v) in ["a_log", "d", "dt_bias"].into_iter().zip(per_head) {
        if v.dims() != [o.heads] {
            return fault(name, &v.dims(), format!("[{}]", o.heads));
        }
    }
    let dims = [o.segments.count(), o.heads, o.head_dim, o.state];
    if let Some(initial) = o.initial.filter(|v| v.dims() != dims) {
        return fault("initial", &initial.dims(), format!("{dims:?}"));
    }
    if o.dt_limit.0.is_nan() || o.dt_limit.0 > o.dt_limit.1 || o.dt_limit.0 < 0.0 {
        return fault("dt_limit", &o.dt_limit, "0 ≤ low ≤ high".into());
    }
    Ok(cpu::Sizes { heads: o.heads, head_dim: o.head_dim, groups: o.groups, state: o.state, chunk: o.chunk })
}
