//! The constants and the CRC that the encoder and the decoder of checkpoints share.

use crate::crc::crc32c;

pub(super) const MAGIC: [u8; 4] = *b"RQCP";
pub(super) const VERSION: u16 = 2;
/// The version of a checkpoint that has the grace of its topic. All other checkpoints have [`VERSION`], so that a
/// program that knows nothing of grace reads them.
pub(super) const GRACE_VERSION: u16 = 3;
/// The version of a checkpoint that has terms of pauses or emptied messages that can come back. A bit says whether the
/// grace is there, too.
pub(super) const ADDITIONS_VERSION: u16 = 4;
/// The version of a checkpoint whose additions have what programs for [`ADDITIONS_VERSION`] do not know: the length of a
/// pause, or the undo of an emptied topic.
pub(super) const LENGTH_VERSION: u16 = 5;
pub(super) const HEAD_BYTES: usize = 24;
pub(super) const RUN_BYTES: usize = 26;

/// The CRC of a checkpoint: of the head in front of the CRC, and of the body.
pub(super) fn crc(head: &[u8], body: &[u8]) -> u32 {
    crc32c(crc32c(0, head), body)
}
