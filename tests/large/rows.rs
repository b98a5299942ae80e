//! Kernels that go row by row, or element by element.

use std::ptr::null_mut;

use autocompress::device::cuda::embedded::abi;

use super::lab::{DTYPES, FAR, Lab, bare, bits};

/// Elements of a row, and rows that count.
const WIDTH: usize = 4096;
const ROWS: usize = 5;
/// Rows in front of them.
const BEFORE: usize = FAR / WIDTH;

pub fn all(lab: &Lab) {
    for dtype in DTYPES {
        let element = |kernel: &str| format!("{kernel}_{dtype}");
        lab.same(&element("adamw_update"), FAR, |before| adamw_update(lab, dtype, before));
        lab.same(&element("adamw_squares"), FAR, |before| adamw_squares(lab, dtype, before));
        lab.same(&element("quantize_amax"), FAR, |before| amax(lab, dtype, before));
        lab.same(&element("relu2"), BEFORE, |before| relu2(lab, dtype, before));
        lab.same(&element("residual_add"), BEFORE, |before| residual_add(lab, dtype, before));
        lab.same(&element("rms_norm"), BEFORE, |before| rms_norm(lab, dtype, before));
        lab.same(&element("gated_group_norm"), FAR / GROUP, |before| gated_group_norm(lab, dtype, before));
        lab.same(&element("embedding"), BEFORE, |before| embedding(lab, dtype, before));
        lab.same(&element("cross_entropy_rows"), FAR / VOCAB, |before| cross_entropy(lab, dtype, before));
        lab.same(&element("distill_loss_grad"), FAR / VOCAB, |before| distill_grad(lab, dtype, before));
        lab.same(&element("moe_route_backward"), FAR / EXPERTS, |before| route_backward(lab, dtype, before));
        for kernel in ["hadamard", "stretches", "hadamard_stretches"] {
            lab.same(&element(kernel), BEFORE, |before| prepared(lab, kernel, dtype, before));
        }
        for values in ["fp8", "nvfp4"] {
            for blocks in ["rows", "columns", "squares"] {
                let what = format!("quantize_{values}_{blocks}_{dtype}");
                lab.same(&what, BEFORE, |before| quantize(lab, &what, values == "fp8", blocks, before));
            }
        }
    }
    lab.same("distill_loss_sums", FAR / VOCAB, |before| distill_sums(lab, before));
    lab.same("moe_route_forward", FAR / EXPERTS, |before| route_forward(lab, before));
    lab.same("column_sum", FAR / 4, |before| column_sum(lab, before));
    lab.same("mask_grad_tiles", FAR / CANDIDATES, |before| mask_grad(lab, before));
}

fn state(lab: &Lab) -> autocompress::device::cuda::DeviceBuffer<u8> {
    let state = abi::StepState { update: 5, learning_rate: 1e-3, max_norm: 1.0, ..Default::default() };
    // SAFETY: plain data without padding (cuda/abi.h).
    let bytes = unsafe { std::slice::from_raw_parts((&raw const state).cast::<u8>(), size_of::<abi::StepState>()) };
    lab.cuda.upload(bytes).unwrap()
}

fn adamw_update(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    const COUNT: usize = 1500;
    let (state, norm) = (state(lab), lab.cuda.upload(&[2f32]).unwrap());
    let grad = lab.data(dtype, before, COUNT);
    let [value, first] = [(); 2].map(|()| lab.data("f32", before, COUNT));
    let second = lab.end(before, &[0.5f32; COUNT]);
    let weight = lab.data_room("bf16", before + COUNT);
    let args = abi::AdamWUpdate {
        state: state.ptr(),
        norm: norm.ptr(),
        grad: grad.ptr(),
        value: value.ptr(),
        first: first.ptr(),
        second: second.ptr(),
        weight: weight.ptr(),
        elements: (before + COUNT) as u64,
        rate: 1.0,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        unused: 0,
    };
    lab.launch(&format!("adamw_update_{dtype}"), &args, COUNT.div_ceil(1024) as u64);
    let mut outputs: Vec<Vec<u8>> = [&value, &first, &weight].map(|data| data.bits(before, COUNT)).into();
    outputs.push(bits(&second, before, COUNT));
    outputs
}

fn adamw_squares(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    const COUNT: usize = 3000;
    let grad = lab.data(dtype, before, COUNT);
    let partials = lab.room::<f64>(before / 16384 + 1);
    let args = abi::AdamWSquares { grad: grad.ptr(), partials: partials.ptr(), elements: (before + COUNT) as u64 };
    lab.launch(&format!("adamw_squares_{dtype}"), &args, 1);
    vec![bits(&partials, before / 16384, 1)]
}

