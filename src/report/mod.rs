//! The report of a compression: as numbers, as a page, as a table for the terminal.

mod card;
mod chart;
mod data;
mod file;
mod floats;
mod number;
mod page;
mod text;
mod verdict;

pub use card::{CardLimit, CardRow, FrontMatter, ModelCard, Training, base_model, inherited, loading, plain};
pub(crate) use chart::{DotGroup, DotPanel, DotRow, dots};
pub use data::*;
pub use file::{read, write};
pub use number::{bytes, count, precise};
pub use page::html;
pub use text::text;
