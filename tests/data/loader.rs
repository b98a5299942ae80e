//! The loader: order by seed alone, errors, an end.

use std::sync::Arc;

use autocompress::data::source::{Place, Row};
use autocompress::data::{Batch, IGNORE, Loader, LoaderConfig, Source};
use autocompress::{Error, Result};

use crate::common::{check_batch, sources};

#[test]
fn loader_order_depends_on_the_seed_alone() {
    for (name, source) in sources() {
        let load = |seed, prefetch, start: u64, n: usize| -> Vec<Batch> {
            let config = LoaderConfig { seed, sequences: 3, length: 40, prefetch };
            let mut loader = Loader::new(Arc::clone(&source), config, start).unwrap();
            (0..n).map(|_| loader.next().unwrap()).collect()
        };
        let whole = load(11, 4, 0, 10);
        assert_eq!(whole, load(11, 0, 0, 10), "{name}: prefetch 0");
        assert_eq!(whole, load(11, 64, 0, 10), "{name}: prefetch 64");
        for start in [1, 4, 9] {
            assert_eq!(whole[start..], load(11, 2, start as u64, 10 - start), "{name}: started at {start}");
        }
        assert_ne!(whole, load(12, 4, 0, 10), "{name}: another seed");
        let direct: Vec<Batch> = (0..10).map(|step| source.batch(11, step, 3, 40).unwrap()).collect();
        assert_eq!(whole, direct, "{name}: the thread adds nothing");
        // A late step costs no walk through the earlier ones.
        load(11, 1, 1 << 40, 2).iter().for_each(check_batch);
    }
}

/// Fails at a step.
struct Failing(u64);

impl Source for Failing {
    fn fill(&self, place: Place, row: Row<'_>) -> Result<()> {
        row.tokens.fill(7);
        row.targets.fill(IGNORE);
        if place.step == self.0 { Err(Error::Usage("out of luck".into())) } else { Ok(()) }
    }
}

#[test]
fn loader_hands_errors_over_and_stops_when_dropped() {
    let config = LoaderConfig { seed: 0, sequences: 1, length: 4, prefetch: 2 };
    let mut loader = Loader::new(Failing(2), config, 0).unwrap();
    assert!(loader.next().is_ok() && loader.next().is_ok());
    assert_eq!(loader.next().unwrap_err().to_string(), "out of luck");
    assert!(matches!(loader.next(), Err(Error::Contract { .. })));
    assert!(matches!(loader.next(), Err(Error::Contract { .. })));

    let source = Arc::new(Failing(u64::MAX));
    let mut loader = Loader::new(Arc::clone(&source), config, 0).unwrap();
    loader.next().unwrap();
    assert_eq!(Arc::strong_count(&source), 2);
    drop(loader);
    assert_eq!(Arc::strong_count(&source), 1, "the thread has ended");

    for (sequences, length) in [(0, 4), (4, 0), (usize::MAX, 2)] {
        let config = LoaderConfig { seed: 0, sequences, length, prefetch: 2 };
        assert!(matches!(Loader::new(Failing(0), config, 0), Err(Error::Usage(_))));
    }
}

/// Not a promise, a measurement: `cargo test --release --test data -- --ignored --nocapture`.
#[test]
#[ignore = "prints a time"]
fn time_of_a_batch() {
    for (name, source) in sources() {
        let start = std::time::Instant::now();
        for step in 0..100 {
            std::hint::black_box(source.batch(1, step, 32, 256).unwrap());
        }
        println!("{name}: {:.3} ms for 32 x 256 tokens", start.elapsed().as_secs_f64() * 10.0);
    }
}
