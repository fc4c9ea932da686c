//! The TLS of a daemon's own listeners: from flags to a configuration.

use std::path::Path;
use std::sync::Arc;

use upgrade::{ClientTrust, ConfigError, ServerConfig, ServerTls, authorities, server_config};
use wire::go_error::system_text;

use crate::flag;

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

crate::flags! {
    /// The flags of a daemon's listeners with TLS. An empty text is a flag that is not given.
    #[derive(Clone, Debug, Default)]
    pub struct ListenerTls {
        https_address: String = flag::new("https-address", "", "<addr>:<port> to listen on for HTTPS clients; empty for none");
        cert: String = flag::new("tls-cert", "", "path to the certificate file (PEM)");
        key: String = flag::new("tls-key", "", "path to the private key file (PEM)");
        client_auth_policy: String =
            flag::new("tls-client-auth-policy", "", "client certificate policy: require or require-verify")
                .one_of(&["", "require", "require-verify"]);
        root_ca_file: String = flag::new("tls-root-ca-file", "", "path to the file of the certificate authorities of clients (PEM)");
        min_version: String = flag::new("tls-min-version", "tls1.2", "lowest version of TLS: tls1.2 or tls1.3")
            .one_of(&["tls1.2", "tls1.3"]);
    }
}

impl ListenerTls {
    /// Returns the configuration of the listeners with TLS, or `None` without such listeners. `addresses` has the flags for
    /// their addresses, and the addresses.
    ///
    /// # Errors
    /// The reason why the daemon cannot start, for the FATAL line.
    pub fn configure(
        &self,
        addresses: &[(&str, &str)],
    ) -> Result<Option<Arc<ServerConfig>>, String> {
        let has_address = addresses.iter().any(|(_, address)| !address.is_empty());
        let has_certificate = !self.cert.is_empty() || !self.key.is_empty();
        let flags: Vec<&str> = addresses.iter().map(|(flag, _)| *flag).collect();
        match (has_address, has_certificate) {
            (false, false) => Ok(None),
            (false, true) => {
                let flags = flags.join(" or ");
                Err(format!(
                    "--tls-cert and --tls-key need {flags} to listen on"
                ))
            }
            (true, false) => {
                let verb = if flags.len() == 1 { "needs" } else { "need" };
                let flags = flags.join(" and ");
                Err(format!("{flags} {verb} --tls-cert and --tls-key"))
            }
            (true, true) => {
                let flags = TlsFlags {
                    cert: &self.cert,
                    key: &self.key,
                    client_auth_policy: &self.client_auth_policy,
                    root_ca_file: &self.root_ca_file,
                    only_tls13: self.min_version == "tls1.3",
                };
                let server = flags.server_config().map(Some);
                server
                    .map_err(|error| format!("failed to build TLS config - {}", error_text(&error)))
            }
        }
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
