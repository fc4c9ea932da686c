//! [`TopicFile`]: what a topic keeps in a file of its own, beside the log.

use std::fmt::Debug;
use std::io;

/// The name of the file in the directory of the log.
pub const TOPIC_FILE: &str = "keys";

/// Stands between the name of the file and a number, in the name of a file that is being written.
const UNFINISHED_INFIX: &str = ".new-";

/// The contents of a topic's file.
///
/// The keeper writes a new file, and syncs it. The log then has the new file renamed to [`TOPIC_FILE`]. So a crash leaves
/// the old file or the new one.
pub trait TopicFile: Debug + Send {
    /// Writes the contents in pieces. Blocks as long as `out` does.
    ///
    /// # Errors
    /// The error is that of `out`.
    fn write(&self, out: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()>;
}

/// Names an unfinished file. No other log has the number, so a log never renames the file of an earlier topic of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfinishedFile(pub u64);

impl UnfinishedFile {
    /// The name of the file in the directory of the log.
    #[must_use]
    pub fn name(self) -> String {
        format!("{TOPIC_FILE}{UNFINISHED_INFIX}{:016x}", self.0)
    }
}

/// Returns whether this is an unfinished file. A crash leaves it, and the next start removes it.
#[must_use]
pub fn is_unfinished_file(name: &str) -> bool {
    let rest = name.strip_prefix(TOPIC_FILE);
    rest.is_some_and(|rest| rest.starts_with(UNFINISHED_INFIX))
}
