use gpusim::check::finding::{Finding, Kind};
use gpusim::device::{Device, LaunchConfig, LaunchError};
use gpusim::exec::env::Fault;

use super::sim::{Run, store};

#[test]
fn out_of_bounds() {
    let mut run = Run::new("mul.wide.u32 %w2, %r0, 4; add.s64 %w2, %w1, %w2; ld.global.u32 %r4, [%w2];", 2, 64);
    run.input = vec![1; 100];
    let finding = run.faults(Kind::OutOfBounds, Fault::IllegalAddress);
    let place = finding.place.clone().unwrap();
    assert_eq!((place.kernel.as_str(), place.block, place.thread), ("k", [1, 0, 0], [36, 0, 0]));
    assert!(place.instruction.starts_with("ld.global.u32 %r4") && place.line > 10, "{finding}");
    assert!(finding.message.contains("0 bytes past the end of allocation #2 of 400 bytes"), "{finding}");
    // A null pointer.
    Run::new("mov.u64 %w2, 0; st.global.u32 [%w2], 1;", 1, 1).faults(Kind::OutOfBounds, Fault::IllegalAddress);
    // Past the end of shared and of local memory.
    let beyond = "{ .shared .align 4 .b8 words[64]; mov.u32 %r4, words; mad.lo.u32 %r5, %r1, 4, %r4; st.shared.b32 [%r5], %r1; }";
    let finding = Run::new(beyond, 1, 32).faults(Kind::OutOfBounds, Fault::IllegalAddress);
    assert!(finding.message.contains("of shared memory, of which there are 64 bytes"), "{finding}");
    let beyond =
        "{ .local .align 4 .b8 words[64]; mov.u32 %r4, words; mad.lo.u32 %r5, %r1, 4, %r4; st.local.b32 [%r5], %r1; }";
    Run::new(beyond, 1, 32).faults(Kind::OutOfBounds, Fault::IllegalAddress);
}

#[test]
fn misaligned() {
    let finding = Run::new("add.s64 %w2, %w0, 2; st.global.u32 [%w2], 1;", 1, 1)
        .faults(Kind::Misaligned, Fault::MisalignedAddress);
    assert!(finding.message.contains("no multiple of 4"), "{finding}");
    let vector = "mul.wide.u32 %w2, %r1, 8; add.s64 %w2, %w0, %w2; st.global.v4.b32 [%w2], {%r1, %r1, %r1, %r1};";
    let mut run = Run::new(vector, 1, 2);
    run.out_words = 8;
    let finding = run.faults(Kind::Misaligned, Fault::MisalignedAddress);
    assert_eq!(finding.place.unwrap().thread, [1, 0, 0]);
}

#[test]
fn reads_of_what_nobody_wrote() {
    let mut run = Run::new("ld.global.u32 %r4, [%w0]; add.u32 %r4, %r4, 1; st.global.u32 [%w0], %r4;", 1, 1);
    run.zeroed = false;
    let finding = run.finds(Kind::Uninitialized);
    assert!(finding.message.contains("global memory"), "{finding}");
    let body = format!(
        "{{ .shared .align 4 .b8 words[256]; mov.u32 %r4, words; ld.shared.u32 %r5, [%r4+8]; }} {}",
        store("%r1")
    );
    assert!(Run::new(&body, 1, 1).finds(Kind::Uninitialized).message.contains("shared memory"));
    let body = "{ .local .align 4 .b8 words[16]; st.local.u32 [words], 1; ld.local.u64 %w2, [words]; }";
    assert!(Run::new(body, 1, 1).finds(Kind::Uninitialized).message.contains("local memory"));
    // What the block before wrote in the same shared memory does not count.
    let body = "{ .shared .align 4 .b32 word; setp.eq.u32 %p0, %r2, 0; @%p0 st.shared.b32 [word], 1; bar.sync 0; ld.shared.b32 %r4, [word]; }";
    let mut run = Run::new(body, 2, 1);
    run.workers = 1;
    run.finds(Kind::Uninitialized);
    // A host copy of memory that only some threads wrote.
    let body = "setp.ne.u32 %p0, %r1, 3; @%p0 bra $end; st.global.u32 [%w0+12], 1;\n$end:";
    let mut run = Run::new(body, 1, 4);
    run.zeroed = false;
    assert!(run.go().findings.is_empty(), "the copy comes after these findings");
}

