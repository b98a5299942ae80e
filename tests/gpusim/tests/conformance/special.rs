use super::harness::{check, check_rows};

/// Threads are 128 to a block, in order.
fn by_thread(code: &str, expected: impl Fn(u64) -> u64) {
    let rows: Vec<Vec<u64>> = (0..300).map(|i| vec![i]).collect();
    check_rows(code, "u32", &["u32"], &rows, |x| expected(x[0]));
}

#[test]
fn special_registers() {
    by_thread("mov.u32 %d, %tid.x;", |i| i % 128);
    by_thread("mov.u32 %d, %tid.y;", |_| 0);
    by_thread("mov.u32 %d, %ntid.x;", |_| 128);
    by_thread("mov.u32 %d, %ntid.z;", |_| 1);
    by_thread("mov.u32 %d, %ctaid.x;", |i| i / 128);
    by_thread("mov.u32 %d, %nctaid.x;", |_| 3);
    by_thread("mov.u32 %d, %laneid;", |i| i % 32);
    by_thread("mov.u32 %d, %warpid;", |i| i % 128 / 32);
    by_thread("mov.u32 %d, %nwarpid;", |_| 4);
    by_thread("mov.u32 %d, %lanemask_eq;", |i| 1 << (i % 32));
    by_thread("mov.u32 %d, %lanemask_lt;", |i| (1 << (i % 32)) - 1);
    by_thread("mov.u32 %d, %lanemask_le;", |i| (2 << (i % 32)) - 1);
    by_thread("mov.u32 %d, %lanemask_gt;", |i| !((2u64 << (i % 32)) - 1));
    by_thread("mov.u32 %d, %lanemask_ge;", |i| !((1u64 << (i % 32)) - 1));
    by_thread("mov.u32 %d, %dynamic_smem_size;", |_| 0);
    by_thread("add.u32 %d, %tid.x, %laneid;", |i| i % 128 + i % 32);
}

#[test]
fn clocks_advance() {
    check(
        "mov.u64 %w, %clock64; mov.u64 %wide, %clock64; setp.gt.u64 %p, %wide, %w; selp.u32 %d, 1, 0, %p;",
        "u32",
        &[],
        |_| 1,
    );
    check(
        "mov.u32 %t, %clock; nanosleep.u32 20; mov.u32 %u, %clock; sub.u32 %d, %u, %t; min.u32 %d, %d, 1;",
        "u32",
        &[],
        |_| 1,
    );
    check("mov.u64 %w, %globaltimer; mov.b32 %d, 1;", "u32", &[], |_| 1);
}
