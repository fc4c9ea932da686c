//! [`Snappy`]: the framing format of snappy, over streams that may be cut at any byte.
//!
//! ```text
//!   stream = identifier chunk*
//!   chunk  = type (1) length (3, little-endian) data
//!     ff  the identifier: "sNaPpY"                    00  CRC-32C (4, masked), a compressed block
//!     80..fe  to be skipped; 02..7f  an error         01  CRC-32C (4, masked), a block as it is
//! ```

use std::borrow::Cow;
use std::io::IoSlice;

use crate::{Room, UpgradeError};

const IDENTIFIER: &[u8] = b"\xff\x06\x00\x00sNaPpY";
const HEADER_BYTES: usize = 4;
const CRC_BYTES: usize = 4;
/// Largest uncompressed block, in bytes.
const BLOCK_BYTES_MAX: usize = 65_536;
/// Largest compressed block, in bytes: `snap::raw::max_compress_len` of [`BLOCK_BYTES_MAX`].
const COMPRESSED_BYTES_MAX: usize = 32 + BLOCK_BYTES_MAX + BLOCK_BYTES_MAX / 6;

const COMPRESSED: u8 = 0x00;
const UNCOMPRESSED: u8 = 0x01;
const SKIPPABLE_MIN: u8 = 0x80;
const IDENTIFIES: u8 = 0xff;

/// The snappy streams of both directions of a connection.
#[derive(Debug)]
pub(crate) struct Snappy {
    encoder: snap::raw::Encoder,
    /// True when the identifier has been written.
    written: bool,
    decoder: snap::raw::Decoder,
    /// True when the identifier has been read.
    seen: bool,
    /// The front of an incomplete chunk.
    part: Vec<u8>,
    /// Bytes still to come of a chunk that is skipped.
    skipped: usize,
    /// A block that did not fit into the room. Its first `taken` bytes have been given out.
    block: Vec<u8>,
    taken: usize,
}

impl Snappy {
    pub(crate) fn new() -> Snappy {
        Snappy {
            encoder: snap::raw::Encoder::new(),
            written: false,
            decoder: snap::raw::Decoder::new(),
            seen: false,
            part: Vec::new(),
            skipped: 0,
            block: Vec::new(),
            taken: 0,
        }
    }

