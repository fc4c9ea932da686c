//! `/config`: the values of the flags, of which two can be changed while nsqadmin runs.

use ::http::StatusCode;
use program::log::{self, Level};
use program::{Value, log_info};
use serde_json::Value as Json;
use wire::go_json::{push_array, push_string};

use super::{App, Reply, Request};
use crate::graphite::masked;
use crate::outcome::Refusal;

const LOOKUPDS: &str = "nsqlookupd_http_addresses";
const LOG_LEVEL: &str = "log_level";

impl App {
    /// Answers `GET /config/*`.
    pub(super) fn get_option(&self, key: &str, request: &Request) -> Result<Reply, Refusal> {
        self.check_range(request)?;
        self.option(key)
    }

    fn option(&self, key: &str) -> Result<Reply, Refusal> {
        match key {
            LOOKUPDS => {
                let mut json = String::new();
                let addresses = self.cluster.lookupds();
                push_array(&mut json, &addresses, |out, text| push_string(out, text));
                return Ok(Reply::json(json));
            }
            LOG_LEVEL => return Ok(Reply::json(Value::Level(log::level()).json())),
            _ => {}
        }
        let value = self.config.options.by_key(key);
        Ok(match value.ok_or_else(|| Refusal::bad("INVALID_OPTION"))? {
            Value::Text(text) if key == "graphite_url" || key == "notification_http_endpoint" => {
                Reply::text(masked(text))
            }
            Value::Text(text) => Reply::text(text.clone()),
            // An empty list of a file means the same as no list.
            Value::NoList => Reply::json("[]"),
            value => Reply::json(value.json()),
        })
    }

    /// Answers `PUT /config/*`.
    pub(super) async fn put_option(
        &self,
        key: &str,
        request: &mut Request,
    ) -> Result<Reply, Refusal> {
        self.check_range(request)?;
        self.check_right_to_change(request)?;
        let body = request.read_body(self.read_timeout).await?;
        if body.is_empty() {
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(Refusal::new(status, "INVALID_VALUE"));
        }
        let invalid = || Refusal::bad("INVALID_VALUE");
        match key {
            LOOKUPDS => {
                let addresses = addresses(&body).ok_or_else(invalid)?;
                log_info!("config: {LOOKUPDS} took effect: {addresses:?}");
                self.cluster.set_lookupds(addresses);
            }
            LOG_LEVEL => {
                let text = std::str::from_utf8(&body).map_err(|_| invalid())?;
                let level: Level = text.parse().map_err(|_| invalid())?;
                log_info!("config: {LOG_LEVEL} took effect: {text}");
                log::set_level(level);
            }
            _ => return Err(Refusal::bad("INVALID_OPTION")),
        }
        self.option(key)
    }

    /// Checks the client's address. No header counts.
    fn check_range(&self, request: &Request) -> Result<(), Refusal> {
        let peer = request.peer().ip();
        match self.config_clients {
            Some(range) if !range.contains(peer) => Err(forbidden("FORBIDDEN")),
            _ => Ok(()),
        }
    }

    /// Checks that no page of another site sends the request, and that a request that came through a
    /// proxy is an admin's. The proxy's own address may be inside the range of `/config`, and must
    /// not open it to everybody who may read.
    fn check_right_to_change(&self, request: &Request) -> Result<(), Refusal> {
        let headers = request.headers();
        if !self.access.is_own_page(headers) {
            return Err(forbidden("FORBIDDEN_ORIGIN"));
        }
        let user = self.access.user(headers, request.peer().ip());
        match self.access.is_forwarded(headers) && !self.access.is_admin(&user) {
            true => Err(forbidden("FORBIDDEN")),
            false => Ok(()),
        }
    }
}

fn forbidden(message: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, message)
}

/// Returns the texts of a JSON array.
fn addresses(body: &[u8]) -> Option<Vec<String>> {
    match serde_json::from_slice(body).ok()? {
        Json::Null => Some(Vec::new()),
        Json::Array(values) => values
            .into_iter()
            .map(|value| match value {
                Json::String(text) => Some(text),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}
