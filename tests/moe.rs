//! Promise: routing, grouped products and masks of a mixture-of-experts layer are right where comparable kernels broke:
//! empty experts, padding rows of NaN, NaN scores, dropped tokens, a mask of zero over NaN.

use std::sync::Arc;

use autocompress::autograd::{Draws, Gradients, Mask, Param, Params, Tape, Var};
use autocompress::ops::grouped_gemm::grouped_gemm;
use autocompress::ops::moe_combine::moe_combine;
use autocompress::ops::moe_permute::{DROPPED, Dispatch, moe_permute};
use autocompress::ops::moe_route::{RouteOptions, moe_route};
use autocompress::ops::relu2::relu2;
use autocompress::tensor::Tensor;

fn wave(dims: &[usize], phase: f32) -> Tensor {
    let values: Vec<f32> = (0..dims.iter().product()).map(|i| (i as f32 * 0.37 + phase).sin()).collect();
    Tensor::from_slice(dims, &values)
}

fn offsets(groups: &[usize]) -> Arc<[usize]> {
    std::iter::once(0)
        .chain(groups.iter().scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        }))
        .collect()
}

#[test]
fn an_expert_without_rows_has_a_gradient_of_exactly_zero_and_keeps_what_was_accumulated() {
    let (inner, out) = (48, 40);
    for groups in [&[162, 0, 2577, 446, 0, 83][..], &[0, 0, 0, 0, 0, 0]] {
        let offsets = offsets(groups);
        let rows = offsets[groups.len()];
        let mut params = Params::default();
        let weight = wave(&[groups.len(), out, inner], 1.0);
        let id = params.push(Param { name: "experts".into(), value: weight, decay: true, trainable: true, rate: 1.0 });
        let mut grads = Gradients::new(&params);
        let x = wave(&[rows, inner], 0.0);
        let mut first = Vec::new();
        for pass in 0..2 {
            let tape = Tape::new();
            let y = grouped_gemm(&tape, &Var::constant(x.clone()), &tape.param(&params, id), &offsets).unwrap();
            assert!(y.f32().iter().all(|v| v.is_finite()));
            let seed = wave(&[rows, out], 2.0);
            tape.backward_from(&[y], vec![seed], &mut grads).unwrap();
            let grad = grads.get(id).unwrap().f32();
            for (e, n) in groups.iter().enumerate().filter(|(_, n)| **n == 0) {
                assert!(grad[e * out * inner..][..out * inner].iter().all(|g| *g == 0.0), "expert {e} of {n} rows");
            }
            if pass == 0 {
                first = grad.to_vec();
            } else {
                let twice = grad.iter().zip(&first).all(|(g, f)| (g - 2.0 * f).abs() <= 1e-4 * f.abs().max(1.0));
                assert!(twice, "the second pass adds to the first");
            }
        }
    }
}

#[test]
fn rows_behind_the_last_offset_are_never_read() {
    let (inner, out) = (16, 24);
    let offsets = offsets(&[5, 0, 9]);
    let mut x = wave(&[20, inner], 0.0);
    x.f32_mut()[14 * inner..].fill(f32::NAN);
    let run = || {
        let tape = Tape::new();
        let (x, w) = (tape.leaf(x.clone()), tape.leaf(wave(&[3, out, inner], 1.0)));
        let y = grouped_gemm(&tape, &x, &w, &offsets).unwrap();
        let mut seed = wave(&[20, out], 2.0);
        seed.f32_mut()[14 * out..].fill(f32::NAN);
        let value = y.value().clone();
        let grads = tape.backward_from(&[y], vec![seed], &mut ()).unwrap();
        [value, grads.take(&x).unwrap(), grads.take(&w).unwrap()]
    };
    let (one, two) = (run(), run());
    for (a, b) in one.iter().zip(&two) {
        assert!(a.f32().iter().all(|v| v.is_finite()));
        assert!(a.f32().iter().zip(b.f32()).all(|(a, b)| a.to_bits() == b.to_bits()), "step 2 differs from step 1");
    }
    assert!(one[0].f32()[14 * out..].iter().all(|v| *v == 0.0));
    assert!(one[1].f32()[14 * inner..].iter().all(|v| *v == 0.0));
}

