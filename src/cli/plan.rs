use std::path::PathBuf;

use serde::Serialize;

use super::contract::config;
use super::output;
use crate::cost::{Device, DeviceSpec, Format, Job, TrainedPart, TrainingBytes, TrainingCost};
use crate::model::Config;
use crate::report;
use crate::search::Trained;
use crate::stages::compress::Recipe;
use crate::{Error, Result};

/// What a recipe's search and recovery take of GPUs: bytes, operations, tokens and hours, from configurations alone.
#[derive(clap::Args)]
pub struct Args {
    /// A recipe (TOML). Its parent may be a bare config.json.
    recipe: PathBuf,
    /// GPUs that work together.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    gpus: u32,
    /// rtx-5070, rtx-5080, h100, b200, gb200, or a file as in presets/devices.
    #[arg(long, value_name = "GPU")]
    gpu: String,
    /// The part of the GPU's BF16 rate that training reaches, communication included.
    #[arg(long, default_value_t = 0.3, allow_negative_numbers = true)]
    utilisation: f64,
    /// The student that is recovered: a model's folder or its config.json [default: as large as the parent].
    #[arg(long, value_name = "MODEL")]
    student: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Plan {
    gpus: usize,
    gpu: String,
    gpu_bytes: u64,
    utilisation: f64,
    jobs: Vec<Planned>,
}

#[derive(Serialize)]
struct Planned {
    name: &'static str,
    job: Job,
    cost: TrainingCost,
    fits: bool,
    /// Where it does not fit.
    options: Vec<Change>,
}

/// A change that saves memory.
#[derive(Serialize)]
struct Change {
    what: String,
    total_bytes: u64,
    hours: f64,
    fits: bool,
}

/// Left to the driver and to the allocator's gaps.
const USABLE: f64 = 0.9;
/// Of chunked logits.
const CHUNK: usize = 1024;
/// Below it nobody trains.
const LEAST_UTILISATION: f64 = 1e-4;
/// Steps, sequences and lengths above it mean nothing, and their products would not be counted in 64 bits.
const MOST: u64 = 1_000_000_000;

pub fn run(args: Args) -> Result<()> {
    let recipe = Recipe::from_file(&args.recipe)?;
    let expected = "rtx-5070, rtx-5080, h100, b200, gb200, or a TOML file";
    let device = Device::parse(&args.gpu).filter(|device| *device != Device::Cpu);
    let device = device.ok_or_else(|| Error::Usage(format!("--gpu {}: expected {expected}", args.gpu)))?;
    let device = DeviceSpec::of(&device)?;
    if !(LEAST_UTILISATION..=1.0).contains(&args.utilisation) {
        let expected = format!("expected from {LEAST_UTILISATION} to 1");
        return Err(Error::Usage(format!("--utilisation {}: {expected}", args.utilisation)));
    }
    let mut parent = config(&recipe.parent)?;
    parent.mtp = None;
    let student = args.student.as_deref().map_or_else(|| Ok(parent.clone()), config)?;
    if student.vocab_size != parent.vocab_size {
        let file = args.student.as_deref().unwrap_or(&recipe.parent);
        let expected = format!("{}, the parent's: a student predicts the parent's tokens", parent.vocab_size);
        return Err(Error::input(file, "vocab_size", student.vocab_size.to_string(), expected));
    }
    let search = Job {
        trained: if recipe.search.train == Trained::Router { TrainedPart::Router } else { TrainedPart::Weights },
        steps: recipe.search.training.steps,
        sequences: recipe.search.training.sequences,
        length: recipe.search.training.length,
        recompute: recipe.search.training.recompute,
        logit_chunk: None,
    };
    let training = &recipe.recover.training;
    let recover = Job {
        trained: TrainedPart::Weights,
        steps: training.steps,
        sequences: training.sequences,
        length: training.length,
        recompute: training.recompute,
        logit_chunk: None,
    };
    for (table, job) in [("search.training", &search), ("recover.training", &recover)] {
        countable(job).map_err(|fault| fault.within_table(&args.recipe, table))?;
    }
    let on = On { gpus: args.gpus as usize, device: &device, utilisation: args.utilisation };
    let plan = Plan {
        gpus: on.gpus,
        gpu: device.name.clone(),
        gpu_bytes: device.memory_bytes,
        utilisation: args.utilisation,
        jobs: vec![on.plan("search", search, &parent, &parent), on.plan("recovery", recover, &parent, &student)],
    };
    if args.json { output::json(&plan) } else { output::line(&text(&plan)) }
}

/// Whether all of a job's tokens and bytes can be counted.
fn countable(job: &Job) -> Result<()> {
    let sizes = [("steps", job.steps), ("sequences", job.sequences as u64), ("length", job.length as u64)];
    for (key, found) in sizes {
        if found > MOST {
            return Err(Error::Usage(format!("{key}: found {found}, expected at most {MOST}")));
        }
    }
    let tokens = sizes.iter().try_fold(1u64, |product, (_, size)| product.checked_mul(*size));
    match tokens {
        Some(_) => Ok(()),
        None => Err(Error::Usage("found more than 2⁶⁴ tokens, expected fewer".into())),
    }
}

struct On<'d> {
    gpus: usize,
    device: &'d DeviceSpec,
    utilisation: f64,
}

