//! [`Deflate`]: one raw deflate stream in each direction, flushed after each write.

use std::fmt;
use std::io::IoSlice;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use crate::{Room, UpgradeError};

/// Space for one step of compressing, in bytes.
const STEP_BYTES: usize = 16 * 1024;

/// The deflate streams of both directions of a connection.
pub(crate) struct Deflate {
    compress: Compress,
    decompress: Decompress,
    /// True when the other side has ended its stream.
    ended: bool,
}

impl fmt::Debug for Deflate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflate").finish_non_exhaustive()
    }
}

impl Deflate {
    pub(crate) fn new(level: u32) -> Deflate {
        Deflate {
            compress: Compress::new(Compression::new(level), false),
            decompress: Decompress::new(false),
            ended: false,
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Compresses `plain` and appends the result. The result ends at a flush boundary, so the other
    /// side can decompress all of it.
    pub(crate) fn compress(
        &mut self,
        plain: &[IoSlice<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), UpgradeError> {
        let Some(last) = plain.iter().rposition(|part| !part.is_empty()) else {
            return Ok(());
        };
        for (index, part) in plain[..=last].iter().enumerate() {
            let flush = if index == last {
                FlushCompress::Sync
            } else {
                FlushCompress::None
            };
            self.compress_part(part, flush, out)?;
        }
        Ok(())
    }

    fn compress_part(
        &mut self,
        mut part: &[u8],
        flush: FlushCompress,
        out: &mut Vec<u8>,
    ) -> Result<(), UpgradeError> {
        loop {
            out.reserve(STEP_BYTES);
            let before = self.compress.total_in();
            self.compress
                .compress_vec(part, out, flush)
                .map_err(UpgradeError::Deflate)?;
            part = &part[(self.compress.total_in() - before) as usize..];
            // Space is left, so the flush is complete.
            if part.is_empty() && out.len() < out.capacity() {
                return Ok(());
            }
        }
    }

    /// Decompresses `input`, from its front, until the room is full or the input is empty.
    pub(crate) fn decompress(
        &mut self,
        input: &mut &[u8],
        room: &mut Room<'_>,
    ) -> Result<(), UpgradeError> {
        while !self.ended && !room.is_full() {
            let (taken, given) = (self.decompress.total_in(), self.decompress.total_out());
            let status = self
                .decompress
                .decompress(input, room.left(), FlushDecompress::None);
            *input = &input[(self.decompress.total_in() - taken) as usize..];
            // Bytes in front of invalid data count too.
            room.fill((self.decompress.total_out() - given) as usize);
            self.ended = status.map_err(UpgradeError::Inflate)? == Status::StreamEnd;
            // Room is left, so the input holds nothing more.
            if input.is_empty() {
                break;
            }
        }
        if self.ended && !input.is_empty() {
            return Err(UpgradeError::InflateEnded);
        }
        Ok(())
    }
}
