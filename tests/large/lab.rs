//! Tensors of which the end alone is there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Instant;

use autocompress::autograd::check::Generator;
use autocompress::device::cuda::embedded::abi;
use autocompress::device::cuda::{Arguments, Cuda, DeviceBuffer, Registry};
use bytemuck::Pod;
use half::bf16;

/// The two that most kernels come in.
pub const DTYPES: [&str; 2] = ["f32", "bf16"];
/// No offset of 32 bits reaches so far, with or without a sign.
pub const FAR: usize = 1 << 32;

pub struct Lab {
    sim: gpusim::Installed,
    pub cuda: Cuda,
    /// Kernels that were compared.
    symbols: RefCell<BTreeSet<String>>,
    seed: Cell<u64>,
}

/// A tensor of f32 or bf16.
pub enum Data {
    F32(DeviceBuffer<f32>),
    Bf16(DeviceBuffer<bf16>),
}

impl Data {
    pub fn ptr<P>(&self) -> *mut P {
        match self {
            Data::F32(buffer) => buffer.ptr(),
            Data::Bf16(buffer) => buffer.ptr(),
        }
    }

    /// The bits of `count` elements from `first` on.
    pub fn bits(&self, first: usize, count: usize) -> Vec<u8> {
        match self {
            Data::F32(buffer) => bits(buffer, first, count),
            Data::Bf16(buffer) => bits(buffer, first, count),
        }
    }

    /// `count` elements from `first` on.
    pub fn values(&self, first: usize, count: usize) -> Vec<f32> {
        match self {
            Data::F32(buffer) => buffer.read_at(first, count).unwrap(),
            Data::Bf16(buffer) => buffer.read_at(first, count).unwrap().into_iter().map(bf16::to_f32).collect(),
        }
    }

    pub fn put(&mut self, first: usize, values: &[f32]) {
        match self {
            Data::F32(buffer) => buffer.write_at(first, values).unwrap(),
            Data::Bf16(buffer) => {
                let narrow: Vec<bf16> = values.iter().map(|v| bf16::from_f32(*v)).collect();
                buffer.write_at(first, &narrow).unwrap();
            }
        }
    }
}

pub fn bits<T: Pod>(buffer: &DeviceBuffer<T>, first: usize, count: usize) -> Vec<u8> {
    bytemuck::cast_slice(&buffer.read_at(first, count).unwrap()).to_vec()
}

/// No mask.
pub fn bare() -> abi::Mask {
    let none = std::ptr::null_mut();
    abi::Mask { ends: none, keep: none.cast(), draw: none, length: 1, candidates: 0 }
}

impl Lab {
    pub fn new() -> Lab {
        let sim = gpusim::install().unwrap();
        let cuda = Cuda::open(0).unwrap();
        assert_eq!(cuda.name, "gpusim", "the tests must not run on a real device");
        cuda.keep_at_most(0);
        sim.reset();
        Lab { sim, cuda, symbols: RefCell::default(), seed: Cell::new(0) }
    }

    /// So many normal numbers; both runs of a comparison get the same.
    pub fn normal(&self, count: usize) -> Vec<f32> {
        self.seed.set(self.seed.get() + 1);
        Generator::new(self.seed.get()).normal("", &[count], 1.0).values
    }

    /// `values` behind `before` elements that nobody touches.
    pub fn end<T: Pod>(&self, before: usize, values: &[T]) -> DeviceBuffer<T> {
        let mut buffer = self.room(before + values.len());
        buffer.write_at(before, values).unwrap();
        buffer
    }

    pub fn room<T: Pod>(&self, len: usize) -> DeviceBuffer<T> {
        self.cuda.buffer(len).unwrap()
    }

    /// Normal numbers behind `before` elements.
    pub fn data(&self, dtype: &str, before: usize, count: usize) -> Data {
        let mut data = self.data_room(dtype, before + count);
        data.put(before, &self.normal(count));
        data
    }

    pub fn data_room(&self, dtype: &str, len: usize) -> Data {
        match dtype {
            "f32" => Data::F32(self.room(len)),
            _ => Data::Bf16(self.room(len)),
        }
    }

    /// Runs the last blocks of a launch, or all (0).
    pub fn launch<A: Arguments>(&self, symbol: &str, args: &A, last_blocks: u64) {
        self.symbols.borrow_mut().insert(symbol.into());
        self.sim.set_last_blocks(last_blocks);
        // SAFETY: the buffers have the sizes that abi.h asks for, and outlive the launch: freeing waits for it.
        unsafe { self.cuda.launch(symbol, args) }.unwrap_or_else(|e| panic!("{symbol}: {e}\n{}", self.found()));
        self.cuda.synchronize().unwrap_or_else(|e| panic!("{symbol}: {e}\n{}", self.found()));
        self.sim.set_last_blocks(0);
        assert_eq!(self.found(), "", "{symbol}");
    }

    fn found(&self) -> String {
        self.sim.findings_text()
    }

    /// `run` gives the bits of a problem whose tensors have so much in front: nothing, and then `far`.
    pub fn same(&self, what: &str, far: usize, run: impl Fn(usize) -> Vec<Vec<u8>>) {
        let (seed, start) = (self.seed.get(), Instant::now());
        let near = run(0);
        self.seed.set(seed);
        let there = run(far);
        assert!(!near.is_empty() && near.iter().all(|bits| bits.iter().any(|byte| *byte != 0)), "{what}: nothing");
        assert_eq!(near.len(), there.len());
        for (output, (near, there)) in near.iter().zip(&there).enumerate() {
            let at = near.iter().zip(there).position(|(a, b)| a != b);
            assert!(at.is_none() && near.len() == there.len(), "{what}: byte {at:?} of output {output} differs");
        }
        println!("{what}: {:.2} s", start.elapsed().as_secs_f64());
    }

    /// Every kernel was compared, but for those that never see a large tensor.
    pub fn finish(self) {
        let without = |symbol: &str| {
            [
                "adamw_norm_f64", // a number per 16384 elements
                "cross_entropy_mean",
                "distill_loss_mean", // a number per row
                "embedding_offsets",
                "embedding_sort",
                "grouped_gemm_tiles",
                "moe_permute_count",
                "moe_permute_place",
                "moe_permute_scan", // a number per token and expert
                "gumbel_softmax",
                "mask_keep",
                "mask_grad_total", // a number per draw and candidate
                "quantize_tensor_scale",
            ]
            .iter()
            .any(|prefix| symbol.starts_with(prefix))
        };
        let registry = Registry::embedded().unwrap();
        let all: BTreeSet<&str> =
            registry.kernels().iter().map(|k| k.symbol.as_str()).filter(|symbol| !without(symbol)).collect();
        let symbols = self.symbols.borrow();
        let done: BTreeSet<&str> = symbols.iter().map(String::as_str).collect();
        assert_eq!(all.difference(&done).collect::<Vec<_>>(), Vec::<&&str>::new(), "kernels that were not compared");
        println!("{} kernels beyond 2³² elements", done.len());
    }
}
