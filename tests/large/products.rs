//! Matrix products, of few rows far from each other: their strides take the last ones beyond 2³² elements.

use autocompress::device::cuda::DeviceBuffer;
use autocompress::device::cuda::embedded::abi;

use super::lab::{DTYPES, Data, FAR, Lab, bare};

pub fn all(lab: &Lab) {
    for (rung, dtypes) in
        [("naive", &DTYPES[..]), ("tiled", &DTYPES), ("tensor_core", &["bf16"]), ("pipelined", &["bf16"])]
    {
        for dtype in dtypes {
            for layout in ["nt", "nn", "tn"] {
                let symbol = format!("linear_{rung}_{layout}_{dtype}");
                lab.same(&symbol, FAR / 8, |gap| linear(lab, &symbol, [16; 3], gap));
            }
        }
    }
    for dtype in DTYPES {
        let symbol = format!("linear_skinny_nt_{dtype}");
        lab.same(&symbol, FAR / 7 + 8, |gap| linear(lab, &symbol, [8, 16, 16], gap / 8 * 8));
    }
    for kind in ["wide", "relu2", "residual"] {
        let symbol = format!("linear_pipelined_nt_{kind}_bf16");
        lab.same(&symbol, FAR / 8, |gap| linear(lab, &symbol, [16; 3], gap));
    }
    for values in ["fp8", "nvfp4"] {
        for layout in ["nt", "nn"] {
            for dtype in DTYPES {
                let symbol = format!("quantized_linear_{values}_{layout}_{dtype}");
                let before = if values == "fp8" { FAR } else { 2 * FAR } / DEPTH;
                lab.same(&symbol, before, |before| quantized(lab, &symbol, layout, before));
            }
        }
        let symbol = format!("quantized_linear_{values}_tn_f32");
        let before = if values == "fp8" { FAR } else { 2 * FAR } / DEPTH;
        lab.same(&symbol, before, |before| quantized(lab, &symbol, "tn", before));
    }
}

/// `rows` rows of `columns` elements, `gap` elements between one's end and the next one's start.
struct Apart {
    data: Data,
    rows: usize,
    columns: usize,
    stride: usize,
}

impl Apart {
    fn room(lab: &Lab, dtype: &str, [rows, columns]: [usize; 2], gap: usize) -> Apart {
        let stride = columns + gap;
        Apart { data: lab.data_room(dtype, (rows - 1) * stride + columns), rows, columns, stride }
    }

    fn new(lab: &Lab, dtype: &str, size: [usize; 2], gap: usize) -> Apart {
        let mut apart = Apart::room(lab, dtype, size, gap);
        for row in 0..apart.rows {
            apart.data.put(row * apart.stride, &lab.normal(apart.columns));
        }
        apart
    }

    fn bits(&self) -> Vec<u8> {
        (0..self.rows).flat_map(|row| self.data.bits(row * self.stride, self.columns)).collect()
    }
}

fn linear(lab: &Lab, symbol: &str, [m, n, k]: [usize; 3], gap: usize) -> Vec<Vec<u8>> {
    let dtype = if symbol.ends_with("bf16") { "bf16" } else { "f32" };
    let is = |part: &str| symbol.contains(part);
    let out = if is("_tn_") || is("_wide_") { "f32" } else { dtype };
    let a = Apart::new(lab, dtype, if is("_tn_") { [k, m] } else { [m, k] }, gap);
    let b = Apart::new(lab, dtype, if is("_nt_") { [n, k] } else { [k, n] }, gap);
    let c = Apart::room(lab, out, [m, n], gap);
    let product = abi::Linear {
        a: a.data.ptr(),
        b: b.data.ptr(),
        c: c.data.ptr(),
        m: m as u32,
        n: n as u32,
        k: k as u32,
        lda: a.stride as u32,
        ldb: b.stride as u32,
        ldc: c.stride as u32,
        accumulate: 0,
        unused: 0,
    };
    if is("relu2") {
        let raw = Apart::room(lab, dtype, [m, n], gap);
        lab.launch(symbol, &abi::LinearRelu2 { product, raw: raw.data.ptr(), mask: bare() }, 0);
        return vec![c.bits(), raw.bits()];
    }
    if is("residual") {
        let (raw, h) = (Apart::room(lab, dtype, [m, n], gap), Apart::new(lab, dtype, [m, n], gap));
        let (hidden, gate) = (bare(), bare());
        lab.launch(symbol, &abi::LinearResidual { product, raw: raw.data.ptr(), h: h.data.ptr(), hidden, gate }, 0);
        return vec![c.bits(), raw.bits()];
    }
    lab.launch(symbol, &product, 0);
    vec![c.bits()]
}

