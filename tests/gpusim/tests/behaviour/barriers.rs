use gpusim::check::finding::Kind;
use gpusim::exec::env::Fault;

use super::sim::{Run, store};

/// Each thread reads what the thread opposite wrote.
fn exchange(barrier: &str) -> String {
    format!(
        "{{ .shared .align 4 .b8 words[1024]; mov.u32 %r4, words; mad.lo.u32 %r5, %r1, 4, %r4; st.shared.b32 [%r5], %r1;\n{barrier}\n\
         sub.u32 %r6, %r3, 1; sub.u32 %r6, %r6, %r1; mad.lo.u32 %r5, %r6, 4, %r4; ld.shared.b32 %r7, [%r5];\n{} }}",
        store("%r7")
    )
}

#[test]
fn a_barrier_makes_writes_visible() {
    for threads in [32u32, 64, 96, 100, 256] {
        let out = Run::new(&exchange("bar.sync 0;"), 3, threads).clean();
        assert!(out.iter().enumerate().all(|(i, x)| *x == threads - 1 - i as u32 % threads), "{threads} threads");
    }
    Run::new(&exchange("barrier.sync 3;"), 1, 64).clean();
    Run::new(&exchange("bar.sync 1, 64;"), 1, 64).clean();
}

#[test]
fn a_warp_barrier_orders_one_warp() {
    Run::new(&exchange("bar.warp.sync 0xffffffff;"), 2, 32).clean();
    let findings = Run::new(&exchange("bar.warp.sync 0xffffffff;"), 1, 64).go().findings;
    assert!(findings.iter().any(|f| f.kind == Kind::SharedRace), "{findings:?}");
}

#[test]
fn threads_that_have_exited_are_not_waited_for() {
    let body = format!("setp.ge.u32 %p0, %r1, 40; @%p0 ret;\nbar.sync 0;\nmov.b32 %r4, 5;\n{}", store("%r4"));
    let out = Run::new(&body, 1, 128).clean();
    assert_eq!(out.iter().filter(|x| **x == 5).count(), 40);
}

#[test]
fn producers_arrive_and_consumers_wait() {
    // Warps 0 and 1 write and go on; warps 2 and 3 wait for them.
    let body = format!(
        "{{ .shared .align 4 .b8 words[256]; mov.u32 %r4, words; setp.ge.u32 %p0, %r1, 64; @%p0 bra $consume;\n\
         mad.lo.u32 %r5, %r1, 4, %r4; st.shared.b32 [%r5], %r1; bar.arrive 2, 128; bra.uni $end;\n\
         $consume: bar.sync 2, 128; sub.u32 %r6, %r1, 64; mad.lo.u32 %r5, %r6, 4, %r4; ld.shared.b32 %r7, [%r5];\n{}\n$end: }}",
        store("%r7")
    );
    let out = Run::new(&body, 1, 128).clean();
    assert_eq!(out[64..], (0..64).collect::<Vec<_>>());
    // What a producer writes after its arrival is not ordered.
    let late =
        body.replace("st.shared.b32 [%r5], %r1; bar.arrive 2, 128;", "bar.arrive 2, 128; st.shared.b32 [%r5], %r1;");
    let finding = Run::new(&late, 1, 128).go().findings;
    assert!(finding.iter().any(|f| matches!(f.kind, Kind::SharedRace | Kind::Uninitialized)), "{finding:?}");
}

#[test]
fn a_deadlock_is_named() {
    // Half of the warps wait at a barrier for the number of all.
    let body = "setp.ge.u32 %p0, %r1, 32; @%p0 bra $end; bar.sync 1, 64;\n$end: bar.sync 0;";
    let finding = Run::new(body, 1, 64).faults(Kind::Deadlock, Fault::LaunchFailed);
    assert!(
        finding.message.contains("32 threads of warp 0") && finding.message.contains("bar.sync 1, 64"),
        "{finding}"
    );
}

#[test]
fn a_warp_split_over_two_barriers_is_named() {
    let body = "setp.ge.u32 %p0, %r1, 16; @%p0 bra $other; bar.sync 0; bra.uni $end;\n$other: bar.sync 0;\n$end:";
    let finding = Run::new(body, 1, 32).faults(Kind::BarrierDivergence, Fault::LaunchFailed);
    assert!(finding.message.contains("another barrier"), "{finding}");
}

#[test]
fn a_shuffle_that_misses_a_member_is_named() {
    // Lanes 16 and up never come.
    let body =
        "setp.ge.u32 %p0, %r1, 16; @%p0 bra $spin; shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1; ret;\n$spin: bar.sync 0;";
    Run::new(body, 1, 32).faults(Kind::Deadlock, Fault::LaunchFailed);
    // A lane that is not a member takes part.
    Run::new("shfl.sync.bfly.b32 %r4, %r1, 1, 31, 0xffff;", 1, 32).finds(Kind::BarrierDivergence);
}

#[test]
fn an_endless_loop_is_ended() {
    Run::new("$again: bra.uni $again;", 1, 32).faults(Kind::Watchdog, Fault::Timeout);
}
