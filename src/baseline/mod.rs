//! What a search is compared with: architectures of one width in all layers, and random ones, within the same limits.
//!
//! [`uniform`] lists Minitron++'s candidates (docs/method.md, "Baseline"); [`random`] takes a router that knows nothing through the
//! search's own repair, so that it uses the limits as well as a search does.

mod random;
mod uniform;

pub use random::random;
pub use uniform::{Reach, Uniform, nearest, uniform};
