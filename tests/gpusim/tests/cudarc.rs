//! Compiled kernels through cudarc: the driver API, and results against the host.

mod common;

use std::sync::Arc;

use common::{Random, assert_clean, context};
use cudarc::driver::{CudaContext, CudaFunction, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;
use half::bf16;

fn function(context: &Arc<CudaContext>, ptx: &str, name: &str) -> CudaFunction {
    context.load_module(Ptx::from_src(ptx)).unwrap().load_function(name).unwrap()
}

fn config(grid: (u32, u32, u32), block: (u32, u32, u32), shared: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: grid, block_dim: block, shared_mem_bytes: shared }
}

#[test]
fn vector_add() {
    let (sim, context) = context();
    let add = function(&context, include_str!("ptx/vector_add.ptx"), "vector_add");
    let stream = context.default_stream();
    for n in [1usize, 31, 32, 33, 1000, 4096] {
        let (a, b) = (Random(n as u64).floats(n), Random(n as u64 + 1).floats(n));
        let (da, db) = (stream.clone_htod(&a).unwrap(), stream.clone_htod(&b).unwrap());
        let mut out = unsafe { stream.alloc::<f32>(n) }.unwrap();
        let count = n as i64;
        let mut launch = stream.launch_builder(&add);
        launch.arg(&da).arg(&db).arg(&mut out).arg(&count);
        unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }.unwrap();
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(stream.clone_dtoh(&out).unwrap(), expected, "{n} elements");
    }
    assert_clean(sim);
}

#[test]
fn reduce() {
    let (sim, context) = context();
    let reduce = function(&context, include_str!("ptx/reduce.ptx"), "reduce");
    let stream = context.default_stream();
    for (n, blocks) in [(1usize, 1u32), (255, 1), (10_000, 3), (100_003, 16)] {
        let x = Random(n as u64).floats(n);
        let dx = stream.clone_htod(&x).unwrap();
        let mut partial = unsafe { stream.alloc::<f32>(blocks as usize) }.unwrap();
        let count = n as i64;
        let mut launch = stream.launch_builder(&reduce);
        launch.arg(&dx).arg(&mut partial).arg(&count);
        unsafe { launch.launch(config((blocks, 1, 1), (256, 1, 1), 0)) }.unwrap();
        let sum: f64 = stream.clone_dtoh(&partial).unwrap().iter().map(|x| *x as f64).sum();
        let expected: f64 = x.iter().map(|x| *x as f64).sum();
        assert!((sum - expected).abs() < 1e-3, "{n}: {sum} {expected}");
    }
    assert_clean(sim);
}

/// The kernel's argument struct.
#[repr(C)]
#[derive(Clone, Copy)]
struct GemmArgs {
    a: u64,
    b: u64,
    c: u64,
    m: i32,
    n: i32,
    k: i32,
}
unsafe impl cudarc::driver::DeviceRepr for GemmArgs {}

#[test]
fn gemm_f32() {
    use cudarc::driver::DevicePtr;
    let (sim, context) = context();
    let gemm = function(&context, include_str!("ptx/gemm_f32.ptx"), "gemm_f32");
    let stream = context.default_stream();
    for (m, n, k) in [(1usize, 1usize, 1usize), (64, 64, 16), (65, 63, 17), (100, 70, 33)] {
        let (a, b) = (Random(1).floats(m * k), Random(2).floats(k * n));
        let (da, db) = (stream.clone_htod(&a).unwrap(), stream.clone_htod(&b).unwrap());
        let c = unsafe { stream.alloc::<f32>(m * n) }.unwrap();
        let pointer = |slice: &cudarc::driver::CudaSlice<f32>| slice.device_ptr(&stream).0;
        let args = GemmArgs { a: pointer(&da), b: pointer(&db), c: pointer(&c), m: m as i32, n: n as i32, k: k as i32 };
        let grid = (n.div_ceil(64) as u32, m.div_ceil(64) as u32, 1);
        unsafe { stream.launch_builder(&gemm).arg(&args).launch(config(grid, (16, 16, 1), 0)) }.unwrap();
        let out = stream.clone_dtoh(&c).unwrap();
        for i in 0..m {
            for j in 0..n {
                // The same order of fused multiply-adds: the same bits.
                let expected = (0..k).fold(0f32, |sum, l| a[i * k + l].mul_add(b[l * n + j], sum));
                assert_eq!(out[i * n + j], expected, "{m}×{n}×{k} at {i}, {j}");
            }
        }
    }
    assert_clean(sim);
}

