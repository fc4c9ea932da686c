//! Listening for HTTP clients.

use std::net::{SocketAddr, TcpListener as StdListener};

use program::tcp_address;
use tokio::net::TcpListener;
use wire::go_error::system_text;

/// Listens on `<host>:<port>`, as operators write it. An empty host means all addresses. `tool` is the
/// tool's own name. Must be called inside the runtime.
///
/// # Errors
/// The address cannot be listened on. The error is the text of NSQ's programs, with advice.
pub fn listen(address: &str, tool: &str) -> Result<(TcpListener, SocketAddr), String> {
    let refuse = |why: String| format!("listen ({address}) failed - {why}");
    let resolved = tcp_address::resolve(address).map_err(refuse)?;
    let bound = StdListener::bind(resolved).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|error| {
        let why = format!("listen tcp {resolved}: bind: {}", system_text(&error));
        refuse(match tcp_address::bind_hint(&error, tool) {
            hint if hint.is_empty() => why,
            hint => format!("{why} - {hint}"),
        })
    })
}
