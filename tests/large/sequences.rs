//! Convolution, scan and attention: a short sequence behind a very long one.

use std::ptr::null_mut;

use autocompress::device::cuda::embedded::abi;

use super::lab::{DTYPES, FAR, Lab, bare, bits};

/// Rows of the sequence that counts.
const ROWS: usize = 70;

pub fn all(lab: &Lab) {
    for dtype in DTYPES {
        lab.same(&format!("causal_conv1d_{dtype}"), FAR / CHANNELS, |before| conv(lab, dtype, before));
        lab.same(&format!("attention_delta_{dtype}"), FAR / (HEADS * D), |before| delta(lab, dtype, before));
        lab.same(&format!("ssd_scan_{dtype}"), SCAN_ROWS, |before| sums_of_scan(lab, dtype, before));
    }
    for (rung, dtype, edge) in [("tiled", "f32", 32), ("tiled", "bf16", 32), ("tensor_core", "bf16", 64)] {
        let what = format!("attention_{rung}_{dtype}");
        lab.same(&what, FAR / (KV_HEADS * D), |before| attention(lab, rung, dtype, edge, before));
    }
    for (rung, dtype) in [
        ("recurrent", "f32"),
        ("recurrent", "bf16"),
        ("chunked", "f32"),
        ("chunked", "bf16"),
        ("tensor_core", "bf16"),
        ("pipelined", "bf16"),
    ] {
        lab.same(&format!("ssd_scan_{rung}_{dtype}"), SCAN_ROWS, |before| scan(lab, rung, dtype, before));
    }
}

const CHANNELS: usize = 4096;
const TAPS: usize = 4;
/// Rows that a warp walks, and channels and rows of a block.
const STRETCH: usize = 64;
const OF_BLOCK: usize = 128;

/// The channels of the last block.
fn conv(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (rows, skip, count) = (before + ROWS, before * CHANNELS, ROWS * CHANNELS);
    let [x, dy] = [(); 2].map(|()| lab.data(dtype, skip, count));
    let (weight, bias) = (lab.data(dtype, 0, CHANNELS * TAPS), lab.data(dtype, 0, CHANNELS));
    let offsets = lab.cuda.upload(&[0, before as u32, rows as u32]).unwrap();
    let [y, dx] = [(); 2].map(|()| lab.data_room(dtype, skip + count));
    let of_stretch = CHANNELS * (TAPS + 1);
    let partials = lab.room::<f32>(rows.div_ceil(STRETCH) * of_stretch);
    let conv = abi::Conv {
        x: x.ptr(),
        weight: weight.ptr(),
        bias: bias.ptr(),
        initial: null_mut(),
        offsets: offsets.ptr(),
        rows: rows as u32,
        channels: CHANNELS as u32,
        kernel: TAPS as u32,
        segments: 2,
        stretch: STRETCH as u32,
        unused: 0,
    };
    lab.launch(&format!("causal_conv1d_forward_{dtype}"), &abi::ConvForward { conv, y: y.ptr() }, 1);
    let args = abi::ConvBackward { conv, dy: dy.ptr(), dx: dx.ptr(), partials: partials.ptr() };
    lab.launch(&format!("causal_conv1d_backward_{dtype}"), &args, 1);
    // One sequence: of two, the first one's last rows would be looked at too.
    let whole = lab.cuda.upload(&[0, rows as u32]).unwrap();
    let state = lab.data_room(dtype, (TAPS - 1) * CHANNELS);
    let args = abi::ConvState {
        x: x.ptr(),
        initial: null_mut(),
        offsets: whole.ptr(),
        state: state.ptr(),
        channels: CHANNELS as u32,
        kernel: TAPS as u32,
        segments: 1,
        unused: 0,
    };
    lab.launch(&format!("causal_conv1d_state_{dtype}"), &args, 0);
    let last = CHANNELS - OF_BLOCK;
    let mut outputs = vec![state.bits(0, (TAPS - 1) * CHANNELS)];
    for data in [y, dx] {
        outputs.extend((0..ROWS).map(|row| data.bits(skip + row * CHANNELS + last, OF_BLOCK)));
    }
    for stretch in before / STRETCH..rows.div_ceil(STRETCH) {
        outputs.push(bits(&partials, stretch * of_stretch + last * TAPS, OF_BLOCK * TAPS));
        outputs.push(bits(&partials, stretch * of_stretch + CHANNELS * TAPS + last, OF_BLOCK));
    }
    outputs
}

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const D: usize = 64;

fn delta(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (rows, skip, count) = (before + 8, before * HEADS * D, 8 * HEADS * D);
    let [out, dout] = [(); 2].map(|()| lab.data(dtype, skip, count));
    let delta = lab.room::<f32>(rows * HEADS);
    let none: *mut std::ffi::c_void = null_mut();
    let attention = abi::Attention {
        rows: rows as u32,
        key_rows: rows as u32,
        heads: HEADS as u32,
        kv_heads: KV_HEADS as u32,
        head_dim: D as u32,
        segments: 1,
        scale: 0.125,
        ..abi::Attention::default()
    };
    let args = abi::AttentionBackward {
        attention,
        out: out.ptr(),
        dout: dout.ptr(),
        lse: none.cast(),
        delta: delta.ptr(),
        dq: none,
        dk: none,
        dv: none,
    };
    lab.launch(&format!("attention_delta_{dtype}"), &args, HEADS as u64);
    vec![bits(&delta, before * HEADS, 8 * HEADS)]
}

