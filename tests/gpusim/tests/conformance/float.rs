use super::harness::{bits, check, check_near, f32, flush, table};

/// The processor's own arithmetic with its rounding mode set: an oracle that shares nothing with the simulator.
#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::asm;

    /// Rounding control of MXCSR: nearest, down, up, towards zero.
    pub fn mxcsr(mode: &str) -> u32 {
        let control = match mode {
            "rn" => 0,
            "rm" => 1,
            "rp" => 2,
            _ => 3,
        };
        0x1f80 | control << 13
    }

    macro_rules! operation {
        ($name:ident, $T:ty, $inst:literal) => {
            pub fn $name(mode: &str, a: $T, b: $T) -> $T {
                let (mut result, wanted, mut before) = (a, mxcsr(mode), 0u32);
                // SAFETY: MXCSR is put back before anything else can see it.
                unsafe {
                    asm!("stmxcsr [{before}]", "ldmxcsr [{wanted}]", $inst, "ldmxcsr [{before}]",
                        before = in(reg) &mut before, wanted = in(reg) &wanted, a = inout(xmm_reg) result, b = in(xmm_reg) b);
                }
                result
            }
        };
    }
    operation!(add_f32, f32, "addss {a}, {b}");
    operation!(sub_f32, f32, "subss {a}, {b}");
    operation!(mul_f32, f32, "mulss {a}, {b}");
    operation!(div_f32, f32, "divss {a}, {b}");
    operation!(sqrt_f32, f32, "sqrtss {a}, {b}");
    operation!(add_f64, f64, "addsd {a}, {b}");
    operation!(sub_f64, f64, "subsd {a}, {b}");
    operation!(mul_f64, f64, "mulsd {a}, {b}");
    operation!(div_f64, f64, "divsd {a}, {b}");
    operation!(sqrt_f64, f64, "sqrtsd {a}, {b}");

    macro_rules! fused {
        ($name:ident, $T:ty, $inst:literal) => {
            pub fn $name(mode: &str, a: $T, b: $T, c: $T) -> $T {
                let (mut result, wanted, mut before) = (c, mxcsr(mode), 0u32);
                // SAFETY: as above; every x86-64-v3 processor has FMA.
                unsafe {
                    asm!("stmxcsr [{before}]", "ldmxcsr [{wanted}]", $inst, "ldmxcsr [{before}]",
                        before = in(reg) &mut before, wanted = in(reg) &wanted, c = inout(xmm_reg) result, a = in(xmm_reg) a,
                        b = in(xmm_reg) b);
                }
                result
            }
        };
    }
    fused!(fma_f32, f32, "vfmadd231ss {c}, {a}, {b}");
    fused!(fma_f64, f64, "vfmadd231sd {c}, {a}, {b}");
}

#[cfg(target_arch = "x86_64")]
const MODES: [&str; 4] = ["rn", "rz", "rm", "rp"];

