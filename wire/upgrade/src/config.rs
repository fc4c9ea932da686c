//! The TLS configurations of daemon and client, from PEM files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
};

/// The settings of a daemon's TLS.
#[derive(Clone, Debug)]
pub struct ServerTls<'a> {
    /// The certificate and its chain, PEM.
    pub cert: &'a Path,
    /// The key of the first certificate, PEM: PKCS#1, PKCS#8 or SEC1.
    pub key: &'a Path,
    /// The certificates that clients have to show.
    pub clients: ClientTrust,
    /// True when TLS 1.2 is refused. Older versions are always refused.
    pub only_tls13: bool,
}

/// The clients that a daemon trusts.
#[derive(Clone, Debug)]
pub enum ClientTrust {
    /// All clients. The daemon asks for no certificate.
    Everybody,
    /// Clients with a certificate, whoever signed it.
    AnyCertificate,
    /// Clients with a certificate that one of these authorities signed.
    SignedBy(RootCertStore),
}

/// The settings of a client's TLS.
#[derive(Clone, Debug, Default)]
pub struct ClientTls<'a> {
    /// The authorities that may sign the daemon's certificate. `None` accepts any certificate.
    pub authorities: Option<RootCertStore>,
    /// The client's own certificate and its key, PEM.
    pub cert_and_key: Option<(&'a Path, &'a Path)>,
}

/// The reason why a configuration cannot be made. The texts are Go's where Go has one.
#[derive(Debug)]
pub enum ConfigError {
    /// A file cannot be read.
    Open(PathBuf, io::Error),
    /// A certificate file has no certificate that can be used.
    NoCertificate(PathBuf),
    /// A certificate file has a key.
    KeyForCertificate(PathBuf),
    /// A key file has no usable key.
    NoKey(PathBuf),
    /// A key file has a certificate.
    CertificateForKey(PathBuf),
    /// The key does not belong to the certificate.
    KeyMismatch,
    /// A file of authorities has no certificate that can be used.
    NoAuthority(PathBuf),
    /// The settings ask for verification but name no authority.
    NoAuthorities,
    /// The TLS library refuses the settings.
    Tls(rustls::Error),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Open(path, error) => write!(f, "open {}: {error}", path.display()),
            ConfigError::NoCertificate(path) => write!(
                f,
                "tls: failed to find any PEM data in certificate input: {} has no certificate",
                path.display()
            ),
            ConfigError::KeyForCertificate(path) => write!(
                f,
                "tls: failed to find certificate PEM data in certificate input, but did find a \
                 private key; PEM inputs may have been switched: {}",
                path.display()
            ),
            ConfigError::NoKey(path) => write!(
                f,
                "tls: failed to find any PEM data in key input: {} has no private key",
                path.display()
            ),
            ConfigError::CertificateForKey(path) => write!(
                f,
                "tls: found a certificate rather than a key in the PEM for the private key: {}",
                path.display()
            ),
            ConfigError::KeyMismatch => f.write_str("tls: private key does not match public key"),
            ConfigError::NoAuthority(path) => write!(
                f,
                "failed to append certificate to pool: {} has no certificate that can be used",
                path.display()
            ),
            ConfigError::NoAuthorities => {
                f.write_str("tls: no authorities to verify client certificates with")
            }
            ConfigError::Tls(error) => write!(f, "tls: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConfigError::Open(_, error) => Some(error),
            ConfigError::Tls(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rustls::Error> for ConfigError {
    fn from(error: rustls::Error) -> ConfigError {
        match error {
            rustls::Error::InconsistentKeys(_) => ConfigError::KeyMismatch,
            error => ConfigError::Tls(error),
        }
    }
}

/// Makes the daemon's configuration.
///
/// # Errors
/// When a file cannot be used.
pub fn server_config(tls: &ServerTls<'_>) -> Result<Arc<ServerConfig>, ConfigError> {
    let versions: &[&SupportedProtocolVersion] = match tls.only_tls13 {
        true => &[&TLS13],
        false => &[&TLS13, &TLS12],
    };
    let builder =
        ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions)?;
    let chain = certificates(tls.cert)?;
    let key = private_key(tls.key)?;
    let builder = match &tls.clients {
        ClientTrust::Everybody => builder.with_no_client_auth(),
        ClientTrust::AnyCertificate => {
            builder.with_client_cert_verifier(Arc::new(Anybody(provider())))
        }
        ClientTrust::SignedBy(roots) => {
            let roots = Arc::new(roots.clone());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|_| ConfigError::NoAuthorities)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    Ok(Arc::new(builder.with_single_cert(chain, key)?))
}

/// Makes the client's configuration. Each connection does a full handshake, as NSQ's client
/// libraries do by default.
///
/// # Errors
/// When a file cannot be used.
pub fn client_config(tls: &ClientTls<'_>) -> Result<Arc<ClientConfig>, ConfigError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous();
    let builder = match &tls.authorities {
        None => builder.with_custom_certificate_verifier(Arc::new(Anybody(provider()))),
        Some(roots) => {
            let roots = Arc::new(roots.clone());
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|_| ConfigError::NoAuthorities)?;
            builder.with_custom_certificate_verifier(verifier)
        }
    };
    let mut config = match tls.cert_and_key {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            builder.with_client_auth_cert(certificates(cert)?, private_key(key)?)?
        }
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Reads the authorities in a PEM file.
///
/// # Errors
/// When the file cannot be read, or has no authority.
pub fn authorities(path: &Path) -> Result<RootCertStore, ConfigError> {
    let found = CertificateDer::pem_slice_iter(&read(path)?)
        .filter_map(Result::ok)
        .collect::<Vec<_>>();
    let mut roots = RootCertStore::empty();
    // Certificates that cannot be parsed are skipped, as in Go.
    match roots.add_parsable_certificates(found) {
        (0, _) => Err(ConfigError::NoAuthority(path.to_owned())),
        _ => Ok(roots),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let pem = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) if PrivateKeyDer::from_pem_slice(&pem).is_ok() => {
            Err(ConfigError::KeyForCertificate(path.to_owned()))
        }
        Ok(_) | Err(_) => Err(ConfigError::NoCertificate(path.to_owned())),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let pem = read(path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        if CertificateDer::from_pem_slice(&pem).is_ok() {
            ConfigError::CertificateForKey(path.to_owned())
        } else {
            ConfigError::NoKey(path.to_owned())
        }
    })
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| ConfigError::Open(path.to_owned(), error))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Accepts any certificate of the other side. The signature is checked: the peer must own its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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

impl ClientCertVerifier for Anybody {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
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
