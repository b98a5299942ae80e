use super::harness::{Random, check_rows, integer};

/// 128 threads, one input each: `expected` sees all inputs and a thread's index.
fn by_warp(code: &str, expected: impl Fn(&[u64], usize) -> u64) {
    let mut random = Random(3);
    let inputs: Vec<u64> = (0..128).map(|_| random.bits() & 0xffff_ffff).collect();
    by_warp_on(code, &inputs, expected);
}

fn by_warp_on(code: &str, inputs: &[u64], expected: impl Fn(&[u64], usize) -> u64) {
    let rows: Vec<Vec<u64>> = inputs.iter().enumerate().map(|(i, x)| vec![*x, i as u64]).collect();
    check_rows(code, "b32", &["b32", "b32"], &rows, |x| {
        let i = x[1] as usize;
        let warp = &inputs[i / 32 * 32..i / 32 * 32 + 32];
        expected(warp, i % 32)
    });
}

#[test]
fn shuffles() {
    for offset in [0usize, 1, 5, 16, 31] {
        by_warp(&format!("shfl.sync.bfly.b32 %d|%p, %a, {offset}, 31, -1;"), |w, l| w[l ^ offset]);
        by_warp(&format!("shfl.sync.up.b32 %d, %a, {offset}, 0, -1;"), |w, l| w[l.checked_sub(offset).unwrap_or(l)]);
        by_warp(&format!("shfl.sync.down.b32 %d, %a, {offset}, 31, -1;"), |w, l| {
            w[if l + offset < 32 { l + offset } else { l }]
        });
        by_warp(&format!("shfl.sync.idx.b32 %d, %a, {offset}, 31, -1;"), |w, _| w[offset]);
        by_warp(&format!("shfl.sync.up.b32 %d|%p, %a, {offset}, 0, -1; selp.u32 %d, 1, 0, %p;"), |_, l| {
            (l >= offset) as u64
        });
        by_warp(&format!("shfl.sync.down.b32 %d|%p, %a, {offset}, 31, -1; selp.u32 %d, 1, 0, %p;"), |_, l| {
            (l + offset < 32) as u64
        });
    }
    // Segments of 8 lanes: mask 0b11000 in the upper bits of c, clamp 31.
    let segment = 0b11000 << 8 | 31;
    for offset in [1usize, 3, 7] {
        by_warp(&format!("shfl.sync.down.b32 %d, %a, {offset}, {segment}, -1;"), |w, l| {
            w[if l % 8 + offset < 8 { l + offset } else { l }]
        });
        by_warp(&format!("shfl.sync.idx.b32 %d, %a, {offset}, {segment}, -1;"), |w, l| w[l / 8 * 8 + offset]);
        by_warp(&format!("shfl.sync.bfly.b32 %d, %a, {offset}, {segment}, -1;"), |w, l| w[l ^ offset]);
        let up = 0b11000 << 8;
        by_warp(&format!("shfl.sync.up.b32 %d, %a, {offset}, {up}, -1;"), |w, l| {
            w[if l % 8 >= offset { l - offset } else { l }]
        });
    }
    // Each lane names its own source.
    by_warp("and.b32 %t, %a, 31; shfl.sync.idx.b32 %d, %a, %t, 31, -1;", |w, l| w[(w[l] & 31) as usize]);
}

#[test]
fn shuffles_of_some_lanes() {
    // Each half of the warp names itself.
    by_warp(
        "setp.lt.u32 %p, %laneid, 16; selp.b32 %t, 0xffff, 0xffff0000, %p; shfl.sync.bfly.b32 %d, %a, 3, 31, %t;",
        |w, l| w[l ^ 3],
    );
    // Only even lanes take part.
    by_warp(
        "and.b32 %t, %laneid, 1; setp.eq.u32 %p, %t, 0; mov.b32 %d, 7; @%p shfl.sync.bfly.b32 %d, %a, 2, 31, 0x55555555;",
        |w, l| if l % 2 == 0 { w[l ^ 2] } else { 7 },
    );
}

