//! Certificates for one test. They are made when needed, so that none in the repository can expire.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use upgrade::{ClientConfig, ClientTls, authorities, client_config};

use super::{Broker, Upgrade};

/// The files of an authority (`ca.pem`), a certificate for 127.0.0.1 and localhost (`server.pem`,
/// `server-key.pem`), and a certificate for a client (`client.pem`, `client-key.pem`).
pub struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    pub fn new() -> Certificates {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let write = |name: &str, pem: String| {
            fs::write(directory.path().join(name), pem).expect("a temporary file can be written");
        };
        let mut params = CertificateParams::default();
        // OpenSSL treats a certificate whose issuer has the same name as self-signed.
        params
            .distinguished_name
            .push(DnType::CommonName, "the authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = || KeyPair::generate().expect("a key can be made");
        let ca = CertifiedIssuer::self_signed(params, key()).expect("an authority can be made");
        write("ca.pem", ca.pem());
        for (name, usage) in [
            ("server", ExtendedKeyUsagePurpose::ServerAuth),
            ("client", ExtendedKeyUsagePurpose::ClientAuth),
        ] {
            let key = key();
            let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
            let mut params = CertificateParams::new(names).expect("both are names");
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![usage];
            let cert = params
                .signed_by(&key, &ca)
                .expect("a certificate can be signed");
            write(&format!("{name}.pem"), cert.pem());
            write(&format!("{name}-key.pem"), key.serialize_pem());
        }
        Certificates { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
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
            format!("--tls-cert={}", self.text("server.pem")),
            format!("--tls-key={}", self.text("server-key.pem")),
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
        })
        .expect("its files were made above")
    }
}
