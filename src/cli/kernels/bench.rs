use std::collections::BTreeSet;

use serde::Serialize;

use super::output;
use crate::device::cuda::bench::{self, Ceilings, Counted, Measured, Spec, Timed};
use crate::device::cuda::{Cuda, CudaError, Registry};
use crate::{Error, Result};

#[derive(Serialize)]
struct Report {
    device: String,
    compute_capability: String,
    /// Whether these are counts of an interpreter instead of times of hardware.
    counts: bool,
    ceilings: Option<Ceilings>,
    kernels: Vec<Measured>,
}

/// What is asked for.
pub struct Asked<'a> {
    pub op: Option<&'a str>,
    /// Empty: the op's own.
    pub shape: &'a [usize],
    pub dtype: Option<&'a str>,
    /// Whether a library's products are measured too.
    pub against: bool,
    pub json: bool,
}

pub fn run(cuda: &Cuda, asked: &Asked) -> Result<()> {
    let &Asked { op, shape, dtype, against, json } = asked;
    let specs: Vec<&Spec> = bench::specs().iter().filter(|spec| op.is_none_or(|op| op == spec.op)).collect();
    if let (true, Some(op)) = (specs.is_empty(), op) {
        let known: Vec<&str> = bench::specs().iter().map(|spec| spec.op).collect();
        return Err(Error::Usage(format!("kernels bench {op}: expected one of {}", known.join(", "))));
    }
    if let (Some(spec), false) = (specs.first(), shape.is_empty()) {
        spec.check(shape)?;
    }
    if let (Some(op), Some(dtype)) = (op, dtype) {
        let registry = Registry::embedded()?;
        let dtypes: BTreeSet<&str> =
            registry.kernels().iter().filter(|kernel| kernel.op == op).map(|kernel| kernel.dtype.as_str()).collect();
        if !dtypes.contains(dtype) {
            let dtypes: Vec<&str> = dtypes.into_iter().collect();
            return Err(Error::Usage(format!("--dtype {dtype}: expected {}, as {op} has", dtypes.join(", "))));
        }
    }
    let counts = cuda.is_simulated();
    let library = if against { library(cuda, op, shape)? } else { vec![] };
    let ceilings = if counts { None } else { Some(Ceilings::measure(cuda)?) };
    let mut kernels = Vec::new();
    if !json {
        output::line(&head(cuda, ceilings.as_ref()))?;
    }
    for spec in specs {
        let asked = [shape];
        for shape in if shape.is_empty() { spec.default_shapes(cuda) } else { &asked } {
            // A size beyond a kernel's is the command line's.
            let measure = spec.measure(cuda, shape, dtype).map_err(|error| match error {
                CudaError::Limit { .. } => Error::Usage(format!("--shape: {error}")),
                other => other.into(),
            });
            for measured in measure? {
                if !json {
                    output::line(&row(&measured, ceilings.as_ref()))?;
                }
                kernels.push(measured);
            }
        }
    }
    for measured in library {
        if !json {
            output::line(&row(&measured, ceilings.as_ref()))?;
        }
        kernels.push(measured);
    }
    if json {
        let compute_capability = format!("{}.{}", cuda.capability.0, cuda.capability.1);
        let device = cuda.name.clone();
        output::json(&Report { device, compute_capability, counts, ceilings, kernels })?;
    }
    Ok(())
}

fn head(cuda: &Cuda, ceilings: Option<&Ceilings>) -> String {
    let Some(ceilings) = ceilings else {
        return format!(
            "{}: counts of one launch, no times. Traffic is all sectors over the bytes that must pass at the least.\n\n\
             | kernel | shape | blocks | warp instructions | sectors | least per request | traffic | bank conflicts | \
             tensor multiply-adds | of the formula's |\n|---|---|---|---|---|---|---|---|---|---|",
            cuda.name
        );
    };
    format!(
        "{}: a copy passes {:.0} GB/s, linear_pipelined_nt_bf16 does {:.1} TFLOP/s at 8192³.\n\n\
         | kernel | shape | µs | quartiles | GB/s | of the copy | TFLOP/s | of the product | MHz | W |\n\
         |---|---|---|---|---|---|---|---|---|---|",
        cuda.name, ceilings.copy_gigabytes_per_second, ceilings.product_teraflops
    )
}

fn row(measured: &Measured, ceilings: Option<&Ceilings>) -> String {
    let Measured { symbol, shape, timed, counted, .. } = measured;
    let cells = match (timed, counted, ceilings) {
        (Some(timed), _, Some(ceilings)) => timed_cells(timed, ceilings),
        (_, Some(counted), _) => counted_cells(counted),
        _ => vec![],
    };
    format!("| `{symbol}` | {shape} | {} |", cells.join(" | "))
}

fn timed_cells(timed: &Timed, ceilings: &Ceilings) -> Vec<String> {
    let share = |value: f64, of: f64| format!("{:.0} %", 100.0 * value / of);
    let power = timed.power.as_ref();
    vec![
        format!("{:.1}", timed.microseconds),
        format!("{:.1} – {:.1}", timed.quartiles[0], timed.quartiles[1]),
        format!("{:.0}", timed.gigabytes_per_second),
        share(timed.gigabytes_per_second, ceilings.copy_gigabytes_per_second),
        format!("{:.2}", timed.teraflops),
        share(timed.teraflops, ceilings.product_teraflops),
        power.map_or("-".into(), |p| format!("{:.0}", p.multiprocessor_clock)),
        power.map_or("-".into(), |p| format!("{:.0}", p.watts)),
    ]
}

fn counted_cells(counted: &Counted) -> Vec<String> {
    let share = counted.tensor_share.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
    vec![
        count(counted.blocks),
        count(counted.warp_instructions),
        count(counted.sectors),
        count(counted.sectors_minimum),
        format!("{:.2}", counted.traffic),
        count(counted.bank_conflicts),
        count(counted.tensor_multiply_adds),
        share,
    ]
}

/// The library's products at linear's shape.
fn library(cuda: &Cuda, op: Option<&str>, shape: &[usize]) -> Result<Vec<Measured>> {
    let refuse = |why: &str| Error::Usage(format!("--against cublaslt: {why}"));
    if cuda.is_simulated() {
        return Err(refuse("gpusim counts and has no times to compare; use a GPU"));
    }
    let linear = bench::specs().iter().find(|spec| spec.op == "linear" && op.is_none_or(|op| op == spec.op));
    let Some(linear) = linear else { return Err(refuse("expected the op linear")) };
    let shape = if shape.is_empty() { linear.default_shapes(cuda)[0] } else { shape };
    let &[m, n, k] = shape else { return Err(refuse("expected a shape of three numbers")) };
    bench::cublaslt(cuda, [m, n, k])?
        .ok_or_else(|| refuse("the loader finds no libcublasLt.so; install CUDA's libraries, or leave the option out"))
}

/// A count to the last digit, in groups of three.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
