//! nsqd and nsqlookupd for the tests of other programs: this workspace's binaries, on free ports of
//! 127.0.0.1.
//!
//! `cargo test --workspace` builds the binaries. A test of one crate needs them from an earlier
//! build: `cargo build -p nsqd -p nsqlookupd`. The variables `NSQD_BIN` and `NSQLOOKUPD_BIN` name
//! other programs, such as the originals.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::dead_port::DeadPort;
use crate::http::{Response, http};
use crate::process::Process;
pub use crate::process::{send_signal, wait_for_end};
use crate::{TIMEOUT, wait_until};

/// Returns the directory with the binaries of the workspace.
pub fn binary_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the system knows the path of this test");
    let directory = test.parent().and_then(Path::parent);
    directory
        .expect("a test lies in target/PROFILE/deps")
        .to_path_buf()
}

/// A running nsqd or nsqlookupd.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    args: Vec<String>,
    process: Process,
    /// The address of the protocol.
    pub tcp: SocketAddr,
    /// The address of HTTP.
    pub http: SocketAddr,
    /// The addresses of a process that has ended.
    kept: Vec<DeadPort>,
    // This field comes last, so the directory is removed after the drop of `process` has killed the process.
    data_path: Option<tempfile::TempDir>,
}

impl Deref for Daemon {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Daemon {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Daemon {
    /// Starts an nsqd with a fresh data path and these flags. It broadcasts 127.0.0.1. Panics with
    /// its log if it does not listen.
    pub fn nsqd(args: &[&str]) -> Daemon {
        let data_path = tempfile::Builder::new()
            .prefix("nsqd-test-")
            .tempdir()
            .expect("a temporary directory can be made");
        let mut all = vec![format!("--data-path={}", data_path.path().display())];
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        Daemon::start("nsqd", "NSQD_BIN", all, Some(data_path))
    }

    /// Starts an nsqd as [`Daemon::nsqd`] does, which registers with these nsqlookupds. Waits until it knows them.
    /// Before that, a new topic waits with its messages for the channels that an nsqlookupd may name. A restart does not
    /// wait. Panics with its log if nsqd does not know them.
    pub fn nsqd_at(lookupds: &[&Daemon], args: &[&str]) -> Daemon {
        let flags: Vec<String> = lookupds
            .iter()
            .map(|lookupd| format!("--lookupd-tcp-address={}", lookupd.tcp))
            .collect();
        let flags: Vec<&str> = flags
            .iter()
            .map(String::as_str)
            .chain(args.iter().copied())
            .collect();
        let nsqd = Daemon::nsqd(&flags);
        for lookupd in lookupds {
            nsqd.wait_for_log(&format!("LOOKUPD({}): peer info", lookupd.tcp));
        }
        nsqd
    }

    /// Starts an nsqlookupd with these flags. Panics with its log if it does not listen.
    pub fn nsqlookupd(args: &[&str]) -> Daemon {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Daemon::start("nsqlookupd", "NSQLOOKUPD_BIN", args, None)
    }

    fn start(
        name: &'static str,
        variable: &str,
        args: Vec<String>,
        data_path: Option<tempfile::TempDir>,
    ) -> Daemon {
        let program = match std::env::var_os(variable) {
            Some(path) => PathBuf::from(path),
            None => binary_directory().join(name),
        };
        assert!(
            program.exists(),
            "{program:?} is missing: run `cargo build -p nsqd -p nsqlookupd`"
        );
        let (process, tcp, http) = launch(&program, &args, ["127.0.0.1:0"; 2]);
        Daemon {
            program,
            args,
            process,
            tcp,
            http,
            kept: Vec::new(),
            data_path,
        }
    }

    /// Kills the process if it still runs, and starts another one at the same addresses with the
    /// same data path.
    pub fn restart(&mut self) {
        self.kill();
        let ports = [self.tcp.to_string(), self.http.to_string()];
        (self.process, _, _) = launch(&self.program, &self.args, [&ports[0], &ports[1]]);
        self.kept.clear();
    }

    /// Kills the process, and waits for its end. Connections to its addresses are refused until a restart.
    pub fn kill(&mut self) {
        self.process.kill();
        if self.kept.is_empty() {
            let addresses = [self.tcp, self.http].into_iter();
            let kept = addresses.filter_map(|address| {
                let kept = DeadPort::bind_to(address);
                kept.inspect_err(|error| eprintln!("{address} is not kept for a restart: {error}"))
                    .ok()
            });
            self.kept = kept.collect();
        }
    }

