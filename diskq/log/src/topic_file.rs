//! [`TopicFile`]: what a topic keeps in a file of its own, beside the log.

use std::fmt::Debug;
use std::io;

/// The name of the file in the directory of the log.
pub const TOPIC_FILE: &str = "keys";

/// The contents of a topic's file. The keeper writes a new file, syncs it, and gives it the name of the old one. So a
/// crash leaves the old file or the new one.
pub trait TopicFile: Debug + Send {
    /// Writes the contents in pieces. Blocks as long as `out` does.
    ///
    /// # Errors
    /// The error is that of `out`.
    fn write(&self, out: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;
}
