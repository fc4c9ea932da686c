//! TLS as the operator chose it. The original has none.

use std::path::Path;
use std::sync::Arc;

use upgrade::{ClientTrust, ConfigError, ServerConfig, ServerTls, authorities, server_config};
use wire::go_error::system_text;

/// The values of the flags about TLS. An empty text is a flag that is not given.
#[derive(Clone, Debug, Default)]
pub struct TlsFlags {
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
pub(crate) fn configure(flags: &TlsFlags) -> Result<Option<Arc<ServerConfig>>, String> {
    let has_address = !flags.tcp_address.is_empty() || !flags.https_address.is_empty();
    let has_certificate = !flags.cert.is_empty() || !flags.key.is_empty();
    match (has_address, has_certificate) {
        (false, false) => Ok(None),
        (false, true) => Err(
            "--tls-cert and --tls-key need --tls-tcp-address or --https-address to listen on"
                .to_string(),
        ),
        (true, false) => {
            Err("--tls-tcp-address and --https-address need --tls-cert and --tls-key".to_string())
        }
        (true, true) => server(flags)
            .map(Some)
            .map_err(|error| format!("failed to build TLS config - {}", text(&error))),
    }
}

fn server(flags: &TlsFlags) -> Result<Arc<ServerConfig>, ConfigError> {
    let roots = match flags.root_ca_file.as_str() {
        "" => None,
        path => Some(authorities(Path::new(path))?),
    };
    let clients = match flags.client_auth_policy.as_str() {
        "require" => ClientTrust::AnyCertificate,
        "require-verify" => ClientTrust::SignedBy(roots.ok_or(ConfigError::NoAuthorities)?),
        _ => ClientTrust::Everybody,
    };
    server_config(&ServerTls {
        cert: Path::new(&flags.cert),
        key: Path::new(&flags.key),
        clients,
        only_tls13: flags.min_version == "tls1.3",
    })
}

fn text(error: &ConfigError) -> String {
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
