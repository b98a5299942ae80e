//! The search's promises: all candidates start equal, penalties and their gradients are exact, micro-batches do not change a
//! step, limits are met, and the repair is the optimum.

#[path = "../common/mod.rs"]
mod common;

mod instances;
mod jobs;
mod objective;
mod repair;
mod router;
mod schedule;
mod token_shares;