#[test]
fn votes() {
    let is_odd = |x: u64| x & 1 != 0;
    let condition = "and.b32 %t, %a, 1; setp.eq.u32 %p, %t, 1;";
    let ballot = |w: &[u64]| w.iter().enumerate().fold(0, |b, (l, x)| b | (*x & 1) << l);
    by_warp(&format!("{condition} vote.sync.ballot.b32 %d, %p, -1;"), |w, _| ballot(w));
    by_warp(&format!("{condition} vote.sync.ballot.b32 %d, !%p, -1;"), |w, _| !ballot(w));
    by_warp(&format!("{condition} vote.sync.any.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;"), |w, _| {
        w.iter().any(|x| is_odd(*x)) as u64
    });
    for inputs in [[1u64; 128], [0; 128], std::array::from_fn(|i| (i == 40) as u64)] {
        by_warp_on(&format!("{condition} vote.sync.all.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;"), &inputs, |w, _| {
            w.iter().all(|x| is_odd(*x)) as u64
        });
        by_warp_on(&format!("{condition} vote.sync.uni.pred %q, %p, -1; selp.u32 %d, 1, 0, %q;"), &inputs, |w, _| {
            (w.iter().all(|x| is_odd(*x)) || w.iter().all(|x| !is_odd(*x))) as u64
        });
    }
    by_warp("activemask.b32 %d;", |_, _| 0xffff_ffff);
    by_warp("mov.b32 %d, 0; setp.lt.u32 %p, %laneid, 5; @!%p bra $skip; activemask.b32 %d; $skip:", |_, l| {
        if l < 5 { 31 } else { 0 }
    });
}

#[test]
fn matches() {
    let inputs: Vec<u64> = (0..128).map(|i| (i * i) % 5).collect();
    let same = |w: &[u64], l: usize| w.iter().enumerate().fold(0, |m, (k, x)| m | ((*x == w[l]) as u64) << k);
    by_warp_on("match.any.sync.b32 %d, %a, -1;", &inputs, same);
    by_warp_on("cvt.u64.u32 %w, %a; match.any.sync.b64 %d, %w, -1;", &inputs, same);
    for inputs in [vec![9; 128], inputs] {
        let all = |w: &[u64]| w.iter().all(|x| *x == w[0]);
        by_warp_on("match.all.sync.b32 %d|%p, %a, -1;", &inputs, |w, _| if all(w) { 0xffff_ffff } else { 0 });
        by_warp_on("match.all.sync.b32 %d|%p, %a, -1; selp.u32 %d, 1, 0, %p;", &inputs, |w, _| all(w) as u64);
    }
}

#[test]
fn reductions() {
    by_warp("redux.sync.add.u32 %d, %a, -1;", |w, _| w.iter().sum());
    by_warp("redux.sync.min.u32 %d, %a, -1;", |w, _| *w.iter().min().unwrap());
    by_warp("redux.sync.max.u32 %d, %a, -1;", |w, _| *w.iter().max().unwrap());
    by_warp("redux.sync.min.s32 %d, %a, -1;", |w, _| w.iter().map(|x| integer("s32", *x)).min().unwrap() as u64);
    by_warp("redux.sync.max.s32 %d, %a, -1;", |w, _| w.iter().map(|x| integer("s32", *x)).max().unwrap() as u64);
    by_warp("redux.sync.and.b32 %d, %a, -1;", |w, _| w.iter().fold(u64::MAX, |a, x| a & x));
    by_warp("redux.sync.or.b32 %d, %a, -1;", |w, _| w.iter().fold(0, |a, x| a | x));
    by_warp("redux.sync.xor.b32 %d, %a, -1;", |w, _| w.iter().fold(0, |a, x| a ^ x));
}

#[test]
fn election() {
    by_warp("elect.sync %t|%p, -1; selp.u32 %d, 1, 0, %p;", |_, l| (l == 0) as u64);
}

#[test]
fn block_reductions() {
    let odd = "and.b32 %t, %a, 1; setp.eq.u32 %p, %t, 1;";
    let mut random = Random(3);
    let inputs: Vec<u64> = (0..128).map(|_| random.bits() & 0xffff_ffff).collect();
    let count = inputs.iter().filter(|x| *x & 1 != 0).count() as u64;
    by_warp(&format!("{odd} bar.red.popc.u32 %d, 0, %p;"), |_, _| count);
    by_warp(&format!("{odd} bar.red.or.pred %q, 1, %p; selp.u32 %d, 1, 0, %q;"), |_, _| 1);
    by_warp(&format!("{odd} bar.red.and.pred %q, 2, !%p; selp.u32 %d, 1, 0, %q;"), |_, _| 0);
}
