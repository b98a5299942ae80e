use serde::Serialize;

use super::output;
use crate::device::Device;
use crate::device::cuda::check::{self, Outcome};
use crate::device::cuda::{Cuda, Registry};
use crate::{Error, Result};

mod bench;

/// The GPU kernels inside this program.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the kernels, and which the device gets.
    #[command(after_help = super::help::KERNELS_LIST)]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run kernels on the device against f64 references, and once more for the same bits: of every op, or of one.
    #[command(after_help = super::help::KERNELS_CHECK)]
    Check {
        /// An op, such as rms_norm.
        op: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Time kernels beside the bytes they must move and the operations they must do: of every op, or of one. On gpusim,
    /// count what they ask of the hardware instead.
    Bench {
        /// An op, such as linear.
        op: Option<String>,
        /// The op's sizes, such as 8192,10304,2688 for the M, N, K of linear; otherwise those of the 30B parent, or small ones on gpusim.
        #[arg(long, value_delimiter = ',', requires = "op")]
        shape: Vec<usize>,
        /// Only kernels of this type; those in f32 are twins for checking, or have f32 numbers alone to work on.
        #[arg(long, value_parser = ["bf16", "f32", "f64", "u32"])]
        dtype: Option<String>,
        /// Time a library's kernels beside linear's.
        #[arg(long, value_parser = ["cublaslt"])]
        against: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: Command, device: &str) -> Result<()> {
    match command {
        Command::List { json } => list(device, json),
        Command::Check { op, json } => check(device, op.as_deref(), json),
        Command::Bench { op, shape, dtype, against, json } => {
            let (op, dtype, against) = (op.as_deref(), dtype.as_deref(), against.is_some());
            bench::run(&gpu(device)?, &bench::Asked { op, shape: &shape, dtype, against, json })
        }
    }
}

#[derive(Serialize)]
struct Listed<'r> {
    op: &'r str,
    variant: &'r str,
    dtype: &'r str,
    tier: &'r str,
    symbol: &'r str,
    threads: u32,
    grid: &'r [String],
    /// On the device's architecture, or the smallest that the tier runs on.
    registers: Option<u32>,
    shared: u32,
    dynamic_shared: &'r str,
    limits: &'r [String],
    picked: Option<bool>,
}

#[derive(Serialize)]
struct List<'r> {
    device: Option<String>,
    compute_capability: Option<String>,
    kernels: Vec<Listed<'r>>,
}

fn list(device: &str, json: bool) -> Result<()> {
    // Without a device there is still a list.
    let cuda = match device.parse()? {
        Device::Auto => Cuda::open(0).ok(),
        Device::Cpu => None,
        Device::Cuda(ordinal) => Some(Cuda::open(ordinal)?),
    };
    let registry = Registry::embedded()?;
    let kernels = registry.kernels().iter().map(|kernel| Listed {
        op: &kernel.op,
        variant: &kernel.variant,
        dtype: &kernel.dtype,
        tier: &kernel.tier,
        symbol: &kernel.symbol,
        threads: kernel.block,
        grid: &kernel.rules.grid,
        registers: match &cuda {
            Some(cuda) => kernel.registers_on(cuda.capability),
            None => kernel.registers.values().next().copied(),
        },
        shared: kernel.shared,
        dynamic_shared: &kernel.rules.dynamic_shared,
        limits: &kernel.rules.limits,
        picked: cuda.as_ref().map(|cuda| registry.picks(kernel, cuda.capability)),
    });
    let list = List {
        device: cuda.as_ref().map(|cuda| cuda.name.clone()),
        compute_capability: cuda.as_ref().map(|cuda| format!("{}.{}", cuda.capability.0, cuda.capability.1)),
        kernels: kernels.collect(),
    };
    if json { output::json(&list) } else { output::line(&table(&list)) }
}

fn table(list: &List) -> String {
    let head = match (&list.device, &list.compute_capability) {
        (Some(device), Some(capability)) => {
            format!("On {device}, compute capability {capability}; * is what it gets where the limits hold")
        }
        _ => "No device: registers are those of the first architecture".into(),
    };
    let row = |cells: [&str; 7]| {
        let [op, variant, dtype, tier, registers, shared, limits] = cells;
        format!("{op:<17} {variant:<23} {dtype:<5} {tier:<11} {registers:>9} {shared:>8}  {limits}").trim_end().into()
    };
    let mut lines = vec![head, row(["op", "variant", "dtype", "tier", "registers", "shared", "limits"])];
    for kernel in &list.kernels {
        let picked = if kernel.picked == Some(true) { "*" } else { "" };
        let registers = kernel.registers.map_or("-".into(), |r| r.to_string());
        let shared = match kernel.dynamic_shared {
            "0" => kernel.shared.to_string(),
            rule => format!("{} + {rule}", kernel.shared),
        };
        let variant = format!("{}{picked}", kernel.variant);
        let limits = kernel.limits.join(", ");
        lines.push(row([kernel.op, &variant, kernel.dtype, kernel.tier, &registers, &shared, &limits]));
    }
    lines.join("\n")
}

#[derive(Serialize)]
struct Checked {
    device: String,
    compute_capability: String,
    passed: bool,
    ops: Vec<Outcome>,
}

/// The GPU that `--device` names; `auto` is the first.
fn gpu(device: &str) -> Result<Cuda> {
    let ordinal = match device.parse()? {
        Device::Auto => 0,
        Device::Cuda(ordinal) => ordinal,
        Device::Cpu => return Err(Error::Usage("--device cpu: kernels run on a GPU; use --device cuda".into())),
    };
    Ok(Cuda::open(ordinal)?)
}

fn check(device: &str, op: Option<&str>, json: bool) -> Result<()> {
    let cuda = gpu(device)?;
    if let Some(op) = op.filter(|op| !check::ops().contains(op)) {
        return Err(Error::Usage(format!("kernels check {op}: expected one of {}", check::ops().join(", "))));
    }
    let mut ops = Vec::new();
    for name in check::ops().into_iter().filter(|name| op.is_none_or(|op| op == *name)) {
        let outcome = check::run(&cuda, name)?;
        if !json {
            output::line(&line(&cuda, &outcome))?;
        }
        ops.push(outcome);
    }
    let failed: Vec<&str> = ops.iter().filter(|o| !o.faults.is_empty()).map(|o| o.op).collect();
    let message = format!("{}: kernels of {} are wrong", cuda.name, failed.join(", "));
    let passed = failed.is_empty();
    if json {
        let compute_capability = format!("{}.{}", cuda.capability.0, cuda.capability.1);
        output::json(&Checked { device: cuda.name.clone(), compute_capability, passed, ops })?;
    }
    if passed { Ok(()) } else { Err(Error::Kernels(message)) }
}

fn line(cuda: &Cuda, outcome: &Outcome) -> String {
    let verdict = if outcome.faults.is_empty() { "ok" } else { "WRONG" };
    let (kernels, comparisons) = (outcome.symbols.len(), outcome.comparisons);
    let mut text =
        format!("{}: {:<17} {verdict:<5} {kernels} kernels, {comparisons} comparisons", cuda.name, outcome.op);
    for fault in &outcome.faults {
        text += &format!("\n    {fault}");
    }
    text
}
