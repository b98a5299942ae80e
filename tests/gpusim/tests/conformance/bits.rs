use super::harness::{check, check_rows, inputs, integer, table, values};

#[test]
fn logic() {
    for ty in ["b16", "b32", "b64"] {
        check(&format!("and.{ty} %d, %a, %b;"), ty, &[ty, ty], |x| x[0] & x[1]);
        check(&format!("or.{ty} %d, %a, %b;"), ty, &[ty, ty], |x| x[0] | x[1]);
        check(&format!("xor.{ty} %d, %a, %b;"), ty, &[ty, ty], |x| x[0] ^ x[1]);
        check(&format!("not.{ty} %d, %a;"), ty, &[ty], |x| !x[0]);
        check(&format!("cnot.{ty} %d, %a;"), ty, &[ty], |x| (x[0] == 0) as u64);
    }
}

#[test]
fn lop3() {
    for lut in [0x00u32, 0x80, 0x96, 0xca, 0xe8, 0xfe, 0xff, 0x1b] {
        check(&format!("lop3.b32 %d, %a, %b, %c, {lut};"), "b32", &["b32"; 3], |x| {
            (0..32).fold(0, |out, i| {
                let row = (x[0] >> i & 1) << 2 | (x[1] >> i & 1) << 1 | (x[2] >> i & 1);
                out | u64::from(lut >> row & 1) << i
            })
        });
    }
}

#[test]
fn shifts() {
    for bits in [16u32, 32, 64] {
        let (b, u, s) = (format!("b{bits}"), format!("u{bits}"), format!("s{bits}"));
        // Counts past the width clamp to it.
        let clamp = |n: u64| (n as u32).min(bits);
        check(&format!("shl.{b} %d, %a, %b;"), &b, &[&b, "u32"], |x| ((x[0] as u128) << clamp(x[1])) as u64);
        check(&format!("shr.{u} %d, %a, %b;"), &u, &[&u, "u32"], |x| (x[0] as u128 >> clamp(x[1])) as u64);
        check(&format!("shr.{s} %d, %a, %b;"), &s, &[&s, "u32"], |x| (integer(&s, x[0]) >> clamp(x[1])) as u64);
    }
}

#[test]
fn funnel_shifts() {
    let joined = |x: &[u64]| x[1] << 32 | x[0];
    for (mode, count) in [("clamp", (|n: u64| n.min(32)) as fn(u64) -> u64), ("wrap", |n| n & 31)] {
        check(&format!("shf.l.{mode}.b32 %d, %a, %b, %c;"), "b32", &["b32", "b32", "u32"], |x| {
            ((joined(x) as u128) << count(x[2]) >> 32) as u64
        });
        check(&format!("shf.r.{mode}.b32 %d, %a, %b, %c;"), "b32", &["b32", "b32", "u32"], |x| {
            joined(x) >> count(x[2])
        });
    }
}

#[test]
fn counting() {
    for bits in [32u32, 64] {
        let b = format!("b{bits}");
        check(&format!("popc.{b} %d, %a;"), "u32", &[&b], |x| x[0].count_ones() as u64);
        check(&format!("clz.{b} %d, %a;"), "u32", &[&b], |x| (x[0].leading_zeros() - (64 - bits)) as u64);
        check(&format!("brev.{b} %d, %a;"), &b, &[&b], |x| x[0].reverse_bits() >> (64 - bits));
        for sign in ["u", "s"] {
            let ty = format!("{sign}{bits}");
            let position = |x: u64| {
                let value = integer(&ty, x);
                let magnitude = if value < 0 { !value } else { value };
                (0..bits).rev().find(|i| magnitude >> i & 1 != 0)
            };
            check(&format!("bfind.{ty} %d, %a;"), "u32", &[&ty], |x| position(x[0]).map_or(u64::MAX, u64::from));
            check(&format!("bfind.shiftamt.{ty} %d, %a;"), "u32", &[&ty], |x| {
                position(x[0]).map_or(u64::MAX, |i| u64::from(bits - 1 - i))
            });
        }
    }
}