#[test]
fn a_product_without_an_inner_extent_is_zero() {
    let x = Var::constant(Tensor::zeros([4, 0]));
    let w = Var::constant(Tensor::zeros([2, 3, 0]));
    let y = grouped_gemm(&Tape::inference(), &x, &w, &offsets(&[1, 3])).unwrap();
    assert_eq!((y.dims(), y.f32().iter().all(|v| *v == 0.0)), (&[4, 3][..], true));
}

#[test]
fn many_experts_with_few_rows() {
    // 128 experts over 512 rows, wide outputs: most experts see four rows.
    let (experts, rows, inner, out) = (128, 512, 64, 1024);
    let offsets = offsets(&[rows / experts; 128]);
    let (x, w) = (wave(&[rows, inner], 0.0), wave(&[experts, out, inner], 1.0));
    let y = grouped_gemm(&Tape::inference(), &Var::constant(x.clone()), &Var::constant(w.clone()), &offsets).unwrap();
    for (row, column) in [(0, 0), (3, 1023), (4, 0), (511, 1023), (257, 500)] {
        let expert = row / (rows / experts);
        let exact: f64 = (0..inner)
            .map(|i| f64::from(x.f32()[row * inner + i]) * f64::from(w.f32()[(expert * out + column) * inner + i]))
            .sum();
        assert!((f64::from(y.f32()[row * out + column]) - exact).abs() < 1e-4, "{row} {column}");
    }
}

fn options(top_k: usize, n_group: usize, topk_group: usize) -> RouteOptions {
    RouteOptions { top_k, n_group, topk_group, norm_topk_prob: true, routed_scaling_factor: 1.0 }
}

#[test]
fn nan_scores_never_win_and_experts_stay_distinct() {
    let nan = f32::NAN;
    let logits = Tensor::from_slice(
        [3, 6],
        &[
            nan, 1.0, nan, 0.5, nan, nan, // two left for two places
            nan, nan, nan, nan, nan, 2.0, // one left
            nan, nan, nan, nan, nan, nan,
        ],
    );
    for o in [options(2, 1, 1), options(2, 3, 2)] {
        let routing =
            moe_route(&Tape::inference(), &Var::constant(logits.clone()), &Tensor::zeros([6]), o, None).unwrap();
        for row in routing.experts.values::<u32>().chunks(2) {
            assert!(row[0] != row[1] && row.iter().all(|e| *e < 6), "{row:?}");
        }
        assert_eq!(routing.experts.values::<u32>()[2], 5, "the one finite score of row 1 is chosen");
    }
    let routing =
        moe_route(&Tape::inference(), &Var::constant(logits), &Tensor::zeros([6]), options(2, 1, 1), None).unwrap();
    assert_eq!(routing.experts.values::<u32>()[..2], [1, 3]);
}

#[test]
fn the_correction_bias_chooses_but_does_not_weigh() {
    let logits = Tensor::from_slice([1, 3], &[0.0f32, 0.0, 0.0]);
    let bias = Tensor::from_slice([3], &[0.0f32, 0.2, 0.1]);
    let routing = moe_route(&Tape::inference(), &Var::constant(logits), &bias, options(2, 1, 1), None).unwrap();
    assert_eq!(routing.experts.values::<u32>(), [1, 2]);
    assert_eq!(routing.weights.f32(), [0.5, 0.5]);
}

#[test]
fn an_expert_whose_score_is_masked_to_zero_is_never_chosen() {
    let tape = Tape::new();
    let keep = tape.leaf(Tensor::from_slice([1, 2], &[1.0f32, 0.0]));
    let mask = Mask::new(&[2, 4], keep, Draws::One).unwrap();
    let logits = Tensor::from_slice([1, 4], &[-3.0f32, -2.0, 5.0, 5.0]);
    let routing = moe_route(&tape, &Var::constant(logits), &Tensor::zeros([4]), options(2, 1, 1), Some(&mask)).unwrap();
    assert_eq!(routing.experts.values::<u32>(), [1, 0]);
}

