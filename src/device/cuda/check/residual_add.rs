use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::masks::{masks, optional, planted};
use super::problem::Problem;
use crate::autograd::check::{Generator, MaskSpec};
use crate::ops::residual_add::reference;

/// Among them rows that a warp walks in many steps, of 16 bytes and of single elements.
const SIZES: [(usize, usize); 7] = [(0, 8), (1, 1), (33, 72), (70, 29), (5, 600), (3, 301), (2, 2568)];

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        for (rows, d) in SIZES {
            for (at, hidden) in masks(rows, d).into_iter().enumerate() {
                for gated in [false, true] {
                    bench.case(format!("{rows} rows of {d} in {}, mask {at}, gate {gated}", dtype.name()));
                    one(bench, dtype, (rows, d), hidden.clone(), gated)?;
                }
            }
        }
        bench.off_16_bytes(|bench| {
            bench.case(format!("3 rows of 16 in {}", dtype.name()));
            one(bench, dtype, (3, 16), masks(3, 16).swap_remove(2), true)
        })?;
    }
    Ok(())
}

fn one(
    bench: &mut Bench,
    dtype: Float,
    (rows, d): (usize, usize),
    hidden: Option<(MaskSpec, usize)>,
    gated: bool,
) -> Result<(), CudaError> {
    let mut generator = Generator::new((rows + d) as u64);
    let (hidden, draws) = hidden.map_or((None, 1), |(spec, draws)| (Some(spec), draws));
    let gate = masks(rows, d).swap_remove(if draws == 3 { 2 } else { 1 }).filter(|_| gated);
    let gate = gate.map(|(spec, draws)| (MaskSpec { ends: vec![d], ..spec }, draws));
    let gate_draws = gate.as_ref().map_or(1, |(_, draws)| *draws);
    let gate = gate.map(|(spec, _)| spec);
    let mut gate_keep = generator.uniform("gate", &[gate_draws, 1], 0.1, 1.0);
    if gate_draws > 1 {
        gate_keep.values[1] = 0.0;
    }
    let inputs = vec![
        (generator.normal("h", &[rows, d], 1.0), dtype),
        (generator.normal("x", &[rows, d], 1.0), dtype),
        (generator.keep(draws, hidden.as_ref().map_or(1, |h| h.ends.len())), Float::F32),
        (gate_keep, Float::F32),
    ];
    let (our_hidden, our_gate) = (hidden.clone(), gate.clone());
    let factor = move |keep: &[f64], gate_keep: &[f64], row: usize, j: usize| {
        let m = our_hidden.as_ref().map_or(1.0, |mask| mask.value(keep, row, j));
        m * our_gate.as_ref().map_or(1.0, |gate| gate.value(gate_keep, row, j))
    };
    let same = factor.clone();
    let problem = Problem::new(dtype, inputs, move |v| {
        vec![reference::residual_add(&v[0], &v[1], d, |row, j| same(&v[2], &v[3], row, j))]
    });

    let hidden = bench.mask(hidden.as_ref(), &problem.inputs[2])?;
    let gate = bench.mask(gate.as_ref(), &problem.inputs[3])?;
    let x = planted(&problem.inputs[1], d, |row, j| factor(&problem.exact[2], &problem.exact[3], row, j) == 0.0);
    let (h, x) = (bench.put(dtype, &problem.inputs[0])?, bench.put(dtype, &x)?);
    let out = bench.room(dtype, rows * d)?;
    let args = abi::ResidualAddForward {
        h: h.ptr(),
        x: x.ptr(),
        out: out.ptr(),
        hidden: hidden.abi(),
        gate: gate.abi(),
        rows: rows as u32,
        width: d as u32,
    };
    bench.launch(&format!("residual_add_forward_{}", dtype.name()), &args)?;
    bench.value(&problem, 0, &out, dtype)?;

    let (x, dout) = (bench.put(dtype, &problem.inputs[1])?, bench.put(dtype, &problem.seeds[0])?);
    let dx = bench.room(dtype, rows * d)?;
    let (hidden_sums, gate_sums) = (bench.row_sums(&hidden, rows)?, bench.row_sums(&gate, rows)?);
    let args = abi::ResidualAddBackward {
        x: x.ptr(),
        dout: dout.ptr(),
        dx: dx.ptr(),
        hidden_sums: optional(&hidden_sums),
        gate_sums: optional(&gate_sums),
        hidden: hidden.abi(),
        gate: gate.abi(),
        rows: rows as u32,
        width: d as u32,
    };
    bench.launch(&format!("residual_add_backward_{}", dtype.name()), &args)?;
    bench.gradient(&problem, 1, &dx.read()?, dtype.tolerance().grad);
    for (input, mask, sums) in [(2, &hidden, hidden_sums), (3, &gate, gate_sums)] {
        if let Some(sums) = sums {
            let grad = bench.mask_grad(mask, &sums, rows, 1)?;
            bench.gradient(&problem, input, &grad, Float::F32.tolerance().grad);
        }
    }
    Ok(())
}
