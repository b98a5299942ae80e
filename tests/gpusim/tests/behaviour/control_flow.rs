use super::sim::{Run, store};

#[test]
fn nested_branches_reconverge() {
    let body = format!(
        "mov.b32 %r4, 0;\nand.b32 %r5, %r1, 1; setp.eq.u32 %p0, %r5, 0; @%p0 bra $even;\n\
         and.b32 %r5, %r1, 2; setp.eq.u32 %p1, %r5, 0; @%p1 bra $one; add.u32 %r4, %r4, 300; bra.uni $odd_end;\n\
         $one: add.u32 %r4, %r4, 100;\n$odd_end: add.u32 %r4, %r4, 1; bra.uni $end;\n$even: add.u32 %r4, %r4, 20;\n\
         $end: activemask.b32 %r6; popc.b32 %r6, %r6; mad.lo.u32 %r4, %r6, 1000, %r4;\n{}",
        store("%r4")
    );
    let expected = |i: u32| {
        32_000
            + match i % 4 {
                1 => 101,
                3 => 301,
                _ => 20,
            }
    };
    let out = Run::new(&body, 1, 64).clean();
    assert_eq!(out, (0..64).map(expected).collect::<Vec<_>>());
}

#[test]
fn loops_run_as_often_as_each_lane_wants() {
    let body = format!(
        "mov.b32 %r4, 0; mov.b32 %r5, 0;\n$loop: setp.ge.u32 %p0, %r5, %r1; @%p0 bra $done; add.u32 %r4, %r4, %r5; add.u32 %r5, %r5, 1;\n\
         bra.uni $loop;\n$done: activemask.b32 %r6; setp.ne.u32 %p1, %r6, -1; @%p1 mov.b32 %r4, 0xdead;\n{}",
        store("%r4")
    );
    let out = Run::new(&body, 2, 32).clean();
    let expected: Vec<u32> = (0..64).map(|i| (0..i % 32).sum()).collect();
    assert_eq!(out, expected);
}

#[test]
fn code_out_of_line_comes_back() {
    // The unlikely path lies behind the end, as compilers place it.
    let body = format!(
        "mov.b32 %r4, 1; setp.eq.u32 %p0, %r1, 7; @%p0 bra $rare;\n$back: {} ret;\n$rare: mov.b32 %r4, 99; bra.uni $back;",
        store("%r4")
    );
    let out = Run::new(&body, 1, 32).clean();
    assert!(out.iter().enumerate().all(|(i, x)| *x == if i == 7 { 99 } else { 1 }));
}

#[test]
fn branch_tables() {
    let body = format!(
        "and.b32 %r5, %r1, 3;\nts: .branchtargets $a, $b, $c, $d;\nbrx.idx %r5, ts;\n$a: mov.b32 %r4, 10; bra.uni $end;\n\
         $b: mov.b32 %r4, 11; bra.uni $end;\n$c: mov.b32 %r4, 12; bra.uni $end;\n$d: mov.b32 %r4, 13;\n$end: {}",
        store("%r4")
    );
    assert_eq!(Run::new(&body, 1, 40).clean(), (0..40).map(|i| 10 + i % 4).collect::<Vec<_>>());
}

#[test]
fn a_lock_between_warps_and_lanes() {
    // Every thread takes a lock in shared memory, one after the other, lanes of one warp included.
    let body = "{ .shared .align 4 .b32 lock; .shared .align 4 .b32 count;\n\
        setp.ne.u32 %p0, %r1, 0; @%p0 bra $ready; st.shared.b32 [lock], 0; st.shared.b32 [count], 0;\n$ready: bar.sync 0;\n\
        $try: atom.shared.cas.b32 %r4, [lock], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra $try;\n\
        membar.cta; ld.shared.b32 %r5, [count]; add.u32 %r5, %r5, 1; st.shared.b32 [count], %r5; membar.cta;\n\
        atom.shared.exch.b32 %r4, [lock], 0; bar.sync 0;\n\
        setp.ne.u32 %p0, %r1, 0; @%p0 bra $end; ld.shared.b32 %r5, [count]; st.global.b32 [%w0], %r5;\n$end: }";
    let mut run = Run::new(body, 1, 96);
    run.out_words = 1;
    assert_eq!(run.clean(), [96]);
}

#[test]
fn blocks_wait_for_earlier_blocks() {
    // Block n spins until block n - 1 has written its word.
    let body = "setp.ne.u32 %p0, %r1, 0; @%p0 ret;\nmul.wide.u32 %w2, %r2, 4; add.s64 %w2, %w0, %w2; mov.b32 %r5, 1;\n\
        setp.eq.u32 %p1, %r2, 0; @%p1 bra $write;\n$wait: ld.volatile.global.b32 %r4, [%w2+-4]; setp.eq.u32 %p2, %r4, 0; @%p2 bra $wait;\n\
        add.u32 %r5, %r4, 1;\n$write: st.volatile.global.b32 [%w2], %r5;";
    let mut run = Run::new(body, 20, 32);
    run.out_words = 20;
    assert_eq!(run.clean(), (1..=20).collect::<Vec<_>>());
}

