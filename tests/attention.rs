//! Promise: causal grouped-query attention is right where comparable kernels were not: single tokens, fewer keys than queries,
//! grouped heads, empty and packed sequences, caches; and it never holds a score matrix.

#![allow(clippy::single_range_in_vec_init)] // a list of one range is a batch of one segment

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use autocompress::autograd::check::Generator;
use autocompress::autograd::{Tape, Var};
use autocompress::device::{pool, with_threads};
use autocompress::ops::attention::{AttentionDims, attention, reference};
use autocompress::tensor::{Segments, Tensor};
use autocompress::{Error, Result};

/// Memory counters are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|e| e.into_inner())
}

const fn dims(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionDims {
    AttentionDims { heads, kv_heads, head_dim }
}

fn normal(seed: u64, rows: usize, width: usize, std: f64) -> Tensor {
    Tensor::from_slice([rows, width], &Generator::new(seed).normal("x", &[rows, width], std).values)
}

struct Problem {
    dims: AttentionDims,
    queries: Segments,
    keys: Vec<Range<usize>>,
    qkv: [Tensor; 3],
}

impl Problem {
    fn new(dims: AttentionDims, lengths: &[usize], keys: &[Range<usize>]) -> Problem {
        let mut offsets = vec![0];
        for n in lengths {
            offsets.push(offsets[offsets.len() - 1] + n);
        }
        let queries = Segments::from_offsets(&offsets).unwrap();
        let key_rows = keys.iter().map(|k| k.end).max().unwrap_or(0);
        let width = dims.kv_heads * dims.head_dim;
        let q = normal(1, queries.rows(), dims.heads * dims.head_dim, 1.0);
        let qkv = [q, normal(2, key_rows, width, 1.0), normal(3, key_rows, width, 1.0)];
        Problem { dims, queries, keys: keys.to_vec(), qkv }
    }

    fn forward(&self) -> Vec<f32> {
        let [q, k, v] = self.qkv.clone().map(Var::constant);
        attention(&Tape::inference(), &q, &k, &v, &self.dims, &self.queries, &self.keys).unwrap().f32().to_vec()
    }

    /// The output, and the gradients of q, k, v for an output gradient of normal noise.
    fn forward_backward(&self) -> [Vec<f32>; 4] {
        let run = || -> Result<[Vec<f32>; 4]> {
            let tape = Tape::new();
            let [q, k, v] = self.qkv.clone().map(|x| tape.leaf(x));
            let out = attention(&tape, &q, &k, &v, &self.dims, &self.queries, &self.keys)?;
            let values = out.f32().to_vec();
            let seed = normal(4, out.dims()[0], out.dims()[1], 1.0);
            let grads = tape.backward_from(&[out], vec![seed], &mut ())?;
            let [dq, dk, dv] = [q, k, v].map(|x| grads.take(&x).unwrap().f32().to_vec());
            Ok([values, dq, dk, dv])
        };
        run().unwrap()
    }

    fn exact(&self) -> Vec<f64> {
        let wide = self.qkv.clone().map(|x| x.f32().iter().map(|x| f64::from(*x)).collect::<Vec<f64>>());
        reference::attention([&wide[0], &wide[1], &wide[2]], &self.dims, &self.queries, &self.keys)
    }
}

fn near(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!((x - y).abs() <= 2e-5 * (1.0 + y.abs()), "{i}: {x} for {y}");
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn one_token_attends_to_itself() {
    let _alone = alone();
    let problem = Problem::new(dims(4, 2, 3), &[1], &[0..1]);
    let [out, dq, dk, _] = problem.forward_backward();
    let v = problem.qkv[2].f32();
    assert_eq!(out, [&v[..3], &v[..3], &v[3..], &v[3..]].concat());
    // A softmax over one key is constant.
    assert!(dq.iter().chain(&dk).all(|x| x.abs() < 1e-6), "{dq:?} {dk:?}");
}

#[test]
fn queries_without_keys_give_zeros_and_zero_gradients() {
    let _alone = alone();
    // Of 200 queries the last 3 see a key; the second segment has no key at all.
    let problem = Problem::new(dims(2, 1, 4), &[200, 5], &[0..3, 3..3]);
    let [out, dq, dk, dv] = problem.forward_backward();
    let blind = [0..197 * 8, 200 * 8..205 * 8];
    for rows in blind {
        assert!(out[rows.clone()].iter().all(|x| *x == 0.0) && dq[rows].iter().all(|x| *x == 0.0));
    }
    assert!(out[197 * 8..200 * 8].iter().all(|x| *x != 0.0));
    assert!(dk.iter().chain(&dv).all(|x| x.is_finite()) && dv.iter().any(|x| *x != 0.0));
}

#[test]
fn grouped_heads_equal_repeated_heads_and_their_gradients_add_up() {
    let _alone = alone();
    let (n, d) = (37, 5);
    let grouped = Problem::new(dims(6, 3, d), &[n, 0, n], &[0..n, n..n + 4, n + 4..2 * n + 4]);
    let repeat = |x: &Tensor| {
        let values: Vec<f32> = x.f32().chunks(d).flat_map(|head| [head, head].concat()).collect();
        Tensor::from_slice([x.dims()[0], 6 * d], &values)
    };
    let [q, k, v] = &grouped.qkv;
    let plain = Problem {
        dims: dims(6, 6, d),
        queries: grouped.queries.clone(),
        keys: grouped.keys.clone(),
        qkv: [q.clone(), repeat(k), repeat(v)],
    };
    let (a, b) = (grouped.forward_backward(), plain.forward_backward());
    near(&a[0], &b[0]);
    near(&a[1], &b[1]);
    for i in [2, 3] {
        let summed: Vec<f32> =
            b[i].chunks(2 * d).flat_map(|pair| (0..d).map(|j| pair[j] + pair[d + j]).collect::<Vec<f32>>()).collect();
        near(&a[i], &summed);
        let empty = n * 3 * d..(n + 4) * 3 * d;
        assert!(a[i][empty].iter().all(|x| *x == 0.0), "keys of the sequence without queries");
    }
}

#[test]
fn decoding_and_prefill_in_chunks_equal_one_pass() {
    let _alone = alone();
    let (n, dims) = (150, dims(4, 2, 8));
    let whole = Problem::new(dims, &[n], &[0..n]);
    let expected = whole.forward();
    let piece = |from: usize, to: usize| {
        let width = dims.heads * dims.head_dim;
        let q = Tensor::from_slice([to - from, width], &whole.qkv[0].f32()[from * width..to * width]);
        let queries = Segments::uniform(1, to - from);
        Problem { dims, queries, keys: vec![0..to], qkv: [q, whole.qkv[1].clone(), whole.qkv[2].clone()] }.forward()
    };
    for step in [1, 64] {
        let pieces: Vec<f32> = (0..n).step_by(step).flat_map(|from| piece(from, (from + step).min(n))).collect();
        near(&pieces, &expected);
    }
}

#[test]
fn decoding_over_many_keys_equals_the_reference() {
    let _alone = alone();
    let problem = Problem::new(dims(4, 2, 8), &[1, 3], &[0..3001, 3001..6000]);
    let exact: Vec<f32> = problem.exact().iter().map(|x| *x as f32).collect();
    near(&problem.forward(), &exact);
}

#[test]
fn packed_sequences_do_not_leak() {
    let _alone = alone();
    let clean = Problem::new(dims(2, 1, 8), &[131, 70, 90], &[0..131, 131..201, 201..291]);
    let mut broken = Problem::new(dims(2, 1, 8), &[131, 70, 90], &[0..131, 131..201, 201..291]);
    for x in &mut broken.qkv {
        let width = x.dims()[1];
        x.f32_mut()[..131 * width].fill(f32::NAN);
        x.f32_mut()[201 * width..].fill(f32::INFINITY);
    }
    for (a, b) in clean.forward_backward().iter().zip(&broken.forward_backward()) {
        let width = a.len() / 291;
        let middle = 131 * width..201 * width;
        assert_eq!(bits(&a[middle.clone()]), bits(&b[middle]));
    }
}

#[test]
fn large_scores_pick_the_largest() {
    let _alone = alone();
    let mut problem = Problem::new(dims(2, 1, 4), &[50], &[0..50]);
    problem.qkv[0].f32_mut().iter_mut().for_each(|x| *x *= 1e4);
    let all = problem.forward_backward();
    assert!(all.iter().flatten().all(|x| x.is_finite()));
    let exact: Vec<f32> = problem.exact().iter().map(|x| *x as f32).collect();
    let worst = all[0].iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-2, "{worst}");
}

#[test]
fn memory_is_linear_in_the_length() {
    let _alone = alone();
    let n = 4096;
    let problem = Problem::new(dims(2, 1, 8), &[n], &[0..n]);
    let before = pool::stats().live;
    pool::reset_peak();
    let all = problem.forward_backward();
    let extra = pool::stats().peak - before;
    assert!(all.iter().flatten().all(|x| x.is_finite()));
    assert!(extra < n * n * 4 / 8, "{extra} bytes beside one head's {} of scores", n * n * 4);
}

#[test]
fn threads_do_not_change_bits() {
    let _alone = alone();
    let problem = Problem::new(dims(4, 2, 16), &[701, 1, 0, 260], &[0..701, 701..3000, 3000..3000, 3000..3300]);
    let one = with_threads(1, || problem.forward_backward()).unwrap();
    let two = with_threads(2, || problem.forward_backward()).unwrap();
    for (a, b) in one.iter().zip(&two) {
        assert_eq!(bits(a), bits(b));
    }
}

#[test]
fn broken_contracts_are_named() {
    let _alone = alone();
    let good = || Problem::new(dims(4, 2, 3), &[5], &[0..5]);
    let fault = |problem: Problem| {
        let [q, k, v] = problem.qkv.map(Var::constant);
        match attention(&Tape::inference(), &q, &k, &v, &problem.dims, &problem.queries, &problem.keys) {
            Err(Error::Contract { argument, .. }) => argument,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fault(Problem { dims: dims(4, 3, 3), ..good() }), "dims");
    assert_eq!(fault(Problem { dims: dims(4, 0, 3), ..good() }), "dims");
    assert_eq!(fault(Problem { dims: dims(usize::MAX / 2, 1, 4), ..good() }), "dims");
    assert_eq!(fault(Problem { dims: dims(4, 2, 4), ..good() }), "q");
    assert_eq!(fault(Problem { queries: Segments::uniform(1, 4), ..good() }), "q");
    assert_eq!(fault(Problem { dims: dims(4, 1, 3), ..good() }), "k");
    assert_eq!(fault(Problem { keys: vec![0..6], ..good() }), "keys");
    assert_eq!(fault(Problem { keys: vec![0..5, 0..5], ..good() }), "keys");
}
