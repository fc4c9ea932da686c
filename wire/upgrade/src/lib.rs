//! TLS and compression of a connection, as pure bytes in and bytes out: no socket, no clock.
//!
//! ```text
//!   socket ── wire ──► TLS ── decrypted ──► snappy | deflate ── plain ──► protocol     open
//!   socket ◄── wire ── TLS ◄── compressed ── snappy | deflate ◄── plain ── protocol    seal
//! ```
//!
//! The features `tls` and `compression` bring TLS, and snappy with deflate. Without a feature, its types have no
//! values, so the compiler removes their code, and the libraries are not built. A program that reads the settings of TLS
//! is told that there is none.
//!
//! This crate owns the formats and the libraries behind them for all sides: the daemon, its clients
//! and the load generator. It reads no files except those of a configuration, and knows no
//! commands.
//!
//! The reader of plain bytes drives opening: a call gives at most as many bytes as fit the given
//! space, however well they were compressed. Sealed bytes are flushed: the other side can open all
//! of them.

#![forbid(unsafe_code)]

#[cfg(not(all(feature = "compression", feature = "tls")))]
mod absent;
#[cfg(feature = "compression")]
mod compression;
#[cfg(feature = "tls")]
mod config;
#[cfg(feature = "compression")]
mod deflate;
mod error;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod settings;
#[cfg(feature = "compression")]
mod snappy;
#[cfg(feature = "tls")]
mod stream;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod verifier;

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

#[cfg(feature = "tls")]
use rustls::pki_types::ServerName;

#[cfg(not(feature = "compression"))]
use absent::Compression;
#[cfg(not(feature = "tls"))]
use absent::Tls;
#[cfg(feature = "compression")]
use compression::Compression;
#[cfg(feature = "tls")]
pub use config::{ConfigError, authorities, client_config, server_config, system_authorities};
pub use error::UpgradeError;
#[cfg(not(feature = "tls"))]
pub use no_tls::*;
/// The types of a TLS configuration and of its certificates.
#[cfg(feature = "tls")]
pub use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types};
pub use settings::{ClientTls, ClientTrust, ServerTls};
#[cfg(feature = "tls")]
pub use stream::ClientStream;
#[cfg(feature = "tls")]
use tls::Tls;

/// The longest plain text of a TLS record, in bytes (RFC 8446, section 5.1).
const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Space that a connection keeps for sealing, in bytes.
const KEPT_BYTES: usize = 16 * 1024;

/// One upgrade of a connection.
#[derive(Debug)]
pub struct Upgrade(Kind);

#[derive(Debug)]
enum Kind {
    /// TLS, which comes before compression.
    Tls(Box<Tls>),
    #[cfg_attr(not(feature = "compression"), expect(dead_code))]
    Compression(Compression),
}

impl Upgrade {
    /// Makes a snappy upgrade.
    #[cfg(feature = "compression")]
    #[must_use]
    pub fn snappy() -> Upgrade {
        Upgrade(Kind::Compression(Compression::snappy()))
    }

    /// Makes a deflate upgrade. The level, 1 to 9, is that of the sending direction.
    #[cfg(feature = "compression")]
    #[must_use]
    pub fn deflate(level: u32) -> Upgrade {
        Upgrade(Kind::Compression(Compression::deflate(level)))
    }

    /// Makes the daemon's side of TLS.
    ///
    /// # Errors
    /// When the library refuses the configuration.
    pub fn tls_server(config: &Arc<ServerConfig>) -> Result<Upgrade, UpgradeError> {
        let tls = Tls::server(Arc::clone(config))?;
        Ok(Upgrade(Kind::Tls(Box::new(tls))))
    }

