use super::harness::{check, table};

#[test]
fn mov() {
    check("mov.b16 %d, %a;", "b16", &["b16"], |x| x[0]);
    check("mov.u32 %d, %a;", "u32", &["u32"], |x| x[0]);
    check("mov.f32 %d, %a;", "f32", &["f32"], |x| x[0]);
    check("mov.f64 %d, %a;", "f64", &["f64"], |x| x[0]);
    check("mov.f32 %d, 0f3FC00000;", "f32", &[], |_| 1.5f32.to_bits() as u64);
    check("mov.f64 %d, 0d3FF8000000000000;", "f64", &[], |_| 1.5f64.to_bits());
    check("mov.f32 %d, 2.5;", "f32", &[], |_| 2.5f32.to_bits() as u64);
    check("mov.u64 %d, -2;", "u64", &[], |_| -2i64 as u64);
    check("mov.u32 %d, WARP_SZ;", "u32", &[], |_| 32);
}

#[test]
fn pack_and_unpack() {
    check("mov.b32 %d, {%a, %b};", "b32", &["b16", "b16"], |x| x[0] | x[1] << 16);
    check("mov.b64 %d, {%a, %b};", "b64", &["b32", "b32"], |x| x[0] | x[1] << 32);
    check("mov.b64 %d, {%a, %b, %c, %e};", "b64", &["b16"; 4], |x| x[0] | x[1] << 16 | x[2] << 32 | x[3] << 48);
    check("mov.b64 {%t, %d}, %a;", "b32", &["b64"], |x| x[0] >> 32);
    check("mov.b64 {%d, _}, %a;", "b32", &["b64"], |x| x[0]);
    check("mov.b32 {%h, %d}, %a;", "b16", &["b32"], |x| x[0] >> 16);
    check("mov.b64 {%h, %g, %d, _}, %a;", "b16", &["b64"], |x| x[0] >> 32);
}

#[test]
fn generic_addresses_and_back() {
    for space in ["global", "shared", "local", "const", "param"] {
        check(&format!("cvta.{space}.u64 %w, %a; cvta.to.{space}.u64 %d, %w;"), "u64", &["u64"], |x| x[0]);
    }
    let code =
        |space: &str, asked: &str| format!("cvta.{space}.u64 %w, %a; isspacep.{asked} %p, %w; selp.u32 %d, 1, 0, %p;");
    for space in ["shared", "local"] {
        for asked in ["shared", "local", "global"] {
            table(
                &code(space, asked),
                "u32",
                &["u64"],
                &[(&[0], (space == asked) as u64), (&[1024], (space == asked) as u64)],
            );
        }
    }
}