/// The last head of the second sequence.
fn attention(lab: &Lab, rung: &str, dtype: &str, edge: usize, before: usize) -> Vec<Vec<u8>> {
    let (rows, q, kv) = (before + ROWS, HEADS * D, KV_HEADS * D);
    let [queries, out, dout] = [(); 3].map(|()| lab.data(dtype, before * q, ROWS * q));
    let [keys, values] = [(); 2].map(|()| lab.data(dtype, before * kv, ROWS * kv));
    let [lse, delta] = [(); 2].map(|()| lab.data("f32", before * HEADS, ROWS * HEADS));
    let (first, all) = (before.div_ceil(edge), before.div_ceil(edge) + ROWS.div_ceil(edge));
    let offsets = lab.cuda.upload(&[0, before as u32, rows as u32]).unwrap();
    let ranges = lab.cuda.upload(&[0, before as u32, before as u32, rows as u32]).unwrap();
    let tiles = lab.cuda.upload(&[0, first as u32, all as u32]).unwrap();
    let inputs = abi::Attention {
        q: queries.ptr(),
        k: keys.ptr(),
        v: values.ptr(),
        offsets: offsets.ptr(),
        keys: ranges.ptr(),
        tiles: tiles.ptr(),
        rows: rows as u32,
        key_rows: rows as u32,
        heads: HEADS as u32,
        kv_heads: KV_HEADS as u32,
        head_dim: D as u32,
        segments: 2,
        scale: 0.125,
        unused: 0,
    };
    // As many blocks as there may be tiles; of the last head, those of the second sequence.
    let last_blocks = (rows.div_ceil(edge) + 2 - first) as u64;
    let (y, lse_out) = (lab.data_room(dtype, rows * q), lab.room::<f32>(rows * HEADS));
    let args = abi::AttentionForward { attention: inputs, out: y.ptr(), lse: lse_out.ptr() };
    lab.launch(&format!("attention_{rung}_forward_{dtype}"), &args, last_blocks);
    let dq = lab.data_room(dtype, rows * q);
    let [dk, dv] = [(); 2].map(|()| lab.data_room(dtype, rows * kv));
    let args = abi::AttentionBackward {
        attention: inputs,
        out: out.ptr(),
        dout: dout.ptr(),
        lse: lse.ptr(),
        delta: delta.ptr(),
        dq: dq.ptr(),
        dk: dk.ptr(),
        dv: dv.ptr(),
    };
    lab.launch(&format!("attention_{rung}_query_grad_{dtype}"), &args, last_blocks);
    lab.launch(&format!("attention_{rung}_key_grad_{dtype}"), &args, ROWS.div_ceil(edge) as u64);
    let of_head = |data: &super::lab::Data, row: usize, heads: usize| data.bits((row * heads + heads - 1) * D, D);
    let mut outputs = Vec::new();
    for row in before..rows {
        outputs.extend([of_head(&y, row, HEADS), of_head(&dq, row, HEADS)]);
        outputs.extend([of_head(&dk, row, KV_HEADS), of_head(&dv, row, KV_HEADS)]);
        outputs.push(bits(&lse_out, row * HEADS + HEADS - 1, 1));
    }
    outputs
}

/// Heads, their columns, groups, columns of the state.
const H: usize = 4;
const P: usize = 64;
const N: usize = 64;
const XBC: usize = H * P + 2 * N;
/// Heads' shares of the gradients of B and C, the smallest of its tensors, have 2³² elements.
const SCAN_ROWS: usize = FAR / (H * N);

/// The scan's inputs, those of the second sequence.
struct Scan {
    tensors: [super::lab::Data; 2],
    heads: [autocompress::device::cuda::DeviceBuffer<f32>; 3],
    bounds: [autocompress::device::cuda::DeviceBuffer<u32>; 2],
    rows: usize,
}

impl Scan {
    fn new(lab: &Lab, dtype: &str, before: usize, chunk: usize) -> Scan {
        let chunks = [0, before.div_ceil(chunk), before.div_ceil(chunk) + ROWS.div_ceil(chunk)];
        Scan {
            tensors: [lab.data(dtype, before * XBC, ROWS * XBC), lab.data(dtype, before * H, ROWS * H)],
            heads: [[0.1f32, 0.5, 0.9, 1.2], [1.0, 0.5, 2.0, 0.1], [0.0, 0.2, -0.3, 0.4]]
                .map(|values| lab.cuda.upload(&values).unwrap()),
            bounds: [[0, before, before + ROWS], chunks]
                .map(|bounds| lab.cuda.upload(&bounds.map(|at| at as u32)).unwrap()),
            rows: before + ROWS,
        }
    }