fn amax(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    const COUNT: usize = 3000;
    let x = lab.data(dtype, before, COUNT);
    let partials = lab.room::<u32>(before / 16384 + 1);
    let args = abi::QuantizeAmax { x: x.ptr(), partials: partials.ptr(), elements: (before + COUNT) as u64 };
    lab.launch(&format!("quantize_amax_{dtype}"), &args, 1);
    vec![bits(&partials, before / 16384, 1)]
}

fn relu2(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (skip, count) = (before * WIDTH, ROWS * WIDTH);
    let [x, dy] = [(); 2].map(|()| lab.data(dtype, skip, count));
    let [y, dx] = [(); 2].map(|()| lab.data_room(dtype, skip + count));
    let (rows, width) = ((before + ROWS) as u32, WIDTH as u32);
    let args = abi::Relu2Forward { x: x.ptr(), y: y.ptr(), mask: bare(), rows, width };
    lab.launch(&format!("relu2_forward_{dtype}"), &args, 1);
    let args =
        abi::Relu2Backward { x: x.ptr(), dy: dy.ptr(), dx: dx.ptr(), row_sums: null_mut(), mask: bare(), rows, width };
    lab.launch(&format!("relu2_backward_{dtype}"), &args, 1);
    [y, dx].map(|data| data.bits(skip, count)).into()
}

fn residual_add(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (skip, count) = (before * WIDTH, ROWS * WIDTH);
    let [h, x, dout] = [(); 3].map(|()| lab.data(dtype, skip, count));
    let [out, dx] = [(); 2].map(|()| lab.data_room(dtype, skip + count));
    let (rows, width) = ((before + ROWS) as u32, WIDTH as u32);
    let args =
        abi::ResidualAddForward { h: h.ptr(), x: x.ptr(), out: out.ptr(), hidden: bare(), gate: bare(), rows, width };
    lab.launch(&format!("residual_add_forward_{dtype}"), &args, 1);
    let args = abi::ResidualAddBackward {
        x: x.ptr(),
        dout: dout.ptr(),
        dx: dx.ptr(),
        hidden_sums: null_mut(),
        gate_sums: null_mut(),
        hidden: bare(),
        gate: bare(),
        rows,
        width,
    };
    lab.launch(&format!("residual_add_backward_{dtype}"), &args, 1);
    [out, dx].map(|data| data.bits(skip, count)).into()
}

fn rms_norm(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (skip, count, of_block) = (before * WIDTH, ROWS * WIDTH, 16);
    let [x, dy] = [(); 2].map(|()| lab.data(dtype, skip, count));
    let weight = lab.data(dtype, 0, WIDTH);
    let [y, dx] = [(); 2].map(|()| lab.data_room(dtype, skip + count));
    let scales = lab.room::<f32>(before + ROWS);
    let partials = lab.room::<f32>((before / of_block + 1) * WIDTH);
    let (rows, width, rows_per_block) = ((before + ROWS) as u32, WIDTH as u32, of_block as u32);
    let args = abi::RmsNormForward {
        x: x.ptr(),
        weight: weight.ptr(),
        y: y.ptr(),
        scales: scales.ptr(),
        mask: bare(),
        rows,
        width,
        rows_per_block,
        eps: 1e-5,
    };
    lab.launch(&format!("rms_norm_forward_{dtype}"), &args, 1);
    let args = abi::RmsNormBackward {
        x: x.ptr(),
        weight: weight.ptr(),
        dy: dy.ptr(),
        scales: scales.ptr(),
        dx: dx.ptr(),
        weight_partials: partials.ptr(),
        row_sums: null_mut(),
        mask: bare(),
        rows,
        width,
        rows_per_block,
        unused: 0,
    };
    lab.launch(&format!("rms_norm_backward_{dtype}"), &args, 1);
    let partials = bits(&partials, before / of_block * WIDTH, WIDTH);
    vec![y.bits(skip, count), dx.bits(skip, count), bits(&scales, before, ROWS), partials]
}

/// Columns of the one group.
const GROUP: usize = 512;

