//! nsqadmin behind a real nginx, set up as docs/operate/nsqadmin.md says: a prefix that stays, and one that the proxy
//! removes. The blocks for Traefik and for an ingress have the same two forms, which nginx plays here. Also nsqadmin
//! behind a real oauth2-proxy.
//!
//! The tests need nginx (Debian: `nginx-light`), and openssl and Go, which builds oauth2-proxy. Without them, the tests say so, and fail if
//! `CI` is set.

#[path = "oauth2_proxy/mod.rs"]
mod oauth2_proxy;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Admin;
use oauth2_proxy::OAuth2Proxy;
use serde_json::json;
use tempfile::TempDir;
use test_support::daemon::Daemon;
use test_support::http::{Response, parse};
use test_support::process::Process;
use test_support::skip::not_tested;
use test_support::{TIMEOUT, wait_until};
use url::Url;

/// The name under which browsers know the proxy.
const NAME: &str = "nsq.example.com";

fn page() -> String {
    let page = test_support::pages::read("operate/nsqadmin.md");
    let (_, section) = page.split_once("## Behind a proxy\n").expect("a section");
    let end = section.find("\n## ").unwrap_or(section.len());
    section[..end].to_owned()
}

/// Returns the block of the page that begins with this line, without the indent.
fn block(first: &str) -> String {
    let page = page();
    let lines = page.lines().skip_while(|line| line.trim() != first);
    let lines = lines.take_while(|line| line.starts_with("    ") || line.is_empty());
    let text: Vec<&str> = lines
        .map(|line| line.get(4..).unwrap_or_default())
        .collect();
    assert!(
        !text.is_empty(),
        "the page has no block that begins with {first}"
    );
    text.join("\n")
}

/// A running nginx that listens on a unix socket.
struct Nginx {
    _process: Process,
    directory: TempDir,
}

