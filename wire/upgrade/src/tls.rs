//! [`Tls`]: a TLS session over buffers.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{Room, Session, UpgradeError};

/// One side of a TLS session.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: Connection,
    /// True when the other side has announced its end.
    ended: bool,
    /// The error that ended the session, behind bytes that were decrypted before.
    failure: Option<UpgradeError>,
}

impl Tls {
    pub(crate) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Tls, UpgradeError> {
        let connection = ClientConnection::new(config, name).map_err(UpgradeError::Tls)?;
        Ok(Tls::new(connection.into()))
    }

    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Tls, UpgradeError> {
        let connection = ServerConnection::new(config).map_err(UpgradeError::Tls)?;
        Ok(Tls::new(connection.into()))
    }

    fn new(mut connection: Connection) -> Tls {
        // The sealing side limits the waiting bytes, by what the socket has taken.
        connection.set_buffer_limit(None);
        Tls {
            connection,
            ended: false,
            failure: None,
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn session(&self) -> Option<Session> {
        let version = self.connection.protocol_version()?;
        let suite = self.connection.negotiated_cipher_suite()?;
        let certificates = self.connection.peer_certificates();
        let certificate = certificates.and_then(|all| all.first());
        Some(Session {
            version: version.into(),
            cipher_suite: suite.suite().into(),
            common_name: certificate
                .map(|found| common_name(found))
                .unwrap_or_default(),
        })
    }

    /// Takes all of `plain`. The bytes wait until the handshake is over.
    pub(crate) fn encrypt(&mut self, plain: &[IoSlice<'_>]) -> Result<(), UpgradeError> {
        let mut writer = self.connection.writer();
        plain
            .iter()
            .try_for_each(|part| writer.write_all(part))
            .map_err(general)
    }

    /// Removes bytes from the front of `wire` until the handshake is over or `wire` is empty.
    pub(crate) fn shake_hands(&mut self, wire: &mut &[u8]) -> Result<(), UpgradeError> {
        while self.is_handshaking() && !wire.is_empty() {
            if let Err(error) = self.take(wire) {
                if matches!(error, UpgradeError::NoTls) {
                    // Like Go, sends no alert: a peer that speaks no TLS would misread it.
                    self.drain(&mut Vec::new());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes bytes from the front of `wire` and appends the plain text of the complete records,
    /// until the room is full or no record is complete.
    pub(crate) fn decrypt(
        &mut self,
        wire: &mut &[u8],
        room: &mut Room<'_>,
    ) -> Result<(), UpgradeError> {
        loop {
            self.read(room)?;
            if let Some(failure) = self.failure.take_if(|_| room.filled() == 0) {
                return Err(failure);
            }
            if room.is_full() || wire.is_empty() || self.failure.is_some() {
                return Ok(());
            }
            self.failure = self.take(wire).err();
        }
    }

    fn take(&mut self, wire: &mut &[u8]) -> Result<(), UpgradeError> {
        if self.connection.read_tls(wire).map_err(general)? == 0 {
            // Bytes behind the end of the session are dropped. The socket will confirm the end.
            *wire = &[];
        }
        let state = self
            .connection
            .process_new_packets()
            .map_err(|error| match error {
                // The first record of the other side is not part of a handshake.
                rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. }
                    if self.connection.protocol_version().is_none() =>
                {
                    UpgradeError::NoTls
                }
                error => UpgradeError::Tls(error),
            })?;
        self.ended |= state.peer_has_closed();
        Ok(())
    }

    fn read(&mut self, room: &mut Room<'_>) -> Result<(), UpgradeError> {
        while !room.is_full() {
            match self.connection.reader().read(room.left()) {
                Ok(0) => break,
                Ok(bytes) => room.fill(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(general(error)),
            }
        }
        Ok(())
    }

    /// Announces the end of the session.
    pub(crate) fn end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Appends everything that TLS has to send.
    pub(crate) fn drain(&mut self, wire: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection
                .write_tls(wire)
                .expect("a vector takes everything");
        }
    }
}

/// Returns the common name in a certificate. The name is empty if the certificate has none.
fn common_name(certificate: &[u8]) -> String {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return String::new();
    };
    let name = certificate.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok());
    name.unwrap_or_default().to_owned()
}

/// Converts an error of the library: reading and writing buffers fails only by its own rules.
fn general(error: io::Error) -> UpgradeError {
    UpgradeError::Tls(rustls::Error::General(error.to_string()))
}
