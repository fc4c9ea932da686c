//! TLS handshakes with certificates that openssl makes, as operators do.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::{Upgrade, Upgrades};
use rustls::pki_types::ServerName;

/// The names of the servers' certificates.
const NAMES: &str = "subjectAltName=IP:127.0.0.1,DNS:localhost\n";

const P256: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];

/// A directory in which openssl makes keys and certificates.
struct Openssl(TempDir);

impl Openssl {
    /// Returns `None` on a machine without openssl. CI has openssl.
    fn new() -> Option<Openssl> {
        if Command::new("openssl").arg("version").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "CI needs openssl");
            eprintln!("skipped: the openssl command is not installed");
            return None;
        }
        let made = Openssl(tempfile::tempdir().expect("a temporary directory can be made"));
        let config = "[req]\ndistinguished_name=dn\n[dn]\n";
        fs::write(made.path("req.cnf"), config).expect("it is writable");
        Some(made)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn run(&self, args: &[&str]) {
        let mut openssl = Command::new("openssl");
        let done = openssl.current_dir(self.0.path()).args(args).output();
        let done = done.expect("openssl starts");
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "openssl {args:?}: {errors}");
    }

    /// Makes a key, `name.key`, and a certificate that it signs itself, `name.pem`. `subject` is the common name.
    fn root(&self, name: &str, subject: &str, key: &[&str], extensions: &str) {
        let config = format!("[req]\ndistinguished_name=dn\n[dn]\n[ext]\n{extensions}");
        fs::write(self.path("root.cnf"), config).expect("it is writable");
        let (key_file, cert_file) = (format!("{name}.key"), format!("{name}.pem"));
        let subject = format!("/CN={subject}");
        let mut args = vec!["req", "-x509", "-config", "root.cnf", "-extensions", "ext"];
        args.extend(["-nodes", "-days", "2", "-subj", &subject, "-newkey"]);
        args.extend(key);
        args.extend(["-keyout", &key_file, "-out", &cert_file]);
        self.run(&args);
    }

    /// Makes a key, `name.key`, and a certificate that `issuer` signs, `name.pem`. Without extensions, it has version 1.
    fn signed(&self, name: &str, issuer: &str, key: &[&str], extensions: &str) {
        let (key_file, cert_file) = (format!("{name}.key"), format!("{name}.pem"));
        let subject = format!("/CN={name}");
        let mut args = vec!["req", "-new", "-config", "req.cnf", "-nodes", "-subj"];
        args.extend([subject.as_str(), "-newkey"]);
        args.extend(key);
        args.extend(["-keyout", &key_file, "-out", "request.csr"]);
        self.run(&args);
        let (ca, ca_key) = (format!("{issuer}.pem"), format!("{issuer}.key"));
        let mut args = vec!["x509", "-req", "-in", "request.csr", "-CA", &ca, "-CAkey"];
        if key.contains(&"-sha512") {
            args.insert(1, "-sha512");
        }
        args.extend([ca_key.as_str(), "-set_serial", "7", "-days", "2", "-out"]);
        args.push(&cert_file);
        if !extensions.is_empty() {
            fs::write(self.path("ext.cnf"), extensions).expect("it is writable");
            args.extend(["-extfile", "ext.cnf"]);
        }
        self.run(&args);
    }

    fn roots(&self, name: &str) -> RootCertStore {
        authorities(&self.path(&format!("{name}.pem"))).expect("it is a certificate")
    }

    fn server(&self, name: &str, clients: ClientTrust) -> Result<Arc<ServerConfig>, ConfigError> {
        server_config(&ServerTls {
            cert: &self.path(&format!("{name}.pem")),
            key: &self.path(&format!("{name}.key")),
            clients,
            only_tls13: false,
        })
    }

    fn client(&self, roots: Option<&str>, own: Option<&str>) -> Arc<ClientConfig> {
        let cert_and_key = own.map(|name| {
            let file = |suffix: &str| self.path(&format!("{name}.{suffix}"));
            (file("pem"), file("key"))
        });
        let cert_and_key = cert_and_key.as_ref();
        let config = client_config(&ClientTls {
            authorities: roots.map(|name| self.roots(name)),
            cert_and_key: cert_and_key.map(|(cert, key)| (cert.as_path(), key.as_path())),
            ..ClientTls::default()
        });
        config.expect("the files can be used")
    }

    /// Shakes hands with a server that has the certificate `server`, and is trusted because of `roots`.
    fn trusted_server(&self, server: &str, roots: &str, host: &str) -> Result<(), String> {
        let server = self.server(server, ClientTrust::Everybody);
        let client = self.client(Some(roots), None);
        shake_hands(&server.expect("it is usable"), &client, host)
    }

    /// Shakes hands with a client that has the certificate `client`. The server has the certificate `ca`.
    fn client_of(&self, client: &str, clients: ClientTrust) -> Result<(), String> {
        let server = self.server("ca", clients).expect("it is usable");
        let client = self.client(None, Some(client));
        shake_hands(&server, &client, "127.0.0.1")
    }
}

