//! Runs popular, unchanged client libraries against the broker. Each plays one scenario (see
//! `interop/python/scenario.py`) with a broker of 1, 2 and 5 shards.
//!
//! The libraries come from their package registries, at pinned versions, into `target/interop`. The
//! test installs them once per version of a manifest. The machine needs python3 with venv, node
//! with npm, and go. If a test's runtime is missing, the test names the runtime and is skipped, or
//! fails if `CI` is set.
//!
//! To run one library: `cargo test --release -p nsqd --test nsqd interop::pynsq -- --nocapture`

use std::process::Command;
use std::time::Duration;

use crate::support::{
    Broker, Certificates, go_program, node_program, python_program, run, whole_machine,
};

/// The number of messages per library and number of shards.
const MESSAGES: usize = 100_000;

/// The number of messages per library and number of shards over upgraded connections.
const MESSAGES_UPGRADED: usize = 20_000;

/// The message timeout of clients that cannot ask for one. The scenarios use the same number.
const MSG_TIMEOUT_FLAG: &str = "--msg-timeout=15s";

/// The longest wait for a scenario, which gives up by itself after 300 s.
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(350);

/// Installs a client. Returns the command that runs it, or None if a runtime is missing.
type Client = fn() -> Option<Command>;

fn check(client: Client, shards: usize) {
    let _machine = whole_machine();
    if let Some(command) = client() {
        let broker = Broker::start(shards, &[MSG_TIMEOUT_FLAG]);
        check_with(command, &broker, MESSAGES, &format!("{shards} shards"));
    }
}

/// Runs the scenario over upgraded connections, with every upgrade of the library.
fn check_upgraded(client: Client, compressions: &[&str]) {
    let _machine = whole_machine();
    let certificates = Certificates::new();
    let compressions = compressions.iter().copied().map(Some);
    let ways = [None]
        .into_iter()
        .chain(compressions)
        .flat_map(|way| [(false, way), (true, way)]);
    for (is_secure, compression) in ways.skip(1) {
        let Some(mut command) = client() else {
            return;
        };
        let broker = certificates.broker(2, &[MSG_TIMEOUT_FLAG]);
        if is_secure {
            command.args(["--tls-ca", &certificates.text("ca.pem")]);
        }
        if let Some(compression) = compression {
            command.args(["--compression", compression]);
        }
        let name = format!(
            "TLS {is_secure}, {}",
            compression.unwrap_or("no compression")
        );
        check_with(command, &broker, MESSAGES_UPGRADED, &name);
        // The upgraded connections are two consumers of each channel, and the producers of every
        // library except gnsq.
        let log = broker.log();
        let upgrades = |to: &str| {
            log.matches(&format!("upgrading connection to {to}"))
                .count()
        };
        assert!(!is_secure || upgrades("TLS") >= 4, "{name}");
        assert!(
            compression.is_none_or(|compression| upgrades(compression) >= 4),
            "{name}"
        );
    }
}

fn check_with(mut command: Command, broker: &Broker, messages: usize, name: &str) {
    command
        .args(["--tcp", &broker.tcp_addr().to_string()])
        .args(["--http", &broker.http_addr().to_string()])
        .args(["--messages", &messages.to_string()])
        .args(["--topic", "interop"]);
    let exit = run(&mut command, SCENARIO_TIMEOUT);
    assert!(exit.status.success(), "{name}: {exit}");
    eprintln!("{name}: {}", exit.stdout.trim_end());
}

/// pynsq's snappy stops after the first answer, both with nsqd and with ringq.
#[test]
fn pynsq_upgraded() {
    check_upgraded(pynsq, &["deflate"]);
}

#[test]
fn gnsq_upgraded() {
    check_upgraded(gnsq, &["snappy", "deflate"]);
}

/// The snappy of nsqjs is an optional native part, which is not installed.
#[test]
fn nsqjs_upgraded() {
    check_upgraded(nsqjs, &["deflate"]);
}

#[test]
fn go_nsq_upgraded() {
    check_upgraded(go_nsq, &["snappy", "deflate"]);
}

#[test]
fn pynsq_1_shard() {
    check(pynsq, 1);
}

#[test]
fn pynsq_2_shards() {
    check(pynsq, 2);
}

#[test]
fn pynsq_5_shards() {
    check(pynsq, 5);
}

#[test]
fn gnsq_1_shard() {
    check(gnsq, 1);
}

#[test]
fn gnsq_2_shards() {
    check(gnsq, 2);
}

#[test]
fn gnsq_5_shards() {
    check(gnsq, 5);
}

#[test]
fn nsqjs_1_shard() {
    check(nsqjs, 1);
}

#[test]
fn nsqjs_2_shards() {
    check(nsqjs, 2);
}

#[test]
fn nsqjs_5_shards() {
    check(nsqjs, 5);
}

#[test]
fn go_nsq_1_shard() {
    check(go_nsq, 1);
}

#[test]
fn go_nsq_2_shards() {
    check(go_nsq, 2);
}

#[test]
fn go_nsq_5_shards() {
    check(go_nsq, 5);
}

fn pynsq() -> Option<Command> {
    python_program("pynsq_client.py")
}

fn gnsq() -> Option<Command> {
    python_program("gnsq_client.py")
}

fn nsqjs() -> Option<Command> {
    node_program("nsqjs_client.js")
}

fn go_nsq() -> Option<Command> {
    go_program("go", "1.21")
}