    /// Appends all of `plain` as chunks.
    pub(crate) fn compress(
        &mut self,
        plain: &[IoSlice<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), UpgradeError> {
        let plain = match plain {
            [whole] => Cow::Borrowed(&**whole),
            parts => Cow::Owned(parts.iter().flat_map(|part| &**part).copied().collect()),
        };
        if !self.written && !plain.is_empty() {
            out.extend_from_slice(IDENTIFIER);
            self.written = true;
        }
        for block in plain.chunks(BLOCK_BYTES_MAX) {
            let header = out.len();
            let data = header + HEADER_BYTES + CRC_BYTES;
            out.resize(data + snap::raw::max_compress_len(block.len()), 0);
            let mut bytes = self
                .encoder
                .compress(block, &mut out[data..])
                .map_err(UpgradeError::Snappy)?;
            out.truncate(data + bytes);
            let mut kind = COMPRESSED;
            // Like the original library: a block that shrinks by less than an eighth is sent
            // uncompressed.
            if bytes >= block.len() - block.len() / 8 {
                kind = UNCOMPRESSED;
                bytes = block.len();
                out.truncate(data);
                out.extend_from_slice(block);
            }
            let length = u32::try_from(bytes + CRC_BYTES).expect("a block is small");
            out[header..data - CRC_BYTES].copy_from_slice(&(length << 8).to_le_bytes());
            out[header] = kind;
            out[data - CRC_BYTES..data].copy_from_slice(&masked_crc(block).to_le_bytes());
        }
        Ok(())
    }

    /// Removes chunks from the front of `input` and appends their content, until the room is full
    /// or the next chunk is incomplete.
    pub(crate) fn decompress(
        &mut self,
        input: &mut &[u8],
        room: &mut Room<'_>,
    ) -> Result<(), UpgradeError> {
        loop {
            self.empty_block(room);
            if room.is_full() || input.is_empty() {
                return Ok(());
            }
            if self.skipped > 0 {
                let skipped = self.skipped.min(input.len());
                self.skipped -= skipped;
                *input = &input[skipped..];
                continue;
            }
            if self.part.is_empty()
                && let Some(chunk) = input.get(..chunk_bytes(input)?)
            {
                *input = &input[chunk.len()..];
                self.chunk(chunk, room)?;
                continue;
            }
            let missing = chunk_bytes(&self.part)? - self.part.len();
            let (front, behind) = input.split_at(missing.min(input.len()));
            self.part.extend_from_slice(front);
            *input = behind;
            // A chunk with a complete header usually has data behind the header.
            if self.part.len() == chunk_bytes(&self.part)? {
                let part = std::mem::take(&mut self.part);
                self.chunk(&part, room)?;
            }
        }
    }

    /// Moves the rest of the block into the room.
    fn empty_block(&mut self, room: &mut Room<'_>) {
        let mut left = &self.block[self.taken..];
        room.take(&mut left);
        self.taken = self.block.len() - left.len();
        if left.is_empty() && self.taken > 0 {
            (self.block, self.taken) = (Vec::new(), 0);
        }
    }

    fn chunk(&mut self, chunk: &[u8], room: &mut Room<'_>) -> Result<(), UpgradeError> {
        let (kind, data) = (chunk[0], &chunk[HEADER_BYTES..]);
        if kind == IDENTIFIES {
            if chunk != IDENTIFIER {
                return Err(UpgradeError::SnappyIdentifier);
            }
            self.seen = true;
            return Ok(());
        }
        if !self.seen {
            return Err(UpgradeError::SnappyIdentifier);
        }
        if kind >= SKIPPABLE_MIN {
            self.skipped = data_bytes(chunk);
            return Ok(());
        }
        let Some((crc, data)) = data.split_first_chunk::<CRC_BYTES>() else {
            return Err(UpgradeError::SnappyLength(data.len()));
        };
        let bytes = match kind {
            UNCOMPRESSED => data.len(),
            _ => snap::raw::decompress_len(data).map_err(UpgradeError::Snappy)?,
        };
        if bytes > BLOCK_BYTES_MAX {
            return Err(UpgradeError::SnappyLength(bytes));
        }
        let fits = bytes <= room.left().len();
        let space = if fits {
            &mut room.left()[..bytes]
        } else {
            self.block.resize(bytes, 0);
            &mut self.block[..]
        };
        if kind == UNCOMPRESSED {
            space.copy_from_slice(data);
        } else {
            self.decoder
                .decompress(data, space)
                .map_err(UpgradeError::Snappy)?;
        }
        if masked_crc(space) != u32::from_le_bytes(*crc) {
            return Err(UpgradeError::SnappyChecksum);
        }
        if fits {
            room.fill(bytes);
        }
        Ok(())
    }
}

/// Returns the length of the chunk that begins with these bytes, or the length of a header while
/// the header is incomplete. A chunk that is skipped counts only its header, because its data are
/// not kept.
fn chunk_bytes(front: &[u8]) -> Result<usize, UpgradeError> {
    let Some(&[kind, ..]) = front.first_chunk::<HEADER_BYTES>() else {
        return Ok(HEADER_BYTES);
    };
    let bytes = data_bytes(front);
    let most = match kind {
        COMPRESSED => COMPRESSED_BYTES_MAX + CRC_BYTES,
        UNCOMPRESSED => BLOCK_BYTES_MAX + CRC_BYTES,
        IDENTIFIES if bytes != IDENTIFIER.len() - HEADER_BYTES => {
            return Err(UpgradeError::SnappyIdentifier);
        }
        IDENTIFIES => bytes,
        SKIPPABLE_MIN.. => return Ok(HEADER_BYTES),
        _ => return Err(UpgradeError::SnappyChunk(kind)),
    };
    if bytes > most {
        return Err(UpgradeError::SnappyLength(bytes));
    }
    Ok(HEADER_BYTES + bytes)
}

/// Returns the length that a header announces.
fn data_bytes(chunk: &[u8]) -> usize {
    let header = chunk.first_chunk::<HEADER_BYTES>();
    header.map_or(0, |header| (u32::from_le_bytes(*header) >> 8) as usize)
}

/// Returns the format's checksum. A CRC over data that contain CRCs would be weak, hence the mask.
fn masked_crc(block: &[u8]) -> u32 {
    let crc = crc32c::crc32c(block);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}