impl Nginx {
    /// Starts nginx with the blocks of a server. `None`: there is no nginx.
    fn start(blocks: &str) -> Option<Nginx> {
        let is_there = Command::new("nginx")
            .arg("-v")
            .stderr(Stdio::null())
            .status();
        if !is_there.is_ok_and(|status| status.success()) {
            not_tested("nginx is missing. Install it: apt-get install nginx-light");
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let at = directory.path().display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {at}/{kind};"))
            .join(" ");
        let configuration = format!(
            "daemon off; master_process off; pid {at}/pid; error_log stderr;\n\
             events {{}}\n\
             http {{ access_log off; {temporary}\n\
             server {{ listen unix:{at}/socket;\n{blocks}\n}} }}\n"
        );
        let file = directory.path().join("nginx.conf");
        fs::write(&file, configuration).expect("a file can be written");
        let mut command = Command::new("nginx");
        command.args(["-e", "stderr", "-c"]).arg(file);
        let nginx = Nginx {
            _process: Process::start(command.stdin(Stdio::null()).stdout(Stdio::null())),
            directory,
        };
        let listens = || UnixStream::connect(nginx.socket()).is_ok();
        assert!(wait_until(TIMEOUT, listens), "nginx does not listen");
        Some(nginx)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn ask(&self, method: &str, target: &str, headers: &[&str], body: &str) -> Response {
        ask(&self.socket(), method, target, headers, body)
    }

    /// Opens a page of nsqadmin as a browser does, and all files that it names. Returns the address of its root.
    fn open(&self, path: &str) -> String {
        let page = self.ask("GET", path, &["Accept: text/html"], "");
        let text = page.text();
        assert_eq!(page.status, 200, "{path}: {text}");
        let address = Url::parse(&format!("https://{NAME}{path}")).unwrap();
        let base = between(&text, "<base href=\"").next().expect("a base");
        let base = address.join(base).unwrap();
        let files: Vec<&str> = between(&text, "href=\"static/")
            .chain(between(&text, "src=\"static/"))
            .collect();
        assert!(files.len() > 10, "{files:?}");
        for file in files {
            let file = base.join(&format!("static/{file}")).unwrap();
            let answer = self.ask("GET", file.path(), &[], "");
            let content_type = answer.header("content-type").unwrap_or_default();
            assert_eq!(answer.status, 200, "{file} of {path}");
            assert!(!content_type.contains("html"), "{file} is {content_type}");
        }
        base.path().to_owned()
    }

    /// Checks everything that a browser does below a prefix.
    fn check(&self, prefix: &str) {
        for path in ["/", "/topics/t", "/topics/t/c", "/nodes", "/peek/t/c"] {
            assert_eq!(self.open(&format!("{prefix}{path}")), format!("{prefix}/"));
        }
        let get = |path: &str, headers: &[&str]| {
            let answer = self.ask("GET", &format!("{prefix}{path}"), headers, "");
            answer.expect_status(200)
        };
        assert_eq!(get("/api/topics", &[]).json()["topics"], json!(["t"]));
        assert_eq!(get("/ping", &[]).text(), "OK");
        // The password belongs to nobody.
        let own = [
            "X-Forwarded-User: carol",
            "Authorization: Basic Y2Fyb2w6eA==",
        ];
        let named = get("/api/settings", &own).json();
        assert_eq!(named["user"], json!(""), "no client names its own user");
        let own = format!("Origin: https://{NAME}");
        for (headers, status) in [
            (&[own.as_str(), "Sec-Fetch-Site: same-origin"][..], 200),
            (&[own.as_str()], 200),
            (&["Origin: https://evil.example"], 403),
        ] {
            let target = format!("{prefix}/api/topics/t/c");
            let answer = self.ask("POST", &target, headers, r#"{"action":"pause"}"#);
            assert_eq!(answer.status, status, "{headers:?}: {}", answer.text());
        }
        // nginx holds nothing back.
        let live = format!("{prefix}/api/live/events");
        let events = send(&self.socket(), "GET", &live, &[], "");
        let mut lines = BufReader::new(events).lines();
        let is_event = |line: std::io::Result<String>| line.expect("a line").starts_with("data:");
        assert!(lines.any(is_event), "no event");
    }
}

/// Sends a request to the proxy that listens on this unix socket.
fn send(socket: &Path, method: &str, target: &str, headers: &[&str], body: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("the proxy listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{method} {target} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
    .expect("the proxy reads");
    stream
}

fn ask(socket: &Path, method: &str, target: &str, headers: &[&str], body: &str) -> Response {
    let mut bytes = Vec::new();
    let mut stream = send(socket, method, target, headers, body);
    stream.read_to_end(&mut bytes).expect("an answer");
    parse(&bytes, false).expect("an answer")
}

/// Returns what stands between `before` and the next quotation mark, each time.
fn between<'a>(text: &'a str, before: &str) -> impl Iterator<Item = &'a str> {
    let parts = text.split(before).skip(1);
    parts.filter_map(|part| part.split('"').next())
}

/// Starts an nsqd with the topic `t` and its channel `c`, and nsqadmin.
fn admin(flags: &[&str]) -> (Daemon, Admin) {
    let nsqd = Daemon::nsqd(&[]);
    nsqd.create_channel("t", "c");
    let allowed = format!("--allowed-host={NAME}");
    let admin = Admin::start_direct([nsqd.http], &[&[&*allowed], flags].concat());
    (nsqd, admin)
}

/// The page of the docs has this command.
fn check_command() {
    let command = format!("nsqadmin --base-path=/nsq --allowed-host={NAME} ");
    assert!(page().contains(&command), "{}", page());
}

#[test]
fn nginx_as_the_docs_have_it_keeps_or_removes_the_prefix() {
    check_command();
    let (_nsqd, admin) = admin(&["--base-path=/nsq"]);
    let keeps = block("location /nsq/ {");
    let upstream = format!("http://{}", admin.http);
    let keeps = keeps.replace("http://127.0.0.1:4171", &upstream);
    let removes = keeps.replace(&format!("{upstream};"), &format!("{upstream}/;"));
    assert_ne!(keeps, removes);
    for blocks in [keeps, removes] {
        let Some(nginx) = Nginx::start(&blocks) else {
            return;
        };
        nginx.check("/nsq");
    }
    // A probe that comes past the proxy.
    assert_eq!(admin.get("/ping").expect_status(200).text(), "OK");
    assert_eq!(admin.get("/nsq/ping").expect_status(200).text(), "OK");
}

/// Traefik and an ingress match the prefix with and without a slash behind it. Both keep `Host`, and note the client. nginx plays
/// them: `rewrite` is that of the ingress of nginx.
#[test]
fn traefik_and_an_ingress_keep_or_remove_the_prefix() {
    assert!(block("http:").contains("PathPrefix(`/nsq`)"));
    let ingress = block("apiVersion: networking.k8s.io/v1");
    assert!(ingress.contains("path: /nsq") && ingress.contains("pathType: Prefix"));
    let (_nsqd, admin) = admin(&["--base-path=/nsq"]);
    let location = |rewrite: &str| {
        format!(
            "location ~ ^/nsq(/|$) {{ {rewrite} proxy_pass http://{}; proxy_set_header Host $http_host; \
             proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header X-Forwarded-Host $http_host; \
             proxy_set_header X-Forwarded-User \"\"; }}",
            admin.http
        )
    };
    for rewrite in ["", "rewrite ^/nsq(?:/(.*))?$ /$1 break;"] {
        let Some(nginx) = Nginx::start(&location(rewrite)) else {
            return;
        };
        nginx.check("/nsq");
        assert_eq!(nginx.open("/nsq"), "/nsq/", "without a slash");
    }
}

/// The page asked for its files at the root of the proxy.
#[test]
fn a_proxy_may_remove_a_prefix_that_nsqadmin_does_not_know() {
    let (_nsqd, admin) = admin(&[]);
    let blocks = block("location /nsq/ {");
    let blocks = blocks.replace("http://127.0.0.1:4171", &format!("http://{}/", admin.http));
    let Some(nginx) = Nginx::start(&blocks) else {
        return;
    };
    nginx.check("/nsq");
    drop(nginx);
    // A proxy that changes `Host`: the refusal says which values differ.
    let blocks = blocks.replace("proxy_set_header Host $http_host;", "");
    let nginx = Nginx::start(&blocks).expect("nginx is there");
    let own = format!("Origin: https://{NAME}");
    let refused = nginx.ask(
        "POST",
        "/nsq/api/topics/t/c",
        &[&own],
        r#"{"action":"pause"}"#,
    );
    let text = refused.expect_status(403).json()["message"].to_string();
    for part in [
        NAME,
        &admin.http.to_string(),
        "--allowed-origin",
        "X-Forwarded-Host",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// The flags of oauth2-proxy in the docs. By default, `X-Forwarded-User` is the number of the user at the issuer.
#[test]
fn oauth2_proxy_names_the_user_who_has_logged_in() {
    let (_nsqd, admin) = admin(&["--admin-user=carol@example.com"]);
    let command = block("oauth2-proxy --provider=oidc --client-id=nsqadmin \\");
    let (command, _) = command.split_once("\nnsqadmin ").expect("two commands");
    let flags: Vec<String> = command
        .split_whitespace()
        .filter(|word| word.starts_with("--"))
        .filter(|flag| !flag.contains("issuer") && !flag.contains("secret"))
        .map(|flag| flag.replace("http://127.0.0.1:4171", &format!("http://{}", admin.http)))
        .collect();
    assert!(flags.len() > 4, "{flags:?}");
    for (email, status) in [("carol@example.com", 200), ("dave@example.com", 403)] {
        let Some(proxy) = OAuth2Proxy::start(&flags, email) else {
            return;
        };
        let cookie = proxy.log_in();
        let own = format!("Origin: https://{NAME}");
        // The browser names another user, too.
        let headers = [&cookie, own.as_str(), "X-Forwarded-User: carol@example.com"];
        let settings = proxy.ask("GET", "/api/settings", &headers, "");
        assert_eq!(settings.expect_status(200).json()["user"], json!(email));
        let paused = proxy.ask("POST", "/api/topics/t/c", &headers, r#"{"action":"pause"}"#);
        assert_eq!(paused.status, status, "{email}: {}", paused.text());
        let stranger = proxy.ask("POST", "/api/topics/t/c", &headers[1..], "");
        assert_eq!(stranger.status, 302, "nobody has logged in");
    }
}
