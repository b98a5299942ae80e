//! Promise: the program does what its commands say, and every fault of a user's input, or of the machine, ends with one
//! clear sentence and an exit code of 2 or 1, never with a panic, and never with damage to what was there.

mod common;
mod compress;
mod disk;
mod models;
mod options;
mod output;
mod recipes;
mod records;
mod runs;
mod usual;