    /// Makes the client's side of TLS. The certificate must be for `name`.
    ///
    /// # Errors
    /// When the library refuses the configuration.
    #[cfg(feature = "tls")]
    pub fn tls_client(
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Upgrade, UpgradeError> {
        let tls = Tls::client(Arc::clone(config), name)?;
        Ok(Upgrade(Kind::Tls(Box::new(tls))))
    }
}

/// The upgrades of a connection, in the order in which they were added.
#[derive(Debug, Default)]
pub struct Upgrades {
    tls: Option<Box<Tls>>,
    compression: Option<Compression>,
    /// Sealed bytes for the socket.
    pub wire: Vec<u8>,
    /// The number of bytes of `wire` that the socket has taken.
    pub sent: usize,
    compressed: Vec<u8>,
    decrypted: Vec<u8>,
    /// The part of `decrypted` that was not decompressed yet.
    undecompressed: Range<usize>,
    /// An error behind plain bytes that were given out before it.
    failure: Option<UpgradeError>,
}

impl Upgrades {
    /// Adds the next upgrade. Bytes that were sealed before stay unchanged.
    ///
    /// # Panics
    /// When TLS does not come first, or an upgrade comes twice.
    pub fn push(&mut self, upgrade: Upgrade) {
        assert!(
            self.compression.is_none(),
            "compression comes last, and once"
        );
        match upgrade.0 {
            Kind::Tls(tls) => {
                assert!(self.tls.is_none(), "TLS comes once");
                self.tls = Some(tls);
                self.drain_tls();
            }
            Kind::Compression(compression) => self.compression = Some(compression),
        }
    }

    /// Removes all upgrades. A connection that could not agree on TLS continues in plain text, behind
    /// the bytes that are sealed already.
    pub fn clear(&mut self) {
        (self.tls, self.compression) = (None, None);
    }

    /// Returns true as long as TLS has not agreed on its keys. Plain bytes to seal wait until then.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Returns the parameters of the TLS session, if its handshake is over.
    #[must_use]
    pub fn session(&self) -> Option<Session> {
        self.tls.as_ref().and_then(|tls| tls.session())
    }

    /// Returns true when the other side has announced its end.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let tls = self.tls.as_ref();
        let compression = self.compression.as_ref();
        tls.is_some_and(|tls| tls.has_ended())
            || compression.is_some_and(|compression| compression.has_ended())
    }

    /// Seals plain bytes and appends them to `wire`.
    ///
    /// # Errors
    /// When a library fails.
    pub fn seal(&mut self, plain: &[IoSlice<'_>]) -> Result<(), UpgradeError> {
        match (&mut self.tls, &mut self.compression) {
            (None, None) => plain.iter().for_each(|part| self.wire.extend(&**part)),
            (None, Some(compression)) => compression.compress(plain, &mut self.wire)?,
            (Some(tls), None) => tls.encrypt(plain)?,
            (Some(tls), Some(compression)) => {
                compression.compress(plain, &mut self.compressed)?;
                for record in records(&self.compressed) {
                    tls.encrypt(&[IoSlice::new(record)])?;
                }
                self.compressed.clear();
                self.compressed.shrink_to(KEPT_BYTES);
            }
        }
        self.drain_tls();
        Ok(())
    }

    /// Appends the end marks of the upgrades to `wire`, if an upgrade has one.
    pub fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.end();
        }
        self.drain_tls();
    }

    /// Returns the bytes that the socket has to take.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.wire[self.sent..]
    }

    /// Drops the first `bytes` of the unsent bytes: the socket took them.
    pub fn drop_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        assert!(self.sent <= self.wire.len(), "sent what was sealed");
        if self.sent == self.wire.len() {
            self.wire.clear();
            self.wire.shrink_to(KEPT_BYTES);
            self.sent = 0;
        }
    }

    /// Continues the handshake, no further: removes bytes from the front of `wire` until the
    /// handshake is over or `wire` is empty. The answer is appended to `self.wire`, also after an
    /// error. A peer that speaks no TLS gets no answer.
    ///
    /// # Errors
    /// When the sides do not agree.
    pub fn shake_hands(&mut self, wire: &mut &[u8]) -> Result<(), UpgradeError> {
        let done = match &mut self.tls {
            Some(tls) => tls.shake_hands(wire),
            None => Ok(()),
        };
        self.drain_tls();
        done
    }

    /// Opens bytes from the socket into `plain` and returns the number of plain bytes. The opened
    /// bytes are removed from the front of `wire`. When `plain` is full there may be more plain
    /// bytes, also without new `wire`. Otherwise all of `wire` is taken, and the upgrades keep no
    /// complete record, chunk or block. The answers of TLS are appended to `self.wire`, also after
    /// an error.
    ///
    /// # Errors
    /// When the other side breaks a format. The error comes after all bytes that could be opened.
    pub fn open(&mut self, wire: &mut &[u8], plain: &mut [u8]) -> Result<usize, UpgradeError> {
        let mut room = Room::of(plain);
        if self.failure.is_none() {
            self.failure = self.open_into(wire, &mut room).err();
        }
        self.drain_tls();
        match room.filled() {
            0 => self.failure.take().map_or(Ok(0), Err),
            filled => Ok(filled),
        }
    }

    fn open_into(&mut self, wire: &mut &[u8], room: &mut Room<'_>) -> Result<(), UpgradeError> {
        match (&mut self.tls, &mut self.compression) {
            (None, None) => room.take(wire),
            (None, Some(compression)) => compression.decompress(wire, room)?,
            (Some(tls), None) => tls.decrypt(wire, room)?,
            (Some(tls), Some(compression)) => loop {
                let mut compressed = &self.decrypted[self.undecompressed.clone()];
                compression.decompress(&mut compressed, room)?;
                self.undecompressed.start = self.undecompressed.end - compressed.len();
                if room.is_full() {
                    break;
                }
                self.decrypted.resize(RECORD_BYTES_MAX, 0);
                let mut decrypted = Room::of(&mut self.decrypted);
                tls.decrypt(wire, &mut decrypted)?;
                self.undecompressed = 0..decrypted.filled();
                if self.undecompressed.is_empty() {
                    break;
                }
            },
        }
        Ok(())
    }

    /// Opens bytes as [`open`](Upgrades::open) does, but through the last upgrade only: the bytes had
    /// passed the older upgrades when the last one was added.
    ///
    /// # Errors
    /// When the other side breaks a format.
    pub fn open_last(
        &mut self,
        bytes: &mut &[u8],
        plain: &mut [u8],
    ) -> Result<usize, UpgradeError> {
        match &mut self.compression {
            Some(compression) => {
                let mut room = Room::of(plain);
                compression.decompress(bytes, &mut room)?;
                Ok(room.filled())
            }
            None => self.open(bytes, plain),
        }
    }

    fn drain_tls(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.drain(&mut self.wire);
        }
    }
}