#[test]
fn the_host_reads_what_nobody_wrote() {
    let device = Device::default();
    let address = device.allocate(64).unwrap().base;
    device.write(address, &[1; 40]).unwrap();
    device.read(address, &mut [0; 64]).unwrap();
    assert!(device.findings()[0].message.contains("24 of which nobody wrote"));
    device.reset();
    // A device copy takes along which bytes were written.
    let other = device.allocate(64).unwrap().base;
    device.copy(other, address, 64).unwrap();
    device.read(other, &mut [0; 40]).unwrap();
    assert!(device.findings().is_empty());
    device.read(other, &mut [0; 64]).unwrap();
    assert_eq!(device.findings().len(), 1);
}

#[test]
fn shared_races() {
    let words = |code: &str| {
        format!("{{ .shared .align 4 .b8 words[512]; mov.u32 %r4, words; mad.lo.u32 %r5, %r1, 4, %r4; {code} }}")
    };
    // A read of the neighbour's word without a barrier.
    let body =
        words("st.shared.b32 [%r5], %r1; xor.b32 %r6, %r1, 32; mad.lo.u32 %r6, %r6, 4, %r4; ld.shared.b32 %r7, [%r6];");
    let findings = Run::new(&body, 1, 64).go().findings;
    let is_named = |f: &Finding| {
        f.kind == Kind::SharedRace
            && f.message.contains("written without a barrier between by thread (0, 0, 0) at `st.shared")
    };
    assert!(findings.iter().any(is_named), "{findings:?}");
    // A write of what others still read.
    let body = words(
        "st.shared.b32 [%r5], %r1; bar.sync 0; ld.shared.b32 %r7, [%r4]; setp.eq.u32 %p0, %r1, 63; @%p0 st.shared.b32 [%r4], 9;",
    );
    let finding = Run::new(&body, 1, 64).finds(Kind::SharedRace);
    assert!(finding.message.contains("read without a barrier between"), "{finding}");
    // Two writes of different values; of the same value they are no race.
    Run::new(&words("st.shared.b32 [%r4], %r1;"), 1, 64).finds(Kind::SharedRace);
    Run::new(&words("st.shared.b32 [%r4], 7;"), 1, 64).clean();
    // Lanes of one warp, one instruction apart, with nothing between.
    let body =
        words("st.shared.b32 [%r5], %r1; xor.b32 %r6, %r1, 1; mad.lo.u32 %r6, %r6, 4, %r4; ld.shared.b32 %r7, [%r6];");
    Run::new(&body, 1, 32).finds(Kind::SharedRace);
    // Neighbouring bytes are not the same bytes.
    let body = "{ .shared .align 4 .b8 words[64]; mov.u32 %r4, words; add.u32 %r5, %r4, %r1; cvt.u16.u32 %h1, %r1; st.shared.u8 [%r5], %h1; ld.shared.u8 %h2, [%r5]; }";
    Run::new(body, 1, 64).clean();
    // A barrier in every iteration but at one place too few: the double buffer's classic.
    let body = words(
        "mov.b32 %r8, 0;\n$loop: st.shared.b32 [%r5], %r8; bar.sync 0; xor.b32 %r6, %r1, 33; mad.lo.u32 %r6, %r6, 4, %r4; ld.shared.b32 %r7, [%r6];\n\
         add.u32 %r8, %r8, 1; setp.lt.u32 %p0, %r8, 3; @%p0 bra $loop;",
    );
    Run::new(&body, 1, 64).finds(Kind::SharedRace);
    Run::new(&body.replace("ld.shared.b32 %r7, [%r6];", "ld.shared.b32 %r7, [%r6]; bar.sync 0;"), 1, 64).clean();
}

