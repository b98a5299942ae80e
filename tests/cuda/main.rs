//! Promise: every kernel that this program carries runs through the driver's interface on gpusim, equals the ops' f64
//! references, gives the same bits when its blocks run in another order, and does nothing that gpusim objects to: no access out of
//! bounds, no unwritten memory read, no race, no leak.
//! Without a driver, commands say so and end with exit code 2.

#[path = "../common/mod.rs"]
mod common;
mod served;
mod train;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard};

use autocompress::device::cuda::bench::{self, Counted};
use autocompress::device::cuda::check::{self, Outcome};
use autocompress::device::cuda::embedded::{MANIFEST, abi};
use autocompress::device::cuda::{Cuda, CudaError, Registry};

/// Of all kernels' PTX instructions, the share that the checks must execute at the least.
const LEAST_EXECUTED: f64 = 0.95;
/// Of ops that memory bounds: sectors over the fewest that the requests' bytes fit into.
const MOST_SECTORS: f64 = 1.1;
/// The ops that memory bounds, and the most that their sectors may hold over the bytes that must pass.
const MEMORY_BOUND: [&str; 9] = [
    "adamw",
    "causal_conv1d",
    "embedding",
    "gated_group_norm",
    "moe_combine",
    "quantize",
    "relu2",
    "residual_add",
    "rms_norm",
];
const MOST_TRAFFIC: f64 = 1.1;
/// Bytes below which a kernel is bound by its launch: what its blocks look up, and the rest of its last sectors, outweigh
/// what it is there for.
const SMALL: u64 = 16 << 10;
/// Of products on tensor cores: multiply-adds there over those of the formula.
const LEAST_ON_TENSOR_CORES: f64 = 0.95;

/// gpusim's findings and counts are the process's, and so is its memory: one test at a time uses it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|e| e.into_inner())
}