fn gated_group_norm(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (skip, count, of_block) = (before * GROUP, ROWS * GROUP, 16);
    let [y, z, dout] = [(); 3].map(|()| lab.data(dtype, skip, count));
    let weight = lab.data(dtype, 0, GROUP);
    let [out, dy, dz] = [(); 3].map(|()| lab.data_room(dtype, skip + count));
    let partials = lab.room::<f32>((before / of_block + 1) * GROUP);
    let (rows, columns, rows_per_block) = ((before + ROWS) as u32, GROUP as u32, of_block as u32);
    let (groups, head_dim, eps) = (1, 64, 1e-5);
    let args = abi::GatedGroupNormForward {
        y: y.ptr(),
        z: z.ptr(),
        weight: weight.ptr(),
        out: out.ptr(),
        mask: bare(),
        rows,
        groups,
        columns,
        head_dim,
        rows_per_block,
        eps,
    };
    lab.launch(&format!("gated_group_norm_forward_{dtype}"), &args, 1);
    let args = abi::GatedGroupNormBackward {
        y: y.ptr(),
        z: z.ptr(),
        weight: weight.ptr(),
        dout: dout.ptr(),
        dy: dy.ptr(),
        dz: dz.ptr(),
        weight_partials: partials.ptr(),
        row_sums: null_mut(),
        mask: bare(),
        rows,
        groups,
        columns,
        head_dim,
        rows_per_block,
        eps,
    };
    lab.launch(&format!("gated_group_norm_backward_{dtype}"), &args, 1);
    let mut outputs: Vec<Vec<u8>> = [out, dy, dz].map(|data| data.bits(skip, count)).into();
    outputs.push(bits(&partials, before / of_block * GROUP, GROUP));
    outputs
}

/// Tokens and ids are both at the end: of the rows, and of the table.
fn embedding(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (skip, count) = (before * WIDTH, ROWS * WIDTH);
    let ids: Vec<u32> = (0..ROWS as u32).map(|row| before as u32 + row * 3 % 5).collect();
    let device_ids = lab.end(before, &ids);
    let [table, dy] = [(); 2].map(|()| lab.data(dtype, skip, count));
    let y = lab.data_room(dtype, skip + count);
    let (rows, width) = ((before + ROWS) as u32, WIDTH as u32);
    let args =
        abi::EmbeddingForward { ids: device_ids.ptr(), table: table.ptr(), y: y.ptr(), mask: bare(), rows, width };
    lab.launch(&format!("embedding_forward_{dtype}"), &args, 1);

    let (ends, keep) = (lab.cuda.upload(&[1000u32, 4096]).unwrap(), lab.cuda.upload(&[1f32, 0.5]).unwrap());
    let mask = abi::Mask { ends: ends.ptr(), keep: keep.ptr(), draw: null_mut(), length: 1, candidates: 2 };
    let sums = lab.room::<f32>((before + ROWS) * 2);
    let args = abi::EmbeddingMaskGrad {
        ids: device_ids.ptr(),
        table: table.ptr(),
        dy: dy.ptr(),
        row_sums: sums.ptr(),
        mask,
        rows,
        width,
    };
    lab.launch(&format!("embedding_mask_grad_{dtype}"), &args, 1);

    // The gradient of the table's last rows, of which each token has its own.
    let order: Vec<u32> = (0..ROWS as u32).map(|at| (before as u32) + at).collect();
    let order = lab.end(0, &order);
    let offsets = lab.end(before, &(0..=ROWS as u32).collect::<Vec<_>>());
    let dtable = lab.room::<f32>(skip + count);
    let args = abi::EmbeddingBackward {
        order: order.ptr(),
        offsets: offsets.ptr(),
        dy: dy.ptr(),
        dtable: dtable.ptr(),
        mask: bare(),
        vocab: (before + ROWS) as u32,
        width,
        accumulate: 0,
        unused: 0,
    };
    lab.launch(&format!("embedding_backward_{dtype}"), &args, 1);
    vec![y.bits(skip, count), bits(&sums, before * 2, ROWS * 2), bits(&dtable, skip, count)]
}

const VOCAB: usize = 1 << 17;

fn cross_entropy(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (skip, count) = (before * VOCAB, 2 * VOCAB);
    let logits = lab.data("f32", skip, count);
    let targets = lab.end(before, &[5u32, 131_000]);
    let dlogits = lab.data_room(dtype, skip + count);
    let (losses, tops) = (lab.room::<f32>(before + 2), lab.room::<u32>(before + 2));
    let args = abi::CrossEntropy {
        logits: logits.ptr(),
        targets: targets.ptr(),
        dlogits: dlogits.ptr(),
        losses: losses.ptr(),
        tops: tops.ptr(),
        rows: before as u32 + 2,
        vocab: VOCAB as u32,
        scale: 0.5,
        unused: 0,
    };
    lab.launch(&format!("cross_entropy_rows_{dtype}"), &args, 2);
    vec![dlogits.bits(skip, count), bits(&losses, before, 2), bits(&tops, before, 2)]
}

