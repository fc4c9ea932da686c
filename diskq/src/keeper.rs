//! The keeper: does for a log what may block.
//!
//! ```text
//!   reactor                                  keeper's thread
//!   Log::next_request  ------ Request ---->  Keeper::handle
//!   Log::handle_reply  <----- Reply -------
//! ```
//!
//! The keeper remembers two things between jobs: the deletions that failed, and the first failed sync of the data path.
//! Everything else that a job needs is in the request. The jobs of one log must be done in the order in which the log
//! gave them: for example, a sync before the discard that follows it. Different logs may have different keepers.
//! [`Request::is_urgent`](crate::Request::is_urgent) and [`Request::is_independent`](crate::Request::is_independent) say
//! which jobs may overtake others.

mod deletion;
mod directory;
mod durable;
mod jobs;
mod reading;
mod shared_sync;

pub use deletion::{Logs, Tombstone};
pub(crate) use directory::LogDirectory;
pub use directory::{LOG_SUFFIX, deleted_topic, log_path};
pub use jobs::Keeper;
pub use reading::{SetAsideFile, is_media_error, read_topic_file, set_topic_file_aside};
pub use shared_sync::SharedSync;
