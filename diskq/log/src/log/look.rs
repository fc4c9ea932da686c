//! [`Look`]: what a look at a single message finds.

use std::ops::Range;

use crate::file_name::SegmentNumber;
use crate::request::Request;
use crate::segment::Head;

/// The place of a message on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdMessage {
    /// The file.
    pub segment: SegmentNumber,
    /// The content of the file's head. If the file is used again in the meantime, its head is another one.
    pub head: Head,
    /// The number of the message in the segment.
    pub index: u32,
}

impl ColdMessage {
    /// Returns the job that reads messages of a segment from this one on, and changes nothing. The job reads this
    /// message in any case, and ends before the next message that would make the frames exceed `bytes_max` bytes.
    #[must_use]
    pub fn read_request(&self, count: u32, bytes_max: u32) -> Request {
        let indices: Range<u32> = self.index..self.index.saturating_add(count);
        Request::Peek {
            segment: self.segment,
            head: self.head,
            indices,
            bytes_max,
        }
    }
}

/// The result of [`Log::look`](super::Log::look).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// The message is in memory: its whole frame.
    Frame(&'a [u8]),
    /// The message is not in memory, or its memory is on its way.
    Cold(ColdMessage),
    /// The message is damaged.
    Damaged,
    /// The log does not have the message.
    Gone,
}