#[test]
fn races_between_blocks() {
    let run = |body: &str| {
        let mut run = Run::new(body, 4, 32);
        run.workers = 1;
        run.go().findings
    };
    let own = "mul.wide.u32 %w2, %r0, 4; add.s64 %w2, %w0, %w2;";
    let first = "mul.wide.u32 %w2, %r1, 4; add.s64 %w2, %w0, %w2;";
    // Every block writes its own words, reads them again, and reads what all may read.
    assert!(run(&format!("{own} st.global.u32 [%w2], %r2; ld.global.u32 %r4, [%w2];")).is_empty());
    // Every block writes the same words: other values, the same value, by atomics.
    let findings = run(&format!("{first} st.global.u32 [%w2], %r2;"));
    assert_eq!(findings[0].kind, Kind::GlobalRace);
    assert!(findings[0].message.contains("that block (0, 0, 0) wrote in the same launch"), "{}", findings[0]);
    assert_eq!((findings.len(), findings[0].count), (1, 96));
    assert!(run(&format!("{first} st.global.u32 [%w2], 7;")).is_empty());
    assert!(run(&format!("{first} red.global.add.u32 [%w2], 7;")).is_empty());
    // A later block reads what an earlier one wrote; after an atomic it may know that it was written.
    let read = format!("{own} st.global.u32 [%w2], %r2; {first} ld.global.u32 %r4, [%w2];");
    assert_eq!(run(&read)[0].kind, Kind::GlobalRace);
    let counted = read.replace(first, &format!("membar.gl; {first} atom.global.add.u32 %r5, [%w2], 0;"));
    assert!(run(&counted).is_empty(), "{}", run(&counted)[0]);
    // Neighbouring halves of a word are not the same bytes.
    let halves = "mul.wide.u32 %w2, %r0, 2; add.s64 %w2, %w0, %w2; cvt.u16.u32 %h1, %r2; st.global.u16 [%w2], %h1; ld.global.u16 %h2, [%w2];";
    assert!(run(halves).is_empty());
}

#[test]
fn copies_in_flight() {
    let copy = |wait: &str| {
        format!(
            "{{ .shared .align 16 .b8 words[1024]; mov.u32 %r4, words; mad.lo.u32 %r5, %r1, 4, %r4; mul.wide.u32 %w2, %r1, 4;\n\
             add.s64 %w2, %w1, %w2; cp.async.ca.shared.global [%r5], [%w2], 4; {wait} ld.shared.b32 %r7, [%r5]; {} }}",
            store("%r7")
        )
    };
    let run = |wait: &str| {
        let body = copy(wait);
        let mut run = Run::new(&body, 1, 32);
        run.input = (100..132).collect();
        let outcome = run.go();
        (outcome.out, outcome.findings)
    };
    for wait in ["cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"] {
        let (out, findings) = run(wait);
        assert!(findings.is_empty(), "{}", findings[0]);
        assert_eq!(out, (100..132).collect::<Vec<_>>());
    }
    // No wait; a barrier instead of a wait; a wait for the group before; a wait without a commit.
    for wait in ["", "bar.sync 0;", "cp.async.commit_group; cp.async.wait_group 1;", "cp.async.wait_group 0;"] {
        let (out, findings) = run(wait);
        assert_eq!(findings[0].kind, Kind::AsyncInFlight, "{wait}");
        assert_eq!(out[0], u32::MAX, "{wait}: what has not landed is not there");
    }
    // Waited for by its own thread only: the others need a barrier too.
    let body = copy("cp.async.wait_all; xor.b32 %r6, %r1, 1; mad.lo.u32 %r5, %r6, 4, %r4;");
    let mut run = Run::new(&body, 1, 32);
    run.input = (100..132).collect();
    run.finds(Kind::SharedRace);
}

