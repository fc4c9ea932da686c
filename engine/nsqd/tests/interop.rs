//! Runs popular, unchanged client libraries against the broker. Each plays one scenario (see
//! `interop/python/scenario.py`) with brokers of 1, 2 and 5 shards, and with each of its upgrades.
//!
//! The libraries come from their package registries, at pinned versions, into `target/interop`. The
//! test installs them once per version of a manifest. The machine needs python3 with venv, node
//! with npm, and go. If a test's runtime is missing, the test names the runtime and is skipped, or
//! fails if `CI` is set.
//!
//! To run one library: `cargo test --release -p nsqd --test nsqd interop::pynsq -- --nocapture`

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::{Broker, Certificates, go_program, node_program, python_program, run};

/// The number of messages of each run: enough for four of each kind of the plan's rare answers.
const MESSAGES: usize = 20_000;

/// The message timeout of clients that cannot ask for one. The scenarios use the same number.
const MSG_TIMEOUT_FLAG: &str = "--msg-timeout=30s";

/// The longest wait for a scenario, which gives up by itself after 300 s.
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(400);

/// A client library.
struct Library {
    /// Installs the client. Returns the command that runs it, or None if a runtime is missing.
    command: fn() -> Option<Command>,
    /// The compressions that work.
    compressions: &'static [&'static str],
}

/// pynsq's snappy stops after the first answer, both with nsqd and with ringq.
const PYNSQ: Library = Library {
    command: || python_program("pynsq_client.py"),
    compressions: &["deflate"],
};

const GNSQ: Library = Library {
    command: || python_program("gnsq_client.py"),
    compressions: &["snappy", "deflate"],
};

/// The snappy of nsqjs is an optional native part, which is not installed.
const NSQJS: Library = Library {
    command: || node_program("nsqjs_client.js"),
    compressions: &["deflate"],
};

const GO_NSQ: Library = Library {
    command: || go_program("go", "1.21"),
    compressions: &["snappy", "deflate"],
};

/// A way to use a broker.
#[derive(Clone, Copy, Debug)]
struct Way {
    shards: usize,
    is_secure: bool,
    compression: Option<&'static str>,
}

fn plain(shards: usize) -> Way {
    Way {
        shards,
        is_secure: false,
        compression: None,
    }
}

/// Runs the scenario in all these ways at the same time, because most of it waits for timeouts. Each has its own broker.
fn check(library: &Library, ways: &[Way]) {
    thread::scope(|scope| {
        for way in ways {
            if let Some(command) = (library.command)() {
                scope.spawn(|| check_way(command, *way));
            }
        }
    });
}

fn check_way(mut command: Command, way: Way) {
    let certificates = Certificates::new();
    let broker = if way.is_secure {
        certificates.broker(way.shards, &[MSG_TIMEOUT_FLAG])
    } else {
        Broker::start(way.shards, &[MSG_TIMEOUT_FLAG])
    };
    if way.is_secure {
        command.args(["--tls-ca", &certificates.text("ca.pem")]);
    }
    if let Some(compression) = way.compression {
        command.args(["--compression", compression]);
    }
    command
        .args(["--tcp", &broker.tcp_addr().to_string()])
        .args(["--http", &broker.http_addr().to_string()])
        .args(["--messages", &MESSAGES.to_string()])
        .args(["--topic", "interop"]);
    let exit = run(&mut command, SCENARIO_TIMEOUT);
    assert!(exit.status.success(), "{way:?}: {exit}");
    eprintln!("{way:?}: {}", exit.stdout.trim_end());
    // The upgraded connections are two consumers of each channel, and the producers of every
    // library except gnsq.
    let log = broker.log();
    for upgrade in way
        .is_secure
        .then_some("TLS")
        .into_iter()
        .chain(way.compression)
    {
        let line = format!("upgrading connection to {upgrade}");
        assert!(log.matches(&line).count() >= 4, "{way:?}: {upgrade}");
    }
}

/// The ways that are tried on every engine: without upgrades, and with all upgrades together.
fn check_2_shards(library: &Library) {
    let upgraded = Way {
        is_secure: true,
        compression: library.compressions.first().copied(),
        ..plain(2)
    };
    check(library, &[plain(2), upgraded]);
}

/// The other numbers of shards, and the other upgrades.
fn check_other_ways(library: &Library) {
    let mut ways = vec![plain(1), plain(5)];
    let mut add = |is_secure, compression| {
        ways.push(Way {
            is_secure,
            compression,
            ..plain(2)
        });
    };
    add(true, None);
    let (first, others) = library.compressions.split_first().expect("each has some");
    add(false, Some(*first));
    for compression in others {
        add(false, Some(*compression));
        add(true, Some(*compression));
    }
    check(library, &ways);
}

#[test]
fn pynsq_2_shards() {
    check_2_shards(&PYNSQ);
}

#[test]
fn pynsq_other_ways() {
    check_other_ways(&PYNSQ);
}

#[test]
fn gnsq_2_shards() {
    check_2_shards(&GNSQ);
}

#[test]
fn gnsq_other_ways() {
    check_other_ways(&GNSQ);
}

#[test]
fn nsqjs_2_shards() {
    check_2_shards(&NSQJS);
}

#[test]
fn nsqjs_other_ways() {
    check_other_ways(&NSQJS);
}

#[test]
fn go_nsq_2_shards() {
    check_2_shards(&GO_NSQ);
}

#[test]
fn go_nsq_other_ways() {
    check_other_ways(&GO_NSQ);
}
