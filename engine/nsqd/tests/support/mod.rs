//! The tools of every integration test of the broker: the real binary as a child process, a
//! blocking client for raw frames, a small HTTP client, and figures from `/proc`.
//!
//!     let broker = Broker::start(2, &["--mem-queue-size=100"]);
//!     let mut client = Client::connect(broker.tcp_addr());
//!     client.subscribe("topic", "channel");
//!     client.ready(1);
//!     broker.post("/pub?topic=topic", b"hello").expect_status(200);
//!     let message = client.message();
//!     client.finish(&message.id);
//!
//! Helpers panic with a full sentence when the broker does something unexpected, so a test reads as
//! a list of expectations. Variants that start with `try_` return the error instead.
//!
//! The binary is the one that Cargo built, unless the environment variable `NSQD_BIN` names another
//! one. `NSQD_BIN_IS_STANDIN=1` says that this other broker does not know `--shards`, so that the
//! flag is omitted.

// The test `idle` has this module for itself, and uses a part of it.
#![allow(dead_code, unreachable_pub, unused_imports)]

mod broker;
mod certificates;
mod client;
mod dns;
mod install;
mod namespace;
pub mod peeks;
mod process;
mod random;
mod sandbox;
mod server;
mod statsd;
mod transport;

pub use broker::{Broker, Confinement, Exit, Launch, PATIENT, io_args, nsqd_path, run, run_nsqd};
pub use certificates::Certificates;
pub use client::{Client, Frame, FrameType, Message, MessageId, is_timeout};
pub use dns::Dns;
pub use install::{go_program, has_python, node_program, python_program};
pub use namespace::with_own_network;
pub use process::{cpu_percent, cpu_time, descriptors, first_core, open_files, rss, tcp_state};
pub use random::Random;
pub use sandbox::{
    CONTAINERS_DENY, IO_URING, IoUringSwitch, LoopExt4, answer_io_uring_with, contents,
    has_io_uring, is_root, kernel, limited, without_privileges,
};
pub use server::{Lookupd, Manner, serve_http, serve_https};
pub use statsd::Statsd;
pub use test_support::http::{Response, http, http_with_headers, parse as parse_http, try_http};
pub use test_support::http_server::{Answer, HttpServer, Received};
pub use test_support::skip::{kernel_lacks, not_tested};
pub use test_support::tmpfs::Tmpfs;
pub use test_support::{TIMEOUT, assert_like, rows, wait_until};
pub use transport::Upgrade;

use std::path::PathBuf;

use parking_lot::{Mutex, MutexGuard};

/// Returns the lock of the tests that load the whole machine, so that the threads of one test
/// binary run these tests one after the other. `tools/test` runs three test binaries at the same time.
pub fn whole_machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock()
}

/// Returns a number from the environment, in decimal with optional `_`, or `default`.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Err(_) => default,
        Ok(text) => match text.replace('_', "").parse() {
            Ok(number) => number,
            Err(_) => panic!("{name}={text} is not a decimal number"),
        },
    }
}

/// Returns true if `program` can be run. Otherwise prints a notice and returns false, so that the
/// test can end without failing. With `CI` set, fails instead.
pub fn is_installed(program: &str, how_to_install: &str) -> bool {
    let found = std::process::Command::new(program).arg("--help").output();
    match found {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        _ => return true,
    }
    not_tested(&format!(
        "{program} is missing. Install it: {how_to_install}"
    ));
    false
}

/// Returns `target/interop`, in which tests keep installed and built files from run to run.
pub fn interop_dir() -> PathBuf {
    // CARGO_TARGET_TMPDIR is `target/tmp`, and Cargo sets it for integration tests only.
    let tmp = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = tmp.parent().expect("target/tmp has a parent").to_path_buf();
    target.join("interop")
}