/// Shakes hands. The error is that of the side that fails.
fn shake_hands(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    host: &str,
) -> Result<(), String> {
    let name = ServerName::try_from(host.to_owned()).expect("it is a name");
    let (mut server_side, mut client_side) = (Upgrades::default(), Upgrades::default());
    let client = Upgrade::tls_client(client, name).expect("the configuration is usable");
    client_side.push(client);
    let server = Upgrade::tls_server(server).expect("the configuration is usable");
    server_side.push(server);
    let text = |error: crate::UpgradeError| error.to_string();
    while server_side.is_handshaking() || client_side.is_handshaking() {
        let sent = std::mem::take(&mut client_side.wire);
        server_side.shake_hands(&mut &sent[..]).map_err(text)?;
        let answer = std::mem::take(&mut server_side.wire);
        assert!(!(sent.is_empty() && answer.is_empty()), "both sides wait");
        client_side.shake_hands(&mut &answer[..]).map_err(text)?;
    }
    Ok(())
}

/// Compares results with the parts of their errors that are expected. An empty part expects success.
fn expect(results: impl IntoIterator<Item = (String, Result<(), String>, &'static str)>) {
    let mut wrong = String::new();
    for (case, result, expected) in results {
        let is_expected = match &result {
            Ok(()) => expected.is_empty(),
            Err(why) => !expected.is_empty() && why.contains(expected),
        };
        if !is_expected {
            writeln!(wrong, "{case}: {result:?}, expected {expected:?}").expect("a text grows");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

impl Openssl {
    /// Shakes hands with servers: each row has the certificate, the root, the name, and the expected error.
    fn expect_servers(&self, rows: &[(&str, &str, &str, &'static str)]) {
        expect(rows.iter().map(|(server, root, host, error)| {
            let result = self.trusted_server(server, root, host);
            (
                format!("server {server}, root {root}, {host}"),
                result,
                *error,
            )
        }));
    }

    /// Shakes hands with clients: each row has the certificate, the root, and the expected error.
    fn expect_clients(&self, rows: &[(&str, &str, &'static str)]) {
        expect(rows.iter().map(|(client, root, error)| {
            let result = self.client_of(client, ClientTrust::SignedBy(self.roots(root)));
            (format!("client {client}, root {root}"), result, *error)
        }));
    }
}

/// The smallest set-up of all has one certificate, which signs itself. Go takes a certificate that is among the roots.
#[test]
fn a_certificate_may_be_its_own_root() {
    let Some(openssl) = Openssl::new() else {
        return;
    };
    let authority = format!("{NAMES}basicConstraints=critical,CA:TRUE\n");
    let for_clients = format!("{authority}extendedKeyUsage=clientAuth\n");
    let critical = format!("{authority}1.2.3.4=critical,ASN1:NULL\n");
    openssl.root("ca", "own", P256, &authority);
    openssl.root("namesake", "own", P256, &authority);
    openssl.root("leaf", "leaf", P256, NAMES);
    openssl.root("for-clients", "clients", P256, &for_clients);
    openssl.root("critical", "critical", P256, &critical);
    openssl.root("old", "own", &["rsa:2048", "-sha1"], &authority);
    openssl.expect_servers(&[
        ("ca", "ca", "127.0.0.1", ""),
        ("ca", "ca", "localhost", ""),
        ("leaf", "leaf", "localhost", ""),
        ("old", "old", "localhost", ""),
        ("ca", "ca", "other.host", "not valid for name"),
        ("namesake", "ca", "localhost", "BadSignature"),
        ("ca", "leaf", "localhost", "UnknownIssuer"),
        ("for-clients", "for-clients", "localhost", "InvalidPurpose"),
        (
            "critical",
            "critical",
            "localhost",
            "UnhandledCriticalExtension",
        ),
    ]);
    openssl.expect_clients(&[
        ("ca", "ca", ""),
        ("for-clients", "for-clients", ""),
        ("namesake", "ca", "BadSignature"),
    ]);
}

/// openssl makes a certificate of version 1 from a request without extensions, and signs one for an authority where the
/// section of authorities is named by mistake.
#[test]
fn certificates_of_version_1_and_of_authorities_are_taken() {
    let Some(openssl) = Openssl::new() else {
        return;
    };
    let authority = format!("{NAMES}basicConstraints=critical,CA:TRUE\n");
    let narrow = "basicConstraints=critical,CA:TRUE\nnameConstraints=permitted;DNS:a\n";
    openssl.root("ca", "authority", P256, &authority);
    openssl.root("namesake", "authority", P256, &authority);
    openssl.root("narrow", "narrow", P256, narrow);
    openssl.signed("v1", "ca", &["rsa:2048"], "");
    openssl.signed("v1-narrow", "narrow", P256, "");
    openssl.signed("sub", "ca", P256, &authority);
    openssl.signed("sub-sub", "sub", P256, &authority);
    let (_, pem) = x509_parser::pem::parse_x509_pem(&fs::read(openssl.path("v1.pem")).unwrap())
        .expect("it is PEM");
    let version = pem.parse_x509().expect("it is a certificate").version;
    assert_eq!(version, x509_parser::x509::X509Version::V1);

    let server = openssl.server("v1", ClientTrust::Everybody);
    let server = server.expect("version 1 is usable");
    let careless = shake_hands(&server, &openssl.client(None, None), "127.0.0.1");
    let any_client = openssl.client_of("v1", ClientTrust::AnyCertificate);
    expect([
        ("a server that is not judged".to_owned(), careless, ""),
        ("any client".to_owned(), any_client, ""),
    ]);
    openssl.expect_servers(&[
        // Go takes names from the extension only, too.
        ("v1", "ca", "v1", "not valid for name"),
        ("sub", "ca", "localhost", ""),
        ("sub", "namesake", "localhost", "BadSignature"),
    ]);
    openssl.expect_clients(&[
        ("v1", "ca", ""),
        ("v1", "namesake", "BadSignature"),
        ("v1", "narrow", "UnknownIssuer"),
        ("v1-narrow", "narrow", "name constraints"),
        ("sub", "ca", ""),
        ("sub-sub", "ca", "UnknownIssuer"),
    ]);
}

#[test]
fn keys_of_go_s_curves_and_lengths_are_taken() {
    let Some(openssl) = Openssl::new() else {
        return;
    };
    let ec = |curve| ["ec", "-pkeyopt", curve];
    for (name, key) in [
        ("p384", &ec("ec_paramgen_curve:secp384r1")[..]),
        ("p521", &ec("ec_paramgen_curve:secp521r1")),
        ("ed25519", &["ed25519"]),
        ("long", &["rsa:5120"]),
    ] {
        let authority = format!("{NAMES}basicConstraints=critical,CA:TRUE\n");
        openssl.root("ca", "ca", key, &authority);
        openssl.signed(name, "ca", key, NAMES);
        openssl.signed("v1", "ca", key, "");
        openssl.expect_servers(&[(name, "ca", "localhost", "")]);
        openssl.expect_clients(&[(name, "ca", ""), ("v1", "ca", "")]);
    }
    // A hash that is longer than the curve.
    openssl.root("ca", "ca", P256, "basicConstraints=critical,CA:TRUE\n");
    openssl.signed("sha512", "ca", &[P256, &["-sha512"]].concat(), NAMES);
    openssl.expect_servers(&[("sha512", "ca", "localhost", "")]);
}

/// Returns the text of an error without the directory.
fn error_of(openssl: &Openssl, cert: &str, key: &str) -> String {
    let config = server_config(&ServerTls {
        cert: &openssl.path(cert),
        key: &openssl.path(key),
        clients: ClientTrust::Everybody,
        only_tls13: false,
    });
    let text = config.expect_err("it cannot be used").to_string();
    text.replace(&openssl.0.path().display().to_string(), "DIR")
}

#[test]
fn an_unusable_key_is_named_with_its_fault() {
    let Some(openssl) = Openssl::new() else {
        return;
    };
    let authority = "basicConstraints=CA:TRUE\n";
    openssl.root("ca", "authority", P256, &format!("{NAMES}{authority}"));
    openssl.root("small", "small", &["rsa:1024"], NAMES);
    openssl.root("small-ca", "small-ca", &["rsa:1024"], authority);
    openssl.signed("of-small", "small-ca", P256, NAMES);
    for command in [
        "pkcs8 -topk8 -in ca.key -out pkcs8.key -passout pass:x",
        "ec -in ca.key -aes128 -out ec.key -passout pass:x",
    ] {
        openssl.run(&command.split(' ').collect::<Vec<_>>());
    }
    for key in ["pkcs8.key", "ec.key"] {
        assert_eq!(
            error_of(&openssl, "ca.pem", key),
            format!(
                "tls: failed to parse private key: DIR/{key} is encrypted, and nobody is asked for a passphrase; write \
                 the key without one: openssl pkey -in DIR/{key} -out plain.key"
            )
        );
    }
    assert_eq!(
        error_of(&openssl, "small.pem", "small.key"),
        "tls: failed to parse private key: DIR/small.key has an RSA key of 1024 bits, and at least 2048 are needed"
    );
    fs::write(
        openssl.path("broken.key"),
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    )
    .expect("it is writable");
    openssl.run(&["genpkey", "-algorithm", "ed448", "-out", "ed448.key"]);
    // The reason was "unexpected error: failed to parse private key as RSA, ECDSA, or EdDSA".
    for key in ["broken.key", "ed448.key"] {
        assert_eq!(
            error_of(&openssl, "ca.pem", key),
            format!(
                "tls: failed to parse private key: DIR/{key} has no RSA, ECDSA (P-256, P-384, P-521) or Ed25519 key that can be \
                 read; openssl pkey -in DIR/{key} -text -noout says which key this is, and whether it is damaged; openssl req -new \
                 -newkey rsa:2048 -nodes -keyout new.key -out new.csr makes a new one"
            )
        );
    }
    assert_eq!(
        error_of(&openssl, "small.pem", "ca.key"),
        "tls: private key does not match public key"
    );
    let too_small = "has an RSA key of 1024 bits, and at least 2048 are needed";
    openssl.expect_clients(&[("of-small", "small-ca", too_small)]);
}
