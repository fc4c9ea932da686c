//! [`Batch`]: the messages of an MPUB, still packed as they came.

use crate::limits::{Limits, SIZE_BYTES};

/// One or more messages, each a size and a body that is not empty, known to be whole.
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
    /// `count` messages that fill `packed` exactly. `None` when they do not, or when there are none.
    /// Only the structure is looked at: the limits are the business of whoever took the bytes in.
    #[must_use]
    pub fn from_packed(count: u32, packed: &'a [u8]) -> Option<Batch<'a>> {
        let mut walk = Walk::default();
        let whole = walk.run(packed, count, i32::MAX).is_ok();
        (whole && count > 0 && walk.offset == packed.len()).then_some(Batch { count, packed })
    }

    /// The body of an HTTP `/mpub?binary=true`: `[count i32]([size i32][body])*`. What follows the
    /// last message is ignored, as nsqd does.
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

    /// A batch over which a [`Walk`] came to its end.
    #[inline]
    pub(crate) fn walked(count: u32, packed: &'a [u8]) -> Batch<'a> {
        debug_assert!(Batch::from_packed(count, packed).is_some());
        Batch { count, packed }
    }

    /// How many messages, at least 1.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The bytes of all bodies together, without their sizes.
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

    /// All messages as they came, sizes included: what [`Batch::from_packed`] takes.
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

/// Why the body of an HTTP `/mpub` is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchError {
    /// The message count is missing or out of range.
    BadBody,
    /// A message is cut off, empty or too big.
    BadMessage,
}

impl BatchError {
    /// What the answer says.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BatchError::BadBody => "BAD_BODY",
            BatchError::BadMessage => "BAD_MESSAGE",
        }
    }
}

/// `count` as nsqd's limits have it: at least 1, at most [`Limits::mpub_count_max`].
#[inline]
pub(crate) fn checked_count(count: i32, limits: &Limits) -> Option<u32> {
    let count = u32::try_from(count).ok()?;
    (1..=limits.mpub_count_max())
        .contains(&count)
        .then_some(count)
}

/// How far the messages of a batch have been looked at. A walk that halted for lack of input goes on
/// where it halted, so a batch that trickles in is looked at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walk {
    /// Messages found whole.
    pub(crate) index: u32,
    /// Where the next message begins in the input, in bytes.
    pub(crate) offset: usize,
}

/// Why a walk halted at the message [`Walk::index`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    SizeMissing,
    SizeInvalid(i32),
    TooBig(i32),
    /// The body ends at this offset, beyond the input.
    BodyMissing(usize),
}

impl Walk {
    /// Goes on until `count` messages have been seen whole.
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
