//! Reads (`read.rs`) and writes (`write.rs`) JSON as Go's `encoding/json` does. Errors have Go's
//! words where Go has an error.

mod read;
mod write;

pub(crate) use read::fold;
pub use read::{array, boolean, field, integer, object, parse, string, text};
pub use write::{Object, bytes, is_default, null_if_empty, push, push_list, raw, to_string};
