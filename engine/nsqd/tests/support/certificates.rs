//! Certificates for one test.

#[path = "../../../../wire/upgrade/tests/certificates/mod.rs"]
mod files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use upgrade::{ClientConfig, ClientTls, authorities, client_config};

use super::{Broker, Upgrade};

/// A directory with certificates. See [`files::write`].
pub struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    pub fn new() -> Certificates {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        files::write(directory.path());
        Certificates { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Returns a flag whose value is the path of a file.
    pub fn flag(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.text(name))
    }

    /// Starts a broker with the certificate for 127.0.0.1 and HTTPS on a free port.
    pub fn broker(&self, shards: usize, further: &[&str]) -> Broker {
        let flags = self.flags(further);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Broker::start(shards, &flags)
    }

    /// Returns the flags for the certificate and for HTTPS on a free port, and the further flags.
    pub fn flags(&self, further: &[&str]) -> Vec<String> {
        let mut flags = vec![
            self.flag("tls-cert", "server.pem"),
            self.flag("tls-key", "server-key.pem"),
            "--https-address=127.0.0.1:0".to_owned(),
        ];
        flags.extend(further.iter().map(|flag| (*flag).to_owned()));
        flags
    }

    /// Returns the TLS of a client that knows the authority.
    pub fn tls(&self) -> Upgrade {
        Upgrade::Tls(self.client(None))
    }

    /// Returns the TLS of a client with a certificate of `other`, whose authority the broker may
    /// not know.
    pub fn tls_with_certificate_of(&self, other: &Certificates) -> Upgrade {
        let (cert, key) = (other.path("client.pem"), other.path("client-key.pem"));
        Upgrade::Tls(self.client(Some((&cert, &key))))
    }

    fn client(&self, cert_and_key: Option<(&Path, &Path)>) -> Arc<ClientConfig> {
        let authorities = authorities(&self.path("ca.pem")).expect("it was made above");
        client_config(&ClientTls {
            authorities: Some(authorities),
            cert_and_key,
            only_tls13: false,
        })
        .expect("its files were made above")
    }
}
