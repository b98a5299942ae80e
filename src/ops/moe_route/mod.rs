//! The router of a mixture-of-experts layer: sigmoid scores, correction bias, group limit, top-k (DeepSeek-V3,
//! arXiv 2412.19437 §2.1.2, as `nemotron_h` has it).

pub mod cases;
mod cpu;
mod cuda;
pub mod reference;
mod replay;

pub use replay::{Replay, replay};

use crate::autograd::{Mask, Tape, Var};
use crate::tensor::Tensor;
use crate::{Error, Result};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteOptions {
    /// K, experts per token.
    pub top_k: usize,
    /// Experts lie in this many equal groups, of which `topk_group` may be chosen from.
    pub n_group: usize,
    pub topk_group: usize,
    /// Whether a token's weights are divided by their sum (+ 1e-20).
    pub norm_topk_prob: bool,
    pub routed_scaling_factor: f32,
}

/// Which experts each token goes to, and with what weights.
pub struct Routing {
    /// [R, K].
    pub weights: Var,
    /// u32 [R, K], best first; distinct within a row.
    pub experts: Tensor,
}

/// logits [R, E], correction_bias `[E]` → top-k experts by sigmoid(logits) + bias, weighted by the **uncorrected** sigmoid.
///
/// `score_mask` (an alternative to output masking in `moe_combine`): m·s replaces s in the selection and the weights, and
/// an expert with m = 0 is never selected. A NaN logit ranks below everything, so the experts of a row stay distinct and in
/// range whatever the input. The bias gets no gradient.
pub fn moe_route(
    tape: &Tape<'_>,
    logits: &Var,
    correction_bias: &Tensor,
    options: RouteOptions,
    score_mask: Option<&Mask>,
) -> Result<Routing> {
    let &[rows, experts] = logits.dims() else {
        return Err(Error::contract("moe_route", "logits", logits.dims(), "[R, E]"));
    };
    check(experts, correction_bias, &options)?;
    if let Some(gpu) = logits.value().gpu() {
        let routing = cuda::moe_route(gpu, tape, logits, correction_bias, options, score_mask)?;
        replay::record(&routing.experts)?;
        return Ok(routing);
    }
    let mask_rows = score_mask.map(|m| m.rows(experts, rows)).transpose()?;
    let k = options.top_k;
    let mut chosen = vec![0u32; rows * k];
    let weights = Tensor::build([rows, k], |weights| {
        let inputs = cpu::Inputs { logits: logits.f32(), bias: correction_bias.f32(), mask: mask_rows.as_ref() };
        cpu::forward(&inputs, &options, weights, &mut chosen);
        if let Some(again) = replay::next(rows * k) {
            chosen = again;
            cpu::weigh_all(&inputs, &options, &chosen, weights);
        }
    });
    let keep = score_mask.map_or_else(|| Var::constant(Tensor::zeros([0])), |m| m.keep.clone());
    let (lv, bias, keep_shape, experts_of) =
        (logits.value().clone(), correction_bias.clone(), keep.shape().clone(), chosen.clone());
    let weights = tape.record1("moe_route", &[logits, &keep], weights, move |ctx| {
        let Some(dweights) = ctx.output(0) else { return Ok(()) };
        let inputs = cpu::Inputs { logits: lv.f32(), bias: bias.f32(), mask: mask_rows.as_ref() };
        let mut dlogits = Tensor::zeros([rows, experts]);
        let dkeep = cpu::backward(&inputs, &options, &experts_of, dweights.f32(), dlogits.f32_mut());
        ctx.add(0, dlogits);
        if ctx.needs(1) {
            ctx.add(1, Tensor::from_slice(keep_shape, &dkeep));
        }
        Ok(())
    });
    let experts = Tensor::from_slice([rows, k], &chosen);
    replay::record(&experts)?;
    Ok(Routing { weights, experts })
}

fn check(experts: usize, bias: &Tensor, o: &RouteOptions) -> Result<()> {
    if bias.dims() != [experts] {
        return Err(Error::contract("moe_route", "correction_bias", bias.dims(), format!("[{experts}]")));
    }
    if o.n_group == 0 || !experts.is_multiple_of(o.n_group) {
        return Err(Error::contract("moe_route", "n_group", o.n_group, format!("a divisor of {experts} experts")));
    }
    if o.topk_group == 0 || o.topk_group > o.n_group {
        return Err(Error::contract("moe_route", "topk_group", o.topk_group, format!("1 to {}", o.n_group)));
    }
    let reachable = experts / o.n_group * o.topk_group;
    if o.top_k == 0 || o.top_k > reachable {
        return Err(Error::contract("moe_route", "top_k", o.top_k, format!("1 to {reachable}, the experts in reach")));
    }
    Ok(())
}
