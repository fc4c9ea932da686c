//! [`Body`]: the binary part behind the line of a command.

use super::stop::{Missing, Stop, reject, short};
use crate::batch::{Batch, Halt, Walk, checked_count};
use crate::error::{ErrorCode, WireError};
use crate::limits::{Limits, SIZE_BYTES};

/// The binary part behind a line.
#[derive(Clone, Copy)]
pub(super) struct Body<'a, 'l> {
    pub(super) input: &'a [u8],
    /// The offset in the input at which the binary part begins.
    pub(super) at: usize,
    pub(super) limits: &'l Limits,
}

impl<'a> Body<'a, '_> {
    /// Reads the signed number at `at`. Returns the number and its end.
    #[inline]
    fn int(&self, at: usize, missing: Missing) -> Result<(i32, usize), Stop<'a>> {
        let end = at + SIZE_BYTES;
        match self.input.get(at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => Ok((i32::from_be_bytes(*bytes), end)),
            None => Err(short(end, missing)),
        }
    }

    /// Returns the bytes `at..at + size` and their end.
    #[inline]
    fn bytes(&self, at: usize, size: i32, missing: Missing) -> Result<(&'a [u8], usize), Stop<'a>> {
        let end = at + size as usize;
        match self.input.get(at..end) {
            Some(bytes) => Ok((bytes, end)),
            None => Err(short(end, missing)),
        }
    }

    /// Reads the body of a PUB or DPUB. Returns the body and its end.
    #[inline]
    pub(super) fn message(&self, verb: &'static str) -> Result<(&'a [u8], usize), Stop<'a>> {
        let code = ErrorCode::BadMessage;
        let what = "message body size";
        let (size, at) = self.int(self.at, Missing::Part { code, verb, what })?;
        if size <= 0 {
            return Err(self.bad_size(code, verb, "invalid message body size", size));
        }
        if size > self.limits.message_bytes_max {
            return Err(self.too_big(code, verb, "message", size, self.limits.message_bytes_max));
        }
        let what = "message body";
        self.bytes(at, size, Missing::Part { code, verb, what })
    }

    /// Reads the declared size of a whole body. Returns the size and its end.
    #[inline]
    fn body_size(&self, code: ErrorCode, verb: &'static str) -> Result<(i32, usize), Stop<'a>> {
        let what = "body size";
        self.int(self.at, Missing::Part { code, verb, what })
    }

    /// Reads the body of an IDENTIFY or AUTH. Returns the body and its end. Like nsqd, this checks
    /// first whether the body is too big.
    #[inline]
    pub(super) fn document(&self, verb: &'static str) -> Result<(&'a [u8], usize), Stop<'a>> {
        let code = ErrorCode::BadBody;
        let (size, at) = self.body_size(code, verb)?;
        if size > self.limits.body_bytes_max {
            return Err(self.too_big(code, verb, "body", size, self.limits.body_bytes_max));
        }
        if size <= 0 {
            return Err(self.bad_size(code, verb, "invalid body size", size));
        }
        let what = "body";
        self.bytes(at, size, Missing::Part { code, verb, what })
    }

    /// Reads the messages of an MPUB. Returns the messages and their end. nsqd checks the range of
    /// the declared size and then ignores the declared size. Clients rely on that.
    #[inline]
    pub(super) fn batch(&self, walk: &mut Walk) -> Result<(Batch<'a>, usize), Stop<'a>> {
        let (code, verb) = (ErrorCode::BadBody, "MPUB");
        let (size, at) = self.body_size(code, verb)?;
        if size <= 0 {
            return Err(self.bad_size(code, verb, "invalid body size", size));
        }
        if size > self.limits.body_bytes_max {
            return Err(self.too_big(code, verb, "body", size, self.limits.body_bytes_max));
        }
        let what = "message count";
        let (count, at) = self.int(at, Missing::Part { code, verb, what })?;
        let Some(count_checked) = checked_count(count, self.limits) else {
            return Err(self.bad_size(code, verb, "invalid message count", count));
        };
        if walk.offset == 0 {
            walk.offset = at;
        }
        match walk.run(self.input, count_checked, self.limits.message_bytes_max) {
            Ok(()) => Ok((
                Batch::walked(count_checked, &self.input[at..walk.offset]),
                walk.offset,
            )),
            Err(halt) => Err(self.halted(walk, count_checked, halt)),
        }
    }

    /// Returns the error for a walk that halted within the messages of an MPUB.
    #[cold]
    fn halted(&self, walk: &Walk, count: u32, halt: Halt) -> Stop<'a> {
        let (code, verb, index) = (ErrorCode::BadMessage, "MPUB", walk.index);
        match halt {
            Halt::SizeMissing => {
                let missing = Missing::MessageSize { index };
                short(walk.offset + SIZE_BYTES, missing)
            }
            Halt::BodyMissing(end) => {
                // Behind each body except the last there is a size, and the next check needs that
                // size.
                let is_last = index + 1 == count;
                let needs = if is_last { end } else { end + SIZE_BYTES };
                let what = "message body";
                short(needs, Missing::Part { code, verb, what })
            }
            Halt::SizeInvalid(size) => {
                let what = format!("invalid message({index}) body size");
                self.bad_size(code, verb, &what, size)
            }
            // nsqd names no index in this error.
            Halt::TooBig(size) => {
                self.too_big(code, verb, "message", size, self.limits.message_bytes_max)
            }
        }
    }

    #[cold]
    fn bad_size(&self, code: ErrorCode, verb: &str, what: &str, number: i32) -> Stop<'a> {
        reject(WireError::new(code, format_args!("{verb} {what} {number}")))
    }

    #[cold]
    fn too_big(&self, code: ErrorCode, verb: &str, what: &str, size: i32, max: i32) -> Stop<'a> {
        let description = format_args!("{verb} {what} too big {size} > {max}");
        reject(WireError::new(code, description))
    }
}
