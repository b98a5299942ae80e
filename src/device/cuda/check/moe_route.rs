use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::optional;
use super::problem::Problem;
use crate::autograd::Draws;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::moe_route::{RouteOptions, reference};

struct Size {
    rows: usize,
    experts: usize,
    options: RouteOptions,
    ends: &'static [usize],
}

const fn size(
    (rows, experts): (usize, usize),
    (top_k, n_group, topk_group): (usize, usize, usize),
    norm_topk_prob: bool,
    ends: &'static [usize],
) -> Size {
    let options = RouteOptions { top_k, n_group, topk_group, norm_topk_prob, routed_scaling_factor: 2.5 };
    Size { rows, experts, options, ends }
}

const SIZES: [Size; 11] = [
    size((0, 4), (2, 1, 1), true, &[]),
    size((3, 1), (1, 1, 1), false, &[]),
    size((5, 7), (7, 1, 1), true, &[]),
    size((130, 16), (2, 1, 1), true, &[]),
    size((33, 12), (3, 1, 1), false, &[]),
    size((65, 24), (4, 4, 2), true, &[]),
    size((60, 16), (2, 1, 1), true, &[4, 8, 16]),
    size((60, 24), (3, 4, 2), true, &[2, 4, 6]),
    size((3, 512), (22, 8, 4), true, &[]),
    // Slots that are looked at four at a time, and others, with a mask.
    size((12, 24), (5, 1, 1), true, &[4, 18, 24]),
    size((12, 24), (4, 2, 2), false, &[3, 10, 12]),
];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for size in &SIZES {
        bench.case(format!("{} rows, top {} of {}", size.rows, size.options.top_k, size.experts));
        one(bench, size)?;
    }
    extreme(bench)?;
    ties(bench)
}

/// Logits that are no numbers, or infinite, or so large that all scores are equal: the experts stay distinct, NaN comes last,
/// and the lower expert wins a tie.
fn extreme(bench: &mut Bench) -> Result<(), CudaError> {
    let (rows, experts, top_k) = (5, 16, 3);
    let logit = |(row, e): (usize, usize)| match (row, e) {
        (0, 0 | 5 | 11) | (1, 1..16) => f32::NAN,
        (2, 3) => f32::INFINITY,
        (2, 7) | (3, 0) => f32::NEG_INFINITY,
        (2 | 3, _) => [1e30, -1e30][e % 2],
        (4, _) => f32::NAN,
        _ => (e * 7 % 5) as f32 - 2.0,
    };
    let logits: Vec<f32> = (0..rows * experts).map(|at| logit((at / experts, at % experts))).collect();
    let options = RouteOptions { top_k, n_group: 1, topk_group: 1, norm_topk_prob: true, routed_scaling_factor: 2.5 };
    bench.case("NaN, infinite and huge logits");
    exactly(bench, &logits, experts, options)
}

/// Groups and experts that are as good as others: the lower one wins.
fn ties(bench: &mut Bench) -> Result<(), CudaError> {
    // The last group that is kept has experts among the chosen, or none.
    for (n_group, top_k) in [(4, 5), (7, 5), (7, 8)] {
        let (rows, size) = (9, 3);
        let experts = n_group * size;
        // Three kinds of groups, each differently spread in each row.
        let logit = |row: usize, e: usize| (e / size * (row + 1) % 3 + row / 8) as f32 * 0.5;
        let logits: Vec<f32> = (0..rows * experts).map(|at| logit(at / experts, at % experts)).collect();
        let options = RouteOptions { top_k, n_group, topk_group: 3, norm_topk_prob: false, routed_scaling_factor: 2.5 };
        bench.case(format!("top {top_k} of equal experts in {n_group} groups, some of them equal"));
        exactly(bench, &logits, experts, options)?;
    }
    Ok(())
}