#[test]
fn a_mask_of_zero_hides_nan_and_still_has_its_gradient() {
    // relu²: two intervals of two columns, the second masked to 0 and holding NaN on row 1 only.
    let x = Tensor::from_slice([2, 4], &[1.0f32, -1.0, 2.0, 3.0, 1.0, 2.0, f32::NAN, f32::INFINITY]);
    for rows in [1, 2] {
        let tape = Tape::new();
        let part = Tensor::from_slice([rows, 4], &x.f32()[..rows * 4]);
        let x = tape.leaf(part);
        let keep = tape.leaf(Tensor::from_slice([1, 2], &[0.5f32, 0.0]));
        let mask = Mask::new(&[2, 4], keep.clone(), Draws::One).unwrap();
        let y = relu2(&tape, &x, Some(&mask)).unwrap();
        for row in y.f32().chunks(4) {
            assert!(row[..2].iter().all(|v| v.is_finite()) && row[2..] == [0.0, 0.0], "{row:?}");
        }
        let seed = Tensor::full([rows, 4], 1.0);
        let grads = tape.backward_from(&[y], vec![seed], &mut ()).unwrap();
        let dx = grads.take(&x).unwrap();
        assert!(dx.f32().iter().all(|g| g.is_finite()));
        let dkeep = grads.take(&keep).unwrap();
        if rows == 1 {
            assert_eq!(dkeep.f32(), [1.0, 4.0 + 9.0]);
        } else {
            assert_eq!(dkeep.f32()[0], 1.0 + 1.0 + 4.0);
        }
    }
    // Combine: the second expert is masked to 0 and gives NaN.
    let tape = Tape::new();
    let y = Tensor::from_slice([2, 2], &[1.0f32, 2.0, f32::NAN, f32::NAN]);
    let weights = Var::constant(Tensor::from_slice([1, 2], &[0.25f32, 0.75]));
    let mask = Mask::new(&[1, 2], tape.leaf(Tensor::from_slice([1, 2], &[1.0f32, 0.0])), Draws::One).unwrap();
    let dispatch = Dispatch::new(&[0, 1], 2, 2).unwrap();
    let out = moe_combine(&tape, &tape.leaf(y), &weights, &dispatch, Some(&mask)).unwrap();
    assert_eq!(out.f32(), [0.25, 0.5]);
}

#[test]
fn dropped_tokens_contribute_nothing() {
    let dispatch = Dispatch::new(&[1, DROPPED, DROPPED, DROPPED, 0, 1], 2, 2).unwrap();
    assert_eq!((&dispatch.offsets[..], dispatch.rows(), dispatch.tokens()), (&[0, 1, 3][..], 3, 3));
    let tape = Tape::new();
    let x = tape.leaf(wave(&[3, 4], 0.0));
    let rows = moe_permute(&tape, &x, &dispatch).unwrap();
    let weights = Var::constant(Tensor::full([3, 2], 0.5));
    let out = moe_combine(&tape, &rows, &weights, &dispatch, None).unwrap();
    assert_eq!(out.f32()[4..8], [0.0; 4]);
    let seed = Tensor::full([3, 4], 1.0);
    let dx = tape.backward_from(&[out], vec![seed], &mut ()).unwrap().take(&x).unwrap();
    assert_eq!(dx.f32(), [0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn impossible_routing_is_refused() {
    let logits = Var::constant(Tensor::zeros([2, 6]));
    for (o, word) in [
        (options(7, 1, 1), "top_k"),
        (options(0, 1, 1), "top_k"),
        (options(2, 4, 1), "n_group"),
        (options(2, 3, 4), "topk_group"),
        (options(3, 3, 1), "top_k"),
    ] {
        let error = moe_route(&Tape::inference(), &logits, &Tensor::zeros([6]), o, None).err().unwrap().to_string();
        assert!(error.contains(word), "{error}");
    }
    let error = Dispatch::new(&[0, 9], 2, 4).unwrap_err().to_string();
    assert!(error.contains('9') && error.contains("below 4"), "{error}");
}