/// Rows of A and columns of its blocks: one block of scales.
const DEPTH: usize = 128;
/// Columns of the result.
const COLUMNS: usize = 16;

/// Codes without a NaN among them.
pub fn codes(lab: &Lab, count: usize) -> Vec<u8> {
    lab.normal(count).into_iter().map(|v| (v.to_bits() >> 13) as u8 & 0xbb).collect()
}

/// A matrix of codes whose last rows are there.
pub struct Quantized {
    pub codes: DeviceBuffer<u8>,
    scales: DeviceBuffer<u8>,
    one: DeviceBuffer<f32>,
    extent: [usize; 2],
}

impl Quantized {
    /// `before` rows in front of `size`; blocks of scales are `extent` large, and whole ones lie in front.
    pub fn new(lab: &Lab, is_fp8: bool, before: usize, size: [usize; 2], extent: [usize; 2]) -> Quantized {
        let ([rows, width], [down, across]) = (size, extent);
        let row_bytes = if is_fp8 { width } else { width.div_ceil(2) };
        let of_row = width.div_ceil(across);
        let count = rows.div_ceil(down) * of_row;
        let scales: Vec<u8> = match is_fp8 {
            true => lab.normal(count).iter().flat_map(|v| v.abs().to_le_bytes()).collect(),
            false => codes(lab, count).into_iter().map(|code| code & 0x3b).collect(),
        };
        Quantized {
            codes: lab.end(before * row_bytes, &codes(lab, rows * row_bytes)),
            scales: lab.end(before / down * of_row * if is_fp8 { 4 } else { 1 }, &scales),
            one: lab.cuda.upload(&[1f32]).unwrap(),
            extent,
        }
    }

    /// The same with columns in front: each row is put at its own place.
    fn behind_columns(lab: &Lab, is_fp8: bool, before: usize, [rows, width]: [usize; 2]) -> Quantized {
        let bytes = |columns: usize| if is_fp8 { columns } else { columns / 2 };
        let down = if is_fp8 { 128 } else { 16 };
        let all = before + width;
        let (mut matrix, mut scales) =
            (lab.room(rows * bytes(all)), lab.room(rows / down * all * if is_fp8 { 4 } else { 1 }));
        for row in 0..rows {
            matrix.write_at(row * bytes(all) + bytes(before), &codes(lab, bytes(width))).unwrap();
        }
        for row in 0..rows / down {
            let at = row * all + before;
            if is_fp8 {
                let values: Vec<u8> = lab.normal(width).iter().flat_map(|v| v.abs().to_le_bytes()).collect();
                scales.write_at(4 * at, &values).unwrap();
            } else {
                let values: Vec<u8> = codes(lab, width).into_iter().map(|code| code & 0x3b).collect();
                scales.write_at(at, &values).unwrap();
            }
        }
        Quantized { codes: matrix, scales, one: lab.cuda.upload(&[1f32]).unwrap(), extent: [down, 1] }
    }

    pub fn operand(&self) -> abi::QuantizedOperand {
        abi::QuantizedOperand {
            codes: self.codes.ptr(),
            scales: self.scales.ptr(),
            tensor_scale: self.one.ptr(),
            format: 0,
            block_rows: self.extent[0] as u32,
            block_columns: self.extent[1] as u32,
            unused: 0,
        }
    }
}

/// 16 rows of A that count behind `before`; of tn, columns.
fn quantized(lab: &Lab, symbol: &str, layout: &str, before: usize) -> Vec<Vec<u8>> {
    let is_fp8 = symbol.contains("fp8");
    let block = if is_fp8 { 128 } else { 16 };
    let (m, n, k) = (before + 16, COLUMNS, DEPTH);
    let (a, b) = match layout {
        "tn" => {
            (Quantized::behind_columns(lab, is_fp8, before, [k, 16]), Quantized::behind_columns(lab, is_fp8, 0, [k, n]))
        }
        _ => (
            Quantized::new(lab, is_fp8, before, [16, k], [1, block]),
            Quantized::new(lab, is_fp8, 0, if layout == "nt" { [n, k] } else { [k, n] }, [block, block]),
        ),
    };
    let dtype = if symbol.ends_with("f32") { "f32" } else { "bf16" };
    let c = lab.data_room(dtype, m * n);
    let args = abi::QuantizedLinear {
        a: a.operand(),
        b: b.operand(),
        c: c.ptr(),
        m: m as u32,
        n: n as u32,
        k: k as u32,
        ldc: n as u32,
        accumulate: 0,
        unused: 0,
    };
    lab.launch(symbol, &args, 1);
    vec![c.bits(before * n, 16 * n)]
}
