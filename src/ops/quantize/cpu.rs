use super::{Blocks, Dice, Format, Quantized, Scales};
use crate::device::parallel::for_rows;
use crate::numerics::{Fp8, Philox, Rounding, fp4};

/// Codes and scales of x [R, width].
pub fn quantize(x: &[f32], width: usize, format: Format, blocks: Blocks, dice: Option<Dice>) -> (Vec<u8>, Scales) {
    let largest = largest_of_blocks(x, width, blocks.extent(format));
    let (scales, units) = match format {
        Format::Fp8(fp8) => {
            let scales: Vec<f32> = largest.iter().map(|l| or_one(f32::from_bits(*l) / fp8.largest())).collect();
            (Scales::F32(scales.clone()), scales)
        }
        Format::Nvfp4 => {
            let all = largest.iter().copied().max().unwrap_or(0);
            let of_tensor = or_one(f32::from_bits(all) / (Fp8::E4m3.largest() * fp4::LARGEST));
            let code = |l: &u32| Fp8::E4m3.encode(f32::from_bits(*l) / fp4::LARGEST / of_tensor, Rounding::Nearest);
            let codes: Vec<u8> = largest.iter().map(code).collect();
            let units = codes.iter().map(|code| Fp8::E4m3.decode(*code) * of_tensor).collect();
            (Scales::E4m3 { codes, of_tensor }, units)
        }
    };
    (encode(x, width, format, blocks, &units, dice), scales)
}

/// No value is divided by 0.
fn or_one(scale: f32) -> f32 {
    if scale == 0.0 { 1.0 } else { scale }
}

/// Per block the largest magnitude as bits, whose order is that of the magnitudes, with infinity and NaN above all.
fn largest_of_blocks(x: &[f32], width: usize, (rows, columns): (usize, usize)) -> Vec<u32> {
    let across = width.div_ceil(columns);
    let down = x.len().checked_div(width).unwrap_or(0).div_ceil(rows);
    let mut largest = vec![0; down * across];
    for_rows(&mut largest, across, |first, largest| {
        for (i, largest) in largest.chunks_exact_mut(across).enumerate() {
            let start = (first + i) * rows * width;
            for row in x[start..x.len().min(start + rows * width)].chunks_exact(width) {
                for (largest, block) in largest.iter_mut().zip(row.chunks(columns)) {
                    *largest = block.iter().fold(*largest, |l, x| l.max(x.to_bits() & 0x7FFF_FFFF));
                }
            }
        }
    });
    largest
}

/// `units`: what a block's elements are divided by; 0 where all codes are 0.
fn encode(x: &[f32], width: usize, format: Format, blocks: Blocks, units: &[f32], dice: Option<Dice>) -> Vec<u8> {
    let (rows, columns) = blocks.extent(format);
    let (bytes, across) = (format.row_bytes(width), width.div_ceil(columns));
    let mut codes = vec![0; bytes * x.len().checked_div(width).unwrap_or(0)];
    for_rows(&mut codes, bytes, |first, codes| {
        let mut random = Random::new(dice, width);
        for (i, codes) in codes.chunks_exact_mut(bytes).enumerate() {
            let row = first + i;
            let units = &units[row / rows * across..];
            random.start(row);
            for (block, x) in x[row * width..][..width].chunks(columns).enumerate() {
                let (unit, at) = (units[block], block * columns);
                for (column, x) in (at..).zip(x) {
                    let rounding = random.rounding(column);
                    match format {
                        Format::Fp8(fp8) => codes[column] = fp8.encode(x / unit, rounding),
                        Format::Nvfp4 if unit == 0.0 => {}
                        Format::Nvfp4 => codes[column / 2] |= fp4::encode(x / unit, rounding) << (column % 2 * 4),
                    }
                }
            }
        }
    });
    codes
}

/// The random words of a row, four at a time.
struct Random {
    dice: Option<(Dice, Philox)>,
    /// Indices of a row.
    groups: u64,
    first: u64,
    words: [u32; 4],
}

impl Random {
    fn new(dice: Option<Dice>, width: usize) -> Random {
        let dice = dice.map(|dice| (dice, dice.noise()));
        Random { dice, groups: width.div_ceil(4) as u64, first: 0, words: [0; 4] }
    }

    fn start(&mut self, row: usize) {
        self.first = self.dice.map_or(0, |(dice, _)| dice.first.wrapping_add(row as u64 * self.groups));
    }

    /// Of the row's columns in order, each once.
    #[inline(always)]
    fn rounding(&mut self, column: usize) -> Rounding {
        let Some((_, noise)) = &self.dice else { return Rounding::Nearest };
        if column.is_multiple_of(4) {
            self.words = noise.words(self.first.wrapping_add(column as u64 / 4));
        }
        Rounding::Stochastic(self.words[column % 4])
    }
}

/// The values of all codes, which are exact in f32. What they are multiplied by is f32 (FP8), or a product with e4m3 that is
/// exact too (NVFP4), so that one rounding is left.
pub fn dequantize(q: &Quantized) -> Vec<f32> {
    let (rows, columns) = q.blocks.extent(q.format);
    let across = q.width.div_ceil(columns);
    let values: [f32; 256] = std::array::from_fn(|code| match q.format {
        Format::Fp8(format) => format.decode(code as u8),
        Format::Nvfp4 => fp4::decode(code as u8 & 0xF),
    });
    let mut x = vec![0.0; q.rows * q.width];
    for_rows(&mut x, q.width, |first, x| {
        for (i, x) in x.chunks_exact_mut(q.width).enumerate() {
            let row = first + i;
            let codes = &q.codes[row * q.format.row_bytes(q.width)..];
            for (block, x) in x.chunks_mut(columns).enumerate() {
                let (at, scale) = (block * columns, row / rows * across + block);
                match &q.scales {
                    Scales::F32(scales) => {
                        let codes = codes[at..].iter();
                        x.iter_mut().zip(codes).for_each(|(x, code)| *x = values[usize::from(*code)] * scales[scale]);
                    }
                    Scales::E4m3 { codes: scales, of_tensor } => {
                        let unit = Fp8::E4m3.decode(scales[scale]);
                        for (column, x) in (at..).zip(x) {
                            let code = codes[column / 2] >> (column % 2 * 4) & 0xF;
                            *x = values[usize::from(code)] * unit * of_tensor;
                        }
                    }
                }
            }
        }
    });
    x
}
