//! Exported weights are within their format's bound of the originals, by a reader that shares no code with the writer.

mod layout;
mod models;
mod reader;
mod refusals;
mod students;
mod values;
