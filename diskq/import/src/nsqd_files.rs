//! The names and formats of the files of nsqd's queues, with their reader and writer.
//!
//! ```text
//!   <data-path>/<queue>.diskqueue.000000.dat            records, numbered on without end
//!               <queue>.diskqueue.meta.dat              how far they are read and written
//!               <queue>.diskqueue.000000.dat.bad        set aside after a read error, never read again
//!               <queue>.diskqueue.meta.dat.<n>.tmp      left by a crash, never read
//!
//!   queue:   <topic> for what the topic has given to no channel, <topic>:<channel>
//!   record:  | size[4] | timestamp[8] | attempts[2] | id[16] | body ... |     big endian
//! ```

mod names;
mod queue_reader;
mod queue_writer;

pub(crate) use names::{FileKind, is_temporary, parse_name, queue_name};
pub(crate) use queue_reader::{Queue, QueueReader, Record};
pub(crate) use queue_writer::QueueWriter;

#[cfg(test)]
mod tests;