#[cfg(target_arch = "x86_64")]
#[test]
fn f32_in_every_rounding_mode() {
    use processor as p;
    for mode in MODES {
        type Binary = fn(&str, f32, f32) -> f32;
        let operations: [(&str, Binary); 4] =
            [("add", p::add_f32), ("sub", p::sub_f32), ("mul", p::mul_f32), ("div", p::div_f32)];
        for (name, f) in operations {
            check(&format!("{name}.{mode}.f32 %d, %a, %b;"), "f32", &["f32", "f32"], |x| {
                bits(f(mode, f32(x[0]), f32(x[1])))
            });
            check(&format!("{name}.{mode}.ftz.f32 %d, %a, %b;"), "f32", &["f32", "f32"], |x| {
                bits(flush(f(mode, flush(f32(x[0])), flush(f32(x[1])))))
            });
        }
        check(&format!("fma.{mode}.f32 %d, %a, %b, %c;"), "f32", &["f32"; 3], |x| {
            bits(p::fma_f32(mode, f32(x[0]), f32(x[1]), f32(x[2])))
        });
        check(&format!("sqrt.{mode}.f32 %d, %a;"), "f32", &["f32"], |x| bits(p::sqrt_f32(mode, 0.0, f32(x[0]))));
        check(&format!("rcp.{mode}.f32 %d, %a;"), "f32", &["f32"], |x| bits(p::div_f32(mode, 1.0, f32(x[0]))));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn f64_in_every_rounding_mode() {
    use processor as p;
    // Which NaN comes out is the processor's choice; that one does is not. Directed results that overflow are not exact here.
    let f = f64::from_bits;
    let same = |code: String, sources: &[&str], expected: &dyn Fn(&[u64]) -> f64| {
        let rows = super::harness::inputs(sources);
        for (row, got) in rows.iter().zip(super::harness::run(&code, "f64", sources, &rows)) {
            let (got, wanted) = (f(got), expected(row));
            let is_extreme = !code.contains("rn") && wanted.abs() > 1e290;
            let is_same = got.to_bits() == wanted.to_bits() || (got.is_nan() && wanted.is_nan()) || is_extreme;
            assert!(is_same, "{code} of {row:x?}: got {got:e}, expected {wanted:e}");
        }
    };
    for mode in MODES {
        type Binary = fn(&str, f64, f64) -> f64;
        let operations: [(&str, Binary); 4] =
            [("add", p::add_f64), ("sub", p::sub_f64), ("mul", p::mul_f64), ("div", p::div_f64)];
        for (name, operation) in operations {
            same(format!("{name}.{mode}.f64 %d, %a, %b;"), &["f64", "f64"], &|x| operation(mode, f(x[0]), f(x[1])));
        }
        same(format!("fma.{mode}.f64 %d, %a, %b, %c;"), &["f64"; 3], &|x| p::fma_f64(mode, f(x[0]), f(x[1]), f(x[2])));
        same(format!("sqrt.{mode}.f64 %d, %a;"), &["f64"], &|x| p::sqrt_f64(mode, 0.0, f(x[0])));
        same(format!("rcp.{mode}.f64 %d, %a;"), &["f64"], &|x| p::div_f64(mode, 1.0, f(x[0])));
    }
}

#[test]
fn saturation() {
    let sat = |x: f32| if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) + 0.0 };
    check("add.sat.f32 %d, %a, %b;", "f32", &["f32", "f32"], |x| bits(sat(f32(x[0]) + f32(x[1]))));
    check("mul.sat.f32 %d, %a, %b;", "f32", &["f32", "f32"], |x| bits(sat(f32(x[0]) * f32(x[1]))));
    check("fma.rn.sat.f32 %d, %a, %b, %c;", "f32", &["f32"; 3], |x| bits(sat(f32(x[0]).mul_add(f32(x[1]), f32(x[2])))));
    check("add.ftz.sat.f32 %d, %a, %b;", "f32", &["f32", "f32"], |x| {
        bits(flush(sat(flush(f32(x[0])) + flush(f32(x[1])))))
    });
}

#[test]
fn min_and_max() {
    let order = |a: f32, b: f32| a.partial_cmp(&b).unwrap().then(b.is_sign_negative().cmp(&a.is_sign_negative()));
    let pick = |want: std::cmp::Ordering| {
        move |x: &[u64]| {
            let (a, b) = (f32(x[0]), f32(x[1]));
            bits(match (a.is_nan(), b.is_nan()) {
                (true, _) => b,
                (_, true) => a,
                _ => {
                    if order(a, b) == want {
                        a
                    } else {
                        b
                    }
                }
            })
        }
    };
    check("min.f32 %d, %a, %b;", "f32", &["f32", "f32"], pick(std::cmp::Ordering::Less));
    check("max.f32 %d, %a, %b;", "f32", &["f32", "f32"], pick(std::cmp::Ordering::Greater));
    // `.NaN` propagates it; for numbers nothing changes.
    for (name, want) in [("min", std::cmp::Ordering::Less), ("max", std::cmp::Ordering::Greater)] {
        check(&format!("{name}.NaN.f32 %d, %a, %b;"), "f32", &["f32", "f32"], |x| {
            let is_nan = f32(x[0]).is_nan() || f32(x[1]).is_nan();
            if is_nan { 0x7fff_ffff } else { pick(want)(x) }
        });
    }
    let one = 1f64.to_bits();
    let (nan, zero, minus_zero) = (f64::NAN.to_bits(), 0, (-0f64).to_bits());
    table(
        "min.f64 %d, %a, %b;",
        "f64",
        &["f64", "f64"],
        &[
            (&[one, zero], zero),
            (&[nan, one], one),
            (&[one, nan], one),
            (&[zero, minus_zero], minus_zero),
            (&[minus_zero, zero], minus_zero),
        ],
    );
    table(
        "max.f64 %d, %a, %b;",
        "f64",
        &["f64", "f64"],
        &[
            (&[one, zero], one),
            (&[nan, one], one),
            (&[one, nan], one),
            (&[zero, minus_zero], zero),
            (&[minus_zero, zero], zero),
        ],
    );
}

