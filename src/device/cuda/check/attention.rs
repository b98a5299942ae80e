use super::super::CudaError;
use super::super::embedded::abi;
use super::bench::{Bench, Float};
use super::problem::Problem;
use crate::autograd::check::{Generator, Tolerance};
use crate::autograd::{Tape, Var};
use crate::ops::attention::{AttentionDims, attention, reference};
use crate::tensor::{Segments, Tensor};

struct Size {
    dims: AttentionDims,
    /// Queries of each segment.
    lengths: Lengths,
    /// Keys of each segment; empty: those of the queries' own rows.
    keys: Keys,
}

type Lengths = &'static [usize];
type Keys = &'static [(usize, usize)];

const fn size((heads, kv_heads, head_dim): (usize, usize, usize), lengths: Lengths, keys: Keys) -> Size {
    Size { dims: AttentionDims { heads, kv_heads, head_dim }, lengths, keys }
}

const TILED: [Size; 14] = [
    size((2, 1, 4), &[], &[]),
    size((1, 1, 1), &[1], &[]),
    size((6, 3, 5), &[11, 11], &[]),
    size((4, 2, 8), &[3, 0, 17, 1, 0], &[]),
    size((2, 1, 3), &[33], &[]),
    size((2, 1, 128), &[64], &[]),
    size((1, 1, 2), &[129], &[]),
    size((7, 1, 4), &[37], &[]),
    size((3, 3, 7), &[29, 2], &[]),
    size((4, 2, 8), &[1, 1, 1], &[(0, 7), (7, 8), (8, 150)]),
    size((4, 2, 4), &[5, 40], &[(2, 19), (30, 201)]),
    size((2, 1, 4), &[9, 4, 70], &[(0, 3), (3, 3), (3, 10)]),
    size((2, 2, 3), &[4, 6], &[(5, 15), (2, 12)]),
    size((4, 1, 16), &[100, 31], &[(0, 100), (20, 99)]),
];

/// For heads of 64 and of 128.
const TENSOR_CORE: [(usize, usize, Lengths, Keys); 10] = [
    (2, 1, &[], &[]),
    (2, 1, &[64], &[]),
    (2, 1, &[2], &[]),
    (4, 2, &[70, 0, 130, 5], &[]),
    (2, 2, &[1, 1], &[(0, 7), (8, 150)]),
    (2, 1, &[9, 4, 70], &[(0, 3), (3, 3), (3, 10)]),
    (2, 1, &[40, 6], &[(30, 201), (2, 12)]),
    // Tiles that end in each of the parts that the threads bring in.
    (1, 1, &[20, 21], &[(0, 20), (21, 42)]),
    (1, 1, &[3, 36], &[(0, 37), (38, 93)]),
    (1, 1, &[5, 50], &[(0, 55), (56, 108)]),
];

/// What an element of a gradient may be off by on the tensor cores, where the terms of sums that nearly cancel were rounded;
/// along whole tensors it is held closer.
const ELEMENT: f64 = 1.0 / 24.0;

pub fn check(bench: &mut Bench) -> Result<(), CudaError> {
    for dtype in bench.dtypes() {
        // Gradients are differences against ⟨dout, out⟩ of the stored output, rounded as that is.
        let tolerance = match dtype {
            Float::F32 => dtype.tolerance(),
            Float::Bf16 => Tolerance { grad: 1.0 / 32.0, ..dtype.tolerance() },
        };
        if !bench.wants(|s| !s.contains("tensor_core")) {
            continue;
        }
        for size in &TILED {
            one(bench, "tiled", 32, dtype, tolerance, size)?;
        }
        // Heads that end in each of the eights of columns that a thread has.
        for head_dim in (13..128).step_by(8) {
            one(bench, "tiled", 32, dtype, tolerance, &size((1, 1, head_dim), &[3], &[]))?;
        }
    }
    // Probabilities and their gradients pass through bf16 on their way to the tensor cores.
    let tolerance = Tolerance { value: 1.0 / 64.0, grad: 1.0 / 32.0 };
    for head_dim in [64, 128] {
        if !bench.wants(|s| s.contains("tensor_core") || s.contains("delta")) {
            continue;
        }
        for (heads, kv_heads, lengths, keys) in TENSOR_CORE {
            let size = size((heads, kv_heads, head_dim), lengths, keys);
            one(bench, "tensor_core", 64, Float::Bf16, tolerance, &size)?;
        }
    }
    Ok(())
}

