//! [`Compression`]: snappy or deflate.

use std::io::IoSlice;

use crate::deflate::Deflate;
use crate::snappy::Snappy;
use crate::{Room, UpgradeError};

/// The compression of a connection, which has at most one.
#[derive(Debug)]
pub(crate) enum Compression {
    /// Snappy's framing format.
    Snappy(Box<Snappy>),
    /// One raw deflate stream in each direction.
    Deflate(Box<Deflate>),
}

impl Compression {
    pub(crate) fn snappy() -> Compression {
        Compression::Snappy(Box::new(Snappy::new()))
    }

    /// Makes deflate. The level, 1 to 9, is that of the sending direction.
    pub(crate) fn deflate(level: u32) -> Compression {
        Compression::Deflate(Box::new(Deflate::new(level)))
    }

    /// Returns true when the other side has announced its end. snappy has no end mark.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Compression::Snappy(_) => false,
            Compression::Deflate(deflate) => deflate.has_ended(),
        }
    }

    pub(crate) fn compress(
        &mut self,
        plain: &[IoSlice<'_>],
        out: &mut Vec<u8>,
    ) -> Result<(), UpgradeError> {
        match self {
            Compression::Snappy(snappy) => snappy.compress(plain, out),
            Compression::Deflate(deflate) => deflate.compress(plain, out),
        }
    }

    pub(crate) fn decompress(
        &mut self,
        input: &mut &[u8],
        room: &mut Room<'_>,
    ) -> Result<(), UpgradeError> {
        match self {
            Compression::Snappy(snappy) => snappy.decompress(input, room),
            Compression::Deflate(deflate) => deflate.decompress(input, room),
        }
    }
}
