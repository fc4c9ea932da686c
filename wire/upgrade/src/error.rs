//! [`UpgradeError`]: the errors of an upgrade.

use std::fmt;
use std::io;

/// The reason why opening or sealing failed.
#[derive(Debug)]
pub enum UpgradeError {
    /// A failure of TLS.
    #[cfg(feature = "tls")]
    Tls(rustls::Error),
    /// The peer's first bytes are not TLS.
    NoTls,
    /// The snappy data are invalid.
    #[cfg(feature = "compression")]
    Snappy(snap::Error),
    /// The stream does not begin with snappy's stream identifier.
    SnappyIdentifier,
    /// A chunk type of snappy's framing format that must not be skipped.
    SnappyChunk(u8),
    /// A chunk of a length that its type does not allow.
    SnappyLength(usize),
    /// The checksum of a snappy chunk is wrong.
    SnappyChecksum,
    /// A failure while compressing with deflate.
    #[cfg(feature = "compression")]
    Deflate(flate2::CompressError),
    /// The deflate data are invalid.
    #[cfg(feature = "compression")]
    Inflate(flate2::DecompressError),
    /// Bytes behind the end of the deflate stream.
    InflateEnded,
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "tls")]
            UpgradeError::Tls(error) => write!(f, "TLS: {error}"),
            UpgradeError::NoTls => write!(f, "TLS: the first bytes are no handshake"),
            #[cfg(feature = "compression")]
            UpgradeError::Snappy(error) => write!(f, "snappy: {error}"),
            UpgradeError::SnappyIdentifier => write!(f, "snappy: no stream identifier"),
            UpgradeError::SnappyChunk(kind) => write!(f, "snappy: a chunk of type {kind:#04x}"),
            UpgradeError::SnappyLength(bytes) => write!(f, "snappy: a chunk of {bytes} bytes"),
            UpgradeError::SnappyChecksum => write!(f, "snappy: a wrong checksum"),
            #[cfg(feature = "compression")]
            UpgradeError::Deflate(error) => write!(f, "deflate: {error}"),
            #[cfg(feature = "compression")]
            UpgradeError::Inflate(error) => write!(f, "deflate: {error}"),
            UpgradeError::InflateEnded => write!(f, "deflate: bytes behind the stream's end"),
        }
    }
}

impl std::error::Error for UpgradeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            #[cfg(feature = "tls")]
            UpgradeError::Tls(error) => Some(error),
            #[cfg(feature = "compression")]
            UpgradeError::Snappy(error) => Some(error),
            #[cfg(feature = "compression")]
            UpgradeError::Deflate(error) => Some(error),
            #[cfg(feature = "compression")]
            UpgradeError::Inflate(error) => Some(error),
            _ => None,
        }
    }
}

impl From<UpgradeError> for io::Error {
    fn from(error: UpgradeError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}
