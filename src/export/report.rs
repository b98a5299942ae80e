//! What an export did to the weights.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use super::encode::Deviation;
use crate::report::{bytes, count};

/// An export, as `quantization_error.json` holds it.
#[derive(Clone, Debug, Serialize)]
pub struct ExportReport {
    /// Not in the file, which lies in it and may be moved.
    #[serde(skip)]
    pub out: PathBuf,
    pub files: usize,
    /// Tensors on disk, scales included.
    pub tensors: usize,
    /// Of all tensors.
    pub bytes: u64,
    pub source_bytes: u64,
    /// Of the model: what `components` sum up, in the order of a contract's `[precision]`.
    pub components: Vec<ComponentError>,
    /// Tensors in another format than they had.
    pub changed: Vec<TensorError>,
    /// Tensors that are not in the format that was asked for.
    pub kept: Vec<Kept>,
    /// Tokenizer and generation files.
    pub copied: Vec<String>,
}

/// What a tensor's format did to its values.
#[derive(Clone, Debug, Serialize)]
pub struct TensorError {
    pub tensor: String,
    pub component: &'static str,
    pub format: &'static str,
    pub shape: Vec<usize>,
    /// ‖W − Ŵ‖ / ‖W‖, Frobenius.
    pub relative_error: f64,
    /// max |w − ŵ|.
    pub largest_error: f32,
    /// max |w|.
    pub largest: f32,
    /// NVFP4: blocks of 16 that became 0 beside much larger values of the same tensor.
    pub zeroed_blocks: u64,
}

/// The same over all tensors of a component in one format.
#[derive(Clone, Debug, Serialize)]
pub struct ComponentError {
    pub component: &'static str,
    pub format: &'static str,
    pub tensors: usize,
    pub parameters: u64,
    pub bytes: u64,
    pub relative_error: f64,
    pub largest_error: f32,
    pub zeroed_blocks: u64,
    /// The tensor with the largest relative error; none where no value changed.
    pub worst: Option<String>,
    #[serde(skip)]
    pub(super) sums: Deviation,
    #[serde(skip)]
    pub(super) worst_error: f64,
}

/// A tensor that stays as it is, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    pub tensor: String,
    pub format: &'static str,
    pub because: String,
}

impl ExportReport {
    /// Adds a tensor to the sum of its component and format.
    pub(super) fn add(&mut self, tensor: TensorError, parameters: u64, bytes: u64, error: &Deviation, changed: bool) {
        let same = |c: &&mut ComponentError| c.component == tensor.component && c.format == tensor.format;
        let at = match self.components.iter_mut().find(same) {
            Some(component) => component,
            None => {
                self.components.push(ComponentError {
                    component: tensor.component,
                    format: tensor.format,
                    tensors: 0,
                    parameters: 0,
                    bytes: 0,
                    relative_error: 0.0,
                    largest_error: 0.0,
                    zeroed_blocks: 0,
                    worst: None,
                    sums: Deviation::default(),
                    worst_error: 0.0,
                });
                let last = self.components.len() - 1;
                &mut self.components[last]
            }
        };
        at.tensors += 1;
        at.parameters += parameters;
        at.bytes += bytes;
        at.sums.add(error);
        at.relative_error = at.sums.relative();
        at.largest_error = at.sums.largest_error;
        at.zeroed_blocks = at.sums.zeroed_blocks;
        if tensor.relative_error > at.worst_error {
            at.worst_error = tensor.relative_error;
            at.worst = Some(tensor.tensor.clone());
        }
        if changed {
            self.changed.push(tensor);
        }
    }

    /// The table of components, for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:<16}{:<7}{:>8}{:>11}{:>12}{:>11}{:>11}  worst tensor\n",
            "component", "format", "tensors", "values", "bytes", "‖ΔW‖/‖W‖", "max |Δw|"
        );
        for c in &self.components {
            let worst = c.worst.as_ref().map_or(String::new(), |name| format!("  {name} {:.2e}", c.worst_error));
            let line = format!(
                "{:<16}{:<7}{:>8}{:>11}{:>12}{:>11.2e}{:>11.2e}",
                c.component,
                c.format,
                c.tensors,
                count(c.parameters),
                bytes(c.bytes as f64),
                c.relative_error,
                c.largest_error
            );
            let _ = writeln!(text, "{line}{worst}");
            if c.zeroed_blocks > 0 {
                let _ = writeln!(
                    text,
                    "  {} blocks of 16 became 0: their values are too small beside their tensor's scale",
                    c.zeroed_blocks
                );
            }
        }
        for kept in &self.kept {
            let _ = writeln!(text, "kept in {}: {}: {}", kept.format, kept.tensor, kept.because);
        }
        let _ = write!(
            text,
            "{} → {} in {} file(s) → {}",
            bytes(self.source_bytes as f64),
            bytes(self.bytes as f64),
            self.files,
            self.out.display()
        );
        text
    }

    /// A line for every changed tensor, as CSV.
    pub fn csv(&self) -> String {
        let mut text = "tensor,component,format,shape,relative_error,largest_error,largest,zeroed_blocks\n".to_owned();
        for t in &self.changed {
            let shape = t.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
            let _ = writeln!(
                text,
                "{},{},{},{shape},{:e},{:e},{:e},{}",
                t.tensor, t.component, t.format, t.relative_error, t.largest_error, t.largest, t.zeroed_blocks
            );
        }
        text
    }
}
