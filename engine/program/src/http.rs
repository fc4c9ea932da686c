//! An HTTP/1 server with the heads, bodies, routes and answers of NSQ's programs.
//!
//! ```text
//!   Connection -> head -> route -> Service::answer
//!        |                  |
//!      body                 +-> redirect, OPTIONS, 404, 405
//! ```
//!
//! A program supplies a table of routes and a function that answers ([`Service`]). The server knows
//! no socket and no runtime: one call of [`serve_connection`] serves one connection on a stream
//! ([`Io`]). Nothing here is `Send` or shared.

use std::fmt;
use std::time::Instant;

use ::http::{Method, StatusCode};

use crate::go_value::duration_text;
use crate::log::Level;
use crate::{log_at, log_error, log_warn};

use connection::NoRequest;
use head::Expectation;

mod body;
mod chunked;
mod connection;
mod date;
mod deadline;
mod head;
mod host_names;
mod page_marks;
pub mod profiler;
mod query;
mod reply;
mod route;

pub use body::{End, Received, RequestBody};
pub use connection::{Awaited, Connection, Io};
pub use deadline::{Alarm, Deadline, HttpTimeouts};
pub use head::{HEAD_BYTES_MAX, Head, POLL};
pub use host_names::HostNames;
pub use page_marks::PageMarks;
pub use query::{Query, QueryError};
pub use reply::{Failure, Reply, escape_html};
pub use route::{Route, Routed, route};

/// A program with HTTP clients.
#[allow(async_fn_in_trait)] // Everything stays on one thread: no bound on the futures is wanted.
pub trait Service {
    /// The program's names for its endpoints.
    type Endpoint: Copy + 'static;

    /// Every route.
    const ROUTES: &'static [Route<Self::Endpoint>];

    /// Answers a request. `segments` are the parts of the path at the `*`s of the route. `query` has
    /// not been parsed.
    ///
    /// # Errors
    /// The status and the word for the client.
    async fn answer(
        &self,
        endpoint: Self::Endpoint,
        segments: &[String],
        query: &str,
        body: &mut RequestBody<'_, impl Io>,
    ) -> Result<Reply, Failure>;

    /// Returns true if requests to this endpoint have a line in the log.
    fn is_logged(endpoint: Self::Endpoint) -> bool;

    /// Returns the names of the server, if a request with any other `Host` is refused. `None`: clients use any name.
    fn host_names(&self) -> Option<&HostNames> {
        None
    }

    /// Returns true if pages of other sites may send requests to this endpoint, although these change something.
    fn is_open_to_other_sites(_endpoint: Self::Endpoint) -> bool {
        false
    }

    /// Returns the answer to a request that is refused, whatever its endpoint is. `None` admits the
    /// request.
    fn refusal(&self, _head: &Head) -> Option<Reply> {
        None
    }

    /// Returns true if another thread should serve the connection. The server calls this between
    /// requests.
    fn is_better_elsewhere(&self) -> bool {
        false
    }
}

/// The reason why a connection is not served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The connection has ended, or the caller should drop it.
    ToTheEnd,
    /// [`Service::is_better_elsewhere`] returned true. No request is under way.
    UntilMoved,
}

/// Serves one connection until it ends or moves. `peer` is the client's name in the log. An error
/// of the peer ends the connection and is not reported. When the server closes the connection
/// before it has read all input, a peer that keeps sending has time until `linger` is ready.
pub async fn serve_connection<S: Service>(
    connection: &mut Connection<impl Io>,
    peer: &impl fmt::Display,
    service: &S,
    linger: impl Future<Output = ()>,
) -> Served {
    let has_left_unread = loop {
        let head = connection.next_head(service.host_names()).await;
        let (mut reply, exchange, has_left_unread) = match head {
            Ok(head) => {
                let exchange = head.exchange();
                let (reply, has_left_unread) = respond(head, connection, peer, service).await;
                (reply, exchange, has_left_unread)
            }
            Err(NoRequest::Refused(refusal)) => {
                if connection.refuse(refusal).await.is_err() {
                    return Served::ToTheEnd;
                }
                break true;
            }
            Err(NoRequest::Ended) => break false,
        };
        let keeps_alive = reply.keeps_alive(exchange);
        if connection.answer(&mut reply, exchange).await.is_err() {
            return Served::ToTheEnd;
        }
        if !keeps_alive {
            break has_left_unread;
        }
        if service.is_better_elsewhere() {
            return Served::UntilMoved;
        }
    };
    let close = connection.close(has_left_unread);
    futures_lite::future::or(close, linger).await;
    Served::ToTheEnd
}

