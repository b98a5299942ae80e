use super::harness::{check, integer, is_signed, size};

const TYPES: [&str; 6] = ["u16", "s16", "u32", "s32", "u64", "s64"];

fn narrow(ty: &str) -> bool {
    size(ty) < 8
}

fn bounds(ty: &str) -> (i128, i128) {
    let bits = 8 * size(ty) as u32;
    if is_signed(ty) { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

fn double(ty: &str) -> String {
    format!("{}{}", &ty[..1], 16 * size(ty))
}

/// A two-source instruction on type `ty`, by 128-bit arithmetic.
fn binary(name: &str, ty: &str, f: impl Fn(i128, i128) -> i128) {
    check(&format!("{name}.{ty} %d, %a, %b;"), ty, &[ty, ty], |x| f(integer(ty, x[0]), integer(ty, x[1])) as u64);
}

#[test]
fn add_and_sub() {
    for ty in TYPES {
        binary("add", ty, |a, b| a + b);
        binary("sub", ty, |a, b| a - b);
    }
    let (low, high) = bounds("s32");
    binary("add.sat", "s32", |a, b| (a + b).clamp(low, high));
    binary("sub.sat", "s32", |a, b| (a - b).clamp(low, high));
}

#[test]
fn mul() {
    for ty in TYPES {
        let bits = 8 * size(ty) as u32;
        binary("mul.lo", ty, |a, b| a.wrapping_mul(b));
        // The upper half of a 128-bit product needs care with the sign bit of u128.
        check(&format!("mul.hi.{ty} %d, %a, %b;"), ty, &[ty, ty], |x| {
            let (a, b) = (integer(ty, x[0]), integer(ty, x[1]));
            if is_signed(ty) { ((a * b) >> bits) as u64 } else { ((a as u128 * b as u128) >> bits) as u64 }
        });
        if narrow(ty) {
            let wide = double(ty);
            check(&format!("mul.wide.{ty} %d, %a, %b;"), &wide, &[ty, ty], |x| {
                (integer(ty, x[0]) * integer(ty, x[1])) as u64
            });
        }
    }
}

#[test]
fn mad() {
    for ty in TYPES {
        let bits = 8 * size(ty) as u32;
        check(&format!("mad.lo.{ty} %d, %a, %b, %c;"), ty, &[ty, ty, ty], |x| {
            (integer(ty, x[0]).wrapping_mul(integer(ty, x[1])).wrapping_add(integer(ty, x[2]))) as u64
        });
        if size(ty) > 2 {
            check(&format!("mad.hi.{ty} %d, %a, %b, %c;"), ty, &[ty, ty, ty], |x| {
                let (a, b, c) = (integer(ty, x[0]), integer(ty, x[1]), integer(ty, x[2]));
                let high = if is_signed(ty) { (a * b) >> bits } else { ((a as u128 * b as u128) >> bits) as i128 };
                (high + c) as u64
            });
        }
        if narrow(ty) {
            let wide = double(ty);
            check(&format!("mad.wide.{ty} %d, %a, %b, %c;"), &wide, &[ty, ty, &wide], |x| {
                (integer(ty, x[0]) * integer(ty, x[1]) + integer(&wide, x[2])) as u64
            });
        }
    }
    let (low, high) = bounds("s32");
    check("mad.hi.sat.s32 %d, %a, %b, %c;", "s32", &["s32", "s32", "s32"], |x| {
        let high_half = (integer("s32", x[0]) * integer("s32", x[1])) >> 32;
        (high_half + integer("s32", x[2])).clamp(low, high) as u64
    });
}

#[test]
fn mul24_and_mad24() {
    let low24 = |ty: &str, bits: u64| {
        let low = bits as i128 & 0xff_ffff;
        if is_signed(ty) && low >> 23 != 0 { low - (1 << 24) } else { low }
    };
    for ty in ["u32", "s32"] {
        check(&format!("mul24.lo.{ty} %d, %a, %b;"), ty, &[ty, ty], |x| (low24(ty, x[0]) * low24(ty, x[1])) as u64);
        check(&format!("mul24.hi.{ty} %d, %a, %b;"), ty, &[ty, ty], |x| {
            ((low24(ty, x[0]) * low24(ty, x[1])) >> 16) as u64
        });
        check(&format!("mad24.lo.{ty} %d, %a, %b, %c;"), ty, &[ty, ty, ty], |x| {
            (low24(ty, x[0]) * low24(ty, x[1]) + integer(ty, x[2])) as u64
        });
    }
}

#[test]
fn div_and_rem() {
    for ty in TYPES {
        // By zero: all ones, and the dividend.
        binary("div", ty, |a, b| if b == 0 { -1 } else { a / b });
        binary("rem", ty, |a, b| if b == 0 { a } else { a % b });
    }
}

#[test]
fn abs_neg_min_max_sad() {
    for ty in TYPES {
        binary("min", ty, |a, b| a.min(b));
        binary("max", ty, |a, b| a.max(b));
        if is_signed(ty) {
            check(&format!("abs.{ty} %d, %a;"), ty, &[ty], |x| integer(ty, x[0]).unsigned_abs() as u64);
            check(&format!("neg.{ty} %d, %a;"), ty, &[ty], |x| -integer(ty, x[0]) as u64);
        }
        check(&format!("sad.{ty} %d, %a, %b, %c;"), ty, &[ty, ty, ty], |x| {
            ((integer(ty, x[0]) - integer(ty, x[1])).abs() + integer(ty, x[2])) as u64
        });
    }
}
