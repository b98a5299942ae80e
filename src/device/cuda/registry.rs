//! Which kernels there are and how each is launched: kernels.toml and the manifest, as they are inside this program.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use serde::Deserialize;

use super::embedded::{self, Module};
use super::error::CudaError;
use super::layout::{Layout, layouts};
use super::rule::{Expression, Limit};

/// A kernel for one dtype and tier.
pub struct Kernel {
    pub op: String,
    pub variant: String,
    pub dtype: String,
    pub tier: String,
    /// op_variant_dtype.
    pub symbol: String,
    /// Threads of a block.
    pub block: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
    /// Per architecture, `sm_80` and on.
    pub registers: BTreeMap<String, u32>,
    /// The rules as kernels.toml has them.
    pub rules: Rules,
    /// PTX ISA version of the module.
    pub ptx: String,
    pub(super) module: &'static Module,
    pub(super) layout: Layout,
    pub(super) element: u64,
    pub(super) grid: Vec<Expression>,
    pub(super) dynamic: Expression,
    pub(super) limits: Vec<Limit>,
}

/// A kernel's entry in kernels.toml.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    op: String,
    variant: String,
    dtypes: Vec<String>,
    tier: String,
    /// The struct of its arguments.
    pub args: String,
    pub grid: Vec<String>,
    block: u32,
    /// Dynamic shared memory.
    #[serde(rename = "shared")]
    pub dynamic_shared: String,
    pub limits: Vec<String>,
}

#[derive(Deserialize)]
struct Table {
    kernel: Vec<Rules>,
}

#[derive(Deserialize)]
struct Manifest {
    kernels: Vec<Compiled>,
}

#[derive(Deserialize)]
struct Compiled {
    symbol: String,
    file: String,
    tier: String,
    ptx: String,
    arguments: usize,
    block: u32,
    shared: u32,
    registers: BTreeMap<String, u32>,
}

/// Ways to compute the same thing, each faster than the one before where its limits hold.
const LADDER: [&str; 6] = ["naive", "recurrent", "tiled", "chunked", "tensor_core", "pipelined"];

impl Kernel {
    /// The rung of the ladder, and what the kernel does without its rung: `pipelined_nt` is (3, `nt`).
    pub fn rung(&self) -> (usize, &str) {
        let rung = |(at, name): (usize, &&str)| Some((at, self.variant.strip_prefix(*name)?.strip_prefix('_')?));
        LADDER.iter().enumerate().find_map(rung).unwrap_or((0, &self.variant))
    }

    /// Whether it runs on a device of this compute capability. `compute_80` runs on 8.0 and everything above, `sm_90a` on 9.0
    /// alone.
    pub fn runs_on(&self, capability: (u32, u32)) -> bool {
        let found = capability.0 * 10 + capability.1;
        match (self.tier.strip_prefix("compute_"), self.tier.strip_prefix("sm_")) {
            (Some(least), _) => least.parse().is_ok_and(|least: u32| found >= least),
            (_, Some(exact)) => exact.trim_end_matches('a').parse() == Ok(found),
            _ => false,
        }
    }

    /// Registers on the nearest architecture that the manifest has, at or below this capability.
    pub fn registers_on(&self, capability: (u32, u32)) -> Option<u32> {
        let found = capability.0 * 10 + capability.1;
        let architecture = |name: &str| name.strip_prefix("sm_")?.trim_end_matches('a').parse::<u32>().ok();
        let below = self.registers.iter().filter_map(|(name, count)| Some((architecture(name)?, *count)));
        below.filter(|(at, _)| *at <= found).max().map(|(_, count)| count)
    }
}

pub struct Registry {
    kernels: Vec<Kernel>,
}

