//! The supernet: one parent whose sorted weights hold every candidate as a prefix.
//!
//! [`Calibrator`] measures [`Importance`]; [`sort`] brings the most important components to the front; a [`SearchSpace`]
//! says which prefixes are candidates and turns candidates' probabilities into [`Masks`](crate::model::Masks);
//! [`extract`] cuts a [`Choice`] out as a model of its own.

mod architecture;
mod calibrate;
mod count;
mod extract;
mod importance;
mod masks;
mod search_space;
mod select;
mod sort;
mod space;

pub use architecture::Choice;
pub use calibrate::Calibrator;
pub use extract::extract;
pub use importance::{Importance, LayerImportance, Scores};
pub use search_space::{Axis, Gate, SearchSpace};
pub use select::{LayerSelection, Selection, Units};
pub use sort::sort;
pub use space::{MambaSpace, MoeSpace, Space};
