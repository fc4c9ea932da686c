//! The transport of a client's frames: a socket, or TLS and compression over a socket.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use upgrade::pki_types::ServerName;
use upgrade::{ClientConfig, Upgrades};

/// An upgrade that a client asks for.
#[derive(Clone, Debug)]
pub enum Upgrade {
    Tls(Arc<ClientConfig>),
    Snappy,
    /// Deflate with this level in both directions.
    Deflate(u32),
}

impl Upgrade {
    /// Returns the part of an IDENTIFY that asks for the upgrade.
    pub fn json(&self) -> String {
        match self {
            Upgrade::Tls(_) => ",\"tls_v1\":true".to_owned(),
            Upgrade::Snappy => ",\"snappy\":true".to_owned(),
            Upgrade::Deflate(level) => format!(",\"deflate\":true,\"deflate_level\":{level}"),
        }
    }
}

pub struct Transport {
    stream: TcpStream,
    upgrades: Option<Upgrades>,
    /// Received bytes that are not opened yet.
    unopened: Vec<u8>,
    /// Opened bytes that are not read yet.
    opened: Vec<u8>,
    /// The most bytes of one write.
    piece: usize,
}

impl Transport {
    pub fn new(stream: TcpStream) -> Transport {
        Transport {
            stream,
            upgrades: None,
            unopened: Vec::new(),
            opened: Vec::new(),
            piece: usize::MAX,
        }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn trickle(&mut self) {
        self.piece = 1;
    }

    /// Adds an upgrade for all further output, and for bytes that were read before and do not belong
    /// to the older upgrades. For TLS, waits for the end of the handshake.
    pub fn push(&mut self, upgrade: &Upgrade, mut behind: &[u8]) -> io::Result<()> {
        let upgrade = match upgrade {
            Upgrade::Tls(config) => {
                let name = ServerName::try_from("127.0.0.1").expect("an address is a name");
                upgrade::Upgrade::tls_client(config, name)?
            }
            Upgrade::Snappy => upgrade::Upgrade::snappy(),
            Upgrade::Deflate(level) => upgrade::Upgrade::deflate(*level),
        };
        let upgrades = self.upgrades.get_or_insert_default();
        upgrades.push(upgrade);
        let mut plain = vec![0; 1 << 20];
        let bytes = upgrades.open_last(&mut behind, &mut plain)?;
        self.opened.extend_from_slice(&plain[..bytes]);
        while self
            .upgrades
            .as_ref()
            .is_some_and(|upgrades| upgrades.is_handshaking())
        {
            self.send()?;
            let mut wire = [0; 4096];
            let bytes = self.stream.read(&mut wire)?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut wire = &wire[..bytes];
            if let Some(upgrades) = &mut self.upgrades {
                let done = upgrades.shake_hands(&mut wire);
                self.unopened.extend_from_slice(wire);
                self.send()?;
                done?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(upgrades) = &mut self.upgrades else {
            return Ok(());
        };
        let wire = std::mem::take(&mut upgrades.wire);
        wire.chunks(self.piece.min(wire.len().max(1)))
            .try_for_each(|piece| self.stream.write_all(piece))
    }
}

impl Read for Transport {
    fn read(&mut self, plain: &mut [u8]) -> io::Result<usize> {
        let Some(upgrades) = &mut self.upgrades else {
            return self.stream.read(plain);
        };
        if !self.opened.is_empty() {
            let bytes = plain.len().min(self.opened.len());
            plain[..bytes].copy_from_slice(&self.opened[..bytes]);
            self.opened.drain(..bytes);
            return Ok(bytes);
        }
        loop {
            let mut wire = &self.unopened[..];
            let opened = upgrades.open(&mut wire, plain)?;
            self.unopened = wire.to_vec();
            if opened > 0 {
                return Ok(opened);
            }
            let mut wire = [0; 16 * 1024];
            let bytes = self.stream.read(&mut wire)?;
            if bytes == 0 {
                return Ok(0);
            }
            self.unopened.extend_from_slice(&wire[..bytes]);
        }
    }
}

impl Write for Transport {
    fn write(&mut self, plain: &[u8]) -> io::Result<usize> {
        let taken = &plain[..plain.len().min(self.piece)];
        match &mut self.upgrades {
            None => self.stream.write(taken),
            Some(upgrades) => {
                upgrades.seal(&[IoSlice::new(taken)])?;
                self.send()?;
                Ok(taken.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
