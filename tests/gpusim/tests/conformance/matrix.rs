use half::{bf16, f16};

use super::harness::Random;
use gpusim::device::{Device, LaunchConfig};

/// Runs one warp: `registers` 32-bit inputs per lane in, `outputs` per lane out.
fn warp(code: &str, registers: usize, outputs: usize, input: impl Fn(usize, usize) -> u32) -> Vec<Vec<u32>> {
    let mut text =
        String::from(".version 9.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 in, .param .u64 out)\n{\n");
    text += ".reg .b32 %r<16>, %d<8>, %t, %u;\n.reg .b64 %at, %w;\n.shared .align 16 .b8 buffer[1024];\n";
    text += &format!("ld.param.u64 %at, [in];\nmul.wide.u32 %w, %laneid, {};\nadd.u64 %at, %at, %w;\n", 4 * registers);
    (0..registers).for_each(|i| text += &format!("ld.global.b32 %r{i}, [%at+{}];\n", 4 * i));
    text += &format!(
        "{code}\nld.param.u64 %at, [out];\nmul.wide.u32 %w, %laneid, {};\nadd.u64 %at, %at, %w;\n",
        4 * outputs
    );
    (0..outputs).for_each(|i| text += &format!("st.global.b32 [%at+{}], %d{i};\n", 4 * i));
    text += "ret;\n}\n";
    let device = Device::default();
    let module = device.load(&text).unwrap_or_else(|error| panic!("{code}: {error}"));
    let bytes: Vec<u8> = (0..32)
        .flat_map(|l| (0..registers).map(move |i| (l, i)))
        .flat_map(|(l, i)| input(l, i).to_le_bytes())
        .collect();
    let (from, to) = (device.allocate(bytes.len()).unwrap().base, device.allocate(128 * outputs).unwrap().base);
    device.write(from, &bytes).unwrap();
    let parameters = [from.to_le_bytes(), to.to_le_bytes()].concat();
    device.launch(&module.kernels["k"], &LaunchConfig::new(1, 32), &parameters).unwrap();
    assert!(device.findings().is_empty(), "{}", device.findings()[0]);
    let mut out = vec![0; 128 * outputs];
    device.read(to, &mut out).unwrap();
    let words: Vec<u32> = out.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
    words.chunks(outputs).map(<[u32]>::to_vec).collect()
}

/// Where the ISA puts elements: lane and register of A[row][k] (and place in it), B[k][column], C[row][column].
struct Layout {
    /// Elements of a 32-bit register.
    packed: usize,
}

impl Layout {
    fn a(&self, row: usize, k: usize) -> (usize, usize, usize) {
        let block = 4 * self.packed; // columns that four lanes hold in one register
        ((row % 8) * 4 + k % block / self.packed, row / 8 + 2 * (k / block), k % self.packed)
    }

    fn b(&self, k: usize, column: usize) -> (usize, usize, usize) {
        let block = 4 * self.packed;
        (column * 4 + k % block / self.packed, k / block, k % self.packed)
    }

    fn c(&self, row: usize, column: usize) -> (usize, usize) {
        ((row % 8) * 4 + column / 2, 2 * (row / 8) + column % 2)
    }
}

/// Checks an `mma` with exact small-integer matrices, so that every order of summation gives the same.
fn check_mma(opcode: &str, k: usize, packed: usize, encode: impl Fn(i32) -> u32, is_integer: bool) {
    let layout = Layout { packed };
    let mut random = Random(k as u64);
    let mut small = || (random.bits() % 9) as i32 - 4;
    let a: Vec<Vec<i32>> = (0..16).map(|_| (0..k).map(|_| small()).collect()).collect();
    let b: Vec<Vec<i32>> = (0..k).map(|_| (0..8).map(|_| small()).collect()).collect();
    let c: Vec<Vec<i32>> = (0..16).map(|_| (0..8).map(|_| small()).collect()).collect();
    let (a_count, b_count) = (k / (2 * packed), k / (4 * packed));
    let width = 32 / packed;
    let accumulator = |x: i32| if is_integer { x as u32 } else { (x as f32).to_bits() };
    let mut registers = vec![vec![0u32; a_count + b_count + 4]; 32];
    for row in 0..16 {
        for i in 0..k {
            let (lane, r, part) = layout.a(row, i);
            registers[lane][r] |= encode(a[row][i]) << (part * width);
        }
        for column in 0..8 {
            let (lane, r) = layout.c(row, column);
            registers[lane][a_count + b_count + r] = accumulator(c[row][column]);
        }
    }
    for i in 0..k {
        for column in 0..8 {
            let (lane, r, part) = layout.b(i, column);
            registers[lane][a_count + r] |= encode(b[i][column]) << (part * width);
        }
    }
    let list =
        |from: usize, count: usize| (from..from + count).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(", ");
    let code = format!(
        "{opcode} {{%d0, %d1, %d2, %d3}}, {{{}}}, {{{}}}, {{{}}};",
        list(0, a_count),
        list(a_count, b_count),
        list(a_count + b_count, 4)
    );
    let out = warp(&code, a_count + b_count + 4, 4, |lane, i| registers[lane][i]);
    for row in 0..16 {
        for column in 0..8 {
            let expected = (0..k).fold(c[row][column], |sum, i| sum + a[row][i] * b[i][column]);
            let (lane, r) = layout.c(row, column);
            assert_eq!(out[lane][r], accumulator(expected), "{opcode}: row {row}, column {column}");
        }
    }
}

