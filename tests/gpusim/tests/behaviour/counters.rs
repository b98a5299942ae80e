use gpusim::count::counters::Counters;
use gpusim::decode::inst::{Class, Kernel};
use gpusim::device::{Device, LaunchConfig};

use super::sim::Run;

/// Runs on 128 KB of output and of input; gives the counts and the kernel.
fn count(body: &str, blocks: u32, threads: u32) -> (Counters, std::sync::Arc<Kernel>) {
    let device = Device::default();
    let module = device.load(&Run::new(body, blocks, threads).text()).unwrap();
    let kernel = module.kernels["k"].clone();
    let (out, input) = (device.allocate(1 << 17).unwrap().base, device.allocate(1 << 17).unwrap().base);
    device.fill(out, &[0], 1 << 17).unwrap();
    device.fill(input, &[0], 1 << 17).unwrap();
    let parameters = [out.to_le_bytes(), input.to_le_bytes()].concat();
    device.launch(&kernel, &LaunchConfig::new(blocks, threads), &parameters).unwrap();
    assert!(device.findings().is_empty(), "{}", device.findings()[0]);
    (device.counters(&kernel), kernel)
}

/// Copies a word per thread; addresses are `%r4` words from the start.
fn copy(index: &str) -> String {
    format!(
        "{index} mul.wide.u32 %w2, %r4, 4; add.s64 %w3, %w1, %w2; ld.global.u32 %r5, [%w3]; add.s64 %w3, %w0, %w2; st.global.u32 [%w3], %r5;"
    )
}

#[test]
fn a_copy_moves_the_fewest_sectors() {
    let (counters, kernel) = count(&copy("mov.u32 %r4, %r0;"), 4, 256);
    let sectors = 4 * 256 * 4 / 32;
    assert_eq!(counters.global_traffic(&kernel), [(sectors, sectors), (sectors, sectors)]);
    assert_eq!((counters.launches, counters.blocks), (1, 4));
}

#[test]
fn a_stride_of_eight_words_moves_eight_times_as_many() {
    let (counters, kernel) = count(&copy("shl.b32 %r4, %r0, 3;"), 4, 256);
    let sectors = 4 * 256 * 4 / 32;
    assert_eq!(counters.global_traffic(&kernel), [(8 * sectors, sectors), (8 * sectors, sectors)]);
}

#[test]
fn a_broadcast_moves_one_sector() {
    let (counters, kernel) = count("ld.global.u32 %r5, [%w1];", 1, 32);
    assert_eq!(counters.global_traffic(&kernel)[0], (1, 1));
}

#[test]
fn vector_loads_move_the_fewest_sectors() {
    let body = "mul.wide.u32 %w2, %r0, 16; add.s64 %w3, %w1, %w2; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%w3];";
    let (counters, kernel) = count(body, 1, 64);
    assert_eq!(counters.global_traffic(&kernel)[0], (32, 32));
}

#[test]
fn bank_conflicts() {
    let access = |stride: u32, bytes: u32| {
        let registers = if bytes == 16 { ".v4.b32 [%r5], {%r1, %r1, %r1, %r1}" } else { ".b32 [%r5], %r1" };
        let body = format!(
            "{{ .shared .align 16 .b8 words[8192]; mov.u32 %r4, words; mad.lo.u32 %r5, %r1, {stride}, %r4; st.shared{registers}; }}"
        );
        count(&body, 1, 32).0.bank_conflicts()
    };
    assert_eq!(access(4, 4), (0, 1), "side by side");
    assert_eq!(access(128, 4), (31, 1), "a column of 32 words: 31 wavefronts more");
    assert_eq!(access(132, 4), (0, 1), "a padded column");
    assert_eq!(access(8, 4), (1, 1), "every other word");
    assert_eq!(access(16, 16), (0, 1), "16 bytes side by side");
    assert_eq!(access(128, 16), (28, 1), "16 bytes in rows of 128");
}

#[test]
fn instructions_by_class_and_coverage() {
    let body = "setp.lt.u32 %p0, %r1, 8; @%p0 bra $some; mov.f32 %f1, 0f3F800000; fma.rn.f32 %f1, %f1, %f1, %f1; ret;\n\
        $some: rsqrt.approx.f32 %f2, 0f40000000; bar.sync 0; ret; mov.b32 %r9, 1;";
    let (counters, kernel) = count(body, 2, 32);
    assert_eq!(counters.of_class(&kernel, Class::Float), 2 * 24);
    assert_eq!(counters.of_class(&kernel, Class::Special), 2 * 8);
    assert_eq!(counters.barriers(&kernel), 2);
    assert_eq!(counters.warp_instructions(), counters.insts.iter().map(|i| i.warps).sum::<u64>());
    let json: serde_json::Value = serde_json::from_str(&counters.coverage_json(&kernel).to_string()).unwrap();
    let never: Vec<&str> =
        json["never_executed"].as_array().unwrap().iter().map(|i| i["instruction"].as_str().unwrap()).collect();
    assert_eq!(never, ["mov.b32 %r9, 1;", "ret;"]);
    let json: serde_json::Value = serde_json::from_str(&counters.to_json(&kernel).to_string()).unwrap();
    assert_eq!(json["thread_instructions_by_class"]["special"], 16);
}

#[test]
fn counts_add_up_over_launches_and_loads() {
    let device = Device::default();
    let text = Run::new("add.u32 %r4, %r0, 1;", 1, 32).text();
    for launches in 1..=3u64 {
        let module = device.load(&text).unwrap();
        device.launch(&module.kernels["k"], &LaunchConfig::new(1, 32), &[0; 16]).unwrap();
        let counters = device.counters(&module.kernels["k"]);
        assert_eq!((counters.launches, counters.blocks), (launches, launches));
        device.unload(&module);
    }
    device.reset();
    assert!(device.counters_json().to_string().contains("\"launches\":0"));
}
