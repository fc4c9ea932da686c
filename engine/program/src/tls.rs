//! The TLS of a daemon's own listeners: from flags to a configuration.

use std::path::Path;
use std::sync::Arc;

use upgrade::{ClientTrust, ConfigError, ServerConfig, ServerTls, authorities, server_config};
use wire::go_error::system_text;

/// The values of the flags about a daemon's own TLS. An empty text is a flag that is not given.
#[derive(Clone, Copy, Debug)]
pub struct TlsFlags<'a> {
    /// `--tls-cert`: the file of the certificate and its chain.
    pub cert: &'a str,
    /// `--tls-key`: the file of the certificate's key.
    pub key: &'a str,
    /// `--tls-client-auth-policy`: `require`, `require-verify`, or another value for no certificate of clients.
    pub client_auth_policy: &'a str,
    /// `--tls-root-ca-file`: the file of the authorities that sign the certificates of clients.
    pub root_ca_file: &'a str,
    /// True if `--tls-min-version` is `tls1.3`. No value allows a version below 1.2.
    pub only_tls13: bool,
}

impl TlsFlags<'_> {
    /// Reads the files that the flags name, and returns the configuration of the listeners.
    ///
    /// # Errors
    /// A file cannot be used, or `require-verify` has no authorities. [`error_text`] has the text for the operator.
    pub fn server_config(self) -> Result<Arc<ServerConfig>, ConfigError> {
        let roots = match self.root_ca_file {
            "" => None,
            path => Some(authorities(Path::new(path))?),
        };
        let clients = match self.client_auth_policy {
            "require" => ClientTrust::AnyCertificate,
            "require-verify" => ClientTrust::SignedBy(roots.ok_or(ConfigError::NoAuthorities)?),
            _ => ClientTrust::Everybody,
        };
        server_config(&ServerTls {
            cert: Path::new(self.cert),
            key: Path::new(self.key),
            clients,
            only_tls13: self.only_tls13,
        })
    }
}

/// Returns the text of an error in Go's words for the system's errors, with the flag that is missing.
pub fn error_text(error: &ConfigError) -> String {
    match error {
        ConfigError::Open(path, source) => {
            format!("open {}: {}", path.display(), system_text(source))
        }
        ConfigError::NoAuthorities => {
            format!("{error}: --tls-client-auth-policy=require-verify needs --tls-root-ca-file")
        }
        error => error.to_string(),
    }
}