    /// Returns the directory of an nsqd's files.
    pub fn data_path(&self) -> &Path {
        let data_path = self.data_path.as_ref();
        data_path.expect("an nsqlookupd has no files").path()
    }

    /// Sends a GET. Panics only if there is no HTTP answer.
    pub fn get(&self, target: &str) -> Response {
        http(self.http, "GET", target, b"")
    }

    /// Sends a POST. Panics only if there is no HTTP answer.
    pub fn post(&self, target: &str, body: &[u8]) -> Response {
        http(self.http, "POST", target, body)
    }

    /// Publishes messages over HTTP.
    pub fn publish(&self, topic: &str, bodies: &[impl AsRef<[u8]>]) {
        let target = format!("/pub?topic={topic}");
        for body in bodies {
            self.post(&target, body.as_ref()).expect_status(200);
        }
    }

    /// Returns the nsqd with a further channel, which has these messages.
    #[must_use]
    pub fn with_messages(self, topic: &str, channel: &str, bodies: &[impl AsRef<[u8]>]) -> Daemon {
        self.create_channel(topic, channel);
        self.publish(topic, bodies);
        self
    }

    /// Creates a channel over HTTP, with its topic.
    pub fn create_channel(&self, topic: &str, channel: &str) {
        let target = format!("/topic/create?topic={topic}");
        self.post(&target, b"").expect_status(200);
        let target = format!("/channel/create?topic={topic}&channel={channel}");
        self.post(&target, b"").expect_status(200);
    }

    /// Returns the object of a channel in nsqd's `/stats`, or `None` if there is no such channel.
    pub fn channel(&self, topic: &str, channel: &str) -> Option<serde_json::Value> {
        let target = format!("/stats?format=json&topic={topic}&channel={channel}");
        let stats = self.get(&target).expect_status(200).json();
        let found = stats["topics"].as_array()?.first()?["channels"].get(0)?;
        Some(found.clone())
    }

    /// Waits until a figure of a channel has this value. Panics with the channel if it does not.
    pub fn wait_for_figure(&self, topic: &str, channel: &str, figure: &str, value: i64) {
        let mut last = None;
        let reached = wait_until(TIMEOUT, || {
            last = self.channel(topic, channel);
            last.as_ref()
                .is_some_and(|channel| channel[figure] == value)
        });
        assert!(
            reached,
            "{figure} of {topic}/{channel} is not {value}: {last:?}"
        );
    }

    /// Waits until this nsqlookupd names so many nsqds of a topic. Panics with its last answer if it does not.
    pub fn wait_for_producers(&self, topic: &str, count: usize) {
        let target = format!("/lookup?topic={topic}");
        let mut last = String::new();
        let reached = wait_until(TIMEOUT, || {
            last = self.get(&target).text();
            last.matches("\"http_port\"").count() == count
        });
        assert!(reached, "{count} nsqds are expected: {last}");
    }

    /// Returns a figure of a channel. Panics if there is no such channel.
    pub fn figure(&self, topic: &str, channel: &str, figure: &str) -> i64 {
        let channel = self.channel(topic, channel).expect("the channel exists");
        channel[figure].as_i64().expect("a figure is a number")
    }

    /// Waits until each message of a channel is finished. Panics with the channel if that does not happen.
    pub fn wait_for_answers(&self, topic: &str, channel: &str) {
        let mut last = None;
        let is_done = wait_until(TIMEOUT, || {
            last = self.channel(topic, channel);
            // All figures of one answer: a message that comes back goes from one to another.
            let figures = ["depth", "deferred_count", "in_flight_count"];
            last.as_ref()
                .is_some_and(|channel| figures.iter().all(|figure| channel[*figure] == 0))
        });
        assert!(is_done, "{topic}/{channel} has messages: {last:?}");
    }
}

/// Starts a daemon, and returns the process with its addresses of the protocol and of HTTP.
fn launch(
    program: &Path,
    args: &[String],
    [tcp, http]: [&str; 2],
) -> (Process, SocketAddr, SocketAddr) {
    let process = Process::start(
        Command::new(program)
            .arg(format!("--tcp-address={tcp}"))
            .arg(format!("--http-address={http}"))
            .arg("--broadcast-address=127.0.0.1")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null()),
    );
    let address = |text| process.wait_for_address(text);
    let addresses = address(" TCP: listening on ").zip(address(" HTTP: listening on "));
    let Some((tcp, http)) = addresses else {
        panic!("{program:?} did not start");
    };
    (process, tcp, http)
}
