//! [`Tls`]: a TLS session over buffers, and the configurations of both sides.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use super::{Room, UpgradeError};
use crate::scenario::Scenario;

/// One side of a TLS session.
#[derive(Debug)]
pub struct Tls {
    connection: Connection,
}

impl Tls {
    pub(super) fn client(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Tls, UpgradeError> {
        let connection = ClientConnection::new(config, name).map_err(UpgradeError::Tls)?;
        Ok(Tls::new(connection.into()))
    }

    pub(super) fn server(config: Arc<ServerConfig>) -> Result<Tls, UpgradeError> {
        let connection = ServerConnection::new(config).map_err(UpgradeError::Tls)?;
        Ok(Tls::new(connection.into()))
    }

    fn new(mut connection: Connection) -> Tls {
        // What may wait is limited by the link, which seals only when the socket took what was there.
        connection.set_buffer_limit(None);
        Tls { connection }
    }

    /// Takes `plain`, all of it; held back as long as the handshake lasts.
    pub(super) fn encrypt(&mut self, plain: &[u8]) -> Result<(), UpgradeError> {
        self.connection.writer().write_all(plain).map_err(general)
    }

    /// Appends the plain text of the records that are complete with `wire`.
    pub(super) fn decrypt(
        &mut self,
        mut wire: &[u8],
        room: &mut Room<'_>,
    ) -> Result<(), UpgradeError> {
        while !wire.is_empty() {
            let taken = self.connection.read_tls(&mut wire).map_err(general)?;
            let state = self
                .connection
                .process_new_packets()
                .map_err(UpgradeError::Tls)?;
            let bytes = state.plaintext_bytes_to_read();
            let space = &mut room.space(bytes)[..bytes];
            self.connection
                .reader()
                .read_exact(space)
                .map_err(general)?;
            room.filled += bytes;
            if taken == 0 {
                // The other side has said that it ends; the socket will say so, too.
                break;
            }
        }
        Ok(())
    }

    /// Appends everything that is to be sent.
    pub(super) fn drain(&mut self, wire: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection
                .write_tls(wire)
                .expect("a vector takes everything");
        }
    }
}

/// Reading and writing buffers fails by the library's own rules only.
fn general(error: io::Error) -> UpgradeError {
    UpgradeError::Tls(rustls::Error::General(error.to_string()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What the generator's connections are configured with, and the name the daemon must show.
pub(super) fn client_config(
    scenario: &Scenario,
    address: SocketAddr,
) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
    let text = |error: rustls::Error| format!("TLS cannot be configured: {error}");
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(text)?;
    let builder = if scenario.tls_insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider())))
    } else {
        let roots = Arc::new(authorities(&scenario.tls_ca)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| format!("--tls-ca {}: {error}", scenario.tls_ca.display()))?;
        builder.with_webpki_verifier(verifier)
    };
    let mut config = if scenario.tls_cert.as_os_str().is_empty() {
        builder.with_no_client_auth()
    } else {
        let (chain, key) = (certificates(&scenario.tls_cert)?, key(&scenario.tls_key)?);
        builder.with_client_auth_cert(chain, key).map_err(text)?
    };
    // A full handshake for each connection, as with NSQ's client libraries by default: also in storms.
    config.resumption = Resumption::disabled();
    let name = if scenario.tls_name.is_empty() {
        ServerName::IpAddress(address.ip().into())
    } else {
        ServerName::try_from(scenario.tls_name.clone())
            .map_err(|error| format!("--tls-name {}: {error}", scenario.tls_name))?
    };
    Ok((Arc::new(config), name))
}

/// What a daemon's connections are configured with: its certificate, its key, and who may sign the
/// certificates that clients must then show.
///
/// # Errors
/// When a file cannot be used; in words for the user.
pub fn server_config(
    cert: &Path,
    key_file: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>, String> {
    let text = |error: rustls::Error| format!("TLS cannot be configured: {error}");
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(text)?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|error| format!("{}: {error}", path.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(certificates(cert)?, key(key_file)?)
        .map_err(text)?;
    Ok(Arc::new(config))
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("cannot use {}: {error}", path.display()))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = |error| format!("cannot read certificates from {}: {error}", path.display());
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(text)?;
    if found.is_empty() {
        return Err(format!("{} has no certificate (PEM)", path.display()));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| format!("cannot read a private key from {}: {error}", path.display()))
}

/// Accepts any certificate (`--tls-insecure`). That its owner is at the other end is checked.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
