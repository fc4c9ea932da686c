//! [`Batch`]: the messages of an MPUB, packed as the client sent them.

use crate::limits::{Limits, SIZE_BYTES};

/// One or more messages that are known to be complete. Each is a size and a body that is not empty.
///
/// ```text
///   [size i32][body] [size i32][body] ...
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    count: u32,
    packed: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Returns the batch of `count` messages that fill `packed` exactly, or `None` when they do not
    /// fill it or `count` is 0. This function checks only the structure: the code that received the
    /// bytes has checked the limits.
    #[must_use]
    pub fn from_packed(count: u32, packed: &'a [u8]) -> Option<Batch<'a>> {
        let mut walk = Walk::default();
        let whole = walk.run(packed, count, i32::MAX).is_ok();
        (whole && count > 0 && walk.offset == packed.len()).then_some(Batch { count, packed })
    }

    /// Parses the body of an HTTP `/mpub?binary=true`: `[count i32]([size i32][body])*`. Bytes
    /// after the last message are ignored, as in nsqd.
    ///
    /// # Errors
    /// [`BatchError::BadBody`] when the count is missing or out of range, [`BatchError::BadMessage`]
    /// when a message is cut off, empty or too big.
    pub fn parse_binary(body: &'a [u8], limits: &Limits) -> Result<Batch<'a>, BatchError> {
        let (count, rest) = body.split_first_chunk().ok_or(BatchError::BadBody)?;
        let count = checked_count(i32::from_be_bytes(*count), limits).ok_or(BatchError::BadBody)?;
        let mut walk = Walk::default();
        walk.run(rest, count, limits.message_bytes_max)
            .map_err(|_| BatchError::BadMessage)?;
        Ok(Batch::walked(count, &rest[..walk.offset]))
    }

    /// The batch that a [`Walk`] has walked to its end.
    #[inline]
    pub(crate) fn walked(count: u32, packed: &'a [u8]) -> Batch<'a> {
        debug_assert!(Batch::from_packed(count, packed).is_some());
        Batch { count, packed }
    }

    /// The number of messages, at least 1.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of bytes of all bodies together, without their sizes.
    #[inline]
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        self.packed.len() as u64 - u64::from(self.count) * SIZE_BYTES as u64
    }

    /// The bodies in order.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> Bodies<'a> {
        Bodies {
            count: self.count,
            rest: self.packed,
        }
    }

    /// All messages as they came, sizes included: the input of [`Batch::from_packed`].
    #[inline]
    #[must_use]
    pub fn packed(&self) -> &'a [u8] {
        self.packed
    }
}

impl<'a> IntoIterator for Batch<'a> {
    type Item = &'a [u8];
    type IntoIter = Bodies<'a>;

    fn into_iter(self) -> Bodies<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Batch<'a> {
    type Item = &'a [u8];
    type IntoIter = Bodies<'a>;

    fn into_iter(self) -> Bodies<'a> {
        self.iter()
    }
}

/// The bodies of a [`Batch`].
#[derive(Clone, Debug)]
pub struct Bodies<'a> {
    count: u32,
    rest: &'a [u8],
}

impl<'a> Iterator for Bodies<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (size, rest) = self.rest.split_first_chunk()?;
        let (body, rest) = rest.split_at_checked(u32::from_be_bytes(*size) as usize)?;
        self.rest = rest;
        self.count -= 1;
        Some(body)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, Some(self.count as usize))
    }
}

impl ExactSizeIterator for Bodies<'_> {}

/// The reason why the body of an HTTP `/mpub` is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// The message count is missing or out of range.
    BadBody,
    /// A message is cut off, empty or too big.
    BadMessage,
}

impl BatchError {
    /// The text of the answer.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BatchError::BadBody => "BAD_BODY",
            BatchError::BadMessage => "BAD_MESSAGE",
        }
    }
}

/// Returns `count` if it is within nsqd's limits: at least 1, at most [`Limits::mpub_count_max`].
#[inline]
pub(crate) fn checked_count(count: i32, limits: &Limits) -> Option<u32> {
    let count = u32::try_from(count).ok()?;
    (1..=limits.mpub_count_max())
        .contains(&count)
        .then_some(count)
}

/// The progress of the check of a batch's messages. A walk that halted for lack of input continues
/// where it halted, so each byte of a batch that arrives in pieces is examined once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// The number of messages found complete.
    pub(crate) index: u32,
    /// The offset in the input at which the next message begins, in bytes.
    pub(crate) offset: usize,
}

/// The reason why a walk halted at the message [`Walk::index`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    SizeMissing,
    SizeInvalid(i32),
    TooBig(i32),
    /// The body ends at this offset, beyond the input.
    BodyMissing(usize),
}

impl Walk {
    /// Continues until `count` messages have been found complete.
    #[inline]
    pub(crate) fn run(
        &mut self,
        input: &[u8],
        count: u32,
        message_bytes_max: i32,
    ) -> Result<(), Halt> {
        while self.index < count {
            let Some((size, rest)) = input
                .get(self.offset..)
                .and_then(<[u8]>::split_first_chunk::<SIZE_BYTES>)
            else {
                return Err(Halt::SizeMissing);
            };
            let size = i32::from_be_bytes(*size);
            if size <= 0 {
                return Err(Halt::SizeInvalid(size));
            }
            if size > message_bytes_max {
                return Err(Halt::TooBig(size));
            }
            let end = self.offset + SIZE_BYTES + size as usize;
            if rest.len() < size as usize {
                return Err(Halt::BodyMissing(end));
            }
            self.index += 1;
            self.offset = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
