//! The search for an architecture that meets every limit and stays closest to its parent (docs/method.md, "Router and masks",
//! "Objective", "Extraction").
//!
//! [`Search`] is the training job: a [`Router`] gives every gate its logits, draws at the sharpness of [`Annealing`] mask the
//! supernet, and the distillation loss with [`budget_penalty`] trains the router and the weights. [`repair()`] turns the
//! gates' final probabilities into the most probable architecture within the limits.

mod dry_run;
mod job;
mod objective;
pub mod repair;
mod router;
mod schedule;
mod state;
mod token_share;

pub use dry_run::{DryRun, dry_run};
pub use job::{Search, SearchOptions, Trained};
pub use objective::{Budget, Penalty, Slack, budget_penalty};
pub use repair::{Repair, repair};
pub use router::{Router, RouterOptions, argmax, log_probabilities, probabilities};
pub use schedule::Annealing;
pub use state::{AxisNorms, GateState, SearchState};
pub use token_share::{TokenShare, token_shares};
