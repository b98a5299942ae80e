//! Control flow, barriers, what the checkers find, what the counters count, mutation, and what the parser refuses.

mod barriers;
mod checks;
mod control_flow;
mod counters;
mod mutation;
mod refusals;
mod sim;
