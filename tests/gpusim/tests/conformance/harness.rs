//! Runs an instruction on many inputs, one per thread.

use std::sync::Arc;

use gpusim::decode::inst::Kernel;
use gpusim::device::{Device, LaunchConfig};

/// A small generator (splitmix64): the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

/// Bytes of a type by its PTX name.
pub fn size(ty: &str) -> usize {
    match ty {
        "f16x2" | "bf16x2" | "tf32" => 4,
        "bf16" | "e4m3x2" | "e5m2x2" => 2,
        _ => ty[1..].parse::<usize>().unwrap() / 8,
    }
}

pub fn is_signed(ty: &str) -> bool {
    ty.starts_with('s')
}

/// Values that matter for a type, and some random ones.
pub fn values(ty: &str) -> Vec<u64> {
    let bits = 8 * size(ty) as u32;
    let mask = u64::MAX >> (64 - bits);
    let mut random = Random(bits as u64);
    let mut values: Vec<u64> = match ty {
        "f32" | "tf32" => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1.5,
            -2.5,
            0.1,
            3.0,
            1e10,
            -1e-10,
            16777216.0,
            16777217.0,
            2147483648.0,
            4294967296.0,
            0.5,
            -0.5,
            f32::MIN_POSITIVE,
            -f32::MIN_POSITIVE,
            1e-45,
            -1e-40,
            1.17e-38,
            f32::MAX,
            f32::MIN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::from_bits(0xffc0_1234),
            f32::from_bits(0x7f80_0001),
            65504.0,
            65520.0,
            1e-7,
            6.1e-5,
            448.0,
            0.007,
        ]
        .iter()
        .map(|x: &f32| x.to_bits() as u64)
        .collect(),
        "f64" => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            1.5,
            0.1,
            1e300,
            -1e-300,
            5e-324,
            -2.2e-308,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            4294967295.5,
            -2147483648.5,
            9.3e18,
            1.9e19,
            1e-40,
            3.5e38,
            0.5,
            2.5,
            -0.7,
        ]
        .iter()
        .map(|x: &f64| x.to_bits())
        .collect(),
        "f16" => vec![
            0, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7d01, 0x3555,
        ],
        "bf16" => vec![
            0, 0x8000, 0x3f80, 0xbf80, 0x0001, 0x807f, 0x0080, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x4049,
        ],
        _ => {
            let top = 1u64 << (bits - 1);
            [
                0,
                1,
                2,
                3,
                7,
                8,
                15,
                16,
                31,
                32,
                33,
                63,
                64,
                100,
                255,
                256,
                top,
                top - 1,
                top + 1,
                u64::MAX,
                u64::MAX - 1,
                0x5555_5555_5555_5555,
                0x1234_5678_9abc_def0,
                0xffff_0000_ffff,
                0x8000_0001_0000_8001,
            ]
            .to_vec()
        }
    };
    values.extend((0..12).map(|_| random.bits() >> (random.bits() % 40)));
    values.iter_mut().for_each(|value| *value &= mask);
    values
}

/// Inputs for sources of the given types: all pairs of values that matter; for three and more, many random tuples of them.
pub fn inputs(types: &[&str]) -> Vec<Vec<u64>> {
    let columns: Vec<Vec<u64>> = types.iter().map(|ty| values(ty)).collect();
    match &columns[..] {
        [] => vec![vec![]],
        [a] => a.iter().map(|a| vec![*a]).collect(),
        [a, b] => a.iter().flat_map(|a| b.iter().map(|b| vec![*a, *b])).collect(),
        _ => {
            let mut random = Random(columns.len() as u64);
            let mut pick = |column: &Vec<u64>| column[random.bits() as usize % column.len()];
            (0..3000).map(|_| columns.iter().map(&mut pick).collect()).collect()
        }
    }
}

/// The register that holds an operand: `%d`, `%a`, `%b`, `%c`, `%e`.
const NAMES: [&str; 5] = ["%d", "%a", "%b", "%c", "%e"];

fn kernel_text(code: &str, target: &str, sources: &[&str]) -> String {
    let mut text = String::from(".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p0");
    (1..=sources.len()).for_each(|i| text += &format!(", .param .u64 p{i}"));
    text += ", .param .u32 n)\n{\n.reg .pred %p, %q, %done;\n.reg .b32 %i, %n, %t, %u;\n.reg .b64 %at, %wide, %w;\n.reg .b16 %h, %g;\n";
    for (name, ty) in NAMES.iter().zip(std::iter::once(&target).chain(sources)) {
        text += &format!(".reg .b{} {name};\n", 8 * size(ty).max(2));
    }
    text += "mov.u32 %i, %ctaid.x;\nmov.u32 %n, %ntid.x;\nmov.u32 %t, %tid.x;\nmad.lo.u32 %i, %i, %n, %t;\n";
    text += "ld.param.u32 %n, [n];\nsetp.ge.u32 %done, %i, %n;\n@%done bra $end;\n";
    let address = |i: usize, ty: &str| {
        format!("ld.param.u64 %at, [p{i}];\nmul.wide.u32 %wide, %i, {};\nadd.s64 %at, %at, %wide;\n", size(ty))
    };
    for (i, ty) in sources.iter().enumerate() {
        text += &format!("{}ld.global.b{} {}, [%at];\n", address(i + 1, ty), 8 * size(ty), NAMES[i + 1]);
    }
    text += &format!("{code}\n{}st.global.b{} [%at], %d;\n$end:\nret;\n}}\n", address(0, target), 8 * size(target));
    text
}

