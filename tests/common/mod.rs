//! What several tests need.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use autocompress::tensor::{Segments, Tensor};
use safetensors::SafeTensors;

/// The shipped reference cases, and those of every folder in `$REFERENCE_CASES` (colon-separated).
pub fn reference_cases() -> Vec<PathBuf> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference");
    let others = std::env::var("REFERENCE_CASES").unwrap_or_default();
    let roots = std::iter::once(shipped).chain(others.split(':').filter(|s| !s.is_empty()).map(PathBuf::from));
    let mut cases: Vec<PathBuf> = roots
        .flat_map(|root| std::fs::read_dir(&root).unwrap_or_else(|e| panic!("{}: {e}", root.display())))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("expected.safetensors").exists())
        .collect();
    cases.sort();
    cases
}

/// What a reference case expects.
pub struct Expected {
    bytes: Vec<u8>,
}

impl Expected {
    pub fn read(case: &Path) -> Expected {
        Expected { bytes: std::fs::read(case.join("expected.safetensors")).unwrap() }
    }

    pub fn file(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap()
    }

    pub fn f32(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let file = self.file();
        let tensor = file.tensor(name).ok()?;
        assert_eq!(tensor.dtype(), safetensors::Dtype::F32, "{name}");
        let values = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        Some((tensor.shape().to_vec(), values))
    }

    /// Token ids [B, T], row by row.
    pub fn ids(&self, name: &str) -> Option<Vec<Vec<u32>>> {
        let file = self.file();
        let tensor = file.tensor(name).ok()?;
        let ids: Vec<u32> =
            tensor.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as u32).collect();
        Some(ids.chunks(tensor.shape()[1]).map(<[u32]>::to_vec).collect())
    }
}

/// Flat tokens and segments of sequences.
pub fn flatten(sequences: &[Vec<u32>]) -> (Vec<u32>, Segments) {
    let mut offsets = vec![0];
    let tokens: Vec<u32> = sequences.concat();
    offsets.extend(sequences.iter().scan(0, |sum, s| {
        *sum += s.len();
        Some(*sum)
    }));
    (tokens, Segments::from_offsets(&offsets).unwrap())
}

/// Next-token targets of sequences.
pub fn next_tokens(sequences: &[Vec<u32>]) -> Vec<u32> {
    let ignore = autocompress::data::IGNORE;
    sequences.iter().flat_map(|s| s[1..].iter().copied().chain([ignore])).collect()
}

pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |m, d| if d > m || d.is_nan() { d } else { m })
}

/// ‖a − b‖ / ‖b‖.
pub fn relative_difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let norm: f64 = b.iter().map(|b| square(f64::from(*b))).sum();
    if norm == 0.0 { difference.sqrt() } else { (difference / norm).sqrt() }
}

pub fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    a.dims() == b.dims() && a.f32().iter().zip(b.f32()).all(|(x, y)| x.to_bits() == y.to_bits())
}
