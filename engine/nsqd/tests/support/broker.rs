//! The broker as a child process: starts it, reads its ports from its log, stops, kills and
//! restarts it.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use test_support::http::{Response, http};
pub use test_support::process::{Exit, run};
use test_support::process::{Process, address_in};

use super::sandbox::{
    answer_io_uring_with, confine_like_container, deny_receive_buffers, hear_hangups, permit_only,
};
use super::{Client, TIMEOUT, wait_until};

/// Flags of a broker that waits longer for HTTP servers than by default, because they may wait for a busy machine.
pub const PATIENT: [&str; 2] = [
    "--http-client-connect-timeout=60s",
    "--http-client-request-timeout=60s",
];

/// Returns the path of the broker under test.
pub fn nsqd_path() -> PathBuf {
    match (
        std::env::var_os("NSQD_BIN"),
        option_env!("CARGO_BIN_EXE_nsqd"),
    ) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(path)) => PathBuf::from(path),
        (None, None) => panic!("no broker to test: set NSQD_BIN"),
    }
}

/// Returns true when the broker under test has no `--shards`.
fn is_standin() -> bool {
    std::env::var("NSQD_BIN_IS_STANDIN").is_ok_and(|value| value == "1")
}

/// The seccomp filter of a broker.
#[derive(Clone, Copy, Debug)]
pub enum Confinement {
    /// There is no filter.
    None,
    /// The calls of io_uring fail with this error number.
    NoIoUring(i32),
    /// A ring gets no receive buffers, so it does not receive, as on many kernels.
    NoReceiving,
    /// The filter is like the default of container runtimes.
    LikeContainer,
    /// The filter permits only these calls.
    PermitOnly(&'static [i64]),
}

impl Confinement {
    /// Returns the filter for every broker of a run: `RINGQ_TEST_CONFINED=1` confines them like
    /// containers, and with `RINGQ_TEST_CONFINED=recv` their rings do not receive.
    pub fn of_this_run() -> Confinement {
        match std::env::var("RINGQ_TEST_CONFINED").as_deref() {
            Ok("1") => Confinement::LikeContainer,
            Ok("recv") => Confinement::NoReceiving,
            _ => Confinement::None,
        }
    }
}

/// Returns the flag for the engine in `RINGQ_TEST_IO`, which every broker of this run uses. Without
/// the variable, the broker chooses.
pub fn io_args() -> Option<String> {
    let engine = std::env::var("RINGQ_TEST_IO").ok()?;
    Some(format!("--io={engine}"))
}

/// The settings of a start. `Broker::start` covers the usual case.
///
///     let broker = Launch::new(2, &[]).at(fixture).start();
#[derive(Clone, Debug)]
pub struct Launch {
    /// The value of `--shards`.
    pub shards: usize,
    /// Further flags, which come after the flags from this struct.
    pub extra_args: Vec<String>,
    /// The data path, which is kept after the test. `None` stands for a new directory that is
    /// removed with the `Broker`.
    pub data_path: Option<PathBuf>,
    /// `--tcp-address`. The system chooses the port for port 0.
    pub tcp_address: String,
    /// `--http-address`. The system chooses the port for port 0.
    pub http_address: String,
    /// A program that becomes the broker, and its arguments: `["prlimit", "--nofile=100"]`. The
    /// program must exec, so that its process id is the broker's. An empty list means no program.
    pub via: Vec<String>,
    /// The calls that the system denies the broker.
    pub confinement: Confinement,
    /// A broker to start instead of the one under test. It gets no `--shards`.
    pub program: Option<PathBuf>,
}

impl Launch {
    pub fn new(shards: usize, extra_args: &[&str]) -> Launch {
        Launch {
            shards,
            extra_args: extra_args.iter().map(|arg| (*arg).to_owned()).collect(),
            data_path: None,
            tcp_address: "127.0.0.1:0".to_owned(),
            http_address: "127.0.0.1:0".to_owned(),
            via: Vec::new(),
            confinement: Confinement::of_this_run(),
            program: None,
        }
    }

    /// Keeps the data in this directory, also after the test.
    pub fn at(mut self, data_path: impl Into<PathBuf>) -> Launch {
        self.data_path = Some(data_path.into());
        self
    }

    /// Sets both addresses.
    pub fn on(mut self, tcp_address: &str, http_address: &str) -> Launch {
        self.tcp_address = tcp_address.to_owned();
        self.http_address = http_address.to_owned();
        self
    }

    /// Starts a program that becomes the broker.
    pub fn via(mut self, program: Vec<String>) -> Launch {
        self.via = program;
        self
    }

    /// Sets the seccomp filter.
    pub fn confined(mut self, confinement: Confinement) -> Launch {
        self.confinement = confinement;
        self
    }

    /// Starts the broker and waits until it listens. Panics with its log if it does not.
    pub fn start(self) -> Broker {
        match self.try_start() {
            Ok(broker) => broker,
            Err(exit) => panic!("the broker did not start: {exit}"),
        }
    }