/// What `code` (which reads `%a`, `%b`, … and writes `%d`) gives for each row of inputs.
pub fn run(code: &str, target: &str, sources: &[&str], rows: &[Vec<u64>]) -> Vec<u64> {
    list(code, rows.len());
    let device = Device::default();
    let text = kernel_text(code, target, sources);
    let module = device.load(&text).unwrap_or_else(|error| panic!("{code}: {error}"));
    let kernel: &Arc<Kernel> = &module.kernels["k"];
    let mut parameters = Vec::new();
    let out = device.allocate(rows.len() * size(target)).unwrap().base;
    parameters.extend(out.to_le_bytes());
    for (i, ty) in sources.iter().enumerate() {
        let bytes: Vec<u8> = rows.iter().flat_map(|row| row[i].to_le_bytes()[..size(ty)].to_vec()).collect();
        let address = device.allocate(bytes.len()).unwrap().base;
        device.write(address, &bytes).unwrap();
        parameters.extend(address.to_le_bytes());
    }
    parameters.extend((rows.len() as u32).to_le_bytes());
    let config = LaunchConfig::new(rows.len().div_ceil(128) as u32, 128);
    device.launch(kernel, &config, &parameters).unwrap_or_else(|error| panic!("{code}: {error:?}"));
    let mut bytes = vec![0; rows.len() * size(target)];
    device.read(out, &mut bytes).unwrap();
    assert!(device.findings().is_empty(), "{code}: {}", device.findings()[0]);
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes.chunks(size(target)).map(word).collect()
}

/// Adds a case and its number of inputs to the file that `GPUSIM_CASES` names.
fn list(code: &str, rows: usize) {
    use std::io::Write;
    if let Some(path) = std::env::var_os("GPUSIM_CASES") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{rows}\t{}\n", code.replace('\n', " ")).as_bytes()).unwrap();
    }
}

/// Checks every result of `code` on [`inputs`] for bit equality with `expected`.
pub fn check(code: &str, target: &str, sources: &[&str], expected: impl Fn(&[u64]) -> u64) {
    let rows = inputs(sources);
    check_rows(code, target, sources, &rows, expected);
}

/// The same on given inputs.
pub fn check_rows(code: &str, target: &str, sources: &[&str], rows: &[Vec<u64>], expected: impl Fn(&[u64]) -> u64) {
    let mask = u64::MAX >> (64 - 8 * size(target));
    for (row, got) in rows.iter().zip(run(code, target, sources, rows)) {
        let wanted = expected(row) & mask;
        assert_eq!(got, wanted, "{code} of {row:x?}: got {got:#x}, expected {wanted:#x}");
    }
}

/// Checks results given as a table of inputs and output.
pub fn table(code: &str, target: &str, sources: &[&str], rows: &[(&[u64], u64)]) {
    let inputs: Vec<Vec<u64>> = rows.iter().map(|(row, _)| row.to_vec()).collect();
    for ((row, wanted), got) in rows.iter().zip(run(code, target, sources, &inputs)) {
        assert_eq!(got, *wanted, "{code} of {row:x?}: got {got:#x}, expected {wanted:#x}");
    }
}

/// Checks f32 results to within `ulps` units of the last place; NaN, infinities and zeros must agree in kind.
pub fn check_near(code: &str, sources: &[&str], ulps: u32, expected: impl Fn(&[u64]) -> f64) {
    let rows = inputs(sources);
    for (row, got) in rows.iter().zip(run(code, "f32", sources, &rows)) {
        let (got, wanted) = (f32::from_bits(got as u32), expected(row) as f32);
        let is_near = if wanted.is_nan() { got.is_nan() } else { got.to_bits().abs_diff(wanted.to_bits()) <= ulps };
        assert!(is_near, "{code} of {row:x?}: got {got:e}, expected {wanted:e}");
    }
}

/// Sign-extends the low bits of an integer of type `ty`.
pub fn integer(ty: &str, bits: u64) -> i128 {
    let width = 8 * size(ty) as u32;
    let unsigned = (bits as i128) & ((1i128 << width) - 1);
    if is_signed(ty) && unsigned >> (width - 1) & 1 != 0 { unsigned - (1i128 << width) } else { unsigned }
}

pub fn f32(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// An f32 result's bits; NaN is 0x7fffffff.
pub fn bits(x: f32) -> u64 {
    if x.is_nan() { 0x7fff_ffff } else { x.to_bits() as u64 }
}

pub fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}