/// No mask and no bias; the experts are the reference's.
fn exactly(bench: &mut Bench, logits: &[f32], experts: usize, options: RouteOptions) -> Result<(), CudaError> {
    let (rows, top_k) = (logits.len() / experts, options.top_k);
    let wide: Vec<f64> = logits.iter().map(|v| f64::from(*v)).collect();
    let (want, experts_wanted) = reference::moe_route(&wide, &vec![0.0; experts], &options, |_, _| 1.0);
    let (device, bias) = (bench.put(Float::F32, logits)?, bench.put(Float::F32, &vec![0.0; experts])?);
    let (weights, chosen) = (bench.room(Float::F32, rows * top_k)?, bench.numbers::<u32>(rows * top_k)?);
    let route = abi::MoeRoute {
        logits: device.ptr(),
        mask: bench.mask(None, &[])?.abi(),
        rows: rows as u32,
        experts: experts as u32,
        top_k: top_k as u32,
        groups: options.n_group as u32,
        topk_group: options.topk_group as u32,
        normalise: u32::from(options.norm_topk_prob),
        scale: options.routed_scaling_factor,
        unused: 0,
    };
    let args = abi::MoeRouteForward { route, bias: bias.ptr(), weights: weights.ptr(), chosen: chosen.ptr() };
    bench.launch("moe_route_forward_f32", &args)?;
    bench.equal("experts", &chosen.read()?, &experts_wanted.into_iter().map(|e| e as u32).collect::<Vec<_>>());
    // A row that had to take a NaN shows it in all of its weights.
    let got = weights.read()?;
    for (row, (got, want)) in got.chunks(top_k).zip(want.chunks(top_k)).enumerate() {
        match want.iter().any(|w| w.is_nan()) {
            true => bench.equal(&format!("row {row} is NaN"), &[got.iter().all(|w| w.is_nan())], &[true]),
            false => bench.compare(&format!("weights of row {row}"), got, want, Float::F32.tolerance().value),
        }
    }
    Ok(())
}

fn one(bench: &mut Bench, size: &Size) -> Result<(), CudaError> {
    let &Size { rows, experts, options, ends } = size;
    let mut generator = Generator::new((rows * 100 + experts) as u64);
    let bias = generator.values(experts, |noise, i| 0.2 * noise.normal(i));
    let draws = Draws::Sequences { length: rows.div_ceil(3).max(1), of_sequence: [1, 2, 0].as_slice().into() };
    let spec = (!ends.is_empty()).then(|| MaskSpec { ends: ends.to_vec(), draws });
    let inputs = vec![
        (generator.normal("logits", &[rows, experts], 1.0), Float::F32),
        (generator.keep(3, ends.len().max(1)), Float::F32),
    ];
    let (ours, wide): (_, Vec<f64>) = (spec.clone(), bias.iter().map(|b| f64::from(*b)).collect());
    let route = move |v: &[Vec<f64>]| {
        let m = |row, e| ours.as_ref().map_or(1.0, |spec| spec.value(&v[1], row, e));
        reference::moe_route(&v[0], &wide, &options, m)
    };
    let same = route.clone();
    let problem = Problem::new(Float::F32, inputs, move |v| vec![same(v).0]);
    let want: Vec<u32> = route(&problem.exact).1.into_iter().map(|e| e as u32).collect();

    let mask = bench.mask(spec.as_ref(), &problem.inputs[1])?;
    let (logits, device_bias) = (bench.put(Float::F32, &problem.inputs[0])?, bench.put(Float::F32, &bias)?);
    let (weights, chosen) = (bench.room(Float::F32, rows * options.top_k)?, bench.numbers(rows * options.top_k)?);
    let route = abi::MoeRoute {
        logits: logits.ptr(),
        mask: mask.abi(),
        rows: rows as u32,
        experts: experts as u32,
        top_k: options.top_k as u32,
        groups: options.n_group as u32,
        topk_group: options.topk_group as u32,
        normalise: u32::from(options.norm_topk_prob),
        scale: options.routed_scaling_factor,
        unused: 0,
    };
    let args = abi::MoeRouteForward { route, bias: device_bias.ptr(), weights: weights.ptr(), chosen: chosen.ptr() };
    bench.launch("moe_route_forward_f32", &args)?;
    bench.value(&problem, 0, &weights, Float::F32)?;
    bench.equal("experts", &chosen.read()?, &want);

    let dweights = bench.put(Float::F32, &problem.seeds[0])?;
    for dtype in bench.dtypes() {
        let dlogits = bench.room(dtype, rows * experts)?;
        let sums = bench.row_sums(&mask, rows)?;
        let args = abi::MoeRouteBackward {
            route,
            chosen: chosen.ptr(),
            dweights: dweights.ptr(),
            dlogits: dlogits.ptr(),
            row_sums: optional(&sums),
        };
        bench.launch(&format!("moe_route_backward_{}", dtype.name()), &args)?;
        bench.gradient(&problem, 0, &dlogits.read()?, dtype.tolerance().grad);
        if let Some(sums) = sums {
            let grad = bench.mask_grad(&mask, &sums, rows, 1)?;
            bench.gradient(&problem, 1, &grad, Float::F32.tolerance().grad);
        }
    }
    Ok(())
}