#[test]
fn gemm_bf16_on_tensor_cores() {
    let (sim, context) = context();
    let gemm = function(&context, include_str!("ptx/gemm_bf16_mma.ptx"), "gemm_bf16_mma");
    let stream = context.default_stream();
    for (m, n, k) in [(64usize, 64usize, 32usize), (128, 64, 96), (64, 192, 160)] {
        let narrow = |x: Vec<f32>| x.into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        let (a, b) = (narrow(Random(1).floats(m * k)), narrow(Random(2).floats(n * k)));
        let (da, db) = (stream.clone_htod(&a).unwrap(), stream.clone_htod(&b).unwrap());
        let mut c = unsafe { stream.alloc::<f32>(m * n) }.unwrap();
        let (columns, depth) = (n as i32, k as i32);
        let mut launch = stream.launch_builder(&gemm);
        launch.arg(&da).arg(&db).arg(&mut c).arg(&columns).arg(&depth);
        let shared = 2 * 2 * 64 * 40 * 2;
        unsafe { launch.launch(config((n as u32 / 64, m as u32 / 64, 1), (128, 1, 1), shared)) }.unwrap();
        let out = stream.clone_dtoh(&c).unwrap();
        for i in 0..m {
            for j in 0..n {
                let expected: f64 = (0..k).map(|l| a[i * k + l].to_f64() * b[j * k + l].to_f64()).sum();
                let difference = (out[i * n + j] as f64 - expected).abs();
                assert!(difference < 1e-5 * k as f64, "{m}×{n}×{k} at {i}, {j}: {} {expected}", out[i * n + j]);
            }
        }
    }
    assert_clean(sim);
    let counters: serde_json::Value = serde_json::from_str(&sim.counters_json()).unwrap();
    let of_gemm = counters.as_array().unwrap().iter().find(|k| k["kernel"] == "gemm_bf16_mma").unwrap();
    // Every product once; padded rows of 80 bytes have no bank conflicts.
    let products = 64 * 64 * 32 + 128 * 64 * 96 + 64 * 192 * 160;
    assert_eq!(of_gemm["tensor_multiply_adds"], products);
    assert_eq!(of_gemm["ldmatrix_extra_wavefronts"], 0);
}

#[test]
fn the_number_of_workers_changes_nothing() {
    let (sim, context) = context();
    let reduce = function(&context, include_str!("ptx/reduce.ptx"), "reduce");
    let stream = context.default_stream();
    let x = Random(9).floats(70_001);
    let dx = stream.clone_htod(&x).unwrap();
    let run = |workers: usize| {
        sim.set_workers(workers);
        sim.reset();
        let mut partial = unsafe { stream.alloc::<f32>(37) }.unwrap();
        let count = x.len() as i64;
        let mut launch = stream.launch_builder(&reduce);
        launch.arg(&dx).arg(&mut partial).arg(&count);
        unsafe { launch.launch(config((37, 1, 1), (256, 1, 1), 0)) }.unwrap();
        let bits: Vec<u32> = stream.clone_dtoh(&partial).unwrap().iter().map(|x| x.to_bits()).collect();
        (bits, sim.counters_json(), sim.coverage_json())
    };
    let alone = run(1);
    for workers in [2, 5] {
        assert_eq!(run(workers), alone, "{workers} workers");
    }
    sim.set_workers(0);
    assert_clean(sim);
}

