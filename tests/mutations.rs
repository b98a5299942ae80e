//! Promise: the checks of the kernels notice what breaks a kernel. Of random changes of one instruction in the PTX that ships
//! (an operation exchanged, a predicate turned, operands swapped, a constant or an address moved, a store or a barrier
//! removed), at least nine in ten make a check fail, or gpusim object. Kinds of changes that can alter no result are made
//! otherwise (tests/gpusim/src/mutate.rs says which and why); of the others, those that turn out to alter none count as missed.
//!
//!     MUTATIONS=1000 cargo test --release --test mutations -- --nocapture

use autocompress::device::cuda::embedded::MODULES;
use autocompress::device::cuda::{Cuda, Registry, check};

/// Set MUTATIONS to try another number, MUTATION_SEED to try others, and ONLY to try some of them (`ONLY=3,17`).
const MUTATIONS: u64 = 200;
/// Of them, the share that must be noticed.
const LEAST_NOTICED: f64 = 0.9;
/// Warp instructions of a block, more than any check needs: a loop that lost its end is stopped.
const WATCHDOG: u64 = 3_000_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Every kernel's symbol and op, with the number of its PTX instructions.
fn kernels() -> Vec<(String, String, u64)> {
    let registry = Registry::embedded().unwrap();
    let instructions = |symbol: &str| -> u64 {
        let body = MODULES.iter().find_map(|m| Some(m.ptx.split_once(&format!(".entry {symbol}("))?.1)).unwrap();
        let lines = body.lines().take_while(|line| *line != "}");
        lines.filter(|line| line.starts_with('\t') && !line.starts_with("\t.") && line.ends_with(';')).count() as u64
    };
    registry.kernels().iter().map(|k| (k.symbol.clone(), k.op.clone(), instructions(&k.symbol))).collect()
}

#[test]
fn checks_notice_mutated_kernels() {
    let sim = gpusim::install().unwrap();
    sim.set_watchdog(WATCHDOG);
    let (kernels, first) = (kernels(), number("MUTATION_SEED", 0) << 32);
    let total: u64 = kernels.iter().map(|(_, _, instructions)| instructions).sum();
    assert!(total > 50_000, "{total} instructions");
    let count = number("MUTATIONS", MUTATIONS);
    let only = std::env::var("ONLY").ok();
    let is_wanted = |at: u64| only.as_ref().is_none_or(|only| only.split(',').any(|other| other.parse() == Ok(at)));
    let (mut tried, mut missed) = (0, Vec::new());
    for seed in (first..first + count).filter(|seed| is_wanted(seed - first)) {
        // The golden ratio's multiples spread evenly, so that kernels get their share by size.
        let spread = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut at = ((u128::from(spread) * u128::from(total)) >> 64) as u64;
        let of = kernels.iter().find(|(_, _, instructions)| match at.checked_sub(*instructions) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        let (symbol, op, _) = of.unwrap();
        sim.reset();
        sim.mutate_next(symbol, seed);
        tried += 1;
        let cuda = Cuda::open(0).unwrap();
        assert_eq!(cuda.name, "gpusim", "the tests must not run on a real device");
        let outcome = check::run_kernel(&cuda, op, symbol);
        let mutation = sim.mutation();
        assert!(mutation.starts_with(symbol.as_str()), "{symbol} was not launched: {mutation}, {outcome:?}");
        let noticed =
            outcome.is_err() || outcome.is_ok_and(|o| !o.faults.is_empty()) || !sim.findings_text().is_empty();
        // The error of a kernel stays with the device, so that it could not free its memory.
        sim.reset();
        drop(cuda);
        if !noticed {
            println!("missed: {}: {mutation}", seed - first);
            missed.push(mutation);
        }
    }
    let share = 1.0 - missed.len() as f64 / f64::from(tried);
    println!("{tried} mutations of {} kernels, {:.1} % noticed", kernels.len(), 100.0 * share);
    assert!(only.is_some() || share >= LEAST_NOTICED, "{share}");
}
