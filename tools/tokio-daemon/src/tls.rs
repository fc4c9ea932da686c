//! [`ListenerTls`]: the flags of listeners with TLS.

use std::sync::Arc;

use program::flag;
use program::tls::{TlsFlags, error_text};
use upgrade::ServerConfig;

program::flags! {
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
