//! The report's promises: the page is whole, needs nothing from outside, runs nothing that a name holds, and draws any
//! numbers; the terminal's table fits; the JSON is read back as it was.

mod fixture;
mod hostile;
mod json;
mod page;
mod table;
mod tags;