#[test]
fn mma() {
    let from_bf16 = |x: i32| bf16::from_f32(x as f32).to_bits() as u32;
    let from_f16 = |x: i32| f16::from_f32(x as f32).to_bits() as u32;
    let from_tf32 = |x: i32| (x as f32).to_bits();
    check_mma("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, 2, from_bf16, false);
    check_mma("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, 2, from_bf16, false);
    check_mma("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, 2, from_f16, false);
    check_mma("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 8, 2, from_f16, false);
    check_mma("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 8, 1, from_tf32, false);
    check_mma("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 4, 1, from_tf32, false);
    check_mma("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32, 4, |x| x as u8 as u32, true);
    check_mma("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", 16, 4, |x| x as u8 as u32, true);
}

#[test]
fn mma_with_f16_accumulators() {
    // A is the identity in its first 8 columns, so D's first rows are B's, plus C.
    let one = 0x3c00u32;
    let out = warp(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%d0, %d1}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, %r7};",
        8,
        2,
        |lane, i| match i {
            // A[g][2t], A[g][2t + 1].
            0 if lane / 4 / 2 == lane % 4 => one << (16 * (lane / 4 % 2)),
            0..=3 => 0,
            // B[2t][g], B[2t + 1][g] = 2t + 8g and the next.
            4 => {
                let value = |k: usize| f16::from_f32((2 * (lane % 4) + k + 8 * (lane / 4)) as f32).to_bits() as u32;
                value(0) | value(1) << 16
            }
            5 => 0,
            _ => one | one << 16,
        },
    );
    for row in 0..8usize {
        for column in 0..8usize {
            let word = out[row * 4 + column / 2][0];
            let got = f16::from_bits((word >> (16 * (column % 2))) as u16).to_f32();
            assert_eq!(got, (row + 8 * column) as f32 + 1.0, "row {row}, column {column}");
        }
    }
}

#[test]
fn ldmatrix() {
    // Row r of matrix m holds the numbers 64·m + 8·r + column.
    let fill = "shl.b32 %t, %laneid, 4; mov.u32 %u, buffer; add.u32 %t, %t, %u; st.shared.v4.b32 [%t], {%r0, %r1, %r2, %r3}; bar.sync 0;";
    let input = |lane: usize, i: usize| {
        let first = (8 * lane + 2 * i) as u32;
        first | (first + 1) << 16
    };
    for (count, registers) in [(1, "{%d0}"), (2, "{%d0, %d1}"), (4, "{%d0, %d1, %d2, %d3}")] {
        for transposed in [false, true] {
            let suffix = if transposed { ".trans" } else { "" };
            let opcode = format!("ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16");
            let out = warp(&format!("{fill}\n{opcode} {registers}, [%t];"), 4, count, input);
            for lane in 0..32usize {
                for m in 0..count {
                    let (row, column) = (lane / 4, lane % 4 * 2);
                    let element = |i: usize| {
                        let (r, c) = if transposed { (column + i, row) } else { (row, column + i) };
                        (64 * m + 8 * r + c) as u32
                    };
                    assert_eq!(out[lane][m], element(0) | element(1) << 16, "{opcode}: lane {lane}, matrix {m}");
                }
            }
        }
    }
}
