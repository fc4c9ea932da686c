//! A real oauth2-proxy, with an OpenID Connect issuer that logs everybody in as one user.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_support::http::{Response, http};
use test_support::http_server::{Answer, HttpServer, Received};
use test_support::packages::{INSTALL_TIMEOUT, install};
use test_support::process::{Process, run};
use test_support::skip::{network_lacks, not_tested};
use test_support::{TIMEOUT, wait_until};
use url::Url;

use super::ask;

/// A running oauth2-proxy that listens on a unix socket.
pub(super) struct OAuth2Proxy {
    _process: Process,
    directory: TempDir,
    issuer: HttpServer,
}

impl OAuth2Proxy {
    /// Starts oauth2-proxy with these flags. Everybody who logs in is `email`. `None`: Go is missing.
    pub(super) fn start(flags: &[String], email: &str) -> Option<OAuth2Proxy> {
        let program = program()?;
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let key = Key::new(directory.path());
        let email = email.to_owned();
        let issuer = HttpServer::start(move |request, _| issue(request, &key, &email));
        let socket = directory.path().join("socket");
        let mut command = Command::new(program);
        command
            .args(flags)
            .arg(format!("--oidc-issuer-url={}", issuer.url("")))
            .arg(format!("--http-address=unix://{}", socket.display()))
            .args(["--client-secret=x", "--cookie-secret=0123456789abcdef"]);
        let proxy = OAuth2Proxy {
            _process: Process::start(command.stdin(Stdio::null()).stdout(Stdio::null())),
            directory,
            issuer,
        };
        let listens = || UnixStream::connect(&socket).is_ok();
        assert!(wait_until(TIMEOUT, listens), "oauth2-proxy does not listen");
        Some(proxy)
    }

    pub(super) fn ask(&self, method: &str, target: &str, headers: &[&str], body: &str) -> Response {
        let socket = self.directory.path().join("socket");
        ask(&socket, method, target, headers, body)
    }

    /// Logs in as a browser does. Returns the header that its further requests have.
    pub(super) fn log_in(&self) -> String {
        let sent_away = self.ask("GET", "/", &[], "").expect_status(302);
        let login = location(&sent_away);
        assert!(login.as_str().starts_with(&self.issuer.url("/login")));
        let target = format!("{}?{}", login.path(), login.query().unwrap_or_default());
        let back = http(self.issuer.address, "GET", &target, b"").expect_status(302);
        let back = location(&back);
        let target = format!("{}?{}", back.path(), back.query().unwrap_or_default());
        let cookie = cookies(&sent_away);
        let logged_in = self.ask("GET", &target, &[&cookie], "").expect_status(302);
        cookies(&logged_in)
    }
}

/// Returns the program, which Go builds once in the target directory. `None`: there is no Go, or the module cannot be fetched.
fn program() -> Option<PathBuf> {
    let go = Command::new("go").arg("version").output();
    if !go.is_ok_and(|output| output.status.success()) {
        not_tested(
            "Go is missing, which builds oauth2-proxy. Install it: apt-get install golang-go",
        );
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oauth2_proxy");
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let installed = install(root, &source, &["module"], |source, target| {
        let module = fs::read_to_string(source.join("module")).expect("the file exists");
        // The build takes minutes of processor time, which tests that wait for answers need more.
        let mut go = Command::new("nice");
        go.current_dir(target).env("GOBIN", target);
        // Without optimisation, Go takes two thirds of the time.
        go.args(["go", "install", "-gcflags=all=-N -l", module.trim()]);
        let built = run(&mut go, INSTALL_TIMEOUT);
        if !built.status.success() {
            network_lacks(&format!("oauth2-proxy cannot be built: {built}"));
        }
    });
    let program = installed.join("oauth2-proxy");
    if program.exists() {
        return Some(program);
    }
    // The next run tries again.
    fs::remove_file(installed.join("installed")).expect("the directory is there");
    None
}

fn location(answer: &Response) -> Url {
    let location = answer
        .header("location")
        .expect("a redirect has a location");
    Url::parse(location).expect("an absolute URL")
}

/// Returns the header `Cookie` of a browser that has got this answer.
fn cookies(answer: &Response) -> String {
    let set = answer
        .headers
        .iter()
        .filter(|(name, _)| name == "set-cookie");
    let cookies = set.filter_map(|(_, value)| value.split(';').next());
    let cookies: Vec<&str> = cookies.collect();
    format!("Cookie: {}", cookies.join("; "))
}

/// The RSA key of an issuer, in a file. openssl makes it and signs.
struct Key {
    file: PathBuf,
    modulus: String,
}

impl Key {
    fn new(directory: &Path) -> Key {
        let file = directory.join("key.pem");
        openssl(Command::new("openssl").args(["genrsa", "-out"]).arg(&file));
        let mut shown = Command::new("openssl");
        let shown = shown.args(["rsa", "-noout", "-modulus", "-in"]).arg(&file);
        let shown = String::from_utf8(openssl(shown)).expect("text");
        let digits = shown.trim().strip_prefix("Modulus=").expect("a modulus");
        let modulus: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits"))
            .collect();
        let modulus = URL_SAFE_NO_PAD.encode(modulus);
        Key { file, modulus }
    }

    /// Returns a token with these claims (RFC 7519), signed with RS256.
    fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "RS256", "kid": "1"});
        let [header, claims] =
            [&header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let content = self.file.with_extension("content");
        fs::write(&content, &signed).expect("a file can be written");
        let mut sign = Command::new("openssl");
        let sign = sign.args(["dgst", "-sha256", "-sign"]);
        let signature = openssl(sign.arg(&self.file).arg(content));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn openssl(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("openssl can be run");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}

/// Answers as an OpenID Connect issuer does that asks for no password.
fn issue(request: &Received, key: &Key, email: &str) -> Answer {
    let host = request.head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("host").then_some(value)
    });
    let own = format!("http://{}", host.expect("HTTP/1.1 has a host"));
    let url = Url::parse(&format!("{own}{}", request.target())).expect("a target");
    let answer = match url.path() {
        "/.well-known/openid-configuration" => json!({
            "issuer": own,
            "authorization_endpoint": format!("{own}/login"),
            "token_endpoint": format!("{own}/token"),
            "jwks_uri": format!("{own}/keys"),
        }),
        "/keys" => json!({
            "keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": key.modulus, "e": "AQAB"}],
        }),
        "/login" => return send_back(&url),
        "/token" => {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .expect("after 1970");
            let claims = json!({
                "iss": own,
                "aud": "nsqadmin",
                "sub": "248289761001",
                "email": email,
                "email_verified": true,
                "iat": now.as_secs(),
                "exp": now.as_secs() + 3600,
            });
            json!({"access_token": "x", "token_type": "Bearer", "id_token": key.token(&claims)})
        }
        _ => return Answer::status(404),
    };
    Answer::from(answer).with("Content-Type: application/json")
}

/// Sends a browser back to the proxy with a code.
fn send_back(url: &Url) -> Answer {
    let parameter = |name: &str| {
        let mut found = url.query_pairs().filter(|(key, _)| key == name);
        found.next().expect("oauth2-proxy sends it").1.into_owned()
    };
    let mut back = Url::parse(&parameter("redirect_uri")).expect("a URL");
    back.query_pairs_mut()
        .append_pair("code", "x")
        .append_pair("state", &parameter("state"));
    Answer::status(302).with(format!("Location: {back}"))
}