/// The parameters that both sides agreed on, in the numbers of the standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// 0x0303 for TLS 1.2, 0x0304 for TLS 1.3.
    pub version: u16,
    /// The cipher suite.
    pub cipher_suite: u16,
    /// The common name in the peer's certificate. The name is empty if the peer sent no certificate, or one without a name.
    pub common_name: String,
}

/// A space to which bytes are appended until it is full.
#[derive(Debug)]
struct Room<'a> {
    bytes: &'a mut [u8],
    filled: usize,
}

impl Room<'_> {
    fn of(bytes: &mut [u8]) -> Room<'_> {
        Room { bytes, filled: 0 }
    }

    /// Returns the number of bytes in the space.
    fn filled(&self) -> usize {
        self.filled
    }

    fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    /// Returns the free space.
    fn left(&mut self) -> &mut [u8] {
        &mut self.bytes[self.filled..]
    }

    /// Notes that the first `bytes` of the free space are filled.
    fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
        debug_assert!(self.filled <= self.bytes.len());
    }

    /// Moves bytes from the front of `from` into the free space until one of them ends.
    fn take(&mut self, from: &mut &[u8]) {
        let left = self.left();
        let (front, behind) = from.split_at(from.len().min(left.len()));
        left[..front.len()].copy_from_slice(front);
        self.fill(front.len());
        *from = behind;
    }
}

/// Cuts compressed bytes into as few TLS records as hold them. All records have the same length,
/// except that the last one may be shorter by less than the number of records.
///
/// pynsq ends the connection when it reads a record that decompresses to nothing. A record that
/// holds only the last bytes of a flush would be such a record.
fn records(compressed: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = compressed.len().div_ceil(RECORD_BYTES_MAX).max(1);
    compressed.chunks(compressed.len().div_ceil(count).max(1))
}

#[cfg(test)]
#[cfg(all(feature = "compression", feature = "tls"))]
mod tests;