#[test]
fn bit_fields() {
    // Positions and lengths around the width, and beyond 255 (of which only the low byte counts).
    let numbers = [0u64, 1, 5, 8, 16, 31, 32, 33, 63, 64, 65, 100, 255, 256, 260];
    for bits in [32u32, 64] {
        let b = format!("b{bits}");
        let mut rows = Vec::new();
        for a in values(&b) {
            numbers.iter().for_each(|p| rows.extend(numbers.iter().map(|n| vec![a, *p, *n])));
        }
        for sign in ["u", "s"] {
            let ty = format!("{sign}{bits}");
            check_rows(&format!("bfe.{ty} %d, %a, %b, %c;"), &ty, &[&ty, "u32", "u32"], &rows, |x| {
                let (p, n) = ((x[1] & 255) as u32, (x[2] & 255) as u32);
                let bit = |i: u32| x[0] >> i & 1;
                let fill = if sign == "u" || n == 0 { 0 } else { bit((p + n - 1).min(bits - 1)) };
                (0..bits).fold(0, |d, i| d | if i < n && p + i < bits { bit(p + i) } else { fill } << i)
            });
        }
        let rows: Vec<Vec<u64>> =
            rows.iter().map(|x| vec![x[0], x[0].rotate_left(13) & (u64::MAX >> (64 - bits)), x[1], x[2]]).collect();
        check_rows(&format!("bfi.{b} %d, %a, %b, %c, %e;"), &b, &[&b, &b, "u32", "u32"], &rows, |x| {
            let (p, n) = ((x[2] & 255) as u32, (x[3] & 255) as u32);
            (0..bits).fold(x[1], |d, i| {
                let is_inside = i >= p && i < p + n;
                if is_inside { d & !(1 << i) | (x[0] >> (i - p) & 1) << i } else { d }
            })
        });
    }
}

#[test]
fn prmt() {
    check("prmt.b32 %d, %a, %b, %c;", "b32", &["b32"; 3], |x| {
        let bytes = (x[1] << 32 | x[0]).to_le_bytes();
        (0..4).fold(0, |d, i| {
            let selector = x[2] >> (4 * i) & 15;
            let byte = bytes[selector as usize & 7];
            let byte = if selector & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
            d | (byte as u64) << (8 * i)
        })
    });
    // The table of the ISA, most significant byte first.
    let modes = [
        ("f4e", [0x3210, 0x4321, 0x5432, 0x6543]),
        ("b4e", [0x5670, 0x6701, 0x7012, 0x0123]),
        ("rc8", [0x0000, 0x1111, 0x2222, 0x3333]),
        ("ecl", [0x3210, 0x3211, 0x3222, 0x3333]),
        ("ecr", [0x0000, 0x1110, 0x2210, 0x3210]),
        ("rc16", [0x1010, 0x3232, 0x1010, 0x3232]),
    ];
    for (mode, selectors) in modes {
        check_rows(
            &format!("prmt.b32.{mode} %d, %a, %b, %c;"),
            "b32",
            &["b32"; 3],
            &inputs(&["b32", "b32", "b32"]),
            |x| {
                let bytes = (x[1] << 32 | x[0]).to_le_bytes();
                let selector: u32 = selectors[x[2] as usize & 3];
                (0..4).fold(0, |d, i| d | (bytes[(selector >> (4 * i) & 7) as usize] as u64) << (8 * i))
            },
        );
    }
}

#[test]
fn find_nth_set_and_dp4a() {
    table(
        "fns.b32 %d, %a, %b, %c;",
        "b32",
        &["b32", "b32", "s32"],
        &[
            (&[0b1010_1000, 0, 1], 3),
            (&[0b1010_1000, 3, 1], 3),
            (&[0b1010_1000, 3, 2], 5),
            (&[0b1010_1000, 7, 2u64.wrapping_neg() & 0xffff_ffff], 5),
            (&[0b1010_1000, 3, 0], 3),
            (&[0b1010_1000, 4, 0], 0xffff_ffff),
            (&[0b1010_1000, 0, 9], 0xffff_ffff),
        ],
    );
    for (a, b) in [("u32", "u32"), ("s32", "s32"), ("u32", "s32"), ("s32", "u32")] {
        let byte = |ty: &str, x: u64, i: usize| {
            let byte = x.to_le_bytes()[i];
            if ty == "s32" { byte as i8 as i64 } else { byte as i64 }
        };
        check(&format!("dp4a.{a}.{b} %d, %a, %b, %c;"), "b32", &["b32"; 3], |x| {
            (0..4).fold(x[2] as i64, |sum, i| sum + byte(a, x[0], i) * byte(b, x[1], i)) as u64
        });
    }
}
