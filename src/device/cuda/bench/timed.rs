use cudarc::driver::{result, sys};
use serde::Serialize;

use super::super::{Cuda, CudaError, DeviceBuffer, Event};
use super::workload::Set;
use super::{Power, Workload, specs};

const SAMPLES: usize = 30;
/// Rounds before the first sample: code is loaded, clocks have risen.
const WARM_UP: usize = 5;
const MOST_SETS: usize = 32;

/// A kernel's time on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    /// Median over the samples.
    pub microseconds: f64,
    /// The lower and the upper quartile.
    pub quartiles: [f64; 2],
    /// 10⁹ of the least bytes, 10¹² of the formula's operations per second.
    pub gigabytes_per_second: f64,
    pub teraflops: f64,
    /// Sets of buffers that took turns.
    pub sets: usize,
    pub power: Option<Power>,
}

/// What the device reaches with a plain copy and with the fastest bf16 product of this program.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ceilings {
    pub copy_gigabytes_per_second: f64,
    pub product_teraflops: f64,
}

pub fn time(cuda: &Cuda, workload: &Workload) -> Result<Timed, CudaError> {
    let l2 = l2_bytes(cuda)?;
    let sets = (3 * l2).div_ceil(workload.set_bytes().max(1)).clamp(2, MOST_SETS);
    let sets: Vec<Set> = (0..sets).map(|_| workload.set(cuda)).collect::<Result<_, _>>()?;
    let times = sample(cuda, sets.len(), |i| workload.run(cuda, &sets[i]))?;
    let power = Power::now(cuda.ordinal);
    let [low, median, high] = quartiles(times);
    Ok(Timed {
        microseconds: median * 1e6,
        quartiles: [low * 1e6, high * 1e6],
        gigabytes_per_second: workload.bytes as f64 / median / 1e9,
        teraflops: workload.flops as f64 / median / 1e12,
        sets: sets.len(),
        power,
    })
}

impl Ceilings {
    /// # Errors
    /// [`CudaError`] of the driver or the device.
    pub fn measure(cuda: &Cuda) -> Result<Ceilings, CudaError> {
        let bytes = (8 * l2_bytes(cuda)?).max(256 << 20);
        let (from, to) = (cuda.buffer::<u8>(bytes)?, cuda.buffer::<u8>(bytes)?);
        let address = |b: &DeviceBuffer<u8>| b.ptr::<u8>() as sys::CUdeviceptr;
        let stream = cuda.memory.stream.cu_stream();
        let copy = |_| {
            // SAFETY: both blocks have so many bytes, and outlive the copies, which `sample` waits for.
            unsafe { result::memcpy_dtod_async(address(&to), address(&from), bytes, stream) }
                .map_err(|e| cuda.memory.failure("cuMemcpyDtoDAsync", e))
        };
        let [_, seconds, _] = quartiles(sample(cuda, 1, copy)?);
        let linear = specs().iter().find(|s| s.op == "linear");
        let product = linear.into_iter().flat_map(|s| (s.make)(&[8192, 8192, 8192]));
        let product = product.into_iter().find(|w| w.symbol == "linear_pipelined_nt_bf16");
        let product = product.ok_or_else(|| CudaError::Table("no product to measure".into()))?;
        Ok(Ceilings {
            copy_gigabytes_per_second: 2.0 * bytes as f64 / seconds / 1e9,
            product_teraflops: time(cuda, &product)?.teraflops,
        })
    }
}

/// Seconds of one launch, each a mean over a round of `count` launches.
fn sample(cuda: &Cuda, count: usize, launch: impl Fn(usize) -> Result<(), CudaError>) -> Result<Vec<f64>, CudaError> {
    let round = || (0..count).try_for_each(&launch);
    (0..WARM_UP).try_for_each(|_| round())?;
    let (start, end) = (Event::new(cuda)?, Event::new(cuda)?);
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        start.record()?;
        round()?;
        end.record()?;
        cuda.synchronize()?;
        times.push(start.seconds_to(&end)? / count as f64);
    }
    Ok(times)
}

/// Lower quartile, median, upper quartile.
fn quartiles(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    [at(0.25), at(0.5), at(0.75)]
}

fn l2_bytes(cuda: &Cuda) -> Result<usize, CudaError> {
    let bytes = cuda.memory.context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
    Ok(bytes.map_err(|e| cuda.memory.failure("cuDeviceGetAttribute", e))?.max(0) as usize)
}
