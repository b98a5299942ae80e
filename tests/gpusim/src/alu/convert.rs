//! `cvt`: between all numeric types, with rounding and saturation.

use super::float::{self, NAN_F32, flush, rounding_mode, saturate};
use super::half::{Bf16, F16, Half, round_to};
use super::lanes::{Run, lanes};
use super::rounding::{self, Mode};
use crate::decode::words::Words;
use crate::exec::registers::{LANES, Mask, Reg, Registers};
use crate::ptx::Type;

/// A conversion for which there is no vector code: lane by lane, from bits to bits.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    pub from: Type,
    pub to: Type,
    mode: Mode,
    /// `.rni`, `.rzi`, `.rmi`, `.rpi`: to an integral value.
    integral: Option<Mode>,
    ftz: bool,
    sat: bool,
    relu: bool,
}

/// How a `cvt` is done.
pub enum Method {
    /// By vector code on registers of exactly the types' widths.
    Lanes(Run),
    Scalar(Conversion),
}

/// Reads the modifiers of a `cvt` with one source.
pub fn scalar(words: &Words, to: Type, from: Type) -> Conversion {
    let integral = match words.take_one(&["rni", "rzi", "rmi", "rpi"]) {
        Some("rni") => Some(Mode::Nearest),
        Some("rzi") => Some(Mode::Zero),
        Some("rmi") => Some(Mode::Down),
        Some("rpi") => Some(Mode::Up),
        _ => None,
    };
    let sat = words.take("sat") || words.take("satfinite");
    Conversion { from, to, mode: rounding_mode(words), integral, ftz: words.take("ftz"), sat, relu: words.take("relu") }
}

/// How a `cvt` with one source is best done.
pub fn select(words: &Words, to: Type, from: Type) -> Method {
    let conversion = scalar(words, to, from);
    match fast_path(&conversion) {
        Some(run) => Method::Lanes(run),
        None => Method::Scalar(conversion),
    }
}

fn fast_path(c: &Conversion) -> Option<Run> {
    if c.ftz || c.sat || c.relu {
        return None;
    }
    use Type::*;
    Some(match (c.from, c.to, c.mode, c.integral) {
        (U32 | B32, U64 | S64 | B64, Mode::Nearest, None) => lanes!(|a: u32| -> u64 { a as u64 }),
        (S32, U64 | S64 | B64, Mode::Nearest, None) => lanes!(|a: i32| -> i64 { a as i64 }),
        (U64 | S64 | B64, U32 | S32 | B32, Mode::Nearest, None) => lanes!(|a: u64| -> u32 { a as u32 }),
        (U32 | S32 | B32, U16 | S16 | B16, Mode::Nearest, None) => lanes!(|a: u32| -> u16 { a as u16 }),
        (U16 | B16, U32 | S32 | B32, Mode::Nearest, None) => lanes!(|a: u16| -> u32 { a as u32 }),
        (S16, U32 | S32 | B32, Mode::Nearest, None) => lanes!(|a: i16| -> i32 { a as i32 }),
        (S32, F32, Mode::Nearest, None) => lanes!(|a: i32| -> f32 { a as f32 }),
        (U32, F32, Mode::Nearest, None) => lanes!(|a: u32| -> f32 { a as f32 }),
        (F32, S32, Mode::Nearest, Some(Mode::Zero)) => lanes!(|a: f32| -> i32 { a as i32 }),
        (F32, U32, Mode::Nearest, Some(Mode::Zero)) => lanes!(|a: f32| -> u32 { a as u32 }),
        (F32, F64, Mode::Nearest, None) => lanes!(|a: f32| -> f64 { a as f64 }),
        (F64, F32, Mode::Nearest, None) => lanes!(|a: f64| -> f32 { float::canonical(a as f32) }),
        (Bf16, F32, Mode::Nearest, None) => lanes!(|a: u16| -> f32 { super::half::Bf16::to_f32(a) }),
        (F16, F32, Mode::Nearest, None) => lanes!(|a: u16| -> f32 { super::half::F16::to_f32(a) }),
        (F32, Bf16, Mode::Nearest, None) => lanes!(|a: f32| -> u16 { super::half::Bf16::from_f32(a) }),
        (F32, F16, Mode::Nearest, None) => lanes!(|a: f32| -> u16 { super::half::F16::from_f32(a) }),
        (F32, F32, Mode::Nearest, Some(Mode::Nearest)) => {
            lanes!(|a: f32| -> f32 { float::canonical(a.round_ties_even()) })
        }
        (F32, F32, Mode::Nearest, Some(Mode::Down)) => lanes!(|a: f32| -> f32 { float::canonical(a.floor()) }),
        _ => return None,
    })
}