    /// Starts the broker and waits until it listens. Returns `Err` if it exits before.
    pub fn try_start(self) -> Result<Broker, Exit> {
        let scratch = match self.data_path {
            Some(_) => None,
            None => Some(
                tempfile::Builder::new()
                    .prefix("nsqd-test-")
                    .tempdir()
                    .expect("a temporary directory can be made"),
            ),
        };
        let data_path = match (&self.data_path, &scratch) {
            (Some(path), _) => path.clone(),
            (None, Some(scratch)) => scratch.path().to_path_buf(),
            (None, None) => unreachable!("one of the two exists by construction"),
        };
        let (process, [tcp_addr, http_addr]) = self.spawn(&data_path)?;
        Ok(Broker {
            launch: self,
            process,
            tcp_addr,
            http_addr,
            data_path,
            _scratch: scratch,
        })
    }

    /// Starts the process, and returns it with its addresses. `None` stands for a unix socket.
    fn spawn(&self, data_path: &Path) -> Result<(Process, [Option<SocketAddr>; 2]), Exit> {
        let mut command = self.command(data_path);
        hear_hangups(&mut command);
        let mut process = Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()));
        let lines = ["TCP: listening on ", " HTTP: listening on "];
        if let [Some(tcp), Some(http)] = lines.map(|text| process.line_with(text)) {
            return Ok((process, [address_in(&tcp), address_in(&http)]));
        }
        Err(Exit {
            status: process.wait(),
            stdout: String::new(),
            stderr: process.log(),
        })
    }

    fn command(&self, data_path: &Path) -> Command {
        let broker = self.program.clone().unwrap_or_else(nsqd_path);
        let mut command = match self.via.split_first() {
            None => Command::new(broker),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(broker);
                command
            }
        };
        command
            .arg(format!("--tcp-address={}", self.tcp_address))
            .arg(format!("--http-address={}", self.http_address))
            .arg(format!("--data-path={}", data_path.display()));
        if !is_standin() && self.program.is_none() {
            command.arg(format!("--shards={}", self.shards));
            command.args(io_args());
        }
        match self.confinement {
            Confinement::None => {}
            Confinement::NoIoUring(errno) => answer_io_uring_with(&mut command, errno),
            Confinement::NoReceiving => deny_receive_buffers(&mut command),
            Confinement::LikeContainer => confine_like_container(&mut command),
            Confinement::PermitOnly(calls) => permit_only(&mut command, calls),
        }
        command.args(&self.extra_args);
        command
    }
}

/// A running broker, or a broker that was just killed. A drop kills the process and removes its
/// data. If the test is failing, the drop prints the end of the broker's log first.
pub struct Broker {
    launch: Launch,
    process: Process,
    /// The address of the protocol. `None` stands for a unix socket.
    tcp_addr: Option<SocketAddr>,
    http_addr: Option<SocketAddr>,
    data_path: PathBuf,
    // This field comes after `process`, so the directory is removed when the process is gone.
    _scratch: Option<tempfile::TempDir>,
}

impl Deref for Broker {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Broker {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Broker {
    /// Starts a broker on free ports of 127.0.0.1 with a fresh data path, and waits until it
    /// listens.
    pub fn start(shards: usize, extra_args: &[&str]) -> Broker {
        Launch::new(shards, extra_args).start()
    }

    /// Starts the broker on a loopback address of its own. While it is down, nobody else gets its ports.
    pub fn start_on(host: &str, shards: usize, extra_args: &[&str]) -> Broker {
        let address = format!("{host}:0");
        Launch::new(shards, extra_args)
            .on(&address, &address)
            .start()
    }

    /// Returns the address of the protocol. Panics if it is a unix socket.
    pub fn tcp_addr(&self) -> SocketAddr {
        self.tcp_addr.expect("the broker listens on TCP")
    }

    /// Returns the address of HTTP. Panics if it is a unix socket.
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr.expect("the broker listens on TCP")
    }

    /// Returns the address of HTTPS, if the broker has one.
    pub fn https_addr(&self) -> SocketAddr {
        address_in(&self.wait_for_log("HTTPS: listening on ")).expect("it is over TCP")
    }

    pub fn data_path(&self) -> &Path {
        &self.data_path
    }

    /// Connects a client.
    pub fn client(&self) -> Client {
        Client::connect(self.tcp_addr())
    }

    /// Connects a consumer, which gets nothing before its RDY.
    pub fn subscribe(&self, topic: &str, channel: &str) -> Client {
        let mut client = self.client();
        client.subscribe(topic, channel);
        client
    }

    /// Connects a consumer with this RDY.
    pub fn consumer(&self, topic: &str, channel: &str, ready: u32) -> Client {
        let mut client = self.subscribe(topic, channel);
        client.ready(ready);
        client
    }

