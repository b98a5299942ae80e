//! Reports as a run would leave them: the numbers hang together, though no model was measured for them.

use std::collections::BTreeMap;

use autocompress::engine::profile::Workload;
use autocompress::report::*;

/// Numbers in [0, 1) that look random.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal, around 0, of standard deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next()).sum::<f64>() - 6.0
    }
}

const STEPS: u64 = 200;

/// A run over a parent of this pattern (M, E, *, -), within its limits.
pub fn report(pattern: &str) -> Report {
    let mut noise = Noise::new(7);
    let gates = gates(pattern, &mut noise);
    let hidden = chosen(&gates, "hidden_size").unwrap_or(128);
    let parent_layers: Vec<LayerResult> = pattern.chars().map(|c| parent_layer(c, 128)).collect();
    let student_layers: Vec<LayerResult> =
        pattern.chars().enumerate().map(|(i, c)| student_layer(c, i, hidden, &gates)).collect();
    let parent = model("presets/parents/tiny", 128, parent_layers);
    let student = model("runs/cpu-45ms/recovered", hidden, student_layers);
    let limits = limits(&parent, &student);
    let changed: Vec<String> = gates.iter().filter(|g| leading(g) != g.chosen).map(|g| g.name.clone()).collect();
    Report {
        name: "cpu-45ms".to_owned(),
        machine: Machine {
            processor: "AMD EPYC 7763 64-Core Processor".to_owned(),
            cores: 2,
            memory_bytes: Some(8 << 30),
            system: "linux x86_64".to_owned(),
        },
        deployment: Deployment {
            device: "cpu".to_owned(),
            engine: "builtin".to_owned(),
            precision: "f32".to_owned(),
            threads: 2,
            workload: Workload { batch: 4, cached_tokens: 0, input_tokens: 256, output_tokens: 64, prefill_chunk: 256 },
        },
        met: true,
        quality: quality(),
        repair: repair(&limits, changed, gates.len()),
        cost_model: cost_model(&parent, &student, pattern, &mut noise),
        search: Some(search(gates, &mut noise)),
        screening: None,
        recovery: recovery(&mut noise),
        limits,
        parent,
        student,
        reproduce: reproduce(),
    }
}

/// The same of a baseline: six candidates, five of them distilled.
pub fn screened(pattern: &str) -> Report {
    let mut noise = Noise::new(11);
    let candidate = |i: usize| {
        let losses: Vec<f64> = (0..100).map(|step| 2.0 / (1.0 + step as f64 / 9.0) + 0.1 * noise.next()).collect();
        let trained = i < 5;
        ScreenedResult {
            sizes: map([
                ("hidden_size", 96 + 8 * i),
                ("experts", 12 - i),
                ("intermediate", 48),
                ("shared_intermediate", 64),
            ]),
            rho: map([("latency", 0.99 - 0.001 * i as f64), ("memory", 0.75)]),
            first_loss: 2.1 + i as f64,
            score: trained.then_some(0.2 + 0.01 * i as f64),
            losses: if trained { losses } else { Vec::new() },
            chosen: i == 0,
        }
    };
    let candidates = (0..6).map(candidate).collect();
    let screening = ScreeningResult {
        within: 812,
        maximal: 31,
        reach: "binding".to_owned(),
        floor: 0.95,
        steps: 100,
        scored_steps: 25,
        tokens: 1_036_288,
        candidates,
    };
    let mut report = report(pattern);
    report.repair.gates_changed.clear();
    report.repair.rho_before = report.repair.rho_after.clone();
    Report { search: None, screening: Some(screening), ..report }
}

