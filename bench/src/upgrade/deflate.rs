//! [`Deflate`]: one raw deflate stream in each direction, flushed after each write.

use std::fmt;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Room, UpgradeError};

/// Space for one step of compressing or decompressing, in bytes.
const STEP_BYTES: usize = 16 * 1024;

/// Both directions of a deflate connection.
pub struct Deflate {
    compress: Compress,
    decompress: Decompress,
    /// The other side has ended its stream.
    ended: bool,
}

impl fmt::Debug for Deflate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflate").finish_non_exhaustive()
    }
}

impl Deflate {
    pub(super) fn new(level: u32) -> Deflate {
        Deflate {
            compress: Compress::new(Compression::new(level), false),
            decompress: Decompress::new(false),
            ended: false,
        }
    }

    /// Appends `plain`, compressed, up to a boundary behind which all of it can be decompressed.
    pub(super) fn compress(
        &mut self,
        mut plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), UpgradeError> {
        if plain.is_empty() {
            return Ok(());
        }
        loop {
            out.reserve(STEP_BYTES);
            let before = self.compress.total_in();
            self.compress
                .compress_vec(plain, out, FlushCompress::Sync)
                .map_err(UpgradeError::Deflate)?;
            plain = &plain[(self.compress.total_in() - before) as usize..];
            // With space left the flush is complete.
            if plain.is_empty() && out.len() < out.capacity() {
                return Ok(());
            }
        }
    }

    /// Appends everything that can be decompressed with `input`.
    pub(super) fn decompress(
        &mut self,
        mut input: &[u8],
        room: &mut Room<'_>,
    ) -> Result<(), UpgradeError> {
        if input.is_empty() {
            return Ok(());
        }
        loop {
            if self.ended {
                let behind = !input.is_empty();
                return if behind {
                    Err(UpgradeError::InflateEnded)
                } else {
                    Ok(())
                };
            }
            let (taken, given) = (self.decompress.total_in(), self.decompress.total_out());
            let space = room.space(STEP_BYTES);
            let space_bytes = space.len();
            let status = self
                .decompress
                .decompress(input, space, FlushDecompress::None)
                .map_err(UpgradeError::Inflate)?;
            let given = (self.decompress.total_out() - given) as usize;
            input = &input[(self.decompress.total_in() - taken) as usize..];
            room.filled += given;
            self.ended = status == Status::StreamEnd;
            // With space left there is nothing more in it.
            if input.is_empty() && given < space_bytes {
                return Ok(());
            }
        }
    }
}
