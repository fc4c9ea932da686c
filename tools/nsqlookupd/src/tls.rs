//! TLS as the operator chose it. The original has none.

use std::sync::Arc;

use program::tls::{TlsFlags, error_text};
use upgrade::ServerConfig;

/// The values of the flags about TLS. An empty text is a flag that is not given.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// `--tls-cert`
    pub cert: String,
    /// `--tls-key`
    pub key: String,
    /// `--tls-client-auth-policy`
    pub client_auth_policy: String,
    /// `--tls-root-ca-file`
    pub root_ca_file: String,
    /// `--tls-min-version`
    pub min_version: String,
    /// `--tls-tcp-address`
    pub tcp_address: String,
    /// `--https-address`
    pub https_address: String,
}

/// Returns the configuration of the listeners with TLS, or `None` without such listeners.
///
/// # Errors
/// The reason why the daemon cannot start, for the FATAL line.
pub(crate) fn configure(settings: &TlsSettings) -> Result<Option<Arc<ServerConfig>>, String> {
    let has_address = !settings.tcp_address.is_empty() || !settings.https_address.is_empty();
    let has_certificate = !settings.cert.is_empty() || !settings.key.is_empty();
    match (has_address, has_certificate) {
        (false, false) => Ok(None),
        (false, true) => Err(
            "--tls-cert and --tls-key need --tls-tcp-address or --https-address to listen on"
                .to_string(),
        ),
        (true, false) => {
            Err("--tls-tcp-address and --https-address need --tls-cert and --tls-key".to_string())
        }
        (true, true) => {
            let flags = TlsFlags {
                cert: &settings.cert,
                key: &settings.key,
                client_auth_policy: &settings.client_auth_policy,
                root_ca_file: &settings.root_ca_file,
                only_tls13: settings.min_version == "tls1.3",
            };
            let server = flags.server_config().map(Some);
            server.map_err(|error| format!("failed to build TLS config - {}", error_text(&error)))
        }
    }
}
