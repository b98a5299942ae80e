use super::{Blocks, Format, cuda, quantize, reference};
use crate::autograd::Var;
use crate::autograd::check::{Case, Generator, Input};
use crate::numerics::Fp8;
use crate::tensor::Tensor;

/// Empty, one, smaller than a block, and more than one of either extent.
pub const SIZES: [(usize, usize); 6] = [(0, 4), (1, 1), (3, 5), (17, 33), (33, 130), (131, 36)];

pub const FORMATS: [Format; 3] = [Format::Fp8(Fp8::E4m3), Format::Fp8(Fp8::E5m2), Format::Nvfp4];

pub const BLOCKS: [Blocks; 3] = [Blocks::Rows, Blocks::Columns, Blocks::Squares];

/// Numbers of many magnitudes, with a block of zeros in front.
pub fn input(rows: usize, width: usize) -> Input {
    let mut generator = Generator::new((rows * 1000 + width) as u64);
    let mut input = generator.normal("x", &[rows, width], 1.0);
    let scale = generator.values(rows * width, |noise, i| 10f64.powf(1.5 * noise.normal(i)));
    input.values.iter_mut().zip(scale).for_each(|(x, scale)| *x *= scale);
    for row in input.values.chunks_mut(width).take(16) {
        row.iter_mut().take(16).for_each(|x| *x = 0.0);
    }
    // Rounding has steps, whose derivative is no gradient.
    Input { differentiable: false, ..input }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, width) in SIZES {
        for format in FORMATS {
            for blocks in BLOCKS {
                cases.push(Case::new(
                    format!("{rows} rows of {width}, {format:?} by {blocks:?}"),
                    vec![input(rows, width)],
                    move |_, v| {
                        let (x, size) = (v[0].value(), [rows, width]);
                        let codes = match x.gpu() {
                            Some(gpu) => cuda::quantize(gpu, x, size, format, blocks, None)?.to_host(size)?,
                            None => quantize(x.f32(), size, format, blocks, None)?,
                        };
                        Ok(vec![Var::constant(Tensor::from_slice([rows, width], &codes.dequantize()))])
                    },
                    move |v| vec![reference::quantize(&v[0], width, format, blocks)],
                ));
            }
        }
    }
    cases
}