#[test]
fn use_after_free() {
    let device = Device::default();
    let run = Run::new("ld.global.u32 %r4, [%w1];", 1, 1);
    let module = device.load(&run.text()).unwrap();
    let address = device.allocate(64).unwrap().base;
    device.write(address, &[0; 64]).unwrap();
    device.free(address).unwrap();
    let result = device.launch(&module.kernels["k"], &run.config, &[address.to_le_bytes(); 2].concat());
    assert_eq!(result, Err(LaunchError::Fault(Fault::IllegalAddress)));
    assert_eq!(device.findings()[0].kind, Kind::UseAfterFree);
    assert!(device.findings()[0].message.contains("whose 64 bytes were freed"));
    assert!(device.free(address).is_err());
    assert_eq!(device.findings()[1].kind, Kind::DoubleFree);
    assert!(device.write(address, &[0]).is_err());
}

#[test]
fn leaks() {
    let device = Device::default();
    let kept = device.allocate(10).unwrap().base;
    let freed = device.allocate(20).unwrap().base;
    device.free(freed).unwrap();
    device.report_leaks("at the end", |_| false);
    let findings = device.findings();
    assert_eq!(findings.len(), 1);
    assert!(findings[0].message.contains("10 bytes") && findings[0].message.contains(&format!("{kept:#x}")));
}

#[test]
fn bad_launches() {
    let device = Device::default();
    let text = Run::new("", 1, 1).text().replace(
        ".entry k(.param .u64 out, .param .u64 in)",
        ".entry k(.param .u64 out, .param .u64 in)\n.maxntid 256, 1, 1",
    );
    let module = device.load(&text).unwrap();
    let kernel = &module.kernels["k"];
    let good = LaunchConfig::new(1, 32);
    let refused = |config: &LaunchConfig, bytes: usize, words: &str| {
        device.reset();
        match device.launch(kernel, config, &vec![0; bytes]) {
            Err(LaunchError::Refused(message)) => assert!(message.contains(words), "{message}"),
            other => panic!("{words}: {other:?}"),
        }
        assert_eq!(device.findings()[0].kind, Kind::BadLaunch);
    };
    refused(&LaunchConfig { grid: [0, 1, 1], ..good.clone() }, 16, "is 0");
    refused(&LaunchConfig { block: [32, 33, 1], ..good.clone() }, 16, "over 1024 threads");
    refused(&LaunchConfig { block: [257, 1, 1], ..good.clone() }, 16, "compiled for 256");
    refused(&LaunchConfig { grid: [1, 65536, 1], ..good.clone() }, 16, "65535");
    refused(&LaunchConfig { dynamic_shared: 49153, ..good.clone() }, 16, "attribute allows 49152");
    refused(
        &LaunchConfig { dynamic_shared: 200_000, max_dynamic_shared: 300_000, ..good.clone() },
        16,
        "the device has 166912",
    );
    refused(&good, 12, "12 bytes of parameters, the kernel takes 16");
    device.reset();
    device.launch(kernel, &good, &[0; 16]).unwrap();
    assert!(device.findings().is_empty());
}

#[test]
fn traps() {
    let finding = Run::new("setp.eq.u32 %p0, %r1, 5; @%p0 trap;", 1, 32).faults(Kind::Trap, Fault::LaunchFailed);
    assert_eq!(finding.place.unwrap().thread, [5, 0, 0]);
}

#[test]
fn findings_are_the_same_for_any_number_of_workers() {
    let body = "{ .shared .align 4 .b8 words[512]; mov.u32 %r4, words; st.shared.b32 [%r4], %r0; }";
    let found = |workers: usize| {
        let mut run = Run::new(body, 30, 64);
        run.workers = workers;
        run.go().findings
    };
    assert_eq!(found(1), found(4));
    assert!(found(1)[0].count >= 30);
}

#[test]
fn source_lines_are_named() {
    let run = Run::new(".loc 1 42 7\nst.global.u32 [%w0+4000000], 1;", 1, 1);
    let text = run.text().replace(".address_size 64\n", ".address_size 64\n.file 1 \"kernel.cu\"\n");
    let device = Device::default();
    let module = device.load(&text).unwrap();
    let address = device.allocate(4).unwrap().base;
    let result = device.launch(&module.kernels["k"], &run.config, &[address.to_le_bytes(); 2].concat());
    assert!(result.is_err());
    assert_eq!(device.findings()[0].place.as_ref().unwrap().source.as_deref(), Some("kernel.cu:42"));
}