#[test]
fn signs() {
    check("abs.f32 %d, %a;", "f32", &["f32"], |x| x[0] & 0x7fff_ffff);
    check("neg.f32 %d, %a;", "f32", &["f32"], |x| x[0] ^ 0x8000_0000);
    check("abs.ftz.f32 %d, %a;", "f32", &["f32"], |x| flush(f32(x[0])).to_bits() as u64 & 0x7fff_ffff);
    check("copysign.f32 %d, %a, %b;", "f32", &["f32", "f32"], |x| x[1] & 0x7fff_ffff | x[0] & 0x8000_0000);
    check("abs.f64 %d, %a;", "f64", &["f64"], |x| x[0] & !(1 << 63));
    check("neg.f64 %d, %a;", "f64", &["f64"], |x| x[0] ^ 1 << 63);
}

#[test]
fn approximations() {
    let f = |x: &[u64]| f32(x[0]) as f64;
    check_near("ex2.approx.f32 %d, %a;", &["f32"], 2, |x| f(x).exp2());
    check_near("ex2.approx.ftz.f32 %d, %a;", &["f32"], 2, |x| flush((flush(f32(x[0])) as f64).exp2() as f32) as f64);
    check_near("lg2.approx.f32 %d, %a;", &["f32"], 2, |x| f(x).log2());
    check_near("rsqrt.approx.f32 %d, %a;", &["f32"], 1, |x| 1.0 / f(x).sqrt());
    check_near("sqrt.approx.f32 %d, %a;", &["f32"], 1, |x| f(x).sqrt());
    check_near("rcp.approx.f32 %d, %a;", &["f32"], 1, |x| 1.0 / f(x));
    check_near("rcp.approx.ftz.f32 %d, %a;", &["f32"], 1, |x| flush((1.0 / flush(f32(x[0])) as f64) as f32) as f64);
    check_near("div.approx.f32 %d, %a, %b;", &["f32", "f32"], 2, |x| f(x) / f32(x[1]) as f64);
    check_near("div.full.f32 %d, %a, %b;", &["f32", "f32"], 2, |x| f(x) / f32(x[1]) as f64);
    check_near("sin.approx.f32 %d, %a;", &["f32"], 2, |x| f(x).sin());
    check_near("cos.approx.f32 %d, %a;", &["f32"], 2, |x| f(x).cos());
    check_near("tanh.approx.f32 %d, %a;", &["f32"], 2, |x| f(x).tanh());
    table(
        "lg2.approx.f32 %d, %a;",
        "f32",
        &["f32"],
        &[
            (&[0], 0xff80_0000),
            (&[0x8000_0000], 0xff80_0000),
            (&[0xbf80_0000], 0x7fff_ffff),
            (&[0x7f80_0000], 0x7f80_0000),
            (&[0x3f80_0000], 0),
        ],
    );
    table(
        "ex2.approx.f32 %d, %a;",
        "f32",
        &["f32"],
        &[(&[0], 0x3f80_0000), (&[0xff80_0000], 0), (&[0x7f80_0000], 0x7f80_0000), (&[0x40a0_0000], 0x4200_0000)],
    );
    table(
        "rsqrt.approx.f32 %d, %a;",
        "f32",
        &["f32"],
        &[(&[0], 0x7f80_0000), (&[0x8000_0000], 0xff80_0000), (&[0x7f80_0000], 0)],
    );
}

#[test]
fn testp() {
    type Class = (&'static str, fn(f32) -> bool);
    let classes: [Class; 6] = [
        ("finite", f32::is_finite),
        ("infinite", f32::is_infinite),
        ("number", |x| !x.is_nan()),
        ("notanumber", f32::is_nan),
        ("normal", f32::is_normal),
        ("subnormal", f32::is_subnormal),
    ];
    for (class, f) in classes {
        check(&format!("testp.{class}.f32 %p, %a; selp.u32 %d, 1, 0, %p;"), "u32", &["f32"], |x| f(f32(x[0])) as u64);
    }
}