/// `cvt.bf16x2.f32 d, a, b` and its kin: `a` goes to the upper half. Source of `imm`: the rounding mode.
pub fn select_packed(words: &Words, to: Type) -> Option<(Run, u32)> {
    let mode = rounding_mode(words);
    let (relu, satfinite) = (words.take("relu"), words.take("satfinite"));
    let run = match (to, mode, relu, satfinite) {
        (Type::Bf16x2, Mode::Nearest, false, false) => {
            lanes!(|a: f32, b: f32| -> u32 { (Bf16::from_f32(a) as u32) << 16 | Bf16::from_f32(b) as u32 })
        }
        (Type::F16x2, Mode::Nearest, false, false) => {
            lanes!(|a: f32, b: f32| -> u32 { (F16::from_f32(a) as u32) << 16 | F16::from_f32(b) as u32 })
        }
        (Type::Bf16x2, _, false, false) => lanes!(|imm; a: f32, b: f32| -> u32 {
            (round_to::<Bf16>(a, Mode::from_imm(imm)) as u32) << 16 | round_to::<Bf16>(b, Mode::from_imm(imm)) as u32
        }),
        (Type::F16x2, _, false, false) => lanes!(|imm; a: f32, b: f32| -> u32 {
            (round_to::<F16>(a, Mode::from_imm(imm)) as u32) << 16 | round_to::<F16>(b, Mode::from_imm(imm)) as u32
        }),
        (Type::Bf16x2, Mode::Nearest, true, false) => lanes!(|a: f32, b: f32| -> u32 {
            (Bf16::from_f32(relu_f32(a)) as u32) << 16 | Bf16::from_f32(relu_f32(b)) as u32
        }),
        (Type::F16x2, Mode::Nearest, true, false) => lanes!(|a: f32, b: f32| -> u32 {
            (F16::from_f32(relu_f32(a)) as u32) << 16 | F16::from_f32(relu_f32(b)) as u32
        }),
        (Type::E4m3x2, Mode::Nearest, false, true) => {
            lanes!(|a: f32, b: f32| -> u16 { (to_e4m3(a) as u16) << 8 | to_e4m3(b) as u16 })
        }
        (Type::E5m2x2, Mode::Nearest, false, true) => {
            lanes!(|a: f32, b: f32| -> u16 { (to_e5m2(a) as u16) << 8 | to_e5m2(b) as u16 })
        }
        _ => return None,
    };
    Some((run, mode as u32))
}

/// `cvt.rn.f16x2.e4m3x2` and `.e5m2x2`.
pub fn select_unpacked(words: &Words, from: Type) -> Option<Run> {
    rounding_mode(words);
    Some(match from {
        Type::E4m3x2 => lanes!(|a: u16| -> u32 { widen(a, from_e4m3) }),
        Type::E5m2x2 => lanes!(|a: u16| -> u32 { widen(a, |byte| F16::to_f32((byte as u16) << 8)) }),
        _ => return None,
    })
}

fn widen(pair: u16, decode: impl Fn(u8) -> f32) -> u32 {
    F16::from_f32(decode(pair as u8)) as u32 | (F16::from_f32(decode((pair >> 8) as u8)) as u32) << 16
}

fn relu_f32(x: f32) -> f32 {
    if x.is_nan() { NAN_F32 } else { x.max(0.0) }
}

/// e4m3 as in "FP8 Formats for Deep Learning" (2022): no infinities, NaN is 0x7f; values past 448 become 448.
pub fn to_e4m3(x: f32) -> u8 {
    if x.is_nan() {
        return 0x7f;
    }
    let rounded = rounding::E4M3.round((x as f64).clamp(-448.0, 448.0), 0.0, Mode::Nearest).abs();
    let bits = if rounded < rounding::power_of_two(-6) {
        (rounded * 512.0) as u8
    } else {
        ((rounded.to_bits() >> 49) - (1016 << 3)) as u8
    };
    bits | if x.is_sign_negative() { 0x80 } else { 0 }
}

pub fn from_e4m3(byte: u8) -> f32 {
    let (exponent, mantissa) = ((byte >> 3 & 15) as i32, (byte & 7) as f64);
    let magnitude = match (exponent, byte & 0x7f) {
        (_, 0x7f) => f64::NAN,
        (0, _) => mantissa * rounding::power_of_two(-9),
        _ => (8.0 + mantissa) * rounding::power_of_two(exponent - 10),
    };
    (if byte & 0x80 != 0 { -magnitude } else { magnitude }) as f32
}

/// e5m2 is f16 without its last eight bits; values past 57344 become 57344.
fn to_e5m2(x: f32) -> u8 {
    if x.is_nan() {
        return 0x7f;
    }
    let clamped = (x as f64).clamp(-57344.0, 57344.0);
    let rounded = rounding::E5M2.round(clamped, 0.0, Mode::Nearest);
    (F16::from_exact(if rounded == 0.0 { 0f64.copysign(x as f64) } else { rounded }) >> 8) as u8
}

impl Conversion {
    /// Converts the lanes in `mask`. `source_size` and `target_size` are the registers' widths in bytes: a register may be
    /// wider than the type.
    pub fn run(&self, registers: &mut Registers, d: Reg, target_size: usize, s: Reg, source_size: usize, mask: Mask) {
        let mut out = [0u64; LANES];
        for lane in 0..LANES {
            if mask >> lane & 1 != 0 {
                let raw = match source_size {
                    2 => registers.get::<u16>(s)[lane] as u64,
                    4 => registers.get::<u32>(s)[lane] as u64,
                    _ => registers.get::<u64>(s)[lane],
                };
                out[lane] = self.convert(raw);
            }
        }
        match target_size {
            2 => registers.put(d, mask, &out.map(|x| x as u16)),
            4 => registers.put(d, mask, &out.map(|x| x as u32)),
            _ => registers.put(d, mask, &out),
        }
    }

