use super::{Blocks, Format};
use crate::numerics::{Fp8, fp4};

/// What x [R, width] decodes to when each element goes to the nearest of all values that the format has, ties to the even
/// code. Scales are f32 or e4m3 by definition, so they are rounded here too.
pub fn quantize(x: &[f64], width: usize, format: Format, blocks: Blocks) -> Vec<f64> {
    let (rows, columns) = blocks.extent(format);
    let largest = x.iter().fold(0.0, |l: f64, x| l.max(x.abs())) as f32;
    let block_of = |at: usize| at / width / rows * width.div_ceil(columns) + at % width / columns;
    let mut blocks = vec![0f32; x.len().checked_sub(1).map_or(0, |last| block_of(last) + 1)];
    x.iter().enumerate().for_each(|(at, x)| blocks[block_of(at)] = blocks[block_of(at)].max(x.abs() as f32));
    (0..x.len())
        .map(|at| {
            let block = blocks[block_of(at)];
            match format {
                Format::Fp8(fp8) => {
                    let scale = nonzero(block / fp8.largest());
                    let values: Vec<f32> = (0..0x7F).map(|code| fp8.decode(code)).filter(|v| v.is_finite()).collect();
                    f64::from(nearest(x[at] as f32 / scale, &values)) * f64::from(scale)
                }
                Format::Nvfp4 => {
                    let tensor = nonzero(largest / (448.0 * 6.0));
                    let e4m3: Vec<f32> = (0..0x7F).map(|code| Fp8::E4m3.decode(code)).collect();
                    let scale = nearest(block / 6.0 / tensor, &e4m3);
                    if scale * tensor == 0.0 {
                        return 0.0;
                    }
                    let values: Vec<f32> = (0..8).map(fp4::decode).collect();
                    f64::from(nearest(x[at] as f32 / (scale * tensor), &values)) * f64::from(scale) * f64::from(tensor)
                }
            }
        })
        .collect()
}

fn nonzero(scale: f32) -> f32 {
    if scale == 0.0 { 1.0 } else { scale }
}

/// The nearest of ±values, which rise by their codes; of two as near the one with the even code.
fn nearest(x: f32, values: &[f32]) -> f32 {
    let distance = |v: &f32| (f64::from(x.abs()) - f64::from(*v)).abs();
    let least = values.iter().map(distance).fold(f64::INFINITY, f64::min);
    let tied = values.iter().enumerate().filter(|(_, v)| distance(v) == least);
    let code = tied.map(|(code, _)| code).min_by_key(|code| code % 2).unwrap_or(0);
    values[code].copysign(x)
}
