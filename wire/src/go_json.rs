//! JSON text as Go's `encoding/json` reads it (`read.rs`) and writes it (`write.rs`). Errors are in Go's words where
//! there are some.

mod read;
mod write;

pub use read::{array, boolean, field, integer, object, parse, string, text};
pub use write::{JsonObject, escape_into, push_array, push_bytes, push_float, push_string};