    /// One value, as bits; integers come back extended by their sign.
    pub fn convert(&self, raw: u64) -> u64 {
        match (self.from.is_float(), self.to.is_float()) {
            (false, false) => self.fit_integer(self.integer(raw)) as u64,
            (false, true) => self.integer_to_float(self.integer(raw)),
            (true, false) => self.float_to_integer(self.float(raw)) as u64,
            (true, true) => self.float_to_float(self.float(raw)),
        }
    }

    fn integer(&self, raw: u64) -> i128 {
        match (self.from.size(), self.from.is_signed()) {
            (1, false) => raw as u8 as i128,
            (1, true) => raw as i8 as i128,
            (2, false) => raw as u16 as i128,
            (2, true) => raw as i16 as i128,
            (4, false) => raw as u32 as i128,
            (4, true) => raw as i32 as i128,
            (_, false) => raw as i128,
            (_, true) => raw as i64 as i128,
        }
    }

    fn float(&self, raw: u64) -> f64 {
        let value = match self.from {
            Type::F16 => F16::to_f32(raw as u16) as f64,
            Type::Bf16 => Bf16::to_f32(raw as u16) as f64,
            Type::F64 => f64::from_bits(raw),
            _ if self.ftz => flush(f32::from_bits(raw as u32)) as f64,
            _ => f32::from_bits(raw as u32) as f64,
        };
        match self.integral {
            None => value,
            Some(Mode::Zero) => value.trunc(),
            Some(Mode::Down) => value.floor(),
            Some(Mode::Up) => value.ceil(),
            Some(_) => value.round_ties_even(),
        }
    }

    /// Smallest and largest value of the target type.
    fn bounds(&self) -> (i128, i128) {
        let bits = 8 * self.to.size() as u32;
        if self.to.is_signed() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) }
    }

    fn fit_integer(&self, value: i128) -> i64 {
        let (low, high) = self.bounds();
        let value = if self.sat { value.clamp(low, high) } else { value };
        // Cut to the type, then extended to the register.
        match (self.to.size(), self.to.is_signed()) {
            (1, false) => value as u8 as i64,
            (1, true) => value as i8 as i64,
            (2, false) => value as u16 as i64,
            (2, true) => value as i16 as i64,
            (4, false) => value as u32 as i64,
            (4, true) => value as i32 as i64,
            _ => value as i64,
        }
    }

    /// Values out of range become the nearest bound. NaN becomes 0, or the top bit alone where either side has 64 bits.
    fn float_to_integer(&self, value: f64) -> i64 {
        let (low, high) = self.bounds();
        if value.is_nan() {
            let is_wide = self.from == Type::F64 || self.to.size() == 8;
            return if is_wide { 1i64 << (8 * self.to.size() - 1) } else { 0 };
        }
        (value as i128).clamp(low, high) as i64
    }

    fn integer_to_float(&self, value: i128) -> u64 {
        // Exact in f64 up to 53 bits; beyond that the rest decides the direction.
        let nearest = value as f64;
        let error = (value - nearest as i128) as f64;
        match self.to {
            Type::F32 => (rounding::F32.round(nearest, error, self.mode) as f32).to_bits() as u64,
            Type::F16 => F16::from_exact(rounding::F16.round(nearest, error, self.mode)) as u64,
            Type::Bf16 => Bf16::from_exact(rounding::BF16.round(nearest, error, self.mode)) as u64,
            _ => rounding::add_f64(nearest, error, self.mode).to_bits(),
        }
    }

    fn float_to_float(&self, value: f64) -> u64 {
        let value = if self.relu && value <= 0.0 { 0.0 } else { value };
        let value = match (self.sat, value.is_nan()) {
            (true, true) if self.to != Type::Tf32 => 0.0,
            (true, false) if self.to != Type::Tf32 => value.clamp(0.0, 1.0),
            _ => value,
        };
        match self.to {
            Type::F64 => value.to_bits(),
            Type::F16 => F16::from_exact(rounding::F16.round(value, 0.0, self.mode)) as u64,
            Type::Bf16 => Bf16::from_exact(rounding::BF16.round(value, 0.0, self.mode)) as u64,
            Type::Tf32 if value.is_nan() => NAN_F32.to_bits() as u64,
            Type::Tf32 => (rounding::TF32.round(value, 0.0, self.mode) as f32).to_bits() as u64,
            _ if value.is_nan() => NAN_F32.to_bits() as u64,
            _ => {
                let rounded = rounding::F32.round(value, 0.0, self.mode) as f32;
                let rounded = if self.ftz { flush(rounded) } else { rounded };
                (if self.sat { saturate(rounded) } else { rounded }).to_bits() as u64
            }
        }
    }
}
