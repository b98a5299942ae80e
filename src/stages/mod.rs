//! The jobs a user starts, one file or folder each.

pub mod compress;
pub mod evaluate;
pub mod pretrain;
pub mod recover;
pub mod study;
pub mod training;

use crate::device::asked_precision;
use crate::run::Input;

/// The precision that the command line asks for, whatever the recipe says.
fn precision_input() -> Option<Input> {
    asked_precision().map(|precision| Input::option("--precision", precision.name()))
}
