//! The settings of TLS for daemon and client. Without the feature `tls`, programs have them, too, but nothing comes of them.

use std::path::Path;

use crate::RootCertStore;

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
    /// The authorities that may sign the daemon's certificate. `None` accepts any certificate, an empty list none.
    pub authorities: Option<RootCertStore>,
    /// The client's own certificate and its key, PEM.
    pub cert_and_key: Option<(&'a Path, &'a Path)>,
    /// True when TLS 1.2 is refused. Older versions are always refused.
    pub only_tls13: bool,
}