fn one(
    bench: &mut Bench,
    kind: &str,
    tile: usize,
    dtype: Float,
    tolerance: Tolerance,
    size: &Size,
) -> Result<(), CudaError> {
    let AttentionDims { heads, kv_heads, head_dim } = size.dims;
    let lengths = size.lengths;
    bench.case(format!("{kind}, {heads} on {kv_heads} heads of {head_dim} in {}, {lengths:?}", dtype.name()));
    let offsets: Vec<usize> = (0..=lengths.len()).map(|s| lengths[..s].iter().sum()).collect();
    let own: Vec<(usize, usize)> = offsets.windows(2).map(|w| (w[0], w[1])).collect();
    let keys = if size.keys.is_empty() { own } else { size.keys.to_vec() };
    let (rows, problem) = (offsets[lengths.len()], problem(dtype, size, &offsets, &keys));
    let key_rows = problem.inputs[1].len() / (kv_heads * head_dim);

    let put = |at: usize| bench.put(dtype, &problem.inputs[at]);
    let (q, k, v) = (put(0)?, put(1)?, put(2)?);
    let narrow = |v: &[usize]| v.iter().map(|x| *x as u32).collect::<Vec<_>>();
    let tiles: Vec<usize> = (0..=lengths.len()).map(|s| lengths[..s].iter().map(|n| n.div_ceil(tile)).sum()).collect();
    let flat: Vec<usize> = keys.iter().flat_map(|(start, end)| [*start, *end]).collect();
    let (device_offsets, device_tiles) = (bench.cuda.upload(&narrow(&offsets))?, bench.cuda.upload(&narrow(&tiles))?);
    let device_keys = bench.cuda.upload(&narrow(&flat))?;
    let inputs = abi::Attention {
        q: q.ptr(),
        k: k.ptr(),
        v: v.ptr(),
        offsets: device_offsets.ptr(),
        keys: device_keys.ptr(),
        tiles: device_tiles.ptr(),
        rows: rows as u32,
        key_rows: key_rows as u32,
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        head_dim: head_dim as u32,
        segments: lengths.len() as u32,
        scale: (head_dim as f32).powf(-0.5),
        unused: 0,
    };
    // Keys that no segment has may hold anything, as far as queries are concerned.
    let width = kv_heads * head_dim;
    let unseen = |at: usize| {
        let mut values = problem.inputs[at].clone();
        for (row, values) in values.chunks_mut(width).enumerate() {
            if !keys.iter().any(|(start, end)| (*start..*end).contains(&row)) {
                values.fill(f32::NAN);
            }
        }
        bench.put(dtype, &values)
    };
    let (unseen_k, unseen_v) = (unseen(1)?, unseen(2)?);
    let without_unseen = abi::Attention { k: unseen_k.ptr(), v: unseen_v.ptr(), ..inputs };
    let (out, lse) = (bench.room(dtype, rows * heads * head_dim)?, bench.room(Float::F32, rows * heads)?);
    let args = abi::AttentionForward { attention: without_unseen, out: out.ptr(), lse: lse.ptr() };
    bench.launch(&format!("attention_{kind}_forward_{}", dtype.name()), &args)?;
    bench.compare("output 0", &out.read()?, &problem.expected[0], tolerance.value);
    let host_lse = lse.read()?;
    bench.again("lse", &host_lse);
    let blind: Vec<bool> = host_lse.iter().map(|l| *l == f32::NEG_INFINITY).collect();
    bench.equal("queries that see no key", &blind, &sees_none(&offsets, &keys, heads));

    let dout = bench.put(dtype, &problem.seeds[0])?;
    let delta = bench.room(Float::F32, rows * heads)?;
    let grads = (0..3).map(|i| bench.room(dtype, problem.inputs[i].len())).collect::<Result<Vec<_>, _>>()?;
    let args = abi::AttentionBackward {
        attention: inputs,
        out: out.ptr(),
        dout: dout.ptr(),
        lse: lse.ptr(),
        delta: delta.ptr(),
        dq: grads[0].ptr(),
        dk: grads[1].ptr(),
        dv: grads[2].ptr(),
    };
    for (kernel, attention) in
        [("delta".into(), inputs), (format!("{kind}_query_grad"), without_unseen), (format!("{kind}_key_grad"), inputs)]
    {
        bench.launch(&format!("attention_{kernel}_{}", dtype.name()), &abi::AttentionBackward { attention, ..args })?;
    }
    for (input, grad) in grads.iter().enumerate() {
        bench.gradient(&problem, input, &grad.read()?, tolerance.grad);
    }
    if kind == "tiled" {
        return Ok(());
    }
    let expected = match bench.is_second() {
        true => vec![Vec::new(); grads.len()],
        false => on_host(&problem, size, &offsets, &keys).map_err(|e| CudaError::Wrong(e.to_string()))?,
    };
    for ((name, grad), want) in problem.names.iter().zip(&grads).zip(&expected) {
        bench.compare(&format!("gradient of {name}"), &grad.read()?, want, ELEMENT);
    }
    Ok(())
}

