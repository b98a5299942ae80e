use gpusim::device::*;
#[test]
fn vector_add() {
    let device = Device::default();
    let m = device.load(include_str!("ptx/vector_add.ptx")).unwrap();
    let n = 1000usize;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let (pa, pb, po) = (
        device.allocate(4 * n).unwrap().base,
        device.allocate(4 * n).unwrap().base,
        device.allocate(4 * n).unwrap().base,
    );
    device.write(pa, &bytes(&a)).unwrap();
    device.write(pb, &bytes(&a)).unwrap();
    let mut params = vec![];
    for x in [pa, pb, po, n as u64] {
        params.extend(x.to_le_bytes());
    }
    device.launch(&m.kernels["vector_add"], &LaunchConfig::new(4, 256), &params).unwrap();
    let mut out = vec![0u8; 4 * n];
    device.read(po, &mut out).unwrap();
    assert_eq!(out, bytes(&a.iter().map(|x| 2.0 * x).collect::<Vec<_>>()));
    for f in device.findings() {
        println!("{f}");
    }
    println!("{}", device.counters_json());
    println!("{}", device.coverage_json());
}
#[test]
fn decode_all() {
    let device = Device::default();
    for t in [include_str!("ptx/reduce.ptx"), include_str!("ptx/gemm_f32.ptx"), include_str!("ptx/gemm_bf16_mma.ptx")] {
        device.load(t).unwrap();
    }
}