pub fn map<T>(entries: impl IntoIterator<Item = (&'static str, T)>) -> BTreeMap<String, T> {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn chosen(gates: &[GateCurve], name: &str) -> Option<usize> {
    gates.iter().find(|g| g.name == name).map(|g| g.chosen)
}

fn leading(gate: &GateCurve) -> usize {
    let last = gate.probabilities.last().unwrap();
    let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
    gate.candidates[best]
}

fn gates(pattern: &str, noise: &mut Noise) -> Vec<GateCurve> {
    let mut gates = vec![
        gate("hidden_size", None, &[64, 80, 96, 112, 128], 3, false, noise),
        gate("mamba.heads", None, &[4, 8, 12, 16], 2, false, noise),
    ];
    for (i, kind) in pattern.chars().enumerate() {
        if kind == 'M' {
            let pick = usize::from(noise.next() > 0.2);
            gates.push(gate("keep", Some(i), &[0, 1], pick, false, noise));
        }
        if kind == 'E' {
            let slow = noise.next() < 0.12 || i == 3;
            let pick = (noise.next() * 4.0) as usize;
            gates.push(gate("experts", Some(i), &[4, 8, 12, 16], pick, slow, noise));
            let pick = (noise.next() * 5.0) as usize;
            gates.push(gate("intermediate", Some(i), &[0, 16, 32, 48, 64], pick, false, noise));
            let pick = (noise.next() * 5.0) as usize;
            gates.push(gate("shared_intermediate", Some(i), &[0, 32, 64, 96, 128], pick, false, noise));
        }
    }
    gates
}

/// A gate that starts even and settles on `pick`; an undecided one is changed by the repair.
fn gate(
    axis: &str,
    layer: Option<usize>,
    candidates: &[usize],
    pick: usize,
    undecided: bool,
    noise: &mut Noise,
) -> GateCurve {
    let slopes: Vec<f64> = (0..candidates.len()).map(|_| noise.normal() * 0.5).collect();
    let rival = if pick > 0 { pick - 1 } else { 1 };
    let mut wander = vec![0.0; candidates.len()];
    let probabilities = (0..STEPS)
        .map(|step| {
            let t = step as f64 / (STEPS - 1) as f64;
            let kappa = 1.0 + 9.0 * t;
            let mut z: Vec<f64> = (0..candidates.len())
                .map(|c| {
                    wander[c] += 0.012 * noise.normal();
                    slopes[c] * t * (1.0 - t) + wander[c] * (1.0 - t)
                })
                .collect();
            z[pick] += if undecided { 0.30 } else { 0.9 } * t;
            z[rival] += if undecided { 0.36 } else { 0.25 } * t;
            let sum: f64 = z.iter().map(|z| (kappa * z).exp()).sum();
            z.iter().map(|z| (kappa * z).exp() / sum).collect()
        })
        .collect();
    let name = layer.map_or_else(|| axis.to_owned(), |i| format!("layers.{i}.{axis}"));
    GateCurve {
        name,
        axis: axis.to_owned(),
        layer,
        candidates: candidates.to_vec(),
        probabilities,
        chosen: candidates[pick],
    }
}

fn layer(kind: &str, sizes: BTreeMap<String, usize>, hidden: usize) -> LayerResult {
    let size = |letter: &str| sizes.get(letter).copied().unwrap_or(0) as f64;
    let d = hidden as f64 / 128.0;
    let (parameters, request_ms) = match kind {
        "mamba" => (size("H") * 4096.0 * d, (0.4 + 0.16 * size("H")) * (0.3 + 0.7 * d)),
        "moe" => {
            let (e, f, s) = (size("E"), size("F"), size("S"));
            ((e * f * 256.0 + s * 256.0) * d, (0.5 + 0.04 * e + 0.03 * f + 0.016 * s) * (0.3 + 0.7 * d))
        }
        "mlp" => (size("S") * 256.0 * d, (0.2 + 0.016 * size("S")) * (0.3 + 0.7 * d)),
        "attention" => (49_152.0 * d, 3.1 * (0.4 + 0.6 * d)),
        _ => (0.0, 0.0),
    };
    LayerResult { kind: kind.to_owned(), sizes, parameters: parameters as u64, request_ms }
}

fn parent_layer(kind: char, hidden: usize) -> LayerResult {
    match kind {
        'M' => layer("mamba", map([("H", 16)]), hidden),
        'E' => layer("moe", map([("E", 16), ("F", 64), ("S", 128)]), hidden),
        '*' => layer("attention", map([("H", 4)]), hidden),
        _ => layer("mlp", map([("S", 128)]), hidden),
    }
}

fn student_layer(kind: char, i: usize, hidden: usize, gates: &[GateCurve]) -> LayerResult {
    let size = |axis: &str| chosen(gates, &format!("layers.{i}.{axis}")).unwrap_or(0);
    match kind {
        'M' if size("keep") == 0 => layer("removed", map([("H", 0)]), hidden),
        'M' => layer("mamba", map([("H", chosen(gates, "mamba.heads").unwrap_or(16))]), hidden),
        'E' => {
            let (e, f, s) = (size("experts"), size("intermediate"), size("shared_intermediate"));
            match (f, s) {
                (0, 0) => layer("removed", BTreeMap::new(), hidden),
                (0, s) => layer("mlp", map([("S", s)]), hidden),
                _ => layer("moe", map([("E", e), ("F", f), ("S", s)]), hidden),
            }
        }
        kind => parent_layer(kind, hidden),
    }
}

fn model(folder: &str, hidden_size: usize, layers: Vec<LayerResult>) -> ModelResult {
    let outside = 2 * 256 * hidden_size as u64;
    let parameters: u64 = layers.iter().map(|l| l.parameters).sum::<u64>() + outside;
    let request: f64 = layers.iter().map(|l| l.request_ms).sum::<f64>() + 2.6;
    ModelResult {
        folder: folder.to_owned(),
        parameters,
        active_parameters: parameters / 2 + outside / 2,
        hidden_size,
        layers,
        prefill_ms: request * 0.31,
        decode_step_ms: request * 0.69 / 64.0,
        request_ms: request * 1.004,
        tokens_per_second: 256.0 / request * 1e3,
        peak_mib: parameters as f64 * 4.0 / 1048576.0 + 1.3,
        resident_mib: Some(41.7),
    }
}

fn limits(parent: &ModelResult, student: &ModelResult) -> Vec<LimitResult> {
    let limit = |resource: &str, unit: &str, at_least, p: f64, s: f64, limit: f64, iqr| LimitResult {
        resource: resource.to_owned(),
        unit: unit.to_owned(),
        at_least,
        limit,
        share_of_parent: None,
        parent_predicted: p * 0.994,
        parent_measured: p,
        student_predicted: s * 0.991,
        student_measured: s,
        student_iqr: iqr,
        met: if at_least { s >= limit } else { s <= limit },
    };
    let (p, s) = (parent.request_ms, student.request_ms);
    let mut latency = limit("latency", "ms", false, p, s, s * 1.013, s * 0.021);
    latency.share_of_parent = Some(s * 1.013 / p);
    vec![
        latency,
        limit("memory", "MiB", false, parent.peak_mib, student.peak_mib, student.peak_mib * 1.07, 0.0),
        limit(
            "throughput",
            "tokens/s",
            true,
            parent.tokens_per_second,
            student.tokens_per_second,
            student.tokens_per_second * 0.98,
            student.tokens_per_second * 0.02,
        ),
    ]
}

fn quality() -> Quality {
    let rows = [
        ("brackets", 0.994, 0.612, 0.981),
        ("copy", 1.0, 0.348, 0.992),
        ("counting", 0.873, 0.402, 0.825),
        ("induction", 0.998, 0.553, 0.997),
        ("modular_addition", 0.941, 0.118, 0.802),
        ("recall", 0.962, 0.507, 0.931),
        ("reverse", 0.989, 0.214, 0.955),
        ("sort", 0.921, 0.259, 0.868),
    ];
    let task = |(name, parent, extracted, student): (&str, f64, f64, f64)| TaskResult {
        name: name.to_owned(),
        items: 256,
        parent,
        extracted,
        student,
    };
    Quality {
        tasks: rows.map(task).into(),
        losses: vec![LossResult { name: "text".to_owned(), items: 12, parent: 2.41, extracted: 5.02, student: 2.66 }],
        mean: Some(TaskResult { items: 2048, ..task(("mean", 0.95975, 0.376625, 0.918875)) }),
        held_out_before_recovery: 1.482,
        held_out_after_recovery: 0.0713,
        held_out_tokens: 65_536,
    }
}

fn repair(limits: &[LimitResult], changed: Vec<String>, gates: usize) -> RepairResult {
    let by = |of: &dyn Fn(&LimitResult) -> f64| limits.iter().map(|l| (l.resource.clone(), of(l))).collect();
    let round = |off: f64, met: bool, gates_changed| RoundResult {
        target: by(&|l| l.limit * if l.at_least { 1.012 } else { 0.988 }),
        predicted: by(&|l| l.student_predicted * off),
        measured: by(&|l| l.student_measured * off),
        limit: by(&|l| l.limit),
        met,
        gates_changed,
    };
    let rho = |values: [f64; 3]| limits.iter().zip(values).map(|(l, v)| (l.resource.clone(), v)).collect();
    RepairResult {
        rho_before: rho([1.0312, 0.9413, 1.0208]),
        rho_after: rho([0.9981, 0.9207, 0.9899]),
        gates,
        gates_changed: changed,
        rounds: vec![round(1.031, false, 2), round(1.0, true, 3)],
    }
}

fn search(gates: Vec<GateCurve>, noise: &mut Noise) -> SearchResult {
    let steps: Vec<u64> = (0..STEPS).collect();
    let over = |f: &mut dyn FnMut(f64) -> f64| -> Vec<f64> {
        steps.iter().map(|s| f(*s as f64 / (STEPS - 1) as f64)).collect()
    };
    let latency = over(&mut |t| 0.992 - 0.26 * (-9.0 * t).exp() + 0.028 * (1.0 - t) * noise.normal());
    let memory = over(&mut |t| 0.941 - 0.17 * (-6.0 * t).exp() + 0.02 * (1.0 - t) * noise.normal());
    let throughput = over(&mut |t| 0.983 - 0.22 * (-8.0 * t).exp() + 0.025 * (1.0 - t) * noise.normal());
    let outside = |rho: f64| (rho - 1.0f64).max(0.0) + (0.98 - rho).max(0.0);
    let penalty: Vec<f64> = latency.iter().zip(&throughput).map(|(a, b)| 0.3 * (outside(*a) + outside(*b))).collect();
    let axes = ["hidden_size", "mamba.heads", "keep", "experts", "intermediate", "shared_intermediate"];
    let mut norms = |level: f64, zero: bool| {
        let curve = |a: usize| {
            let values = penalty.iter().map(|p| {
                let size = level * (0.4 + 0.3 * a as f64) * (0.4 * noise.normal()).exp();
                if zero && *p == 0.0 { 0.0 } else { size }
            });
            values.collect()
        };
        let mut curve = curve;
        axes.iter().enumerate().map(|(a, axis)| ((*axis).to_owned(), curve(a))).collect::<BTreeMap<String, Vec<f64>>>()
    };
    let distillation_norms = norms(0.02, false);
    let budget_norms = norms(0.05, true);
    SearchResult {
        architectures: "1234567890123456789012".to_owned(),
        gates,
        converged: false,
        tokens: 200 * 64 * 256,
        draws: 8,
        delta: 0.02,
        slack: "binding".to_owned(),
        converged_at: 0.95,
        distillation: over(&mut |t| (0.16 + 1.9 * (-14.0 * t).exp()) * (0.06 * noise.normal()).exp()),
        penalty,
        kappa: over(&mut |t| 1.0 + 9.0 * t),
        tau: over(&mut |t| 0.05f64.powf(t)),
        rho: map([("latency", latency), ("memory", memory), ("throughput", throughput)]),
        distillation_norms,
        budget_norms,
        steps,
    }
}

fn recovery(noise: &mut Noise) -> RecoveryResult {
    let steps: Vec<u64> = (0..600).collect();
    let mut loss = |t: f64| (0.058 + 0.3 * (-9.0 * t).exp() + 1.1 * (-60.0 * t).exp()) * (0.08 * noise.normal()).exp();
    let loss: Vec<f64> = steps.iter().map(|s| loss(*s as f64 / 599.0)).collect();
    let final_loss = loss[575..].iter().sum::<f64>() / 25.0;
    RecoveryResult { tokens: 600 * 16 * 256, steps, loss, final_loss }
}

fn cost_model(parent: &ModelResult, student: &ModelResult, pattern: &str, noise: &mut Noise) -> CostModelResult {
    let mut point = |name: String, ms: f64, mib: f64| CostPoint {
        name,
        predicted_ms: ms * (1.0 + 0.007 * noise.normal()),
        measured_ms: ms,
        predicted_mib: mib * 1.006,
        measured_mib: mib,
    };
    let mut points = vec![point("parent".to_owned(), parent.request_ms, parent.peak_mib)];
    for i in 0..24 {
        let share = 0.3 + 0.65 * (i as f64 * 0.618).fract();
        let mib = parent.peak_mib * (0.3 + 0.6 * (i as f64 * 0.755).fract());
        points.push(point(i.to_string(), parent.request_ms * share, mib));
    }
    points.push(point("student".to_owned(), student.request_ms, student.peak_mib));
    let mut table = Vec::new();
    for hidden_size in [128, student.hidden_size] {
        let d = hidden_size as f64 / 128.0;
        let mut row = |part: String, scale: f64| {
            table.push(CostRow {
                hidden_size,
                part,
                prefill_ms: 0.62 * scale * d,
                decode_us: 31.0 * scale * d,
                weights_bytes: 171_008.0 * scale * d,
                cache_bytes: if pattern.contains('*') { 65_536.0 * scale } else { 0.0 },
                workspace_bytes: 1_048_576.0 * scale,
            });
        };
        for heads in [4, 8, 12, 16] {
            row(format!("mamba H{heads} P16 G2 N32"), heads as f64 / 16.0);
        }
        for experts in [4, 8, 12, 16] {
            for width in [16, 32, 48, 64] {
                row(format!("moe E{experts} F{width} S128 K2"), (experts * width) as f64 / 700.0 + 0.1);
            }
        }
        row("attention H4 P32 KV2".to_owned(), 1.3);
        row("rest".to_owned(), 1.1);
    }
    CostModelResult {
        drift: 1.04,
        rows: 512,
        margin: map([("latency", 0.0142), ("memory", 0.0061)]),
        points,
        median_error: map([("latency", 0.0049), ("memory", 0.006)]),
        worst_error: map([("latency", 0.0187), ("memory", 0.006)]),
        table,
    }
}

fn reproduce() -> Reproduce {
    Reproduce {
        version: "0.1.0".to_owned(),
        command: "autocompress compress recipes/cpu-45ms.toml --out runs/cpu-45ms".to_owned(),
        recipe: include_str!("../../presets/contracts/cpu.toml").to_owned()
            + "\n[search]\nsteps = 200\ndraws = 8\nalpha = 0.3\nseed = 0\n\n[recover]\nsteps = 600\nlearning_rate = 3e-4\n",
        inputs: map([
            ("model.safetensors", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned()),
            ("config.json", "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752".to_owned()),
            ("cpu.toml", "fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13".to_owned()),
        ]),
        seconds: map([
            ("profile", 412.4),
            ("rank", 6.1),
            ("search", 1894.0),
            ("extract", 0.9),
            ("recover", 688.2),
            ("measure", 57.3),
        ]),
    }
}
