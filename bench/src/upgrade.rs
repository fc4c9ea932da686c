//! TLS and compression of a connection, as pure bytes in and bytes out: no socket, no clock.
//!
//! ```text
//!   socket ── wire ──► TLS ── decrypted ──► snappy | deflate ── plain ──► protocol     open
//!   socket ◄── wire ── TLS ◄── compressed ── snappy | deflate ◄── plain ── protocol    seal
//! ```
//!
//! IDENTIFY asks for upgrades and its answer, still in the old encoding, grants them. Then comes TLS,
//! then compression, and the daemon says OK in the new encoding after each of them. A daemon that
//! grants something else than what was asked is not measured: [`Upgrades::check_granted`].

mod deflate;
mod error;
mod snappy;
mod tls;

use std::borrow::Cow;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use serde::Deserialize;

use crate::scenario::Scenario;
use deflate::Deflate;
pub use error::UpgradeError;
use snappy::Snappy;
use tls::Tls;
pub use tls::server_config;

/// Bytes written behind one another into a buffer that is kept from read to read. The buffer only
/// grows, so that no byte of it is zeroed twice.
#[derive(Debug)]
pub struct Room<'a> {
    buffer: &'a mut Vec<u8>,
    /// Bytes that are there.
    pub filled: usize,
}

impl Room<'_> {
    /// Room behind the first `filled` bytes of a buffer.
    #[must_use]
    pub fn behind(buffer: &mut Vec<u8>, filled: usize) -> Room<'_> {
        Room { buffer, filled }
    }

    /// The space behind what is there: so many bytes or more.
    fn space(&mut self, bytes: usize) -> &mut [u8] {
        if self.buffer.len() < self.filled + bytes {
            self.buffer.resize(self.filled + bytes, 0);
        }
        &mut self.buffer[self.filled..]
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }
}

/// One upgrade of a connection.
#[derive(Debug)]
pub enum Layer {
    /// TLS; comes before compression.
    Tls(Box<Tls>),
    /// Snappy's framing format.
    Snappy(Box<Snappy>),
    /// One raw deflate stream in each direction.
    Deflate(Box<Deflate>),
}

impl Layer {
    /// Snappy.
    #[must_use]
    pub fn snappy() -> Layer {
        Layer::Snappy(Box::new(Snappy::new()))
    }

    /// Deflate; the level, 1 to 9, is that of the sending direction.
    #[must_use]
    pub fn deflate(level: u32) -> Layer {
        Layer::Deflate(Box::new(Deflate::new(level)))
    }

    /// TLS as the daemon's side.
    ///
    /// # Errors
    /// When the library refuses the configuration.
    pub fn tls_server(config: &Arc<ServerConfig>) -> Result<Layer, UpgradeError> {
        Ok(Layer::Tls(Box::new(Tls::server(Arc::clone(config))?)))
    }
}

/// The compression of a connection, for it has at most one.
#[derive(Debug)]
enum Compression {
    Snappy(Box<Snappy>),
    Deflate(Box<Deflate>),
}

impl Compression {
    fn compress(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), UpgradeError> {
        match self {
            Compression::Snappy(snappy) => snappy.compress(plain, out),
            Compression::Deflate(deflate) => deflate.compress(plain, out),
        }
    }

    fn decompress(&mut self, input: &[u8], room: &mut Room<'_>) -> Result<(), UpgradeError> {
        match self {
            Compression::Snappy(snappy) => snappy.decompress(input, room),
            Compression::Deflate(deflate) => deflate.decompress(input, room),
        }
    }
}

/// The upgrades of a connection, from the first one on. Everything that came is opened at once: what
/// stays behind is never a whole record, chunk or block, and so nothing waits without the poller
/// knowing of it.
#[derive(Debug, Default)]
pub struct Layers {
    tls: Option<Box<Tls>>,
    compression: Option<Compression>,
    /// Sealed bytes for the socket.
    pub wire: Vec<u8>,
    /// Of `wire`, what the socket has taken.
    pub sent: usize,
    compressed: Vec<u8>,
    decrypted: Vec<u8>,
}

impl Layers {
    /// Adds the next layer. What was sealed before is unchanged.
    pub fn push(&mut self, layer: Layer) {
        assert!(
            self.compression.is_none(),
            "compression comes last, and once"
        );
        match layer {
            Layer::Tls(tls) => {
                assert!(self.tls.is_none(), "TLS comes once");
                self.tls = Some(tls);
                self.drain_tls();
            }
            Layer::Snappy(snappy) => self.compression = Some(Compression::Snappy(snappy)),
            Layer::Deflate(deflate) => self.compression = Some(Compression::Deflate(deflate)),
        }
    }

    /// Appends plain bytes, sealed, to `wire`. TLS holds them back until its handshake is done.
    ///
    /// # Errors
    /// When a library fails.
    pub fn seal(&mut self, plain: &[u8]) -> Result<(), UpgradeError> {
        match (&mut self.tls, &mut self.compression) {
            (None, None) => self.wire.extend_from_slice(plain),
            (None, Some(compression)) => compression.compress(plain, &mut self.wire)?,
            (Some(tls), None) => tls.encrypt(plain)?,
            (Some(tls), Some(compression)) => {
                self.compressed.clear();
                compression.compress(plain, &mut self.compressed)?;
                tls.encrypt(&self.compressed)?;
            }
        }
        self.drain_tls();
        Ok(())
    }

