use std::sync::Arc;

use super::{RouteOptions, Routing};
use crate::Result;
use crate::autograd::{Mask, Tape, Var};
use crate::device::cuda::Cuda;
use crate::device::cuda::embedded::abi;
use crate::ops::gpu::{GpuMask, check, keep_of, launch, optional, room, size, symbol};
use crate::tensor::{DType, Tensor};

pub(super) fn moe_route(
    gpu: &Arc<Cuda>,
    tape: &Tape<'_>,
    logits: &Var,
    bias: &Tensor,
    options: RouteOptions,
    mask: Option<&Mask>,
) -> Result<Routing> {
    let (rows, experts, k) = (logits.dims()[0], logits.dims()[1], options.top_k);
    let bias = bias.to_gpu(gpu)?;
    check("moe_route", &[("logits", logits.value(), Some(DType::F32)), ("bias", &bias, Some(DType::F32))])?;
    let device_mask = GpuMask::new(gpu, mask, experts, rows)?;
    let route = Route { logits: logits.value().clone(), mask: device_mask, options };
    let (weights, chosen) = (room(gpu, DType::F32, &[rows, k])?, room(gpu, DType::U32, &[rows, k])?);
    let args =
        abi::MoeRouteForward { route: route.abi()?, bias: bias.ptr(), weights: weights.ptr(), chosen: chosen.ptr() };
    launch(gpu, "moe_route_forward_f32", &args)?;
    let (gpu, experts_of, dtype) = (gpu.clone(), chosen.clone(), logits.grad_dtype());
    let weights = tape.record1("moe_route", &[logits, &keep_of(mask)], weights, move |ctx| {
        let Some(dweights) = ctx.output(0) else { return Ok(()) };
        let dlogits = room(&gpu, dtype, &[rows, experts])?;
        let sums = route.mask.row_sums(&gpu, rows)?;
        let args = abi::MoeRouteBackward {
            route: route.abi()?,
            chosen: experts_of.ptr(),
            dweights: dweights.ptr(),
            dlogits: dlogits.ptr(),
            row_sums: optional(&sums),
        };
        launch(&gpu, &symbol("moe_route_backward", dtype), &args)?;
        ctx.add(0, dlogits);
        if let Some(sums) = sums.filter(|_| ctx.needs(1)) {
            ctx.add(1, route.mask.grad(&gpu, &sums, rows, 1)?);
        }
        Ok(())
    });
    Ok(Routing { weights, experts: chosen })
}

/// What both directions read.
struct Route {
    logits: Tensor,
    mask: GpuMask,
    options: RouteOptions,
}

impl Route {
    fn abi(&self) -> Result<abi::MoeRoute> {
        let o = &self.options;
        Ok(abi::MoeRoute {
            logits: self.logits.ptr(),
            mask: self.mask.abi(),
            rows: size(self.logits.dims()[0])?,
            experts: size(self.logits.dims()[1])?,
            top_k: size(o.top_k)?,
            groups: size(o.n_group)?,
            topk_group: size(o.topk_group)?,
            normalise: u32::from(o.norm_topk_prob),
            scale: o.routed_scaling_factor,
            unused: 0,
        })
    }
}