    fn abi(&self) -> abi::Scan {
        abi::Scan {
            xbc: self.tensors[0].ptr(),
            dt: self.tensors[1].ptr(),
            a_log: self.heads[0].ptr(),
            d: self.heads[1].ptr(),
            dt_bias: self.heads[2].ptr(),
            initial: null_mut(),
            offsets: self.bounds[0].ptr(),
            chunks: self.bounds[1].ptr(),
            mask: bare(),
            rows: self.rows as u32,
            heads: H as u32,
            head_dim: P as u32,
            groups: 1,
            state: N as u32,
            segments: 2,
            dt_low: 0.0,
            dt_high: f32::INFINITY,
        }
    }
}

/// The last head of the second sequence: the last block.
fn scan(lab: &Lab, rung: &str, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (rows, of_state) = (before + ROWS, H * P * N);
    let chunk = if rung == "chunked" { 32 } else { 64 };
    let inputs = Scan::new(lab, dtype, before, chunk);
    let states = if rung == "chunked" { "f32" } else { "bf16" };
    let chunks = before.div_ceil(chunk) + ROWS.div_ceil(chunk);
    let starts = lab.data_room(states, chunks * of_state);
    let [y, unmasked] = [(); 2].map(|()| lab.data_room(dtype, rows * H * P));
    let last = lab.room::<f32>(2 * of_state);
    let args = abi::ScanForward {
        scan: inputs.abi(),
        y: y.ptr(),
        unmasked: unmasked.ptr(),
        final_state: last.ptr(),
        starts: if rung == "recurrent" { null_mut() } else { starts.ptr() },
    };
    lab.launch(&format!("ssd_scan_{rung}_forward_{dtype}"), &args, 1);
    let of_head = |data: &super::lab::Data, row: usize| data.bits((row * H + H - 1) * P, P);
    let mut outputs = vec![bits(&last, 2 * of_state - P * N, P * N)];
    for row in before..rows {
        outputs.extend([of_head(&y, row), of_head(&unmasked, row)]);
    }
    if !matches!(rung, "chunked" | "tensor_core") {
        return outputs;
    }
    let dy = lab.data(dtype, before * H * P, ROWS * H * P);
    let (dxbc, ddt) = (lab.data_room(dtype, rows * XBC), lab.data_room(dtype, rows * H));
    let [db, dc] = [(); 2].map(|()| lab.room::<f32>(rows * H * N));
    let partials = lab.room::<f32>(2 * 3 * H);
    let args = abi::ScanBackward {
        scan: inputs.abi(),
        dy: dy.ptr(),
        dfinal: null_mut(),
        starts: starts.ptr(),
        dxbc: dxbc.ptr(),
        ddt: ddt.ptr(),
        dinitial: null_mut(),
        db: db.ptr(),
        dc: dc.ptr(),
        partials: partials.ptr(),
    };
    lab.launch(&format!("ssd_scan_{rung}_backward_{dtype}"), &args, 1);
    for row in before..rows {
        outputs.push(dxbc.bits(row * XBC + (H - 1) * P, P));
        outputs.push(ddt.bits(row * H + H - 1, 1));
        outputs.extend([&db, &dc].map(|share| bits(share, (row * H + H - 1) * N, N)));
    }
    outputs
}

/// What is added up per group, and per interval of a mask.
fn sums_of_scan(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    const COUNT: usize = 8;
    let rows = before + COUNT;
    let [db, dc] = [(); 2].map(|()| lab.data("f32", before * H * N, COUNT * H * N));
    let dxbc = lab.data_room(dtype, rows * XBC);
    let scan = abi::Scan { rows: rows as u32, ..Scan::new(lab, dtype, 0, 64).abi() };
    let none: *mut f32 = null_mut();
    let args = abi::ScanBackward {
        scan,
        dy: none.cast(),
        dfinal: none,
        starts: none.cast(),
        dxbc: dxbc.ptr(),
        ddt: none.cast(),
        dinitial: none,
        db: db.ptr(),
        dc: dc.ptr(),
        partials: none,
    };
    lab.launch(&format!("ssd_scan_group_sum_{dtype}"), &args, (COUNT * N / 256) as u64);
    let [unmasked, dy] = [(); 2].map(|()| lab.data(dtype, before * H * P, COUNT * H * P));
    let sums = lab.room::<f32>(rows * 2);
    let (ends, keep) = (lab.cuda.upload(&[1u32, 4]).unwrap(), lab.cuda.upload(&[1f32, 0.5]).unwrap());
    let mask = abi::Mask { ends: ends.ptr(), keep: keep.ptr(), draw: null_mut(), length: 1, candidates: 2 };
    let args = abi::ScanMaskGrad {
        unmasked: unmasked.ptr(),
        dy: dy.ptr(),
        row_sums: sums.ptr(),
        mask,
        rows: rows as u32,
        heads: H as u32,
        head_dim: P as u32,
        unused: 0,
    };
    lab.launch(&format!("ssd_scan_mask_grad_{dtype}"), &args, 1);
    let mut outputs = vec![bits(&sums, before * 2, COUNT * 2)];
    outputs.extend((before..rows).map(|row| dxbc.bits(row * XBC + H * P, 2 * N)));
    outputs
}
