use super::harness::{check, check_rows, inputs, integer};

/// Registers are not visible after their scope: each case declares its own shared or local memory.
fn through(space: &str, declaration: &str, code: &str) -> String {
    format!("{{ .{space} .align 16 .b8 buffer[{declaration}];\n{code} }}")
}

#[test]
fn loads_extend_and_stores_cut() {
    for (ty, wide) in [("u8", "u32"), ("s8", "s32"), ("u16", "u32"), ("s16", "s32")] {
        for space in ["local", "shared"] {
            // One thread's own bytes: threads of a block must not share them.
            let index = if space == "shared" {
                "shl.b32 %t, %tid.x, 2; mov.u32 %u, buffer; add.u32 %t, %t, %u;"
            } else {
                "mov.u32 %t, buffer;"
            };
            let code = through(space, "512", &format!("{index} st.{space}.{ty} [%t], %a; ld.{space}.{ty} %d, [%t];"));
            check(&code, wide, &["u32"], |x| integer(ty, x[0]) as u64);
        }
    }
    check(
        &through("local", "8", "st.local.u32 [buffer], %a; ld.local.u8 %h, [buffer+1]; cvt.u32.u16 %d, %h;"),
        "u32",
        &["u32"],
        |x| x[0] >> 8 & 255,
    );
    check(&through("local", "8", "st.local.u64 [buffer], %a; ld.local.s16 %d, [buffer+6];"), "s64", &["u64"], |x| {
        integer("s16", x[0] >> 48) as u64
    });
}

#[test]
fn vectors() {
    let code = through("local", "16", "st.local.v2.b32 [buffer], {%a, %b}; ld.local.b64 %d, [buffer];");
    check(&code, "b64", &["b32", "b32"], |x| x[0] | x[1] << 32);
    let code = through(
        "local",
        "16",
        "st.local.v4.b32 [buffer], {%a, %b, %c, %e}; ld.local.v4.b32 {_, %t, %u, _}, [buffer]; xor.b32 %d, %t, %u;",
    );
    check(&code, "b32", &["b32"; 4], |x| x[1] ^ x[2]);
    let code = through("local", "16", "st.local.v2.b64 [buffer], {%a, %b}; ld.local.v2.b64 {%w, %d}, [buffer];");
    check(&code, "b64", &["b64", "b64"], |x| x[1]);
    let code = through("local", "8", "st.local.v4.b16 [buffer], {%a, %b, %c, %e}; ld.local.b64 %d, [buffer];");
    check(&code, "b64", &["b16"; 4], |x| x[0] | x[1] << 16 | x[2] << 32 | x[3] << 48);
    let code = through("local", "8", "st.local.v2.u8 [buffer], {%a, %b}; ld.local.u16 %d, [buffer];");
    check(&code, "u16", &["b16", "b16"], |x| x[0] & 255 | (x[1] & 255) << 8);
}

#[test]
fn generic_addresses() {
    let code = "{ .local .align 8 .b8 mine[8]; .shared .align 8 .b8 ours[1024];\n\
        mov.u64 %w, mine; cvta.local.u64 %w, %w; mov.u64 %wide, ours; cvta.shared.u64 %wide, %wide;\n\
        mul.wide.u32 %at, %tid.x, 8; add.u64 %wide, %wide, %at;\n\
        // Odd threads go through shared memory, even ones through local memory, in one instruction.\n\
        and.b32 %t, %tid.x, 1; setp.eq.u32 %p, %t, 1; selp.b64 %w, %wide, %w, %p;\n\
        st.b64 [%w], %a; ld.b64 %d, [%w]; }";
    check(code, "b64", &["b64"], |x| x[0]);
}

#[test]
fn parameters_by_address() {
    // `n` is the last parameter; its address is taken as for a struct indexed at run time.
    let rows: Vec<Vec<u64>> = (0..40).map(|i| vec![i]).collect();
    check_rows("mov.b64 %w, n; ld.param.u32 %d, [%w];", "u32", &["u32"], &rows, |_| 40);
    check_rows("mov.b64 %w, n; cvta.param.u64 %w, %w; ld.u32 %d, [%w];", "u32", &["u32"], &rows, |_| 40);
}

