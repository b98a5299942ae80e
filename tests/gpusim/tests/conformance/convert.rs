use half::{bf16, f16};

use super::harness::{bits, check, f32, flush, integer, is_signed, size};

const INTEGERS: [&str; 8] = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];

fn bounds(ty: &str) -> (i128, i128) {
    let bits = 8 * size(ty) as u32;
    if is_signed(ty) { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// 8-bit types live in 16-bit registers.
fn register(ty: &str) -> String {
    if size(ty) == 1 { format!("{}16", &ty[..1]) } else { ty.to_string() }
}

#[test]
fn integer_to_integer() {
    for from in INTEGERS {
        for to in INTEGERS {
            let (source, target) = (register(from), register(to));
            check(&format!("cvt.{to}.{from} %d, %a;"), &target, &[&source], |x| {
                // Cut to the target type, then extended to the register.
                integer(to, integer(from, x[0]) as u64) as u64
            });
            let (low, high) = bounds(to);
            check(&format!("cvt.sat.{to}.{from} %d, %a;"), &target, &[&source], |x| {
                integer(from, x[0]).clamp(low, high) as u64
            });
        }
    }
}

/// A way of rounding to an integral value, and its modifier.
type Rounder = (&'static str, fn(f64) -> f64);

#[test]
fn float_to_integer() {
    let rounders: [Rounder; 4] =
        [("rni", f64::round_ties_even), ("rzi", f64::trunc), ("rmi", f64::floor), ("rpi", f64::ceil)];
    for to in INTEGERS {
        let (low, high) = bounds(to);
        let target = register(to);
        for (mode, round) in rounders {
            for from in ["f32", "f64", "f16", "bf16"] {
                let value = |x: u64| match from {
                    "f32" => f32(x) as f64,
                    "f64" => f64::from_bits(x),
                    "f16" => f16::from_bits(x as u16).to_f64(),
                    _ => bf16::from_bits(x as u16).to_f64(),
                };
                check(&format!("cvt.{mode}.{to}.{from} %d, %a;"), &target, &[from], |x| {
                    let value = value(x[0]);
                    if value.is_nan() {
                        let is_wide = from == "f64" || size(to) == 8;
                        return if is_wide { (1i64 << (8 * size(to) - 1)) as u64 } else { 0 };
                    }
                    (round(value) as i128).clamp(low, high) as u64
                });
            }
        }
    }
    check("cvt.rzi.ftz.s32.f32 %d, %a;", "s32", &["f32"], |x| f32(x[0]) as i32 as u64);
}

#[test]
fn integer_to_float() {
    for from in INTEGERS {
        let source = register(from);
        check(&format!("cvt.rn.f32.{from} %d, %a;"), "f32", &[&source], |x| {
            (integer(from, x[0]) as f32).to_bits() as u64
        });
        check(&format!("cvt.rn.f64.{from} %d, %a;"), "f64", &[&source], |x| (integer(from, x[0]) as f64).to_bits());
        // Directed: the neighbour on the right side of the exact value.
        for (mode, is_below) in [("rm", true), ("rp", false)] {
            check(&format!("cvt.{mode}.f32.{from} %d, %a;"), "f32", &[&source], |x| {
                let exact = integer(from, x[0]);
                let nearest = exact as f32;
                let result = match (nearest as i128).cmp(&exact) {
                    std::cmp::Ordering::Greater if is_below => nearest.next_down(),
                    std::cmp::Ordering::Less if !is_below => nearest.next_up(),
                    _ => nearest,
                };
                result.to_bits() as u64
            });
        }
        check(&format!("cvt.rz.f32.{from} %d, %a;"), "f32", &[&source], |x| {
            let exact = integer(from, x[0]);
            let nearest = exact as f32;
            let is_too_far = (nearest as i128).abs() > exact.abs();
            let result =
                if is_too_far { if exact > 0 { nearest.next_down() } else { nearest.next_up() } } else { nearest };
            result.to_bits() as u64
        });
        if size(from) <= 4 {
            check(&format!("cvt.rn.f16.{from} %d, %a;"), "f16", &[&source], |x| {
                f16::from_f64(integer(from, x[0]) as f64).to_bits() as u64
            });
        }
    }
}

#[test]
fn float_to_float() {
    check("cvt.f64.f32 %d, %a;", "f64", &["f32"], |x| (f32(x[0]) as f64).to_bits());
    check("cvt.rn.f32.f64 %d, %a;", "f32", &["f64"], |x| bits(f64::from_bits(x[0]) as f32));
    // Which NaN a NaN becomes is left open.
    let number = |x: u64| f16::from_bits(x as u16).to_f32();
    check("cvt.f32.f16 %t, %a; testp.number.f32 %p, %t; selp.b32 %d, %t, 0x7fffffff, %p;", "f32", &["f16"], |x| {
        bits(number(x[0]))
    });
    check("cvt.f32.bf16 %d, %a;", "f32", &["bf16"], |x| (x[0] << 16) as u32 as u64);
    let narrow = |x: f32, bits: u16| if x.is_nan() { 0x7fff } else { bits as u64 };
    check("cvt.rn.f16.f32 %d, %a;", "f16", &["f32"], |x| narrow(f32(x[0]), f16::from_f32(f32(x[0])).to_bits()));
    check("cvt.rn.bf16.f32 %d, %a;", "bf16", &["f32"], |x| narrow(f32(x[0]), bf16::from_f32(f32(x[0])).to_bits()));
    check("cvt.rz.bf16.f32 %d, %a;", "bf16", &["f32"], |x| narrow(f32(x[0]), (x[0] >> 16) as u16));
    check("cvt.rn.relu.bf16.f32 %d, %a;", "bf16", &["f32"], |x| {
        let x = f32(x[0]);
        if x.is_nan() {
            0x7fff
        } else if x > 0.0 {
            bf16::from_f32(x).to_bits() as u64
        } else {
            0
        }
    });
    for (mode, round) in
        [("rni", f32::round_ties_even as fn(f32) -> f32), ("rzi", f32::trunc), ("rmi", f32::floor), ("rpi", f32::ceil)]
    {
        check(&format!("cvt.{mode}.f32.f32 %d, %a;"), "f32", &["f32"], |x| bits(round(f32(x[0]))));
        check(&format!("cvt.{mode}.ftz.f32.f32 %d, %a;"), "f32", &["f32"], |x| bits(round(flush(f32(x[0])))));
        check(&format!("cvt.{mode}.f64.f64 %d, %a;"), "f64", &["f64"], |x| {
            let x = f64::from_bits(x[0]);
            (match mode {
                "rni" => x.round_ties_even(),
                "rzi" => x.trunc(),
                "rmi" => x.floor(),
                _ => x.ceil(),
            })
            .to_bits()
        });
    }
    check("cvt.sat.f32.f32 %d, %a;", "f32", &["f32"], |x| {
        let x = f32(x[0]);
        bits(if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) + 0.0 })
    });
    check("cvt.ftz.f32.f32 %d, %a;", "f32", &["f32"], |x| bits(flush(f32(x[0]))));
}

#[test]
fn tf32() {
    // 10 mantissa bits: ties away from zero for `.rna`, to even for `.rn`, cut off for `.rz`.
    let is_special = |x: u64| !f32(x).is_finite();
    check("cvt.rna.tf32.f32 %d, %a;", "b32", &["f32"], |x| {
        if is_special(x[0]) { bits(f32(x[0])) } else { (x[0] + 0x1000) & 0xffff_e000 }
    });
    check("cvt.rn.tf32.f32 %d, %a;", "b32", &["f32"], |x| {
        if is_special(x[0]) { bits(f32(x[0])) } else { (x[0] + 0xfff + (x[0] >> 13 & 1)) & 0xffff_e000 }
    });
    check("cvt.rz.tf32.f32 %d, %a;", "b32", &["f32"], |x| {
        if is_special(x[0]) { bits(f32(x[0])) } else { x[0] & 0xffff_e000 }
    });
}
