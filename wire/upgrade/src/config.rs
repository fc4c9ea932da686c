//! The TLS configurations of daemon and client, from PEM files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::settings::{ClientTls, ClientTrust, ServerTls};
use crate::verifier::{Verifier, public_key, short_rsa_bits, too_short};

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
    /// A key file is encrypted.
    EncryptedKey(PathBuf),
    /// A key file has an RSA key of this many bits, which are too few.
    ShortKey(PathBuf, usize),
    /// A key file has a key that the TLS library does not read.
    Key(PathBuf, rustls::Error),
    /// A certificate file has something else between the marks of a certificate.
    Certificate(PathBuf),
    /// The key does not belong to the certificate.
    KeyMismatch,
    /// A file of authorities has no certificate that can be used.
    NoAuthority(PathBuf),
    /// The settings ask for verification but name no authority.
    NoAuthorities,
    /// The system has no authorities, for this reason.
    NoSystemAuthorities(String),
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
            ConfigError::EncryptedKey(path) => {
                let path = path.display();
                write!(
                    f,
                    "tls: failed to parse private key: {path} is encrypted, and nobody is asked for a passphrase; write \
                     the key without one: openssl pkey -in {path} -out plain.key"
                )
            }
            ConfigError::ShortKey(path, bits) => write!(
                f,
                "tls: failed to parse private key: {} {}",
                path.display(),
                too_short(*bits)
            ),
            ConfigError::Key(path, _) => {
                // The library says no more than this.
                let path = path.display();
                write!(
                    f,
                    "tls: failed to parse private key: {path} has no RSA, ECDSA (P-256, P-384, P-521) or Ed25519 key that can be \
                     read; openssl pkey -in {path} -text -noout says which key this is, and whether it is damaged; \
                     openssl req -new -newkey rsa:2048 -nodes -keyout new.key -out new.csr makes a new one"
                )
            }
            ConfigError::Certificate(path) => write!(
                f,
                "x509: malformed certificate: the first one in {}",
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
            ConfigError::NoSystemAuthorities(why) => {
                write!(
                    f,
                    "x509: failed to load system roots and no roots provided: {why}"
                )
            }
            ConfigError::Tls(error) => write!(f, "tls: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConfigError::Open(_, error) => Some(error),
            ConfigError::Key(_, error) | ConfigError::Tls(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rustls::Error> for ConfigError {
    fn from(error: rustls::Error) -> ConfigError {
        ConfigError::Tls(error)
    }
}

/// Makes the daemon's configuration.
///
/// # Errors
/// When a file cannot be used.
pub fn server_config(tls: &ServerTls<'_>) -> Result<Arc<ServerConfig>, ConfigError> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let own = own_certificate(tls.cert, tls.key, &provider)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions(tls.only_tls13))?;
    let trusted = match &tls.clients {
        ClientTrust::Everybody => None,
        ClientTrust::AnyCertificate => Some(Verifier::for_clients(algorithms, None)),
        ClientTrust::SignedBy(roots) => {
            let roots = Arc::new(roots.clone());
            let chains = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider)
                .build()
                .map_err(|_| ConfigError::NoAuthorities)?;
            Some(Verifier::for_clients(algorithms, Some((roots, chains))))
        }
    };
    let builder = match trusted {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::new(verifier)),
    };
    Ok(Arc::new(builder.with_cert_resolver(Arc::new(own))))
}

/// Makes the client's configuration. Each connection does a full handshake, as NSQ's client
/// libraries do by default.
///
/// # Errors
/// When a file cannot be used.
pub fn client_config(tls: &ClientTls<'_>) -> Result<Arc<ClientConfig>, ConfigError> {
    let provider = provider();
    let algorithms = provider.signature_verification_algorithms;
    let verifier = Verifier::for_servers(algorithms, tls.authorities.clone());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions(tls.only_tls13))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match tls.cert_and_key {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let own = own_certificate(cert, key, &provider)?;
            builder.with_client_cert_resolver(Arc::new(own))
        }
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn versions(only_tls13: bool) -> &'static [&'static SupportedProtocolVersion] {
    const BOTH: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
    if only_tls13 { &BOTH[..1] } else { BOTH }
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

/// Reads the authorities of the system. Certificates that cannot be parsed are skipped, as in Go.
///
/// # Errors
/// When there are none.
pub fn system_authorities() -> Result<RootCertStore, ConfigError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added > 0 {
        return Ok(roots);
    }
    Err(ConfigError::NoSystemAuthorities(
        match found.errors.first() {
            Some(error) => error.to_string(),
            None => "there are none".to_owned(),
        },
    ))
}

/// Reads a certificate with its chain, and its key. The library's own function for this refuses X.509 version 1.
fn own_certificate(
    cert: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<SingleCertAndKey, ConfigError> {
    let chain = certificates(cert)?;
    let parsed = X509Certificate::from_der(&chain[0]);
    let (_, first) = parsed.map_err(|_| ConfigError::Certificate(cert.to_owned()))?;
    let der = private_key(key)?;
    let loaded = provider.key_provider.load_private_key(der);
    let signing = loaded.map_err(|error| match short_rsa_bits(first.public_key()) {
        Some(bits) => ConfigError::ShortKey(key.to_owned(), bits),
        None => ConfigError::Key(key.to_owned(), error),
    })?;
    if signing.public_key() != Some(public_key(&chain[0])?) {
        return Err(ConfigError::KeyMismatch);
    }
    Ok(CertifiedKey::new(chain, signing).into())
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
    let pem = String::from_utf8_lossy(&pem);
    // The two forms of a key with a passphrase: PKCS#8, and a header in the older forms.
    let is_encrypted = pem.lines().any(|line| {
        line == "-----BEGIN ENCRYPTED PRIVATE KEY-----" || line == "Proc-Type: 4,ENCRYPTED"
    });
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
        let path = path.to_owned();
        if is_encrypted {
            ConfigError::EncryptedKey(path)
        } else if CertificateDer::from_pem_slice(pem.as_bytes()).is_ok() {
            ConfigError::CertificateForKey(path)
        } else {
            ConfigError::NoKey(path)
        }
    })
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| ConfigError::Open(path.to_owned(), error))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests;
