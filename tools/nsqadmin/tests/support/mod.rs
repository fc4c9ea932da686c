//! The tools of the tests over real sockets: the real binary as a child process.

#![allow(unreachable_pub)]

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use test_support::daemon::Daemon;
use test_support::http::{Response, http_with_headers};
use test_support::process::{Exit, Process, run};
use test_support::{TIMEOUT, wait_until};

/// Runs the program under test with exactly these arguments and waits for its end.
pub fn run_nsqadmin(args: &[&str]) -> Exit {
    run(Command::new(path()).args(args), TIMEOUT)
}

/// Returns the path of the program under test.
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_nsqadmin"))
}

/// Returns a cluster with the topic `clicks`, its channel `a`, and a message, on each of `count`
/// nsqds.
pub fn cluster(lookupds: &[&Daemon], count: usize) -> Vec<Daemon> {
    let nsqds: Vec<Daemon> = (0..count).map(|_| Daemon::nsqd_at(lookupds, &[])).collect();
    for nsqd in &nsqds {
        nsqd.create_channel("clicks", "a");
        nsqd.publish("clicks", &["x"]);
        nsqd.wait_for_figure("clicks", "a", "depth", 1);
    }
    nsqds
}

/// A file for `--audit-log-file`.
pub struct AuditLog(TempDir);

impl Default for AuditLog {
    fn default() -> AuditLog {
        AuditLog(tempfile::tempdir().expect("a temporary directory can be made"))
    }
}

impl AuditLog {
    /// Returns the flag that names the file.
    pub fn flag(&self) -> String {
        format!("--audit-log-file={}", self.path().display())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("audit.log")
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        std::fs::read_to_string(self.path()).expect("nsqadmin makes the file at its start")
    }

    /// Returns the lines.
    pub fn lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).expect("JSON");
        self.text().lines().map(parse).collect()
    }

    /// Returns the last line.
    pub fn last(&self) -> Value {
        self.lines().pop().expect("a line")
    }
}

/// Creates a topic that no nsqd has.
pub fn create_topic(lookupd: &Daemon, topic: &str) {
    let target = format!("/topic/create?topic={topic}");
    lookupd.post(&target, b"").expect_status(200);
}

/// Checks that the body of an answer has a text.
pub fn assert_text(answer: &Response, text: &str) {
    let body = answer.text();
    assert!(body.contains(text), "{body}");
}

/// Checks that a JSON object has these fields with these values, whatever else it has.
pub fn assert_has(found: &Value, expected: &Value) {
    for (key, value) in expected.as_object().expect("an object") {
        assert_eq!(&found[key], value, "{key} of {found}");
    }
}

/// Flags of an nsqadmin that waits longer for its servers than by default, because they may wait for a busy disk. A test of
/// deadlines names its own behind them, which count.
pub const PATIENT: [&str; 2] = [
    "--http-client-connect-timeout=30s",
    "--http-client-request-timeout=30s",
];

/// A running nsqadmin on a free port of 127.0.0.1.
pub struct Admin {
    process: Process,
    pub http: SocketAddr,
}

impl Deref for Admin {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Admin {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Admin {
    /// Starts the program under test, with [`PATIENT`].
    pub fn start(args: &[&str]) -> Admin {
        let args = PATIENT.iter().chain(args);
        let args: Vec<String> = args.map(|arg| (*arg).to_owned()).collect();
        match Admin::try_start(&args, None) {
            Ok(admin) => admin,
            Err(stderr) => panic!("no start: {stderr}"),
        }
    }

    /// Starts the program under test, which asks these nsqlookupds.
    pub fn start_at(lookupds: &[&Daemon], args: &[&str]) -> Admin {
        let addresses = lookupds.iter().map(|lookupd| lookupd.http);
        Admin::start_with("lookupd-http-address", addresses, args)
    }

    /// Starts the program under test, which asks these nsqds, and no nsqlookupds.
    pub fn start_direct(nsqds: impl IntoIterator<Item = SocketAddr>, args: &[&str]) -> Admin {
        Admin::start_with("nsqd-http-address", nsqds, args)
    }

    /// Starts the program under test, whose only nsqd is not there, without live figures.
    pub fn start_alone(args: &[&str]) -> Admin {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        Admin::start_direct([nobody], &[&["--live-interval=0"], args].concat())
    }

    fn start_with(
        flag: &str,
        addresses: impl IntoIterator<Item = SocketAddr>,
        args: &[&str],
    ) -> Admin {
        let addresses = addresses.into_iter();
        let flags: Vec<String> = addresses.map(|it| format!("--{flag}={it}")).collect();
        let flags = flags.iter().map(String::as_str);
        Admin::start(&flags.chain(args.iter().copied()).collect::<Vec<_>>())
    }

    /// Starts the program under test, or another. The error is its standard error.
    pub fn try_start(args: &[String], program: Option<&Path>) -> Result<Admin, String> {
        let process = Process::start(
            Command::new(program.map_or_else(path, Path::to_path_buf))
                .arg("--http-address=127.0.0.1:0")
                .args(args)
                .stdin(Stdio::null())
                .stdout(Stdio::null()),
        );
        match process.wait_for_address(" HTTP: listening on ") {
            Some(http) => Ok(Admin { process, http }),
            None => Err(process.log()),
        }
    }

    /// Returns the URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    /// Opens a connection that has sent these bytes.
    pub fn connect(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.http).expect("nsqadmin listens");
        let timeout = stream.set_read_timeout(Some(TIMEOUT));
        timeout.expect("a socket has a timeout");
        stream.write_all(bytes).expect("nsqadmin reads");
        stream
    }

    /// Sends a request.
    pub fn ask(&self, method: &str, target: &str, headers: &[&str], body: &str) -> Response {
        http_with_headers(self.http, method, target, headers, body.as_bytes())
    }

    /// Sends a GET.
    pub fn get(&self, target: &str) -> Response {
        self.ask("GET", target, &[], "")
    }

    /// Sends a GET, and returns the JSON of a success.
    pub fn json(&self, target: &str) -> Value {
        self.get(target).expect_status(200).json()
    }

    /// Sends a GET that has this error as its answer.
    pub fn get_error(&self, target: &str, status: u16, code: &str) {
        self.get(target).expect_error(status, code);
    }

    /// Sends a POST.
    pub fn post(&self, target: &str, body: &str) -> Response {
        self.ask("POST", target, &[], body)
    }

    /// Sends a POST, and returns the JSON of a success.
    pub fn posted(&self, target: &str, body: &str) -> Value {
        self.post(target, body).expect_status(200).json()
    }

    /// Sends an order on all that match, and then the order with the token of its list.
    pub fn order(&self, headers: &[&str], mut order: Value) -> Response {
        let send = |order: &Value| self.ask("POST", "/api/acts", headers, &order.to_string());
        let listing = send(&order).expect_status(200).json();
        order["confirm"] = listing["confirm"].as_str().expect("a token").into();
        send(&order)
    }

    /// Sends a DELETE.
    pub fn delete(&self, target: &str, body: &str) -> Response {
        self.ask("DELETE", target, &[], body)
    }

    /// Waits until the JSON at `target` is as wanted. Panics with the last answer if it does not
    /// become so.
    pub fn wait_for(&self, target: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let reached = wait_until(TIMEOUT, || {
            let answer = self.get(target);
            let json = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
            let is_there = answer.status == 200 && is_wanted(&json);
            last = Some(json);
            is_there
        });
        let last = last.unwrap_or_default();
        assert!(reached, "{target} is not as wanted: {last}");
        last
    }
}
