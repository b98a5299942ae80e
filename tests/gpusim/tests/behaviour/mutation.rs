use gpusim::device::{Device, LaunchConfig};

/// Runs the vector addition; whether it gives the right sums with nothing found.
fn is_right(device: &Device) -> bool {
    let module = match device.load(include_str!("../ptx/vector_add.ptx")) {
        Ok(module) => module,
        Err(_) => return false,
    };
    let n = 100u64;
    let x: Vec<f32> = (0..n).map(|i| 1.0 + i as f32).collect();
    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
    let memory: Vec<u64> = (0..3).map(|_| device.allocate(bytes.len()).unwrap().base).collect();
    device.write(memory[0], &bytes).unwrap();
    device.write(memory[1], &bytes).unwrap();
    let parameters: Vec<u8> = memory.iter().chain([&n]).flat_map(|p| p.to_le_bytes()).collect();
    let result = device.launch(&module.kernels["vector_add"], &LaunchConfig::new(2, 64), &parameters);
    let mut out = vec![0; bytes.len()];
    device.read(memory[2], &mut out).unwrap();
    let expected: Vec<u8> = x.iter().flat_map(|x| (2.0 * x).to_le_bytes()).collect();
    result.is_ok() && device.findings().is_empty() && out == expected
}

#[test]
fn mutants_are_told_apart() {
    let device = Device::default();
    assert!(is_right(&device), "the kernel as it is");
    let mut seen = std::collections::BTreeSet::new();
    let mut survivors = Vec::new();
    for seed in 0..60 {
        let device = Device::default();
        device.mutate_next("vector_add", seed);
        let is_unnoticed = is_right(&device);
        let mutation = device.last_mutation().expect("the kernel has instructions to alter");
        assert!(mutation.starts_with("vector_add, line "), "{mutation}");
        if seen.insert(mutation.clone()) && is_unnoticed {
            survivors.push(mutation);
        }
    }
    assert!(seen.len() >= 8, "{seen:#?}");
    assert!(survivors.is_empty(), "{survivors:#?}");
}

#[test]
fn a_seed_always_means_the_same() {
    let mutate = |seed| {
        let device = Device::default();
        device.mutate_next("reduce", seed);
        device.load(include_str!("../ptx/reduce.ptx")).unwrap().mutation.unwrap()
    };
    assert_eq!(mutate(3), mutate(3));
    assert_ne!(mutate(3), mutate(4));
    // Only the next module is altered, and only one that has the kernel.
    let device = Device::default();
    device.mutate_next("reduce", 1);
    assert!(device.load(include_str!("../ptx/vector_add.ptx")).unwrap().mutation.is_none());
    assert!(device.load(include_str!("../ptx/reduce.ptx")).unwrap().mutation.is_some());
    assert!(device.load(include_str!("../ptx/reduce.ptx")).unwrap().mutation.is_none());
}

#[test]
fn every_mutant_of_the_fixtures_decodes() {
    for (text, name) in [
        (include_str!("../ptx/reduce.ptx"), "reduce"),
        (include_str!("../ptx/gemm_f32.ptx"), "gemm_f32"),
        (include_str!("../ptx/gemm_bf16_mma.ptx"), "gemm_bf16_mma"),
    ] {
        for seed in 0..300 {
            let device = Device::default();
            device.mutate_next(name, seed);
            let loaded = device.load(text).map(|module| module.mutation);
            assert!(loaded.is_ok(), "{:?}: {:?}", device.last_mutation(), loaded.err());
        }
    }
}
