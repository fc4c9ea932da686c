//! A stand-in for NSQ's own nsqd, which has no peeks, no ages, no shards and no metrics.

use serde_json::{Value, json};

use crate::http_server::{Answer, HttpServer};

/// The address in the answers of the stand-in: its broadcast address and its HTTP port.
pub const ADDRESS: &str = "original:4151";

/// Starts a server that answers `/info` and `/stats` as NSQ's own nsqd with these topics does, and everything
/// else with 404. Reach the server at [`HttpServer::address`]: [`ADDRESS`] is only its name.
pub fn start(topics: Value) -> HttpServer {
    HttpServer::start(move |request, _| match request.path() {
        "/info" => {
            json!({"version": "1.3.0", "broadcast_address": "original", "http_port": 4151}).into()
        }
        "/stats" => json!({"health": "OK", "topics": topics}).into(),
        _ => Answer::not_found(),
    })
}
