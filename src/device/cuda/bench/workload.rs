use super::super::{Arguments, Cuda, CudaError, DeviceBuffer};
use crate::numerics::Philox;

pub(super) use super::super::check::Float;

/// What a buffer holds before the first launch.
pub enum Contents {
    /// So many random numbers of f32 or bf16.
    F32(usize),
    Bf16(usize),
    /// Random bytes.
    Codes(usize),
    /// So many bytes that a kernel writes.
    Room(usize),
    Zeros(usize),
    Words(Vec<u32>),
    Bytes(Vec<u8>),
}

/// So many random numbers.
pub fn floats(dtype: Float, n: usize) -> Contents {
    match dtype {
        Float::F32 => Contents::F32(n),
        Float::Bf16 => Contents::Bf16(n),
    }
}

/// Room for so many numbers.
pub fn room(dtype: Float, n: usize) -> Contents {
    Contents::Room(dtype.bytes() * n)
}

/// One kernel with inputs of a shape.
pub struct Workload {
    pub symbol: String,
    pub bytes: u64,
    pub flops: u64,
    /// Whether `flops` are the tensor cores'.
    pub tensor_cores: bool,
    pub buffers: Vec<Contents>,
    pub launch: Launch,
}

type Launch = Box<dyn Fn(&Cuda, &str, &Set) -> Result<(), CudaError>>;

/// A workload's buffers on the device.
pub struct Set(Vec<DeviceBuffer<u8>>);

impl Set {
    pub fn at<P>(&self, buffer: usize) -> *mut P {
        self.0[buffer].ptr()
    }
}

/// Random numbers are as many as this, over and over.
const RANDOM: usize = 1 << 14;

impl Contents {
    pub fn bytes(&self) -> usize {
        match self {
            Contents::F32(n) => n * 4,
            Contents::Bf16(n) => n * 2,
            Contents::Codes(n) | Contents::Room(n) | Contents::Zeros(n) => *n,
            Contents::Words(words) => words.len() * 4,
            Contents::Bytes(bytes) => bytes.len(),
        }
    }

    fn put(&self, cuda: &Cuda) -> Result<DeviceBuffer<u8>, CudaError> {
        let random = |i: usize| Philox::new(1, 2).normal((i % RANDOM) as u64) as f32;
        let table = || (0..RANDOM).map(random).collect::<Vec<f32>>();
        match self {
            Contents::Room(bytes) => cuda.buffer(*bytes),
            Contents::Zeros(bytes) => cuda.upload(&vec![0; *bytes]),
            Contents::Words(words) => cuda.upload(bytemuck::cast_slice(words)),
            Contents::Bytes(bytes) => cuda.upload(bytes),
            Contents::Codes(n) => {
                // No NaN among them: the highest bit of the exponent stays 0.
                let codes: Vec<u8> = (0..RANDOM).map(|i| Philox::new(1, 3).words(i as u64)[0] as u8 & 0xBB).collect();
                cuda.upload(&codes.into_iter().cycle().take(*n).collect::<Vec<_>>())
            }
            Contents::F32(n) => {
                let values: Vec<f32> = table().into_iter().cycle().take(*n).collect();
                cuda.upload(bytemuck::cast_slice(&values))
            }
            Contents::Bf16(n) => {
                let values = table().into_iter().map(half::bf16::from_f32).cycle().take(*n);
                cuda.upload(bytemuck::cast_slice(&values.collect::<Vec<half::bf16>>()))
            }
        }
    }
}

impl Workload {
    /// A kernel whose arguments `args` makes of its buffers; the bytes that it must move at the least, and the
    /// operations of its formula.
    pub fn new<A: Arguments>(
        symbol: impl Into<String>,
        [bytes, flops]: [usize; 2],
        buffers: Vec<Contents>,
        args: impl Fn(&Set) -> A + 'static,
    ) -> Workload {
        // SAFETY: the buffers of `kernels` are as long as abi.h asks for, and outlive the launch: freeing waits for it.
        let launch: Launch = Box::new(move |cuda, symbol, set| unsafe { cuda.launch(symbol, &args(set)) });
        let symbol = symbol.into();
        Workload { symbol, bytes: bytes as u64, flops: flops as u64, tensor_cores: false, buffers, launch }
    }

    /// The instance of `kernel` for a dtype.
    pub fn of<A: Arguments>(
        kernel: &str,
        dtype: Float,
        sizes: [usize; 2],
        buffers: Vec<Contents>,
        args: impl Fn(&Set) -> A + 'static,
    ) -> Workload {
        Workload::new(format!("{kernel}_{}", dtype.name()), sizes, buffers, args)
    }

    pub fn on_tensor_cores(self) -> Workload {
        Workload { tensor_cores: true, ..self }
    }

    pub fn set(&self, cuda: &Cuda) -> Result<Set, CudaError> {
        Ok(Set(self.buffers.iter().map(|contents| contents.put(cuda)).collect::<Result<_, _>>()?))
    }

    pub fn set_bytes(&self) -> usize {
        self.buffers.iter().map(Contents::bytes).sum()
    }

    pub fn run(&self, cuda: &Cuda, set: &Set) -> Result<(), CudaError> {
        (self.launch)(cuda, &self.symbol, set)
    }
}