    /// Makes a topic and a channel.
    #[track_caller]
    pub fn create(&self, topic: &str, channel: &str) {
        let [topic, channel] = [topic, channel].map(|name| name.replace('#', "%23"));
        self.admin(&format!("/topic/create?topic={topic}"));
        self.admin(&format!("/channel/create?topic={topic}&channel={channel}"));
    }

    /// Sends a POST without a body, which must succeed.
    #[track_caller]
    pub fn admin(&self, target: &str) {
        self.post(target, b"").expect_status(200);
    }

    /// Sends a GET to the broker. Panics only if there is no HTTP answer.
    pub fn get(&self, target: &str) -> Response {
        http(self.http_addr(), "GET", target, b"")
    }

    /// Sends a POST to the broker. Panics only if there is no HTTP answer.
    pub fn post(&self, target: &str, body: &[u8]) -> Response {
        http(self.http_addr(), "POST", target, body)
    }

    /// Returns `/stats` as JSON, with clients and without memory figures.
    pub fn stats(&self) -> serde_json::Value {
        self.get("/stats?format=json&include_mem=false")
            .expect_status(200)
            .json()
    }

    /// Returns the object of one topic in `/stats`, if the topic exists.
    pub fn topic_stats(&self, topic: &str) -> Option<serde_json::Value> {
        let all = self.stats();
        let topics = all["topics"].as_array()?;
        topics
            .iter()
            .find(|value| value["topic_name"] == topic)
            .cloned()
    }

    /// Returns the object of one channel in `/stats`, if the channel exists.
    pub fn channel_stats(&self, topic: &str, channel: &str) -> Option<serde_json::Value> {
        let topic = self.topic_stats(topic)?;
        let channels = topic["channels"].as_array()?;
        channels
            .iter()
            .find(|value| value["channel_name"] == channel)
            .cloned()
    }

    /// Returns the object of a topic in `/stats`, which must be there.
    #[track_caller]
    pub fn topic(&self, topic: &str) -> serde_json::Value {
        let found = self.topic_stats(topic);
        found.unwrap_or_else(|| panic!("there is no topic {topic}"))
    }

    /// Returns the object of a channel in `/stats`, which must be there.
    #[track_caller]
    pub fn channel(&self, topic: &str, channel: &str) -> serde_json::Value {
        let found = self.channel_stats(topic, channel);
        found.unwrap_or_else(|| panic!("there is no channel {topic}/{channel}"))
    }

    /// Waits until figures of a channel in `/stats` have these values. Statistics may show a message some time after its
    /// publish.
    pub fn wait_for_channel(&self, topic: &str, channel: &str, figures: &[(&str, u64)]) {
        let mut last = serde_json::Value::Null;
        let is_right = wait_until(TIMEOUT, || {
            last = self.channel_stats(topic, channel).unwrap_or_default();
            figures.iter().all(|(key, value)| last[key] == *value)
        });
        assert!(is_right, "{figures:?} are expected: {last}");
    }

    /// Sends SIGKILL and waits until the process is gone. The data path stays for `restart`.
    pub fn kill9(&mut self) {
        self.kill();
        self.wait();
    }

    /// Sends SIGTERM without waiting.
    pub fn sigterm(&self) {
        self.signal("TERM");
    }

    /// Sends SIGTERM and waits for the end.
    pub fn sigterm_and_wait(&mut self) -> ExitStatus {
        self.sigterm();
        self.wait()
    }

    /// Starts again on the same data path with new ports. The process must have ended.
    pub fn restart(&mut self) {
        let launch = self.launch.clone();
        self.restart_as(launch);
    }

    /// Starts again on the same data path and the same ports. The process must have ended.
    pub fn restart_on_same_ports(&mut self) {
        let (tcp, http) = (self.tcp_addr().to_string(), self.http_addr().to_string());
        self.restart_as(self.launch.clone().on(&tcp, &http));
    }

    /// Starts again on the same data path, with other shards or flags.
    pub fn restart_with(&mut self, shards: usize, extra_args: &[&str]) {
        self.restart_as(Launch::new(shards, extra_args));
    }

    fn restart_as(&mut self, launch: Launch) {
        assert!(self.has_ended(), "restart: the broker is still running");
        match launch.spawn(&self.data_path) {
            Ok((process, [tcp_addr, http_addr])) => {
                (self.process, self.tcp_addr, self.http_addr) = (process, tcp_addr, http_addr);
            }
            Err(exit) => panic!("the broker did not start again: {exit}"),
        }
        self.launch = launch;
    }
}

/// Runs the broker with exactly these arguments and waits for its end: for `--version`, bad flags
/// and refused starts. If the broker still runs after `timeout`, it is killed and the test fails.
pub fn run_nsqd<S: AsRef<std::ffi::OsStr>>(args: &[S], timeout: Duration) -> Exit {
    run(Command::new(nsqd_path()).args(args), timeout)
}
