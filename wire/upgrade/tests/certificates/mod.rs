//! Certificates for the tests of all crates. They are made when needed, so that none in the repository can expire.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

/// Writes the files of an authority (`ca.pem`, `ca-key.pem`; a certificate for the same names), a certificate for 127.0.0.1 and localhost (`server.pem`,
/// `server-key.pem`), and a certificate for a client (`client.pem`, `client-key.pem`).
pub(crate) fn write(directory: &Path) {
    let write = |name: &str, pem: String| {
        fs::write(directory.join(name), pem).expect("a temporary file can be written");
    };
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut params = CertificateParams::new(names.clone()).expect("both are names");
    // OpenSSL treats a certificate whose issuer has the same name as self-signed.
    params
        .distinguished_name
        .push(DnType::CommonName, "the authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = || KeyPair::generate().expect("a key can be made");
    let ca = CertifiedIssuer::self_signed(params, key()).expect("an authority can be made");
    write("ca.pem", ca.pem());
    write("ca-key.pem", ca.key().serialize_pem());
    for (name, usage) in [
        ("server", ExtendedKeyUsagePurpose::ServerAuth),
        ("client", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let key = key();
        let mut params = CertificateParams::new(names.clone()).expect("both are names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let cert = params
            .signed_by(&key, &ca)
            .expect("a certificate can be signed");
        write(&format!("{name}.pem"), cert.pem());
        write(&format!("{name}-key.pem"), key.serialize_pem());
    }
}
