//! Promise: the chunked scan equals the sequential recurrence at every length and chunk size, and when it is cut into pieces
//! with carried state; extreme decays stay finite; nothing passes from one segment to another.

mod common;

use autocompress::autograd::check::{Generator, Input};
use autocompress::autograd::{Draws, Mask, Tape, Var};
use autocompress::ops::ssd_scan::reference::{self, Inputs};
use autocompress::ops::ssd_scan::{Scan, ScanOptions, ssd_scan};
use autocompress::tensor::{Segments, Tensor};
use common::{largest_difference, same_bits};

const DIMS: reference::Dims = (4, 5, 2, 6); // H, P, G, N
const FREE: (f32, f32) = (0.0, f32::INFINITY);

/// xbc, dt, a_log, d, dt_bias of `rows` rows.
fn inputs(rows: usize, seed: u64) -> Vec<Tensor> {
    let (heads, p, groups, n) = DIMS;
    let mut g = Generator::new(seed);
    let inputs: Vec<Input> = vec![
        g.normal("xbc", &[rows, heads * p + 2 * groups * n], 1.0),
        g.normal("dt", &[rows, heads], 1.0),
        g.uniform("a_log", &[heads], -2.0, 2.0),
        g.normal("d", &[heads], 1.0),
        g.uniform("dt_bias", &[heads], -4.0, 0.0),
    ];
    inputs.into_iter().map(|i| Tensor::from_slice(i.dims.as_slice(), &i.values)).collect()
}

fn scan(tape: &Tape<'static>, v: &[Var], segments: &Segments, chunk: usize, initial: Option<&Var>) -> Scan {
    let (heads, head_dim, groups, state) = DIMS;
    let options = ScanOptions {
        heads,
        head_dim,
        groups,
        state,
        chunk,
        dt_limit: FREE,
        segments,
        initial,
        mask: None,
        final_state: true,
    };
    ssd_scan(tape, &v[0], &v[1], &v[2], &v[3], &v[4], &options).unwrap()
}

fn constants(tensors: &[Tensor]) -> Vec<Var> {
    tensors.iter().cloned().map(Var::constant).collect()
}

/// y and final states by the recurrence, in f64.
fn sequential(tensors: &[Tensor], segments: &Segments) -> (Vec<f32>, Vec<f32>) {
    let wide: Vec<Vec<f64>> = tensors.iter().map(|t| t.f32().iter().map(|x| f64::from(*x)).collect()).collect();
    let (heads, p, _, n) = DIMS;
    let initial = vec![0.0; segments.count() * heads * p * n];
    let inputs =
        Inputs { xbc: &wide[0], dt: &wide[1], a_log: &wide[2], d: &wide[3], dt_bias: &wide[4], initial: &initial };
    let (y, states) = reference::ssd_scan(&inputs, DIMS, FREE, segments, |_, _| 1.0);
    let narrow = |values: Vec<f64>| values.into_iter().map(|x| x as f32).collect();
    (narrow(y), narrow(states))
}

#[test]
fn equals_the_recurrence_at_every_length_and_chunk() {
    for rows in [1, 2, 127, 128, 129, 300, 2048] {
        let tensors = inputs(rows, rows as u64);
        let segments = Segments::uniform(1, rows);
        let (y, state) = sequential(&tensors, &segments);
        let scale = y.iter().fold(1.0f32, |m, v| m.max(v.abs()));
        for chunk in [16, 40, 64, 128, 1, 5000] {
            let got = scan(&Tape::inference(), &constants(&tensors), &segments, chunk, None);
            let off = largest_difference(got.y.f32(), &y) / scale;
            assert!(off <= 1e-5, "{rows} rows, chunk {chunk}: y off by {off}");
            let off = largest_difference(got.final_state.unwrap().f32(), &state);
            assert!(off <= 1e-4, "{rows} rows, chunk {chunk}: state off by {off}");
        }
    }
}

