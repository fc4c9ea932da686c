//! Listening for HTTP clients, and the rule about pages in browsers.

use std::net::{SocketAddr, TcpListener as StdListener};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use program::http::{Failure, PageMarks};
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

/// Refuses a request that a browser marks as sent by a page of another site. A layer of the routes that change something.
pub async fn refuse_other_sites(request: Request, next: Next) -> Response {
    if PageMarks::from(request.headers()).are_of_other_site() {
        let text = format!("{}\n", Failure::FORBIDDEN_ORIGIN.code);
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    next.run(request).await
}