/// Statistics of two rows as f64 numbers: five of each.
const STATISTICS: [f64; 10] = [1.0, 9000.0, 2.0, 8000.0, 3.0, 0.5, 7000.0, 1.5, 9500.0, 2.5];

fn distill_sums(lab: &Lab, before: usize) -> Vec<Vec<u8>> {
    let [teacher, student] = [(); 2].map(|()| lab.data("f32", before * VOCAB, 2 * VOCAB));
    let statistics = lab.end(before * 5, &STATISTICS);
    let args = abi::DistillSums {
        teacher: teacher.ptr(),
        student: student.ptr(),
        valid: null_mut(),
        statistics: statistics.ptr(),
        rows: before as u32 + 2,
        vocab: VOCAB as u32,
        scale: 0.7,
        first: 0,
    };
    lab.launch("distill_loss_sums_f32", &args, 2);
    vec![bits(&statistics, before * 5, 10)]
}

fn distill_grad(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (skip, count) = (before * VOCAB, 2 * VOCAB);
    let [teacher, student] = [(); 2].map(|()| lab.data("f32", skip, count));
    let statistics = lab.end(before * 5, &STATISTICS);
    let dstudent = lab.data_room(dtype, skip + count);
    let args = abi::DistillGrad {
        teacher: teacher.ptr(),
        student: student.ptr(),
        valid: null_mut(),
        statistics: statistics.ptr(),
        dstudent: dstudent.ptr(),
        rows: before as u32 + 2,
        vocab: VOCAB as u32,
        scale: 0.7,
        factor: 0.5,
    };
    lab.launch(&format!("distill_loss_grad_{dtype}"), &args, 2);
    vec![dstudent.bits(skip, count)]
}

const EXPERTS: usize = 128;
const TOP: usize = 6;

fn route(logits: *mut f32, rows: usize) -> abi::MoeRoute {
    abi::MoeRoute {
        logits,
        mask: bare(),
        rows: rows as u32,
        experts: EXPERTS as u32,
        top_k: TOP as u32,
        groups: 1,
        topk_group: 1,
        normalise: 1,
        scale: 2.5,
        unused: 0,
    }
}

fn route_forward(lab: &Lab, before: usize) -> Vec<Vec<u8>> {
    let (logits, bias) = (lab.data("f32", before * EXPERTS, ROWS * EXPERTS), lab.data("f32", 0, EXPERTS));
    let (weights, chosen) = (lab.room::<f32>((before + ROWS) * TOP), lab.room::<u32>((before + ROWS) * TOP));
    let args = abi::MoeRouteForward {
        route: route(logits.ptr(), before + ROWS),
        bias: bias.ptr(),
        weights: weights.ptr(),
        chosen: chosen.ptr(),
    };
    lab.launch("moe_route_forward_f32", &args, 1);
    vec![bits(&weights, before * TOP, ROWS * TOP), bits(&chosen, before * TOP, ROWS * TOP)]
}

fn route_backward(lab: &Lab, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    let (skip, count) = (before * EXPERTS, ROWS * EXPERTS);
    let logits = lab.data("f32", skip, count);
    let chosen: Vec<u32> = (0..ROWS * TOP).map(|pair| (pair / TOP * 7 + pair % TOP * 3) as u32).collect();
    let (chosen, dweights) = (lab.end(before * TOP, &chosen), lab.data("f32", before * TOP, ROWS * TOP));
    let dlogits = lab.data_room(dtype, skip + count);
    let args = abi::MoeRouteBackward {
        route: route(logits.ptr(), before + ROWS),
        chosen: chosen.ptr(),
        dweights: dweights.ptr(),
        dlogits: dlogits.ptr(),
        row_sums: null_mut(),
    };
    lab.launch(&format!("moe_route_backward_{dtype}"), &args, 1);
    vec![dlogits.bits(skip, count)]
}

/// Five rows of partial sums, whose last columns count.
fn column_sum(lab: &Lab, before: usize) -> Vec<Vec<u8>> {
    const COLUMNS: usize = 40;
    let width = before + COLUMNS;
    let mut partials = lab.data_room("f32", 5 * width);
    (0..5).for_each(|row| partials.put(row * width + before, &lab.normal(COLUMNS)));
    let out = lab.room::<f32>(width);
    let args = abi::ColumnSum {
        partials: partials.ptr(),
        out: out.ptr(),
        rows: 5,
        width: width as u32,
        accumulate: 0,
        unused: 0,
    };
    lab.launch("column_sum_rows_f32", &args, 2);
    vec![bits(&out, before, COLUMNS)]
}