impl On<'_> {
    fn cost(&self, job: &Job, gpus: usize, parent: &Config, model: &Config) -> TrainingCost {
        job.cost(parent, model, gpus, self.device.rate_or_higher(Format::Bf16), self.utilisation)
    }

    fn fits(&self, bytes: u64) -> bool {
        bytes as f64 <= USABLE * self.device.memory_bytes as f64
    }

    fn plan(&self, name: &'static str, job: Job, parent: &Config, model: &Config) -> Planned {
        let cost = self.cost(&job, self.gpus, parent, model);
        let fits = self.fits(cost.bytes.total);
        let options = if fits { Vec::new() } else { self.options(&job, parent, model) };
        Planned { name, job, cost, fits, options }
    }

    /// Changes one after another, each on top of those before, then more GPUs.
    fn options(&self, job: &Job, parent: &Config, model: &Config) -> Vec<Change> {
        let mut options = Vec::new();
        let mut job = *job;
        let mut add = |what: String, job: &Job, gpus: usize| {
            let cost = self.cost(job, gpus, parent, model);
            let fits = self.fits(cost.bytes.total);
            options.push(Change { what, total_bytes: cost.bytes.total, hours: cost.hours, fits });
            fits
        };
        job.logit_chunk = Some(CHUNK);
        if add(format!("logits of {CHUNK} tokens at a time"), &job, self.gpus) {
            return options;
        }
        if !job.recompute {
            job.recompute = true;
            if add("and blocks recomputed in backward".into(), &job, self.gpus) {
                return options;
            }
        }
        let mut gpus = self.gpus;
        while gpus < 1 << 20 {
            gpus *= 2;
            if self.fits(self.cost(&job, gpus, parent, model).bytes.total) {
                add(format!("and {gpus} GPUs"), &job, gpus);
                return options;
            }
        }
        if job.trained == TrainedPart::Weights && std::ptr::eq(parent, model) {
            job.trained = TrainedPart::Router;
            add("and train = \"router\" instead".into(), &job, self.gpus);
        }
        options
    }
}

fn text(plan: &Plan) -> String {
    let mut lines = vec![format!(
        "{} × {} ({}), {:.0} % of the BF16 rate",
        plan.gpus,
        plan.gpu,
        output::bytes(plan.gpu_bytes as f64),
        100.0 * plan.utilisation
    )];
    for p in &plan.jobs {
        let c = &p.cost;
        lines.push(format!(
            "{:<10}{} steps of {} × {} tokens, {} tokens, {:.3e} operations a step, {:.1} hours",
            p.name,
            p.job.steps,
            p.job.sequences,
            p.job.length,
            report::count(c.tokens),
            c.flops_per_step,
            c.hours
        ));
        lines.push(format!("  per GPU, {} sequence(s) one after another:", c.micro_batches));
        for (kind, bytes) in kinds(&c.bytes) {
            lines.push(format!("    {kind:<12}{:>12}", output::bytes(bytes as f64)));
        }
        let fit = if p.fits { "fits" } else { "does not fit" };
        lines.push(format!("    {:<12}{:>12}  {fit}", "in all", output::bytes(c.bytes.total as f64)));
        for o in &p.options {
            let fit = if o.fits { "fits" } else { "does not fit" };
            lines.push(format!("    {}: {}, {:.1} hours, {fit}", o.what, output::bytes(o.total_bytes as f64), o.hours));
        }
    }
    lines.join("\n")
}

fn kinds(b: &TrainingBytes) -> [(&'static str, u64); 8] {
    [
        ("parent", b.parent),
        ("weights", b.weights),
        ("masters", b.masters),
        ("moments", b.moments),
        ("gradients", b.gradients),
        ("gathered", b.gathered),
        ("activations", b.activations),
        ("logits", b.logits),
    ]
}