    /// Opens bytes from the socket. What TLS has to answer is in `wire`, also after an error.
    ///
    /// # Errors
    /// When the other side does not keep to a format.
    pub fn open(&mut self, wire: &[u8], room: &mut Room<'_>) -> Result<(), UpgradeError> {
        let opened = self.open_all(wire, room);
        self.drain_tls();
        opened
    }

    fn open_all(&mut self, wire: &[u8], room: &mut Room<'_>) -> Result<(), UpgradeError> {
        match (&mut self.tls, &mut self.compression) {
            (None, None) => {
                room.append(wire);
                Ok(())
            }
            (None, Some(compression)) => compression.decompress(wire, room),
            (Some(tls), None) => tls.decrypt(wire, room),
            (Some(tls), Some(compression)) => {
                let mut decrypted = Room::behind(&mut self.decrypted, 0);
                tls.decrypt(wire, &mut decrypted)?;
                let bytes = decrypted.filled;
                compression.decompress(&self.decrypted[..bytes], room)
            }
        }
    }

    /// Opens bytes that had passed the older layers when the last one was added.
    ///
    /// # Errors
    /// When the other side does not keep to a format.
    pub fn open_last(&mut self, bytes: &[u8], room: &mut Room<'_>) -> Result<(), UpgradeError> {
        match &mut self.compression {
            Some(compression) => compression.decompress(bytes, room),
            None => self.open(bytes, room),
        }
    }

    fn drain_tls(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.drain(&mut self.wire);
        }
    }
}

/// What the connections of a run are upgraded with.
#[derive(Clone, Debug, Default)]
pub struct Upgrades {
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    snappy: bool,
    /// The level; zero is no deflate.
    deflate: u32,
}

/// The part of an IDENTIFY answer that grants upgrades.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Granted {
    tls_v1: bool,
    snappy: bool,
    deflate: bool,
    deflate_level: u32,
}

impl Upgrades {
    /// The upgrades of a scenario; without a name for the certificate it must be for `address`.
    ///
    /// # Errors
    /// When a file cannot be used; in words for the user.
    pub fn new(scenario: &Scenario, address: std::net::SocketAddr) -> Result<Upgrades, String> {
        let tls = if scenario.tls {
            Some(tls::client_config(scenario, address)?)
        } else {
            None
        };
        Ok(Upgrades {
            tls,
            snappy: scenario.snappy,
            deflate: scenario.deflate,
        })
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tls.is_none() && !self.snappy && self.deflate == 0
    }

    /// The JSON of an IDENTIFY, with what is asked for added.
    #[must_use]
    pub fn ask<'a>(&self, identify: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(open) = identify
            .strip_suffix(b"}")
            .filter(|open| open.len() > 1 && !self.is_empty())
        else {
            return Cow::Borrowed(identify);
        };
        let mut asked = open.to_vec();
        if self.tls.is_some() {
            asked.extend_from_slice(b",\"tls_v1\":true");
        }
        if self.snappy {
            asked.extend_from_slice(b",\"snappy\":true");
        }
        if self.deflate > 0 {
            let level = format!(",\"deflate\":true,\"deflate_level\":{}", self.deflate);
            asked.extend_from_slice(level.as_bytes());
        }
        asked.push(b'}');
        Cow::Owned(asked)
    }

    /// Whether the answer to an IDENTIFY grants what was asked for, and nothing else.
    ///
    /// # Errors
    /// What it does not, in words for the user.
    pub fn check_granted(&self, answer: &[u8]) -> Result<(), String> {
        let granted: Granted = if answer == b"OK" {
            // The answer of a daemon that knows no feature negotiation.
            Granted::default()
        } else {
            serde_json::from_slice(answer)
                .map_err(|error| format!("its answer to IDENTIFY is not understood: {error}"))?
        };
        let features = [
            (
                "TLS",
                self.tls.is_some(),
                granted.tls_v1,
                "nsqd needs --tls-cert and --tls-key",
            ),
            ("snappy", self.snappy, granted.snappy, "nsqd needs --snappy"),
            (
                "deflate",
                self.deflate > 0,
                granted.deflate,
                "nsqd needs --deflate",
            ),
        ];
        for (name, asked, granted, remedy) in features {
            if asked && !granted {
                return Err(format!(
                    "the daemon does not grant {name} ({remedy}); nothing is measured without it"
                ));
            }
            if granted && !asked {
                return Err(format!("the daemon grants {name}, which was not asked for"));
            }
        }
        if self.deflate > 0 && granted.deflate_level != self.deflate {
            return Err(format!(
                "the daemon grants deflate level {}, not {}: give --deflate {0}, or the daemon \
                 --max-deflate-level",
                granted.deflate_level, self.deflate
            ));
        }
        Ok(())
    }

    /// The layer that is added when `done` of them are there; `None` when that is all.
    ///
    /// # Errors
    /// When the library refuses the configuration.
    pub fn layer(&self, done: usize) -> Result<Option<Layer>, UpgradeError> {
        let compression = match &self.tls {
            Some((config, name)) if done == 0 => {
                let tls = Tls::client(Arc::clone(config), name.clone())?;
                return Ok(Some(Layer::Tls(Box::new(tls))));
            }
            tls => done == usize::from(tls.is_some()),
        };
        Ok(match (compression, self.snappy, self.deflate) {
            (true, true, _) => Some(Layer::snappy()),
            (true, false, level) if level > 0 => Some(Layer::deflate(level)),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
