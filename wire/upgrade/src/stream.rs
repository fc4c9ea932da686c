//! [`ClientStream`]: TLS over a stream that blocks.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// The client's side of TLS over a stream that blocks.
#[derive(Debug)]
pub struct ClientStream<S: Read + Write>(StreamOwned<ClientConnection, S>);

impl<S: Read + Write> ClientStream<S> {
    /// Returns TLS over `stream`. The certificate must be for `host`. The first read or write begins the handshake.
    ///
    /// # Errors
    /// When `host` is no name for a certificate, or the library refuses the configuration.
    pub fn new(config: Arc<ClientConfig>, host: &str, stream: S) -> io::Result<ClientStream<S>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        Ok(ClientStream(StreamOwned::new(session, stream)))
    }

    /// Returns the stream below TLS.
    pub fn below(&mut self) -> &mut S {
        &mut self.0.sock
    }

    /// Completes the handshake.
    ///
    /// # Errors
    /// When the sides do not agree, or the stream fails.
    pub fn shake_hands(&mut self) -> io::Result<()> {
        self.0.conn.complete_io(&mut self.0.sock).map(drop)
    }
}

impl<S: Read + Write> Read for ClientStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<S: Read + Write> Write for ClientStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
