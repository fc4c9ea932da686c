//! The options that build up a TLS configuration.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use upgrade::{ClientConfig, ClientTls, RootCertStore};

use super::option::{boolean, form_error};
use super::{Config, OptionError};

/// The certificates of TLS, for nsqd and for the HTTPS of nsqlookupd. The versions are TLS 1.2 and 1.3.
#[derive(Clone, Default)]
pub struct TlsSettings {
    /// The authorities that may sign a server's certificate. `None` stands for the system's authorities.
    pub root_certificates: Option<RootCertStore>,
    /// True if any certificate of a server is accepted. The server's identity is then unknown.
    pub insecure_skip_verify: bool,
    /// The client's certificate with its chain, a PEM file. Used together with `key`.
    pub cert: Option<PathBuf>,
    /// The key of the client's certificate, a PEM file.
    pub key: Option<PathBuf>,
}

/// The authorities are shown by their number. The key is the path of its file.
impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roots = self.root_certificates.as_ref();
        f.debug_struct("TlsSettings")
            .field("root_certificates", &roots.map(RootCertStore::len))
            .field("insecure_skip_verify", &self.insecure_skip_verify)
            .field("cert", &self.cert)
            .field("key", &self.key)
            .finish()
    }
}

impl TlsSettings {
    /// Makes the configuration of TLS sessions. Reads the files of the certificate and, if no other authorities are set,
    /// those of the system.
    ///
    /// # Errors
    /// The files cannot be used.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, OptionError> {
        let authorities = match (&self.root_certificates, self.insecure_skip_verify) {
            (_, true) => None,
            (Some(roots), false) => Some(roots.clone()),
            (None, false) => {
                let found = upgrade::system_authorities();
                Some(found.map_err(|error| OptionError::SystemCertificates(error.to_string()))?)
            }
        };
        let cert_and_key = self.cert.as_deref().zip(self.key.as_deref());
        upgrade::client_config(&ClientTls {
            authorities,
            cert_and_key,
            only_tls13: false,
        })
        .map_err(OptionError::Certificate)
    }
}

/// Sets an option of TLS. Returns `None` if the option is another one.
pub(super) fn set(config: &mut Config, name: &str, value: &str) -> Option<Result<(), OptionError>> {
    let done = match name {
        "tls_root_ca_file" => upgrade::authorities(value.as_ref())
            .map(|roots| config.tls.root_certificates = Some(roots))
            .map_err(OptionError::RootCertificates),
        "tls_insecure_skip_verify" => boolean(value)
            .map(|skip| config.tls.insecure_skip_verify = skip)
            .map_err(|reason| form_error("tls_insecure_skip_verify", value, reason)),
        "tls_cert" => {
            config.tls.cert = Some(value.into());
            check_certificate(&config.tls)
        }
        "tls_key" => {
            config.tls.key = Some(value.into());
            check_certificate(&config.tls)
        }
        // TLS 1.2 is the lowest version in any case.
        "tls_min_version" => match value {
            "ssl3.0" | "tls1.0" | "tls1.1" | "tls1.2" => Ok(()),
            _ => Err(OptionError::TlsVersion(value.to_owned())),
        },
        _ => return None,
    };
    Some(done)
}

/// Checks the certificate and its key once both are set.
fn check_certificate(tls: &TlsSettings) -> Result<(), OptionError> {
    if tls.cert.is_none() || tls.key.is_none() {
        return Ok(());
    }
    let cert_and_key = tls.cert.as_deref().zip(tls.key.as_deref());
    let checked = upgrade::client_config(&ClientTls {
        authorities: None,
        cert_and_key,
        only_tls13: false,
    });
    checked.map(|_| ()).map_err(OptionError::Certificate)
}