#[test]
fn gradients_do_not_depend_on_the_chunk() {
    for rows in [1, 127, 129, 300] {
        let tensors = inputs(rows, 7);
        let segments = Segments::uniform(1, rows);
        let run = |chunk: usize| -> Vec<Tensor> {
            let tape = Tape::new();
            let leaves: Vec<Var> = tensors.iter().map(|t| tape.leaf(t.clone())).collect();
            let y = scan(&tape, &leaves, &segments, chunk, None).y;
            let mut g = Generator::new(99);
            let seed = g.normal("seed", y.dims(), 1.0);
            let seed = Tensor::from_slice(y.dims(), &seed.values);
            let grads = tape.backward_from(&[y], vec![seed], &mut ()).unwrap();
            leaves.iter().map(|leaf| grads.take(leaf).unwrap()).collect()
        };
        let want = run(rows);
        for chunk in [1, 16, 40, 64, 128] {
            for (i, (a, b)) in run(chunk).iter().zip(&want).enumerate() {
                let off = common::relative_difference(a.f32(), b.f32());
                assert!(off <= 2e-5, "{rows} rows, chunk {chunk}, input {i}: off by {off:e}");
            }
        }
    }
}

#[test]
fn pieces_with_carried_state_equal_one_pass() {
    let tensors = inputs(256, 3);
    let (want, _) = sequential(&tensors, &Segments::uniform(1, 256));
    for cuts in [vec![0, 64, 128, 192, 256], vec![0, 1, 2, 61, 200, 256]] {
        let mut state: Option<Var> = None;
        let mut y = Vec::new();
        for cut in cuts.windows(2) {
            let piece: Vec<Var> = (tensors.iter().enumerate())
                .map(|(i, t)| {
                    let width = t.shape().last();
                    let rows = &t.f32()[if i < 2 { cut[0] * width..cut[1] * width } else { 0..width }];
                    let dims: Vec<usize> = if i < 2 { vec![cut[1] - cut[0], width] } else { vec![width] };
                    Var::constant(Tensor::from_slice(dims.as_slice(), rows))
                })
                .collect();
            let segments = Segments::uniform(1, cut[1] - cut[0]);
            let got = scan(&Tape::inference(), &piece, &segments, 40, state.as_ref());
            y.extend_from_slice(got.y.f32());
            state = got.final_state;
        }
        let off = largest_difference(&y, &want);
        assert!(off <= 1e-4, "cut at {cuts:?}: off by {off}");
    }
}

#[test]
fn packed_segments_do_not_leak() {
    let tensors = inputs(90, 5);
    let segments = Segments::from_offsets(&[0, 31, 31, 60, 90]).unwrap();
    let before = scan(&Tape::inference(), &constants(&tensors), &segments, 16, None);
    let mut changed = tensors.clone();
    let width = changed[0].shape().last();
    changed[0].f32_mut()[31 * width..60 * width].fill(f32::NAN);
    let after = scan(&Tape::inference(), &constants(&changed), &segments, 16, None);
    let columns = before.y.shape().last();
    for rows in [0..31, 60..90] {
        let part = |scan: &Scan| {
            Tensor::from_slice([rows.len() * columns], &scan.y.f32()[rows.start * columns..rows.end * columns])
        };
        assert!(same_bits(&part(&before), &part(&after)), "rows {rows:?}");
    }
}

#[test]
fn large_decay_rates_and_time_steps_stay_finite_and_right() {
    for (a_log, bias) in [(8.0, 5.0), (12.0, 0.0), (-30.0, 3.0), (3.0, 100.0), (0.0, 1e30)] {
        let mut tensors = inputs(300, 11);
        tensors[2].f32_mut().fill(a_log);
        tensors[4].f32_mut().fill(bias);
        let segments = Segments::uniform(1, 300);
        let (want, _) = sequential(&tensors, &segments);
        let scale = want.iter().fold(1.0f32, |m, v| m.max(v.abs()));
        for chunk in [16, 128, 300] {
            let tape = Tape::new();
            let leaves: Vec<Var> = tensors.iter().map(|t| tape.leaf(t.clone())).collect();
            let y = scan(&tape, &leaves, &segments, chunk, None).y;
            let off = largest_difference(y.f32(), &want) / scale;
            assert!(off <= 2e-5, "A = −e^{a_log}, bias {bias}, chunk {chunk}: off by {off}");
            let ones = Tensor::full(y.shape().clone(), 1.0);
            let grads = tape.backward_from(&[y], vec![ones], &mut ()).unwrap();
            for (i, leaf) in leaves.iter().enumerate() {
                let grad = grads.take(leaf).unwrap();
                assert!(grad.f32().iter().all(|g| g.is_finite()), "A = −e^{a_log}, bias {bias}: gradient {i}");
            }
        }
    }
}

