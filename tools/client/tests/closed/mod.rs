//! Waits until the system knows that an nsqd has closed its connections.

use std::fs;
use std::net::SocketAddr;

use test_support::{TIMEOUT, wait_until};

/// The state of an open connection in the system's list.
const ESTABLISHED: &str = "01";

/// Waits until no connection to `server` is open. The sockets of a process that was killed may be closed after its end.
pub(crate) fn wait_for_close(server: SocketAddr) {
    let port = format!(":{:04X}", server.port());
    let is_open = |line: &str| {
        let mut columns = line.split_whitespace().skip(2);
        let (remote, state) = (columns.next(), columns.next());
        remote.is_some_and(|remote| remote.ends_with(&port)) && state == Some(ESTABLISHED)
    };
    let are_closed = || {
        let list = fs::read_to_string("/proc/net/tcp").expect("the system lists its connections");
        !list.lines().any(is_open)
    };
    assert!(wait_until(TIMEOUT, are_closed), "{server}");
}
