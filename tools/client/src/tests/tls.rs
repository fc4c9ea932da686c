//! [`Certificates`] and [`TlsStream`]: the server's side of TLS, for unit tests of this crate.

use std::io::IoSlice;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use upgrade::{ClientTls, ClientTrust, ServerTls, Upgrade, Upgrades, client_config, server_config};

/// The certificate of one test, for the host `127.0.0.1`. Its files are removed at the end.
pub(crate) struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let directory = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("cert.pem"), cert.pem()).unwrap();
        std::fs::write(directory.path().join("key.pem"), key.serialize_pem()).unwrap();
        Certificates { directory }
    }

    /// Returns the server's side of a connection.
    pub(crate) fn server(&self) -> Upgrade {
        let config = server_config(&ServerTls {
            cert: &self.directory.path().join("cert.pem"),
            key: &self.directory.path().join("key.pem"),
            clients: ClientTrust::Everybody,
            only_tls13: false,
        })
        .unwrap();
        Upgrade::tls_server(&config).unwrap()
    }

    /// Returns the server's side of a connection, for one version of TLS.
    pub(crate) fn server_of(&self, version: &'static rustls::SupportedProtocolVersion) -> Upgrade {
        let path = |name: &str| self.directory.path().join(name);
        let cert = CertificateDer::from_pem_file(path("cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(path("key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert], key)
            .unwrap();
        Upgrade::tls_server(&Arc::new(config)).unwrap()
    }

    /// Returns the authorities of a client that trusts this certificate.
    pub(crate) fn authorities(&self) -> upgrade::RootCertStore {
        upgrade::authorities(&self.directory.path().join("cert.pem")).unwrap()
    }

    /// Returns the settings of a client that trusts this certificate.
    pub(crate) fn client(&self) -> Arc<upgrade::ClientConfig> {
        client_config(&ClientTls {
            authorities: Some(self.authorities()),
            cert_and_key: None,
            only_tls13: false,
        })
        .unwrap()
    }
}

/// The server's side of a stream with TLS.
pub(crate) struct TlsStream<S> {
    stream: S,
    upgrades: Upgrades,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Makes the server's side. The handshake is a part of the first [`read`](TlsStream::read).
    pub(crate) fn new(stream: S, certificates: &Certificates) -> TlsStream<S> {
        TlsStream::over(stream, certificates.server())
    }

    /// Makes the server's side of this TLS.
    pub(crate) fn over(stream: S, tls: Upgrade) -> TlsStream<S> {
        let mut upgrades = Upgrades::default();
        upgrades.push(tls);
        TlsStream { stream, upgrades }
    }

    /// Returns the version of TLS as in its records, such as 0x0304 for 1.3. `None` before the end of the handshake.
    pub(crate) fn version(&self) -> Option<u16> {
        if self.upgrades.is_handshaking() {
            None
        } else {
            self.upgrades.session().map(|session| session.version)
        }
    }

    /// Reads from the stream once, and returns the plain bytes of it. `None` means that the client has gone away.
    pub(crate) async fn read(&mut self) -> Option<Vec<u8>> {
        let mut sealed = vec![0; 1 << 16];
        let length = self.stream.read(&mut sealed).await.ok()?;
        if length == 0 {
            return None;
        }
        let mut rest = &sealed[..length];
        let mut plain = vec![0; 1 << 17];
        let opened = self.upgrades.open(&mut rest, &mut plain).unwrap();
        plain.truncate(opened);
        self.flush().await;
        Some(plain)
    }

    /// Sends plain bytes.
    pub(crate) async fn send(&mut self, plain: &[u8]) {
        self.upgrades.seal(&[IoSlice::new(plain)]).unwrap();
        self.flush().await;
    }

    async fn flush(&mut self) {
        let sealed = self.upgrades.unsent().to_vec();
        self.upgrades.drop_sent(sealed.len());
        self.stream.write_all(&sealed).await.unwrap();
    }
}