/// Answers one request and writes its log line. Also returns true when the peer may still send
/// bytes that nobody reads.
async fn respond<S: Service>(
    head: Head,
    connection: &mut Connection<impl Io>,
    peer: &impl fmt::Display,
    service: &S,
) -> (Reply, bool) {
    // HTTP/1.0 has no "100 Continue".
    let awaits_continue = head.is_http_11 && head.expects == Some(Expectation::Continue);
    let is_closing = head.asks_to_close || !head.is_http_11;
    let misdirected = head.unknown_host.as_deref().map(Reply::misdirected);
    let refusal = misdirected.or_else(|| service.refusal(&head));
    let mut body = RequestBody::new(connection, head.framing, awaits_continue);

    let reply = if head.expects == Some(Expectation::Unknown) {
        Reply::plain(StatusCode::EXPECTATION_FAILED, "").and_close(true)
    } else if let Some(refusal) = refusal {
        refusal
    } else {
        let (method, path) = (&head.method, head.target.path());
        let query = head.target.query().unwrap_or_default();
        if query.contains(';') {
            log_warn!(
                "http: URL query contains semicolon, which is no longer a supported separator; \
                 parts of the query may be stripped when parsed; see golang.org/issue/25192"
            );
        }
        let route = route::route(S::ROUTES, method.as_str(), path);
        let started = is_logged::<S>(&route).then(Instant::now);
        let is_forged = head.is_of_other_site && is_change::<S>(method, &route);
        let reply = if is_forged {
            Reply::failure(Failure::FORBIDDEN_ORIGIN)
        } else {
            answer(route, method, query, &mut body, service).await
        };
        if let Some(started) = started {
            let target = head.target.path_and_query();
            // A poll asks for figures. A look at bodies or at the program leaves its line.
            let has_figures = !path.ends_with("/peek") && !path.starts_with("/debug/");
            let is_poll = head.is_poll && *method == Method::GET && has_figures;
            let level = if is_poll && reply.status().is_success() {
                Level::Debug
            } else {
                Level::Info
            };
            log_at!(
                level,
                "{} {} {} ({peer}) {}",
                reply.status().as_u16(),
                head.method,
                target.map_or("", |target| target.as_str()),
                duration_text(started.elapsed())
            );
        }
        reply
    };
    let has_left_unread = body.finish(is_closing).await;
    let must_close = has_left_unread || head.asks_to_close;
    (reply.and_close(must_close), has_left_unread)
}

/// Returns true if the request may change something that pages of other sites must not change. No route has HEAD or
/// OPTIONS.
fn is_change<S: Service>(method: &Method, route: &Routed<S::Endpoint>) -> bool {
    let is_closed = |endpoint: &S::Endpoint| !S::is_open_to_other_sites(*endpoint);
    method != Method::GET && matches!(route, Routed::Found(endpoint, _) if is_closed(endpoint))
}

/// Returns true if the request has a log line. In NSQ's programs, redirects and OPTIONS never reach
/// the code that writes the log.
fn is_logged<S: Service>(route: &Routed<S::Endpoint>) -> bool {
    match route {
        Routed::Found(endpoint, _) => S::is_logged(*endpoint),
        Routed::WrongMethod(_) | Routed::NotFound => true,
        Routed::Redirect(_) | Routed::Options(_) => false,
    }
}

async fn answer<S: Service>(
    route: Routed<S::Endpoint>,
    method: &Method,
    query: &str,
    body: &mut RequestBody<'_, impl Io>,
    service: &S,
) -> Reply {
    match route {
        Routed::Found(endpoint, segments) => service
            .answer(endpoint, &segments, query, body)
            .await
            .unwrap_or_else(Reply::failure),
        Routed::Redirect(path) => {
            let separator = if query.is_empty() { "" } else { "?" };
            Reply::redirect(method == Method::GET, format!("{path}{separator}{query}"))
        }
        Routed::Options(allow) => Reply::options(allow),
        Routed::WrongMethod(allow) => Reply::wrong_method(allow),
        Routed::NotFound => Reply::failure(Failure::NOT_FOUND),
    }
}

/// Parses a query. Logs a bad query.
///
/// # Errors
/// `INVALID_REQUEST`.
pub fn parse_query(text: &str) -> Result<Query<'_>, Failure> {
    Query::parse(text).map_err(|why| {
        log_error!("failed to parse request params - {why}");
        Failure::bad("INVALID_REQUEST")
    })
}
