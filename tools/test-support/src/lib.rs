//! The parts that tests of several programs share: an HTTP client, processes and their output,
//! running daemons, a proxy that cuts connections, the parser of Prometheus, packages of other ecosystems, small file systems, and the differential tests
//! against the originals. No program depends on it. What only one crate's tests need stays in that crate.

#![forbid(unsafe_code)]

pub mod cutting_proxy;
pub mod daemon;
pub mod dead_port;
pub mod differential;
pub mod ext4;
pub mod held_sockets;
pub mod http;
pub mod http_server;
pub mod memcached;
pub mod original_nsqd;
pub mod packages;
pub mod process;
pub mod prometheus;
pub mod skip;
pub mod tmpfs;

use std::time::{Duration, Instant};

/// The longest wait, on a busy machine, for an event that normally takes milliseconds. A longer
/// wait is a failure.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Calls `done` every 20 ms until it returns true. Returns false if `timeout` ends first.
pub fn wait_until(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
