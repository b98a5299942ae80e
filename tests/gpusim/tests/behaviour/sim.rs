//! A device with memory, and one kernel text at a time.

use gpusim::check::finding::{Finding, Kind};
use gpusim::device::{Device, LaunchConfig, LaunchError};
use gpusim::exec::env::Fault;

pub const HEADER: &str = ".version 9.0\n.target sm_80\n.address_size 64\n";

/// What came of a launch: the output words, the findings, how it ended.
pub struct Outcome {
    pub out: Vec<u32>,
    pub findings: Vec<Finding>,
    pub result: Result<(), LaunchError>,
}

/// A launch of a kernel `k(out, in)` over `u32` words, whose body is given. Registers `%r0..31`, `%w0..15`, `%p0..7`, `%f0..15` are
/// declared; `%w0` and `%w1` hold the addresses of `out` and `in`, `%r0` the thread's index in the grid, `%r1` in its block.
pub struct Run<'a> {
    pub body: &'a str,
    pub config: LaunchConfig,
    pub input: Vec<u32>,
    pub out_words: usize,
    /// Whether the output is zeroed first (else it is poison nobody wrote).
    pub zeroed: bool,
    pub workers: usize,
    pub backwards: bool,
}

impl<'a> Run<'a> {
    pub fn new(body: &'a str, blocks: u32, threads: u32) -> Self {
        let out_words = (blocks * threads) as usize;
        Run {
            body,
            config: LaunchConfig::new(blocks, threads),
            input: Vec::new(),
            out_words,
            zeroed: true,
            workers: 2,
            backwards: false,
        }
    }

    pub fn text(&self) -> String {
        format!(
            "{HEADER}.entry k(.param .u64 out, .param .u64 in)\n{{\n.reg .b32 %r<32>;\n.reg .b64 %w<16>;\n.reg .pred %p<8>;\n\
             .reg .f32 %f<16>;\n.reg .b16 %h<8>;\nld.param.u64 %w0, [out];\nld.param.u64 %w1, [in];\nmov.u32 %r1, %tid.x;\n\
             mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmad.lo.u32 %r0, %r2, %r3, %r1;\n{}\nret;\n}}\n",
            self.body
        )
    }

    pub fn go(&self) -> Outcome {
        let device = Device::default();
        let (workers, backwards) = (self.workers, self.backwards);
        device.set_execution(gpusim::exec::grid::Execution {
            workers,
            watchdog: 3_000_000,
            backwards,
            ..Default::default()
        });
        let module = device.load(&self.text()).unwrap_or_else(|error| panic!("{error}\n{}", self.text()));
        let kernel = &module.kernels["k"];
        let out = device.allocate(4 * self.out_words.max(1)).unwrap().base;
        if self.zeroed {
            device.fill(out, &[0], 4 * self.out_words.max(1)).unwrap();
        }
        let bytes: Vec<u8> = self.input.iter().flat_map(|x| x.to_le_bytes()).collect();
        let input = device.allocate(bytes.len().max(4)).unwrap().base;
        device.write(input, &bytes).unwrap();
        let result = device.launch(kernel, &self.config, &[out.to_le_bytes(), input.to_le_bytes()].concat());
        let findings = device.findings();
        let mut words = vec![0u8; 4 * self.out_words];
        let _ = device.read(out, &mut words);
        let out = words.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        Outcome { out, findings, result }
    }

    /// Runs, expecting nothing wrong; gives the output.
    pub fn clean(&self) -> Vec<u32> {
        let outcome = self.go();
        assert!(outcome.findings.is_empty(), "{}", outcome.findings[0]);
        assert_eq!(outcome.result, Ok(()));
        outcome.out
    }

    /// Runs, expecting exactly this kind of finding; gives the first.
    pub fn finds(&self, kind: Kind) -> Finding {
        let outcome = self.go();
        let finding = outcome.findings.first().unwrap_or_else(|| panic!("nothing found in\n{}", self.body)).clone();
        assert!(outcome.findings.iter().all(|f| f.kind == kind), "expected {kind:?}, found {:?}", outcome.findings);
        finding
    }

    /// Runs, expecting a fault with this kind of finding.
    pub fn faults(&self, kind: Kind, fault: Fault) -> Finding {
        let outcome = self.go();
        assert_eq!(outcome.result, Err(LaunchError::Fault(fault)));
        let finding = outcome.findings.first().expect("a fault is a finding").clone();
        assert_eq!(finding.kind, kind, "{finding}");
        finding
    }
}

/// Stores `register` to the thread's word of the output.
pub fn store(register: &str) -> String {
    format!("mul.wide.u32 %w15, %r0, 4; add.s64 %w15, %w0, %w15; st.global.b32 [%w15], {register};")
}