#[test]
fn a_head_masked_to_zero_gives_zero_over_nan_and_keeps_the_others() {
    let (heads, head_dim, groups, state) = DIMS;
    let mut tensors = inputs(20, 13);
    let width = tensors[0].shape().last();
    // The second head of each group: columns P … 2P and 3P … 4P of x.
    for row in tensors[0].f32_mut().chunks_mut(width) {
        row[head_dim] = f32::NAN;
        row[3 * head_dim] = f32::INFINITY;
    }
    let tape = Tape::new();
    let keep = tape.leaf(Tensor::from_slice([1, 2], &[1.0f32, 0.0]));
    let mask = Mask::new(&[1, 2], keep.clone(), Draws::One).unwrap();
    let segments = Segments::uniform(1, 20);
    let options = ScanOptions {
        heads,
        head_dim,
        groups,
        state,
        chunk: 8,
        dt_limit: FREE,
        segments: &segments,
        initial: None,
        mask: Some(&mask),
        final_state: false,
    };
    let v = constants(&tensors);
    let y = ssd_scan(&tape, &v[0], &v[1], &v[2], &v[3], &v[4], &options).unwrap().y;
    for row in y.f32().chunks(heads * head_dim) {
        for (h, head) in row.chunks(head_dim).enumerate() {
            if h % 2 == 1 {
                assert!(head.iter().all(|v| v.to_bits() == 0), "head {h}: {head:?}");
            } else {
                assert!(head.iter().all(|v| v.is_finite()), "head {h}: {head:?}");
            }
        }
    }
    // Where every value is finite, the gradient of a mask of 0 is the unmasked product.
    let clean = constants(&inputs(20, 13));
    let tape = Tape::new();
    let keep = tape.leaf(Tensor::from_slice([1, 2], &[1.0f32, 0.0]));
    let mask = Mask::new(&[1, 2], keep.clone(), Draws::One).unwrap();
    let options = ScanOptions { mask: Some(&mask), ..options };
    let y = ssd_scan(&tape, &clean[0], &clean[1], &clean[2], &clean[3], &clean[4], &options).unwrap().y;
    let ones = Tensor::full(y.shape().clone(), 1.0);
    let grad = tape.backward_from(&[y], vec![ones], &mut ()).unwrap().take(&keep).unwrap();
    let (unmasked, _) = sequential(&inputs(20, 13), &segments);
    let odd: f32 = unmasked.chunks(head_dim).enumerate().filter(|(h, _)| h % 2 == 1).flat_map(|(_, v)| v).sum();
    assert!((grad.f32()[1] - odd).abs() <= 1e-3 * odd.abs().max(1.0), "{} {odd}", grad.f32()[1]);
}

#[test]
fn wrong_shapes_are_refused_by_name() {
    let v = constants(&inputs(10, 1));
    let (heads, head_dim, groups, state) = DIMS;
    let segments = Segments::uniform(1, 10);
    let good = || ScanOptions {
        heads,
        head_dim,
        groups,
        state,
        chunk: 4,
        dt_limit: FREE,
        segments: &segments,
        initial: None,
        mask: None,
        final_state: false,
    };
    let refuse = |options: ScanOptions<'_>, word: &str| {
        let error =
            ssd_scan(&Tape::inference(), &v[0], &v[1], &v[2], &v[3], &v[4], &options).err().unwrap().to_string();
        assert!(error.contains("ssd_scan") && error.contains(word), "{error}");
    };
    refuse(ScanOptions { groups: 3, ..good() }, "multiple of 3");
    refuse(ScanOptions { chunk: 0, ..good() }, "chunk");
    refuse(ScanOptions { head_dim: 6, ..good() }, "xbc");
    refuse(ScanOptions { dt_limit: (1.0, 0.5), ..good() }, "dt_limit");
    let wrong = Var::constant(Tensor::zeros([1, heads, state, head_dim]));
    refuse(ScanOptions { initial: Some(&wrong), ..good() }, "initial");
}
