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
pub mod pages;
pub mod process;
pub mod prometheus;
pub mod skip;
#[cfg(feature = "tables")]
pub mod tables;
pub mod tmpfs;

use std::fmt::Display;
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

/// Checks that a text is like a pattern, in which `…` stands for any text, also for none: `begin…`, `…part…`,
/// `…part…part…end`.
///
/// # Panics
/// The text is different. The message has the whole text.
#[track_caller]
pub fn assert_like(text: impl Display, pattern: &str) {
    let text = text.to_string();
    let Some((parts, end)) = pattern.rsplit_once('…') else {
        return assert_eq!(text, pattern);
    };
    let mut rest = text.as_str();
    for (index, part) in parts.split('…').enumerate() {
        let behind = match index {
            0 => rest.strip_prefix(part),
            _ => rest.split_once(part).map(|(_, behind)| behind),
        };
        let Some(behind) = behind else {
            panic!("{part:?} is missing in: {text}");
        };
        rest = behind;
    }
    assert!(rest.ends_with(end), "{end:?} is not the end of: {text}");
}

/// Returns the rows of a table: the cells of each line, which `|` separates, without the spaces around them.
///
/// # Panics
/// A line has another number of cells.
#[track_caller]
pub fn rows<const COLUMNS: usize>(table: &str) -> impl Iterator<Item = [&str; COLUMNS]> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        cells
            .try_into()
            .unwrap_or_else(|_| panic!("not {COLUMNS} cells: {line}"))
    })
}
