use half::{bf16, f16};

use super::harness::{check, f32, flush, integer};

/// A comparison and its name.
type Named<T> = (&'static str, fn(T, T) -> bool);

fn integer_comparisons() -> Vec<Named<i128>> {
    vec![
        ("eq", |a, b| a == b),
        ("ne", |a, b| a != b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
    ]
}

/// Ordered comparisons are false on NaN, those with `u` true.
fn float_comparisons() -> Vec<Named<f64>> {
    let mut list: Vec<Named<f64>> = vec![
        ("eq", |a, b| a == b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
    ];
    list.push(("ne", |a, b| !a.is_nan() && !b.is_nan() && a != b));
    list.push(("equ", |a, b| a.is_nan() || b.is_nan() || a == b));
    list.push(("neu", |a, b| a != b));
    list.push(("ltu", |a, b| a.is_nan() || b.is_nan() || a < b));
    list.push(("leu", |a, b| a.is_nan() || b.is_nan() || a <= b));
    list.push(("gtu", |a, b| a.is_nan() || b.is_nan() || a > b));
    list.push(("geu", |a, b| a.is_nan() || b.is_nan() || a >= b));
    list.push(("num", |a, b| !a.is_nan() && !b.is_nan()));
    list.push(("nan", |a, b| a.is_nan() || b.is_nan()));
    list
}

fn setp(comparison: &str, ty: &str, expected: impl Fn(&[u64]) -> bool) {
    let code = format!("setp.{comparison}.{ty} %p, %a, %b; selp.u32 %d, 1, 0, %p;");
    check(&code, "u32", &[ty, ty], |x| expected(x) as u64);
}

#[test]
fn setp_of_integers() {
    for ty in ["u16", "s16", "u32", "s32", "u64", "s64"] {
        for (name, f) in integer_comparisons() {
            setp(name, ty, |x| f(integer(ty, x[0]), integer(ty, x[1])));
        }
    }
    for (name, signed) in [("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")] {
        let (_, f) = integer_comparisons().into_iter().find(|(n, _)| *n == signed).unwrap();
        setp(name, "u32", |x| f(integer("u32", x[0]), integer("u32", x[1])));
    }
    setp("eq", "b64", |x| x[0] == x[1]);
}

#[test]
fn setp_of_floats() {
    for (name, f) in float_comparisons() {
        setp(name, "f32", |x| f(f32(x[0]) as f64, f32(x[1]) as f64));
        setp(&format!("{name}.ftz"), "f32", |x| f(flush(f32(x[0])) as f64, flush(f32(x[1])) as f64));
        setp(name, "f64", |x| f(f64::from_bits(x[0]), f64::from_bits(x[1])));
        setp(name, "f16", |x| f(f16::from_bits(x[0] as u16).to_f64(), f16::from_bits(x[1] as u16).to_f64()));
        setp(name, "bf16", |x| f(bf16::from_bits(x[0] as u16).to_f64(), bf16::from_bits(x[1] as u16).to_f64()));
    }
}

#[test]
fn setp_joins_predicates() {
    let logic: [Named<bool>; 3] = [("and", |a, b| a & b), ("or", |a, b| a | b), ("xor", |a, b| a ^ b)];
    for (name, f) in logic {
        for negated in [false, true] {
            let not = if negated { "!" } else { "" };
            let code = format!(
                "setp.ne.u32 %q, %c, 0; setp.lt.{name}.s32 %p|%q, %a, %b, {not}%q;\n\
                 selp.u32 %d, 1, 0, %p; selp.u32 %t, 2, 0, %q; or.b32 %d, %d, %t;"
            );
            check(&code, "u32", &["s32", "s32", "u32"], |x| {
                let held = integer("s32", x[0]) < integer("s32", x[1]);
                let third = (x[2] != 0) ^ negated;
                f(held, third) as u64 | (f(!held, third) as u64) << 1
            });
        }
    }
}

#[test]
fn set() {
    check("set.lt.u32.s32 %d, %a, %b;", "u32", &["s32", "s32"], |x| {
        if integer("s32", x[0]) < integer("s32", x[1]) { u64::MAX } else { 0 }
    });
    check("set.gtu.f32.f32 %d, %a, %b;", "f32", &["f32", "f32"], |x| {
        let (a, b) = (f32(x[0]), f32(x[1]));
        if a.is_nan() || b.is_nan() || a > b { 1f32.to_bits() as u64 } else { 0 }
    });
}

#[test]
fn predicate_logic() {
    let code = |op: &str| {
        format!("setp.ne.u32 %p, %a, 0; setp.ne.u32 %q, %b, 0; {op}.pred %p, %p, %q; selp.u32 %d, 1, 0, %p;")
    };
    check(&code("and"), "u32", &["u32", "u32"], |x| (x[0] != 0 && x[1] != 0) as u64);
    check(&code("or"), "u32", &["u32", "u32"], |x| (x[0] != 0 || x[1] != 0) as u64);
    check(&code("xor"), "u32", &["u32", "u32"], |x| ((x[0] != 0) ^ (x[1] != 0)) as u64);
    check("setp.ne.u32 %p, %a, 0; not.pred %q, %p; selp.u32 %d, 1, 0, %q;", "u32", &["u32"], |x| (x[0] == 0) as u64);
    check("setp.ne.u32 %p, %a, 0; mov.pred %q, %p; selp.u32 %d, 1, 0, !%q;", "u32", &["u32"], |x| (x[0] == 0) as u64);
    check("mov.pred %p, 1; selp.u32 %d, %a, 0, %p;", "u32", &["u32"], |x| x[0]);
}

#[test]
fn guards() {
    check("mov.b32 %d, 7; setp.gt.s32 %p, %a, 0; @%p mov.b32 %d, 1; @!%p mov.b32 %d, 2;", "u32", &["s32"], |x| {
        if integer("s32", x[0]) > 0 { 1 } else { 2 }
    });
}

#[test]
fn selections() {
    for ty in ["b16", "b32", "b64"] {
        check(&format!("setp.ne.u32 %p, %c, 0; selp.{ty} %d, %a, %b, %p;"), ty, &[ty, ty, "u32"], |x| {
            if x[2] != 0 { x[0] } else { x[1] }
        });
        check(&format!("slct.{ty}.s32 %d, %a, %b, %c;"), ty, &[ty, ty, "s32"], |x| {
            if integer("s32", x[2]) >= 0 { x[0] } else { x[1] }
        });
        check(&format!("slct.{ty}.f32 %d, %a, %b, %c;"), ty, &[ty, ty, "f32"], |x| {
            if f32(x[2]) >= 0.0 { x[0] } else { x[1] }
        });
    }
}
