//! [`Reader`]: the numbers and lists of an encoded checkpoint.

use std::collections::TryReserveError;

use wire::id::Seq;

use super::content::CheckpointRun;
use super::encoding::RUN_BYTES;

/// The reason why bytes could not be decoded.
pub(super) enum Unread {
    Malformed,
    NoMemory(TryReserveError),
}

impl From<TryReserveError> for Unread {
    fn from(error: TryReserveError) -> Unread {
        Unread::NoMemory(error)
    }
}

/// Takes little-endian numbers off the front. Bytes that end too early are malformed.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Unread> {
        let split = self.0.split_at_checked(count);
        let (taken, rest) = split.ok_or(Unread::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a list of runs. Memory for the list is reserved only if that many runs follow: the count may be wrong.
    pub(super) fn runs(&mut self) -> Result<Vec<CheckpointRun>, Unread> {
        let count = self.u32()? as usize;
        if count > self.0.len() / RUN_BYTES {
            return Err(Unread::Malformed);
        }
        let mut runs = reserved(count)?;
        for _ in 0..count {
            runs.push(CheckpointRun {
                start: Seq(self.u64()?),
                count: self.u64()?,
                attempts: self.u16()?,
                due_ns: self.u64()?,
            });
        }
        Ok(runs)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unread> {
        let taken = self.take(N)?.first_chunk();
        taken.copied().ok_or(Unread::Malformed)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Unread> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Unread> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Unread> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Unread> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Returns an empty list with room for `count` entries. A checkpoint may be gigabytes long: without enough memory for a
/// list, the caller gets an error instead of an abort.
pub fn reserved<T>(count: usize) -> Result<Vec<T>, TryReserveError> {
    let mut list = Vec::new();
    list.try_reserve_exact(count)?;
    Ok(list)
}
