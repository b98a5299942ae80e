use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::optional;
use super::moe_permute::dispatch;
use super::problem::Problem;
use crate::autograd::Draws;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::moe_combine::reference;
use crate::ops::moe_permute::{DROPPED, cases::scattered};

struct Size {
    tokens: usize,
    width: usize,
    top_k: usize,
    experts: usize,
    drop_every: usize,
    ends: &'static [usize],
}

const fn size([tokens, width, top_k, experts, drop_every]: [usize; 5], ends: &'static [usize]) -> Size {
    Size { tokens, width, top_k, experts, drop_every, ends }
}

const SIZES: [Size; 20] = [
    size([0, 8, 2, 4, 0], &[]),
    size([1, 1, 1, 1, 0], &[]),
    size([37, 19, 2, 8, 0], &[]),
    size([65, 33, 3, 16, 7], &[]),
    size([60, 24, 2, 12, 0], &[4, 8, 12]),
    size([60, 10, 3, 12, 11], &[1, 2, 3]),
    size([33, 40, 22, 40, 0], &[10, 40]),
    // Rows in many steps, of single elements and of 16 bytes, with groups of experts that share a mask.
    size([6, 301, 5, 8, 3], &[1, 4]),
    size([6, 299, 2, 8, 0], &[]),
    size([5, 1304, 6, 9, 4], &[1, 3]),
    size([9, 24, 7, 12, 5], &[4, 12]),
    size([9, 19, 7, 12, 5], &[4, 12]),
    // One expert per token: its sums run through many steps.
    size([9, 1304, 1, 4, 0], &[1, 4]),
    size([9, 301, 1, 4, 3], &[1, 4]),
    // The first dropped pair, whose row is the first behind the experts', with each slot.
    size([5, 8, 4, 5, 2], &[]),
    size([5, 8, 4, 5, 3], &[]),
    size([5, 7, 4, 5, 2], &[2, 5]),
    size([5, 7, 4, 5, 4], &[]),
    size([5, 8, 4, 5, 2], &[2, 5]),
    size([5, 8, 4, 5, 3], &[2, 5]),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for size in &SIZES {
            let Size { tokens, width, top_k, experts, .. } = size;
            bench.case(format!("{tokens} tokens of {width} in {}, top {top_k} of {experts}", dtype.name()));
            one(bench, dtype, size)?;
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("5 tokens of 16 in {}", dtype.name()));
            one(bench, dtype, &size([5, 16, 3, 5, 4], &[2, 5]))
        })?;
    }
    Ok(())
}

fn one(bench: &mut Bench, dtype: Float, size: &Size) -> Result<(), CudaError> {
    let &Size { tokens, width, top_k, experts, drop_every, ends } = size;
    let chosen = scattered(tokens, top_k, experts, drop_every);
    let sorted = dispatch(bench, &chosen, top_k, experts, None)?;
    let draws = Draws::Sequences { length: tokens.div_ceil(3).max(1), of_sequence: [1, 2, 0].as_slice().into() };
    let spec = (!ends.is_empty()).then(|| MaskSpec { ends: ends.to_vec(), draws });
    let mut generator = Generator::new((tokens + experts) as u64);
    let inputs = vec![
        (generator.normal("y", &[sorted.filled, width], 1.0), dtype),
        (generator.uniform("weights", &[tokens, top_k], 0.1, 1.0), Float::F32),
        (generator.keep(3, ends.len().max(1)), Float::F32),
    ];
    let (ours, our_chosen) = (spec.clone(), chosen.clone());
    let m = move |keep: &[f64], row, e| ours.as_ref().map_or(1.0, |spec| spec.value(keep, row, e));
    let same = m.clone();
    let problem = Problem::new(dtype, inputs, move |v| {
        let m = |row, e| same(&v[2], row, e);
        vec![reference::moe_combine(&v[0], &v[1], width, &our_chosen, top_k, m)]
    });

    let mask = bench.mask(spec.as_ref(), &problem.inputs[2])?;
    let weights = bench.put(Float::F32, &problem.inputs[1])?;
    let device_chosen = bench.cuda.upload(&chosen)?;
    // Behind the experts' rows, and where the mask is 0, there is NaN, which must not come through.
    let mut host = problem.inputs[0].clone();
    host.resize(chosen.len() * width, f32::NAN);
    let y = bench.put(dtype, &host)?;
    for (row, pair) in sorted.order.iter().take(sorted.filled).enumerate() {
        if m(&problem.exact[2], *pair as usize / top_k, chosen[*pair as usize] as usize) == 0.0 {
            host[row * width..][..width].fill(f32::NAN);
        }
    }
    let masked_y = bench.put(dtype, &host)?;
    let combine = abi::MoeCombine {
        y: masked_y.ptr(),
        weights: weights.ptr(),
        chosen: device_chosen.ptr(),
        row_of: sorted.row_of.ptr(),
        filled: sorted.filled_ptr(),
        mask: mask.abi(),
        tokens: tokens as u32,
        top_k: top_k as u32,
        width: width as u32,
        unused: 0,
    };
    let out = bench.room(dtype, tokens * width)?;
    bench.launch(
        &format!("moe_combine_forward_{}", dtype.name()),
        &abi::MoeCombineForward { combine, out: out.ptr() },
    )?;
    bench.value(&problem, 0, &out, dtype)?;

    let dout = bench.put(dtype, &problem.seeds[0])?;
    let (dy, dweights) = (bench.room(dtype, chosen.len() * width)?, bench.room(Float::F32, chosen.len())?);
    let sums = bench.row_sums(&mask, tokens)?;
    let args = abi::MoeCombineBackward {
        combine: abi::MoeCombine { y: y.ptr(), ..combine },
        dout: dout.ptr(),
        dy: dy.ptr(),
        dweights: dweights.ptr(),
        row_sums: optional(&sums),
    };
    bench.launch(&format!("moe_combine_backward_{}", dtype.name()), &args)?;
    let dy = dy.read()?;
    let (filled, behind) = dy.split_at(sorted.filled * width);
    bench.gradient(&problem, 0, filled, dtype.tolerance().grad);
    bench.equal("gradient behind the experts' rows", behind, &vec![0.0; behind.len()]);
    let dweights = dweights.read()?;
    let dropped = |(pair, grad): (usize, &f32)| (chosen[pair] == DROPPED).then_some(*grad);
    let of_dropped: Vec<f32> = dweights.iter().enumerate().filter_map(dropped).collect();
    bench.equal("weights of dropped pairs", &of_dropped, &vec![0.0; of_dropped.len()]);
    bench.gradient(&problem, 1, &dweights, Float::F32.tolerance().grad);
    if let Some(sums) = sums {
        let grad = bench.mask_grad(&mask, &sums, tokens, 1)?;
        bench.gradient(&problem, 2, &grad, Float::F32.tolerance().grad);
    }
    Ok(())
}