/// An atomic on a word of shared memory per thread: old value in one run, new value in another.
fn atomic(op: &str, ty: &str, sources: &[&str], expected: impl Fn(&[u64]) -> u64) {
    let size = super::harness::size(ty);
    let operands = if sources.len() == 3 { "%b, %c" } else { "%b" };
    let (value, bits) = (if size == 8 { "%w" } else { "%t" }, 8 * size);
    for space in ["shared", "global"] {
        // The output's own place serves as global memory: %at is computed again by the harness afterwards.
        let place = if space == "shared" {
            format!("mul.wide.u32 %wide, %tid.x, {size}; mov.u64 %at, buffer; add.u64 %at, %at, %wide;")
        } else {
            format!("ld.param.u64 %at, [p0]; mul.wide.u32 %wide, %i, {size}; add.u64 %at, %at, %wide;")
        };
        let prepare = format!("{place} st.{space}.b{bits} [%at], %a;");
        let old = format!("{prepare} atom.{space}.{op}.{ty} %d, [%at], {operands};");
        let new = format!("{prepare} atom.{space}.{op}.{ty} {value}, [%at], {operands}; ld.{space}.b{bits} %d, [%at];");
        let red = format!("{prepare} red.{space}.{op}.{ty} [%at], %b; ld.{space}.b{bits} %d, [%at];");
        let rows = inputs(sources);
        check_rows(&through("shared", "1024", &old), ty, sources, &rows, |x| x[0]);
        check_rows(&through("shared", "1024", &new), ty, sources, &rows, &expected);
        if sources.len() == 2 && op != "exch" {
            check_rows(&through("shared", "1024", &red), ty, sources, &rows, &expected);
        }
    }
}

#[test]
fn atomics() {
    for ty in ["u32", "u64"] {
        atomic("add", ty, &[ty, ty], |x| x[0].wrapping_add(x[1]));
        atomic("max", ty, &[ty, ty], |x| x[0].max(x[1]));
        atomic("min", ty, &[ty, ty], |x| x[0].min(x[1]));
    }
    for ty in ["s32", "s64"] {
        atomic("max", ty, &[ty, ty], |x| integer(ty, x[0]).max(integer(ty, x[1])) as u64);
        atomic("min", ty, &[ty, ty], |x| integer(ty, x[0]).min(integer(ty, x[1])) as u64);
    }
    atomic("add", "s32", &["s32", "s32"], |x| x[0].wrapping_add(x[1]));
    for ty in ["b32", "b64"] {
        atomic("exch", ty, &[ty, ty], |x| x[1]);
        atomic("and", ty, &[ty, ty], |x| x[0] & x[1]);
        atomic("or", ty, &[ty, ty], |x| x[0] | x[1]);
        atomic("xor", ty, &[ty, ty], |x| x[0] ^ x[1]);
        atomic("cas", ty, &[ty, ty, ty], |x| if x[0] == x[1] { x[2] } else { x[0] });
    }
    atomic("inc", "u32", &["u32", "u32"], |x| if x[0] >= x[1] { 0 } else { x[0] + 1 });
    atomic("dec", "u32", &["u32", "u32"], |x| if x[0] == 0 || x[0] > x[1] { x[1] } else { x[0] - 1 });
    atomic("add", "f32", &["f32", "f32"], |x| {
        super::harness::bits(super::harness::f32(x[0]) + super::harness::f32(x[1]))
    });
}

#[test]
fn packed_atomics() {
    use half::bf16;
    let half = |a: u64, b: u64| {
        let (a, b) = (bf16::from_bits(a as u16).to_f32(), bf16::from_bits(b as u16).to_f32());
        if (a + b).is_nan() { 0x7fff } else { bf16::from_f32(a + b).to_bits() as u64 }
    };
    let code = "st.shared.b32 [%t], %a; red.shared.add.noftz.bf16x2 [%t], %b; ld.shared.b32 %d, [%t];";
    let place = "mov.u32 %t, buffer; shl.b32 %u, %tid.x, 2; add.u32 %t, %t, %u;";
    check(&through("shared", "512", &format!("{place} {code}")), "b32", &["b32", "b32"], |x| {
        half(x[0], x[1]) | half(x[0] >> 16, x[1] >> 16) << 16
    });
}

#[test]
fn asynchronous_copies() {
    for (size, ty) in [(4, "b32"), (8, "b64")] {
        let place = format!(
            "mov.u32 %t, buffer; mul.lo.u32 %u, %tid.x, {size}; add.u32 %t, %t, %u; ld.param.u64 %w, [p1]; mul.wide.u32 %wide, %i, {size}; add.u64 %w, %w, %wide;"
        );
        let code = format!(
            "{place} cp.async.ca.shared.global [%t], [%w], {size}; cp.async.commit_group; cp.async.wait_group 0; ld.shared.{ty} %d, [%t];"
        );
        check(&through("shared", "1024", &code), ty, &[ty], |x| x[0]);
        // With a source size, the rest is zero.
        let code = format!(
            "{place} and.b32 %u, %i, 7; min.u32 %u, %u, {size}; cp.async.ca.shared.global [%t], [%w], {size}, %u; cp.async.wait_all; ld.shared.{ty} %d, [%t];"
        );
        let rows: Vec<Vec<u64>> = (0..64u64)
            .map(|i| vec![0x1122_3344_5566_7788u64.wrapping_mul(i + 1) & (u64::MAX >> (64 - 8 * size))])
            .collect();
        let index = std::cell::Cell::new(0u64);
        check_rows(&through("shared", "1024", &code), ty, &[ty], &rows, |x| {
            let kept = (index.replace(index.get() + 1) & 7).min(size);
            if kept == 0 { 0 } else { x[0] & (u64::MAX >> (64 - 8 * kept)) }
        });
    }
}