impl Registry {
    /// The kernels inside this program.
    ///
    /// # Errors
    /// [`CudaError::Table`] where the tables contradict each other: a bug of the build.
    pub fn embedded() -> Result<&'static Registry, CudaError> {
        static REGISTRY: OnceLock<Result<Registry, String>> = OnceLock::new();
        let build = || Registry::new(embedded::KERNELS, embedded::MANIFEST, super::ABI);
        REGISTRY.get_or_init(build).as_ref().map_err(|text| CudaError::Table(text.clone()))
    }

    fn new(table: &str, manifest: &str, abi: &str) -> Result<Registry, String> {
        let table: Table = toml::from_str(table).map_err(|e| format!("kernels.toml: {e}"))?;
        let manifest: Manifest = serde_json::from_str(manifest).map_err(|e| format!("manifest.json: {e}"))?;
        let layouts = layouts(abi)?;
        let compiled: HashMap<(&str, &str), &Compiled> =
            manifest.kernels.iter().map(|k| ((k.symbol.as_str(), k.tier.as_str()), k)).collect();
        let mut kernels = Vec::new();
        for rules in &table.kernel {
            for dtype in &rules.dtypes {
                kernels.push(kernel(rules, dtype, &compiled, &layouts)?);
            }
        }
        Ok(Registry { kernels })
    }

    /// In the order of kernels.toml.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel of this symbol for a device: of several tiers, the one made for it.
    pub fn find(&self, symbol: &str, capability: (u32, u32)) -> Option<&Kernel> {
        let fits = self.kernels.iter().filter(|k| k.symbol == symbol && k.runs_on(capability));
        fits.max_by_key(|k| k.tier.strip_prefix("sm_").is_some())
    }

    /// Whether a device of this capability gets `kernel` where all limits hold: the best tier, the highest rung.
    pub fn picks(&self, kernel: &Kernel, capability: (u32, u32)) -> bool {
        let (rung, what) = kernel.rung();
        let best = self.find(&kernel.symbol, capability).is_some_and(|best| std::ptr::eq(best, kernel));
        let rivals =
            self.kernels.iter().filter(|k| k.op == kernel.op && k.dtype == kernel.dtype && k.runs_on(capability));
        best && rivals.map(Kernel::rung).filter(|(_, other)| *other == what).all(|(other, _)| other <= rung)
    }
}

fn kernel(
    rules: &Rules,
    dtype: &str,
    compiled: &HashMap<(&str, &str), &Compiled>,
    layouts: &HashMap<String, Layout>,
) -> Result<Kernel, String> {
    let symbol = format!("{}_{}_{dtype}", rules.op, rules.variant);
    let at = |text: String| format!("{symbol}: {text}");
    let made = compiled.get(&(symbol.as_str(), rules.tier.as_str())).ok_or_else(|| at("not compiled".into()))?;
    let layout = layouts.get(&rules.args).ok_or_else(|| at(format!("no struct {}", rules.args)))?.clone();
    if layout.size != made.arguments || rules.block != made.block {
        let found = (layout.size, rules.block);
        return Err(at(format!("{found:?} bytes and threads, the code has {:?}", (made.arguments, made.block))));
    }
    let module = embedded::MODULES.iter().find(|m| format!("{}.{}.ptx", m.name, m.tier) == made.file);
    let grid: Vec<Expression> =
        rules.grid.iter().map(|e| Expression::parse(e)).collect::<Result<_, _>>().map_err(at)?;
    let dynamic = Expression::parse(&rules.dynamic_shared).map_err(at)?;
    let limits: Vec<Limit> = rules.limits.iter().map(|l| Limit::parse(l)).collect::<Result<_, _>>().map_err(at)?;
    let known = |name: &str| layout.read(&vec![0; layout.size], name).is_some();
    if !(grid.iter().chain([&dynamic]).all(|e| e.known(known)) && limits.iter().all(|l| l.known(known))) {
        return Err(at(format!("a rule names what {} does not have", rules.args)));
    }
    Ok(Kernel {
        op: rules.op.clone(),
        variant: rules.variant.clone(),
        dtype: dtype.into(),
        tier: rules.tier.clone(),
        block: rules.block,
        shared: made.shared,
        registers: made.registers.clone(),
        rules: rules.clone(),
        ptx: made.ptx.clone(),
        module: module.ok_or_else(|| at(format!("no module {}", made.file)))?,
        element: match dtype {
            "f32" | "u32" => 4,
            "bf16" => 2,
            "f64" => 8,
            _ => return Err(at("a dtype that is not known".into())),
        },
        layout,
        grid,
        dynamic,
        limits,
        symbol,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_agree_and_the_ladder_is_climbed() {
        let registry = Registry::embedded().unwrap();
        let picked = |symbol: &str, capability| {
            registry.find(symbol, capability).is_some_and(|kernel| registry.picks(kernel, capability))
        };
        assert!(picked("linear_pipelined_nt_bf16", (8, 0)) && !picked("linear_tiled_nt_bf16", (9, 0)));
        assert!(picked("linear_tiled_nt_f32", (12, 1)) && !picked("linear_naive_nt_f32", (8, 6)));
        assert!(picked("attention_tiled_forward_f32", (8, 0)) && !picked("attention_tiled_forward_bf16", (8, 0)));
        assert!(
            picked("ssd_scan_tensor_core_backward_bf16", (8, 0)) && !picked("ssd_scan_chunked_forward_bf16", (9, 0))
        );
        assert!(picked("ssd_scan_chunked_forward_f32", (8, 0)) && !picked("ssd_scan_recurrent_forward_f32", (8, 0)));
        assert!(registry.find("relu2_forward_f32", (7, 5)).is_none());
        assert!(registry.kernels().iter().all(|k| k.registers_on((8, 9)).is_some()));
    }
}