#[test]
fn functions_are_called() {
    let text = format!(
        "{}.func (.param .b32 r) square(.param .b32 x)\n{{\n.reg .b32 %r<4>;\n.reg .pred %p;\nld.param.b32 %r1, [x];\n\
         setp.lt.u32 %p, %r1, 5; @%p bra $small; mul.lo.u32 %r1, %r1, %r1; bra.uni $out;\n$small: mov.b32 %r1, 0;\n\
         $out: st.param.b32 [r], %r1;\nret;\n}}\n\
         .func (.param .b32 r) twice(.param .b32 x)\n{{\n.reg .b32 %r<4>;\nld.param.b32 %r1, [x];\n\
         {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call.uni (b), square, (a); ld.param.b32 %r2, [b]; }}\n\
         add.u32 %r2, %r2, %r2; st.param.b32 [r], %r2; ret;\n}}\n\
         .entry k(.param .u64 out)\n{{\n.reg .b32 %r<8>;\n.reg .b64 %w<4>;\nld.param.u64 %w0, [out]; mov.u32 %r1, %tid.x;\n\
         {{ .param .b32 a; .param .b32 b; st.param.b32 [a+0], %r1; call.uni (b), twice, (a); ld.param.b32 %r2, [b+0]; }}\n\
         {{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r2; call (b), square, (a); ld.param.b32 %r3, [b]; }}\n\
         mul.wide.u32 %w1, %r1, 4; add.u64 %w0, %w0, %w1; st.global.b32 [%w0], %r3; ret;\n}}\n",
        super::sim::HEADER
    );
    let device = gpusim::device::Device::default();
    let module = device.load(&text).unwrap();
    let out = device.allocate(128).unwrap().base;
    device.launch(&module.kernels["k"], &gpusim::device::LaunchConfig::new(1, 32), &out.to_le_bytes()).unwrap();
    let mut bytes = vec![0; 128];
    device.read(out, &mut bytes).unwrap();
    assert!(device.findings().is_empty());
    let square = |x: u32| if x < 5 { 0 } else { x * x };
    for (i, word) in bytes.chunks(4).enumerate() {
        assert_eq!(u32::from_le_bytes(word.try_into().unwrap()), square(2 * square(i as u32)), "thread {i}");
    }
}

#[test]
fn module_variables_and_relocations() {
    let text = format!(
        "{}.const .align 4 .u32 table[4] = {{7, 8, 9, 10}};\n.global .align 4 .u32 counter = 40;\n.global .align 8 .u64 pointer = table+8;\n\
         .entry k(.param .u64 out)\n{{\n.reg .b32 %r<8>;\n.reg .b64 %w<4>;\nld.param.u64 %w0, [out];\n\
         ld.const.u32 %r1, [table+4]; ld.global.u64 %w1, [pointer]; ld.u32 %r2, [%w1]; atom.global.add.u32 %r3, [counter], 2;\n\
         mov.u64 %w2, counter; ld.global.u32 %r4, [%w2];\nst.global.v4.b32 [%w0], {{%r1, %r2, %r3, %r4}}; ret;\n}}\n",
        super::sim::HEADER
    );
    let device = gpusim::device::Device::default();
    let module = device.load(&text).unwrap();
    let out = device.allocate(16).unwrap().base;
    device.launch(&module.kernels["k"], &gpusim::device::LaunchConfig::new(1, 1), &out.to_le_bytes()).unwrap();
    let mut bytes = vec![0; 16];
    device.read(out, &mut bytes).unwrap();
    let words: Vec<u32> = bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    assert_eq!(words, [8, 9, 40, 42]);
    assert!(device.findings().is_empty());
    device.unload(&module);
}

#[test]
fn cache_hints_change_nothing() {
    let body = "createpolicy.fractional.L2::evict_last.b64 %w4, 0f3F800000; prefetch.global.L2 [%w1]; discard.global.L2 [%w1], 128;\n\
        mul.wide.u32 %w2, %r0, 4; add.s64 %w3, %w1, %w2; ld.global.L1::no_allocate.L2::cache_hint.u32 %r4, [%w3], %w4;\n\
        ld.global.nc.L2::128B.u32 %r5, [%w3]; ld.global.cg.u32 %r6, [%w3]; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6;\n\
        add.s64 %w3, %w0, %w2; st.global.L2::cache_hint.u32 [%w3], %r4, %w4;";
    let mut run = Run::new(body, 1, 32);
    run.input = (0..32).collect();
    assert_eq!(run.clean(), (0..32).map(|i| 3 * i).collect::<Vec<_>>());
}

#[test]
fn blocks_run_in_order_or_backwards() {
    // Each takes the next number.
    let body = format!("atom.global.add.u32 %r4, [%w1], 1; {}", super::sim::store("%r4"));
    let mut run = Run::new(&body, 40, 1);
    (run.input, run.workers) = (vec![0], 1);
    assert_eq!(run.clean(), (0..40).collect::<Vec<_>>());
    run.backwards = true;
    assert_eq!(run.clean(), (0..40).rev().collect::<Vec<_>>());
    run.workers = 3;
    let mut taken = run.clean();
    taken.sort();
    assert_eq!(taken, (0..40).collect::<Vec<_>>());
}