#[test]
fn every_kernel_equals_its_reference_on_gpusim() {
    let _alone = alone();
    let sim = gpusim::install().unwrap();
    let cuda = Cuda::open(0).unwrap();
    assert_eq!(cuda.name, "gpusim", "the tests must not run on a real device");
    sim.reset();
    let (mut outcomes, mut faults) = (Vec::new(), Vec::new());
    for op in check::ops() {
        let outcome = check::run_between(&cuda, op, || sim.set_backwards(true));
        sim.set_backwards(false);
        let outcome = outcome.unwrap_or_else(|e| panic!("{op}: {e}\n{}", sim.findings_text()));
        assert!(outcome.comparisons > 0, "{op} compares nothing");
        assert_eq!(cuda.memory().live, 0, "{op} leaves memory behind");
        faults.extend(outcome.faults.iter().map(|fault| format!("{op}: {fault}")));
        outcomes.push(outcome);
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(sim.findings_text(), "");
    coverage(&outcomes, &sim.coverage_json());
    limits(&cuda);
    memory(&cuda);
    uploads(&cuda);
    counters(&cuda);
    assert_eq!(sim.findings_text(), "");
    drop(cuda);
    sim.check_leaks();
    assert_eq!(sim.findings_text(), "");
}

/// Sums right to the last bit but one, which says whether an odd number of threads of the grid came before.
const COUNTS_THE_EARLIER: &str = "
.version 9.0
.target sm_80
.address_size 64
.global .align 4 .u32 earlier = 0;
.visible .entry column_sum_rows_f32(.param .align 8 .b8 args[32])
{
    .reg .pred %p<2>; .reg .f32 %f<2>; .reg .b32 %r<8>; .reg .b64 %w<4>;
    ld.param.u64 %w0, [args]; ld.param.u64 %w1, [args+8];
    ld.param.u32 %r0, [args+16]; ld.param.u32 %r1, [args+20]; ld.param.u32 %r2, [args+24];
    mov.u32 %r3, %tid.x; setp.ge.u32 %p0, %r3, 32; @%p0 bra END;
    mov.u32 %r4, %ctaid.x; mad.lo.u32 %r3, %r4, 32, %r3; setp.ge.u32 %p0, %r3, %r1; @%p0 bra END;
    mul.wide.u32 %w2, %r3, 4; add.s64 %w0, %w0, %w2; add.s64 %w1, %w1, %w2; mul.wide.u32 %w3, %r1, 4;
    mov.f32 %f0, 0f00000000; setp.ne.u32 %p1, %r2, 0; @%p1 ld.global.f32 %f0, [%w1];
    mov.u32 %r5, 0;
ROW:
    setp.ge.u32 %p0, %r5, %r0; @%p0 bra SUM;
    ld.global.f32 %f1, [%w0]; add.f32 %f0, %f0, %f1; add.s64 %w0, %w0, %w3; add.u32 %r5, %r5, 1; bra ROW;
SUM:
    atom.global.add.u32 %r6, [earlier], 1; and.b32 %r6, %r6, 1;
    mov.b32 %r7, %f0; or.b32 %r7, %r7, 1; sub.u32 %r7, %r7, %r6; mov.b32 %f0, %r7; st.global.f32 [%w1], %f0;
END:
    ret;
}
";

/// A check's two runs differ in the order of blocks: a result that depends on it is a fault though both values would pass.
#[test]
fn results_that_depend_on_the_order_of_blocks_are_faults() {
    let _alone = alone();
    let sim = gpusim::install().unwrap();
    sim.set_workers(1);
    sim.replace_next("column_sum_rows_f32", COUNTS_THE_EARLIER);
    let cuda = Cuda::open(0).unwrap();
    let same = check::run(&cuda, "column_sum").unwrap();
    let other = check::run_between(&cuda, "column_sum", || sim.set_backwards(true)).unwrap();
    sim.set_backwards(false);
    sim.set_workers(0);
    sim.reset();
    assert_eq!(same.faults, Vec::<String>::new());
    assert!(!other.faults.is_empty());
    for fault in other.faults {
        // Of the cases those with two blocks.
        assert!(fault.contains("of 33 columns: ") && fault.contains(" in one run and "), "{fault}");
    }
}

/// Every symbol was launched, and enough of all kernels' PTX instructions ran; with COVERAGE set, those that did not are printed.
fn coverage(outcomes: &[Outcome], json: &str) {
    let launched: BTreeSet<&str> = outcomes.iter().flat_map(|o| o.symbols.iter().map(String::as_str)).collect();
    let all: BTreeSet<&str> = Registry::embedded().unwrap().kernels().iter().map(|k| k.symbol.as_str()).collect();
    assert_eq!(launched, all, "the checks launch every kernel");
    let kernels: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    let mut shares: Vec<(f64, String)> = Vec::new();
    let (mut total, mut ran) = (0, 0);
    for kernel in kernels.iter().filter(|k| launched.contains(k["kernel"].as_str().unwrap())) {
        let (of, did) = (kernel["instructions"].as_u64().unwrap(), kernel["executed"].as_u64().unwrap());
        (total, ran) = (total + of, ran + did);
        shares.push((did as f64 / of as f64, kernel["kernel"].as_str().unwrap().into()));
        if std::env::var_os("COVERAGE").is_some() {
            println!("{kernel}");
        }
    }
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let share = ran as f64 / total as f64;
    println!("{} kernels launched, {ran} of {total} PTX instructions executed: {:.1} %", shares.len(), 100.0 * share);
    for (share, kernel) in shares.iter().take(12) {
        println!("  {:5.1} % {kernel}", 100.0 * share);
    }
    assert!(shares.len() == all.len() && share > LEAST_EXECUTED, "{share}");
}

/// What kernels ask of the hardware, as `kernels bench` counts it.
fn counters(cuda: &Cuda) {
    let mut faults = Vec::new();
    let mut unmeasured: BTreeSet<String> =
        Registry::embedded().unwrap().kernels().iter().map(|k| k.symbol.clone()).collect();
    for spec in bench::specs() {
        let measured = spec.default_shapes(cuda).iter().flat_map(|shape| spec.measure(cuda, shape, None).unwrap());
        for measured in measured {
            unmeasured.remove(&measured.symbol);
            let Counted { sectors, sectors_minimum, bank_conflicts, tensor_share, traffic, .. } =
                measured.counted.unwrap();
            let ratio = sectors as f64 / sectors_minimum as f64;
            println!("{:<34} {:<22} sectors {ratio:.3}, traffic {traffic:.3}", measured.symbol, measured.shape);
            let reuses = spec.op.ends_with("linear")
                || spec.op.ends_with("gemm")
                || matches!(spec.op, "attention" | "moe_route" | "ssd_scan");
            // Sorts and searches go to memory item by item.
            let streams = measured.bytes > SMALL && !measured.symbol.ends_with("_u32");
            if streams && !reuses && ratio > MOST_SECTORS {
                faults.push(format!("{}: {sectors} sectors, the least are {sectors_minimum}", measured.symbol));
            }
            if streams && MEMORY_BOUND.contains(&spec.op) && traffic > MOST_TRAFFIC {
                faults.push(format!("{}: {traffic} times the bytes that must pass", measured.symbol));
            }
            if tensor_share.is_some_and(|share| share < LEAST_ON_TENSOR_CORES) {
                faults.push(format!("{}: {tensor_share:?} of the products on tensor cores", measured.symbol));
            }
            let conflict_free = measured.symbol.contains("pipelined") || spec.op == "quantized_linear";
            if conflict_free && bank_conflicts > 0 {
                faults.push(format!("{}: {bank_conflicts} bank conflicts", measured.symbol));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(unmeasured, BTreeSet::new(), "the bench measures every kernel");
}

/// Registers hold everything, on all architectures that the manifest tells of.
#[test]
fn nothing_spills() {
    let manifest: serde_json::Value = serde_json::from_str(MANIFEST).unwrap();
    let kernels = manifest["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), Registry::embedded().unwrap().kernels().len());
    for kernel in kernels {
        for architecture in ["sm_80", "sm_90"] {
            let (spills, registers) = (&kernel["spills"][architecture], &kernel["registers"][architecture]);
            assert_eq!(spills.as_u64(), Some(0), "{} on {architecture}", kernel["symbol"]);
            assert!(registers.as_u64().is_some_and(|r| (1..=255).contains(&r)), "{}", kernel["symbol"]);
        }
    }
}

/// What a kernel cannot do is refused before it is launched.
fn limits(cuda: &Cuda) {
    let buffer = cuda.upload(&[0f32; 64]).unwrap();
    let skinny = abi::Linear {
        a: buffer.ptr(),
        b: buffer.ptr(),
        c: buffer.ptr(),
        m: 9,
        n: 1,
        k: 1,
        lda: 1,
        ldb: 1,
        ldc: 1,
        ..Default::default()
    };
    // SAFETY: the buffer is larger than the product needs, and it is refused.
    let error = unsafe { cuda.launch("linear_skinny_nt_f32", &skinny) }.unwrap_err();
    assert_eq!(error.to_string(), "linear_skinny_nt_f32: found 9, expected m <= 8");
    // SAFETY: refused for the wrong struct, for a symbol that is not there, for too much shared memory.
    unsafe {
        assert!(matches!(cuda.launch("relu2_forward_f32", &skinny), Err(CudaError::Table(_))));
        assert!(matches!(cuda.launch("relu2_sideways_f32", &skinny), Err(CudaError::NoKernel { .. })));
        let wide = abi::RmsNormForward { rows: 1, width: 1 << 20, rows_per_block: 1, ..Default::default() };
        let error = cuda.launch("rms_norm_forward_f32", &wide).unwrap_err().to_string();
        assert!(error.contains("8388608 bytes of shared memory"), "{error}");
        let empty = abi::RmsNormForward { rows: 0, width: 8, rows_per_block: 1, ..Default::default() };
        cuda.launch("rms_norm_forward_f32", &empty).unwrap();
    }
}

/// Freed memory is handed out again, what is too much is refused by name, and counts are right.
fn memory(cuda: &Cuda) {
    let before = cuda.memory();
    assert_eq!((before.live, before.kept), (0, 256), "the buffer of 64 floats is kept");
    let a = cuda.upload(&[1.5f32; 1000]).unwrap();
    assert_eq!(a.read().unwrap(), [1.5f32; 1000]);
    let address = a.ptr::<u8>();
    drop(a);
    let b = cuda.buffer::<f32>(1000).unwrap();
    assert_eq!(b.ptr::<u8>(), address, "the same block");
    let error = cuda.buffer::<u8>(1 << 50).map(|b| b.len()).unwrap_err();
    let CudaError::OutOfMemory { asked, free, total, .. } = &error else { panic!("{error}") };
    assert!(*asked == 1 << 50 && free <= total && *total > 0, "{error}");
    assert!(b.len() == 1000 && cuda.memory().live >= 4000, "what is in use stays");
}

/// Arrays come to the device whole, whatever their length against the pinned slots they go through, and may be dropped or
/// overwritten on the host at once.
fn uploads(cuda: &Cuda) {
    const SLOT: usize = 1 << 20;
    for bytes in [1, SLOT - 1, SLOT, SLOT + 1, 9 * SLOT + 7] {
        let value = |i: usize| (i % 251) as u8;
        let mut values: Vec<u8> = (0..bytes).map(value).collect();
        let mut buffer = cuda.upload(&values).unwrap();
        values.fill(0xff);
        drop(values);
        assert!(buffer.read().unwrap().into_iter().eq((0..bytes).map(value)), "{bytes} bytes");
        buffer.write(&vec![7; bytes]).unwrap();
        assert!(buffer.read().unwrap().iter().all(|v| *v == 7), "{bytes} bytes, written again");
    }
}

fn autocompress(args: &[&str], libraries: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_autocompress"));
    command.args(args).env("LD_LIBRARY_PATH", libraries).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder in which the loader finds gpusim under the driver's name.
fn with_gpusim() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let executable = std::env::current_exe().unwrap();
    let library = executable.ancestors().skip(1).map(|f| f.join("libgpusim.so")).find(|f| f.is_file()).unwrap();
    std::os::unix::fs::symlink(library, folder.path().join("libcuda.so")).unwrap();
    folder
}

#[test]
fn without_a_driver_commands_say_so() {
    let empty = tempfile::tempdir().unwrap();
    let asked: Vec<&[&str]> = vec![
        &["--device", "cuda", "kernels", "check"],
        &["kernels", "check", "relu2"],
        &["--device", "cuda:1", "inspect", "nowhere"],
        &["--device", "cuda", "rank", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "profile", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "extract", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "measure", "nowhere", "--contract", "nowhere"],
        &["--device", "cuda", "validate", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "run", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "quickstart", "--out", "nowhere"],
        &["--device", "cuda", "study", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "baseline", "minitron", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "search", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "recover", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "evaluate", "nowhere"],
        &["--device", "cuda", "generate", "nowhere", "--prompt", "a"],
        &["--device", "cuda", "logits", "nowhere", "--tokens", "nowhere", "--out", "nowhere"],
        &["--device", "cuda", "pretrain", "nowhere", "--out", "nowhere"],
    ];
    for args in asked {
        let output = autocompress(args, empty.path());
        let stderr = text(&output.stderr);
        if stderr.contains("found ") && !stderr.contains("no CUDA driver") {
            continue; // a machine with a driver of its own
        }
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: no CUDA driver: ") && stderr.trim_end().lines().count() == 1, "{stderr}");
    }
    let list = autocompress(&["--device", "cpu", "kernels", "list", "--json"], empty.path());
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    assert!(list["device"].is_null() && list["kernels"].as_array().unwrap().len() > 100, "{list:.500}");
}

#[test]
fn commands_run_on_the_driver_that_the_loader_finds() {
    let folder = with_gpusim();
    let run = |args: &[&str]| autocompress(args, folder.path());
    let output = run(&["kernels", "check", "mask_keep", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let checked: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&checked["device"], &checked["passed"]), (&"gpusim".into(), &true.into()));
    assert_eq!(checked["ops"][0]["symbols"].as_array().unwrap().len(), 2);
    let listed = text(&run(&["kernels", "list"]).stdout);
    assert!(listed.starts_with("On gpusim, compute capability 8.0"), "{listed:.300}");
    assert!(listed.lines().any(|l| l.contains("pipelined_nt*") && l.starts_with("linear")), "{listed}");

    let output = run(&["kernels", "bench", "linear", "--shape", "128,128,64", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |symbol: &str| {
        let mut kernels = measured["kernels"].as_array().unwrap().iter();
        kernels.find(|k| k["symbol"] == symbol).unwrap()["counted"]["tensor_multiply_adds"].as_u64()
    };
    assert_eq!((&measured["counts"], of("linear_pipelined_nt_bf16")), (&true.into(), Some(128 * 128 * 64)));
    assert!(measured["ceilings"].is_null() && of("linear_tiled_nt_bf16") == Some(0));
    for (op, shape, expected) in [
        ("linear", "18446744073709551615,2,2", "at most 1073741824 each"),
        ("residual_add", "1073741824,1073741824", "GiB of memory"),
        ("attention", "8,3,2,16", "Hq a multiple of Hkv"),
        ("attention", "8,2,2,257", "attention.head_dim <= 128"),
        ("moe_route", "4,2,5", "K at most E"),
        ("moe_combine", "4,2,5,8", "K at most E"),
        ("ssd_scan", "8,3,16,2,16", "H a multiple of G"),
        ("relu2", "8", "expected R, F of relu2, all above 0"),
    ] {
        let refused = run(&["kernels", "bench", op, "--shape", shape]);
        let code = if expected.ends_with("memory") { 1 } else { 2 };
        assert_eq!(refused.status.code(), Some(code), "{op} {shape}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(expected), "{op} {shape}: {}", text(&refused.stderr));
    }
    let table = text(&run(&["kernels", "bench", "relu2"]).stdout);
    assert!(table.starts_with("gpusim: counts of one launch, no times.") && table.contains("| `relu2_"), "{table}");

    for (args, message) in [
        (&["kernels", "bench", "nothing"][..], "expected one of adamw, "),
        (&["kernels", "bench", "linear", "--shape", "8,8"], "expected M, N, K of linear, all above 0"),
        (&["kernels", "bench", "linear", "--dtype", "u32"], "expected bf16, f32, as linear has"),
        (&["kernels", "bench", "--against", "cublaslt"], "gpusim counts and has no times to compare"),
        (&["kernels", "check", "nothing"], "expected one of adamw, "),
        (&["--device", "cpu", "kernels", "check"], "kernels run on a GPU"),
        (&["--device", "cuda:7", "kernels", "check"], "found 1 CUDA devices"),
        (&["--device", "tpu", "kernels", "list"], "expected cpu, cuda, cuda:N or auto"),
        (&["--device", "cuda", "--precision", "fp64", "inspect", "nowhere"], "expected f32, bf16, fp8 or nvfp4"),
    ] {
        let output = run(args);
        let stderr = text(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(message), "{args:?}: {stderr}");
    }
}

/// Training and inference through the program: on the device, or on the CPU with a word about it.
#[test]
fn models_compute_on_the_driver_that_the_loader_finds() {
    let (driver, empty) = (with_gpusim(), tempfile::tempdir().unwrap());
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/reference/base");
    let generate = |device: &[&str], libraries: &Path| {
        let args = [device, &["generate", model, "--prompt", "1+2=", "--max-tokens", "3", "--json"]].concat();
        autocompress(&args, libraries)
    };
    let cpu = generate(&[], empty.path());
    assert!(cpu.status.success() && cpu.stderr.is_empty(), "{}", text(&cpu.stderr));
    for device in ["cuda", "auto"] {
        let gpu = generate(&["--device", device, "--precision", "f32"], driver.path());
        assert_eq!((text(&gpu.stdout), text(&gpu.stderr)), (text(&cpu.stdout), String::new()));
    }
    let none = generate(&["--device", "auto"], empty.path());
    let said = text(&none.stderr);
    // A machine with a driver of its own has nothing to say.
    if !said.is_empty() {
        assert_eq!(
            (text(&none.stdout), said.as_str()),
            (text(&cpu.stdout), "--device auto: found no GPU, computing on the CPU\n")
        );
    }

    let folder = tempfile::tempdir().unwrap();
    let recipe = folder.path().join("recipe.toml");
    let written = format!(
        "[model]\nconfig = '{model}/config.json'\n[data]\nkind = 'tasks'\n\
         [train]\nsteps = 1\nsequences = 2\nlength = 48\nlearning_rate = 1e-3\n"
    );
    std::fs::write(&recipe, written).unwrap();
    let loss = |name: &str, device: &[&str], libraries: &Path| {
        let out = folder.path().join(name);
        let (recipe, out) = (recipe.to_str().unwrap(), out.to_str().unwrap());
        let output =
            autocompress(&[device, &["pretrain", recipe, "--out", out, "--quiet", "--json"]].concat(), libraries);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let trained: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        trained["loss"].as_f64().unwrap()
    };
    let cpu = loss("cpu", &[], empty.path());
    for (precision, most) in [("f32", 1e-5), ("bf16", 1e-2), ("fp8", 1e-2), ("nvfp4", 1e-2)] {
        let gpu = loss(precision, &["--device", "cuda", "--precision", precision], driver.path());
        let name = format!("{precision} on the CPU");
        let cpu = if precision == "bf16" { cpu } else { loss(&name, &["--precision", precision], empty.path()) };
        assert!((gpu - cpu).abs() < most * cpu, "{precision}: {gpu}, the CPU {cpu}");
    }
}