const CANDIDATES: usize = 8;

fn mask_grad(lab: &Lab, before: usize) -> Vec<Vec<u8>> {
    let sums = lab.data("f32", before * CANDIDATES, ROWS * CANDIDATES);
    let tiles = before / 1024;
    let partials = lab.room::<f32>((tiles + 1) * CANDIDATES);
    let args = abi::MaskGrad {
        row_sums: sums.ptr(),
        draw: null_mut(),
        partials: partials.ptr(),
        out: null_mut(),
        length: 1,
        rows: (before + ROWS) as u32,
        draws: 1,
        candidates: CANDIDATES as u32,
        accumulate: 0,
        unused: 0,
    };
    lab.launch("mask_grad_tiles_f32", &args, 1);
    vec![bits(&partials, tiles * CANDIDATES, CANDIDATES)]
}

/// What comes before the quantisers: sixteen rows at a time, in blocks of 1024 columns.
fn prepared(lab: &Lab, kernel: &str, dtype: &str, before: usize) -> Vec<Vec<u8>> {
    const OF_ROWS: usize = 16;
    let (skip, count) = (before * WIDTH, OF_ROWS * WIDTH);
    let (x, y) = (lab.data(dtype, skip, count), lab.data_room(dtype, skip + count));
    let (rows, width) = ((before + OF_ROWS) as u32, WIDTH as u32);
    let symbol = format!("quantize_{kernel}_{dtype}");
    // The last block has the last columns.
    let columns = WIDTH - 1024;
    if kernel == "hadamard" {
        let args = abi::QuantizeHadamard { x: x.ptr(), y: y.ptr(), rows, width };
        lab.launch(&symbol, &args, 1);
    } else {
        // Two experts, the second of which has the rows that count.
        let offsets = lab.cuda.upload(&[0, before as u32, rows]).unwrap();
        let first = (before / OF_ROWS) as u32;
        let tiles = lab.cuda.upload(&[0, first, first + 1, first + 1]).unwrap();
        let args = abi::QuantizeStretches {
            x: x.ptr(),
            y: y.ptr(),
            offsets: offsets.ptr(),
            tiles: tiles.ptr(),
            rows,
            width,
            experts: 2,
            edge: OF_ROWS as u32,
        };
        lab.launch(&symbol, &args, 1);
    }
    (0..OF_ROWS).map(|row| y.bits(skip + row * WIDTH + columns, 1024)).collect()
}

/// A block has 128 rows and columns.
fn quantize(lab: &Lab, symbol: &str, is_fp8: bool, blocks: &str, before: usize) -> Vec<Vec<u8>> {
    const OF_ROWS: usize = 128;
    let dtype = if symbol.ends_with("f32") { "f32" } else { "bf16" };
    let (skip, count) = (before * WIDTH, OF_ROWS * WIDTH);
    let x = lab.data(dtype, skip, count);
    let (row_bytes, block) = if is_fp8 { (WIDTH, 128) } else { (WIDTH / 2, 16) };
    let scale_of = |row: usize, column: usize| match blocks {
        "rows" => row * (WIDTH / block) + column / block,
        "columns" => row / block * WIDTH + column,
        _ => row / block * (WIDTH / block) + column / block,
    };
    let rows = before + OF_ROWS;
    let codes = lab.room::<u8>(rows * row_bytes);
    let scale_bytes = if is_fp8 { 4 } else { 1 };
    let scales = lab.room::<u8>((scale_of(rows - 1, WIDTH - 1) + 1) * scale_bytes);
    let one = lab.cuda.upload(&[1f32]).unwrap();
    let args = abi::Quantize {
        x: x.ptr(),
        codes: codes.ptr(),
        scales: scales.ptr(),
        tensor_scale: one.ptr(),
        state: null_mut(),
        first_draw: 0,
        rows: rows as u32,
        width: WIDTH as u32,
        format: 0,
        stochastic: 0,
    };
    lab.launch(symbol, &args, 1);
    let mut outputs: Vec<Vec<u8>> =
        (before..rows).map(|row| bits(&codes, row * row_bytes + row_bytes - row_bytes / 32, row_bytes / 32)).collect();
    outputs.push(bits(&scales, scale_of(rows - 1, WIDTH - 1) * scale_bytes, scale_bytes));
    outputs
}