#[test]
fn errors_stick_until_reset() {
    let (sim, context) = context();
    let add = function(&context, include_str!("ptx/vector_add.ptx"), "vector_add");
    let stream = context.default_stream();
    let short = stream.alloc_zeros::<f32>(100).unwrap();
    let mut out = stream.alloc_zeros::<f32>(128).unwrap();
    let count = 128i64;
    let mut launch = stream.launch_builder(&add);
    launch.arg(&short).arg(&short).arg(&mut out).arg(&count);
    let error = unsafe { launch.launch(config((1, 1, 1), (128, 1, 1), 0)) }.err().unwrap();
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(stream.synchronize().unwrap_err().0, sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    let findings: serde_json::Value = serde_json::from_str(&sim.findings_json()).unwrap();
    let finding = &findings[0];
    assert_eq!(finding["kind"], "out_of_bounds");
    assert_eq!(finding["kernel"], "vector_add");
    assert_eq!(finding["thread"], serde_json::json!([100, 0, 0]));
    assert!(finding["instruction"].as_str().unwrap().starts_with("ld.global.f32"), "{finding}");
    sim.reset();
    stream.synchronize().unwrap();
}

#[test]
fn a_stream_is_captured_into_a_graph() {
    let (sim, context) = context();
    let add = function(&context, include_str!("ptx/vector_add.ptx"), "vector_add");
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().unwrap();
    let one = stream.clone_htod(&[1f32; 64]).unwrap();
    let mut sum = stream.alloc_zeros::<f32>(64).unwrap();
    let count = 64i64;
    stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    {
        use cudarc::driver::DevicePtrMut;
        let (pointer, _record) = sum.device_ptr_mut(&stream);
        let mut launch = stream.launch_builder(&add);
        launch.arg(&one).arg(&pointer).arg(&pointer).arg(&count);
        unsafe { launch.launch(config((1, 1, 1), (64, 1, 1), 0)) }.unwrap();
    }
    let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
    for _ in 0..3 {
        graph.launch().unwrap();
    }
    assert_eq!(stream.clone_dtoh(&sum).unwrap(), [3f32; 64]);
    drop(graph);
    assert_clean(sim);
}

#[test]
fn the_rest_of_the_safe_layer() {
    let (sim, context) = context();
    assert_eq!(context.compute_capability().unwrap(), (8, 0));
    assert!(context.has_async_alloc());
    let (free, total) = context.mem_get_info().unwrap();
    assert!(free <= total && context.total_mem().unwrap() == total);
    let stream = context.new_stream().unwrap();
    let start = stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).unwrap();
    let mut x = stream.alloc_zeros::<u32>(1000).unwrap();
    stream.memcpy_htod(&[7u32; 1000], &mut x).unwrap();
    let y = stream.clone_dtod(&x).unwrap();
    let mut pinned = unsafe { context.alloc_pinned::<u32>(1000) }.unwrap();
    stream.memcpy_dtoh(&y, &mut pinned).unwrap();
    assert_eq!(pinned.as_slice().unwrap(), [7; 1000]);
    let end = stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).unwrap();
    assert!(start.elapsed_ms(&end).unwrap() >= 0.0);
    stream.join(&context.default_stream()).unwrap();
    let add = function(&context, include_str!("ptx/vector_add.ptx"), "vector_add");
    add.set_attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10).unwrap();
    assert!(
        add.set_attribute(sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20).is_err()
    );
    assert_eq!(add.occupancy_max_active_blocks_per_multiprocessor(256, 0, None).unwrap(), 8);
    drop((x, y, pinned, start, end, add, stream));
    let newer = include_str!("ptx/vector_add.ptx").replace(".target sm_80", ".target sm_90a");
    assert!(context.load_module(Ptx::from_src(newer)).is_err(), "the device is an sm_80");
    assert!(sim.findings_text().contains("does not run on compute capability 8.0"));
    let broken = context.load_module(Ptx::from_src("not ptx"));
    assert_eq!(broken.err().unwrap().0, sys::CUresult::CUDA_ERROR_INVALID_PTX);
    sim.reset();
    sim.check_leaks();
    assert_clean(sim);
}

#[test]
fn the_jit_log_says_what_is_wrong() {
    let (sim, context) = context();
    context.bind_to_thread().unwrap();
    let text = c".version 9.0\n.target sm_80\n.address_size 64\n.entry f() {\n frobnicate.u32 1;\n}\n";
    let mut log = vec![0u8; 512];
    let mut keys = [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), log.len() as *mut std::ffi::c_void];
    let mut module = std::ptr::null_mut();
    let result = unsafe {
        sys::cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, keys.as_mut_ptr(), values.as_mut_ptr())
    };
    assert_eq!(result, sys::CUresult::CUDA_ERROR_INVALID_PTX);
    let log = std::str::from_utf8(&log[..values[1] as usize]).unwrap();
    assert!(log.contains("line 5") && log.contains("frobnicate"), "{log}");
    sim.reset();
}

#[test]
fn leaks_and_double_frees_are_found() {
    let (sim, context) = context();
    context.bind_to_thread().unwrap();
    let mut address = 0;
    unsafe {
        assert_eq!(sys::cuMemAlloc_v2(&mut address, 100), sys::CUresult::CUDA_SUCCESS);
        sim.check_leaks();
        assert!(sim.findings_json().contains("leak"), "{}", sim.findings_json());
        assert_eq!(sys::cuMemFree_v2(address), sys::CUresult::CUDA_SUCCESS);
        sim.reset();
        assert_eq!(sys::cuMemFree_v2(address), sys::CUresult::CUDA_ERROR_INVALID_VALUE);
        assert!(sim.findings_json().contains("double_free"));
        assert_eq!(sys::cuMemFree_v2(address + 64), sys::CUresult::CUDA_ERROR_INVALID_VALUE);
        assert!(sim.findings_json().contains("invalid_free"));
    }
    sim.reset();
}
