//! What the tests share.
#![allow(dead_code)] // each test crate uses its part

use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::CudaContext;
use gpusim::Installed;

/// A context on gpusim, for one test at a time: findings and counts are the process's.
pub struct Exclusive {
    context: Arc<CudaContext>,
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Exclusive {
    type Target = Arc<CudaContext>;

    fn deref(&self) -> &Arc<CudaContext> {
        &self.context
    }
}

pub fn context() -> (Installed, Exclusive) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sim = gpusim::install().unwrap();
    let context = CudaContext::new(0).unwrap();
    assert_eq!(context.name().unwrap(), "gpusim", "the tests must not run on a real device");
    sim.reset();
    (sim, Exclusive { context, _turn: turn })
}

pub fn assert_clean(sim: Installed) {
    let findings = sim.findings_text();
    assert!(findings.is_empty(), "{findings}");
    assert_eq!(sim.findings_json(), "[]");
}

/// A small generator (splitmix64): the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Floats in [-1, 1).
    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }
}
