//! What carries a client's frames: a socket, or TLS and compression over one.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use upgrade::pki_types::ServerName;
use upgrade::{ClientConfig, Layer, Layers};

/// An upgrade that a client asks for.
#[derive(Clone, Debug)]
pub enum Upgrade {
    Tls(Arc<ClientConfig>),
    Snappy,
    /// With this level in both directions.
    Deflate(u32),
}

impl Upgrade {
    /// The part of an IDENTIFY that asks for it.
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
    layers: Option<Layers>,
    unopened: Vec<u8>,
    /// Bytes of one write.
    piece: usize,
}

impl Transport {
    pub fn new(stream: TcpStream) -> Transport {
        Transport {
            stream,
            layers: None,
            unopened: Vec::new(),
            piece: usize::MAX,
        }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn trickle(&mut self) {
        self.piece = 1;
    }

    /// Adds a layer; with TLS, waits until both sides have come to terms.
    pub fn push(&mut self, upgrade: &Upgrade) -> io::Result<()> {
        let layer = match upgrade {
            Upgrade::Tls(config) => {
                let name = ServerName::try_from("127.0.0.1").expect("an address is a name");
                Layer::tls_client(config, name)?
            }
            Upgrade::Snappy => Layer::snappy(),
            Upgrade::Deflate(level) => Layer::deflate(*level),
        };
        let layers = self.layers.get_or_insert_default();
        layers.push(layer);
        while self
            .layers
            .as_ref()
            .is_some_and(|layers| layers.is_handshaking())
        {
            self.send()?;
            let mut wire = [0; 4096];
            let bytes = self.stream.read(&mut wire)?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut wire = &wire[..bytes];
            if let Some(layers) = &mut self.layers {
                let done = layers.shake_hands(&mut wire);
                self.unopened.extend_from_slice(wire);
                self.send()?;
                done?;
            }
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(layers) = &mut self.layers else {
            return Ok(());
        };
        let wire = std::mem::take(&mut layers.wire);
        wire.chunks(self.piece.min(wire.len().max(1)))
            .try_for_each(|piece| self.stream.write_all(piece))
    }
}

impl Read for Transport {
    fn read(&mut self, plain: &mut [u8]) -> io::Result<usize> {
        let Some(layers) = &mut self.layers else {
            return self.stream.read(plain);
        };
        loop {
            let mut wire = &self.unopened[..];
            let opened = layers.open(&mut wire, plain)?;
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
        match &mut self.layers {
            None => self.stream.write(taken),
            Some(layers) => {
                layers.seal(&[IoSlice::new(taken)])?;
                self.send()?;
                Ok(taken.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