/// The gradients by the op on the host, in f32, which the ops' tests hold to differences.
fn on_host(problem: &Problem, size: &Size, offsets: &[usize], keys: &[(usize, usize)]) -> crate::Result<Vec<Vec<f64>>> {
    let AttentionDims { heads, kv_heads, head_dim } = size.dims;
    let tape = Tape::new();
    let leaf = |(values, heads): (&Vec<f32>, usize)| {
        let width = heads * head_dim;
        tape.leaf(Tensor::from_slice([values.len() / width, width], values))
    };
    let inputs: Vec<Var> = problem.inputs.iter().zip([heads, kv_heads, kv_heads]).map(leaf).collect();
    let queries = Segments::from_offsets(offsets).unwrap_or_else(|| unreachable!("sums of lengths rise"));
    let keys: Vec<_> = keys.iter().map(|(start, end)| *start..*end).collect();
    let out = attention(&tape, &inputs[0], &inputs[1], &inputs[2], &size.dims, &queries, &keys)?;
    let seed = Tensor::from_slice(out.shape().clone(), &problem.seeds[0]);
    let gradients = tape.backward_from(&[out], vec![seed], &mut ())?;
    let wide =
        |input: &Var| gradients.take(input).map_or(Vec::new(), |g| g.f32().iter().map(|g| f64::from(*g)).collect());
    Ok(inputs.iter().map(wide).collect())
}

/// q, k, v. Behind the last key is a row that no query sees, where there are several segments.
fn problem(dtype: Float, size: &Size, offsets: &[usize], keys: &[(usize, usize)]) -> Problem {
    let dims = AttentionDims { ..size.dims };
    let rows = offsets[offsets.len() - 1];
    let key_rows = keys.iter().map(|(_, end)| *end).max().unwrap_or(0) + usize::from(keys.len() > 1);
    let mut generator = Generator::new((rows + dims.head_dim) as u64);
    let kv = [key_rows, dims.kv_heads * dims.head_dim];
    let inputs = vec![
        (generator.normal("q", &[rows, dims.heads * dims.head_dim], 1.0), dtype),
        (generator.normal("k", &kv, 1.0), dtype),
        (generator.normal("v", &kv, 1.0), dtype),
    ];
    let queries = Segments::from_offsets(offsets).unwrap_or_else(|| unreachable!("sums of lengths rise"));
    let keys: Vec<_> = keys.iter().map(|(start, end)| *start..*end).collect();
    Problem::new(dtype, inputs, move |v| vec![reference::attention([&v[0], &v[1], &v[2]], &dims, &queries, &keys)])
}

/// [R, H]: whether the query is before all keys of its segment.
fn sees_none(offsets: &[usize], keys: &[(usize, usize)], heads: usize) -> Vec<bool> {
    let segments = offsets.windows(2).zip(keys);
    let of_rows = segments.flat_map(|(rows, (start, end))| {
        let (count, keys) = (rows[1] - rows[0], end - start);
        (0..count).map(move |row| keys + row < count)
    });
    of_rows.flat_map(|none| std::iter::repeat_n(none, heads)).collect()
}
