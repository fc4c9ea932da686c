//! `/config`: the values of the flags, of which two can be changed while nsqadmin runs.

use ::http::StatusCode;
use program::log::{self, Level};
use program::{Value, log_info};
use wire::go_json::to_string;

use super::rights::put_of;
use super::{App, Reply, Request};
use crate::audit::Entry;
use crate::cluster::{Refusal, Warnings};
use crate::upstream::masked;

const LOOKUPDS: &str = "nsqlookupd_http_addresses";
const LOG_LEVEL: &str = "log_level";

/// A new value that is valid.
enum Setting {
    Lookupds(Vec<String>),
    /// The level and its name in the request.
    Level(Level, String),
}

/// Answers `GET /config/*`.
pub(super) fn option(app: &App, key: &str) -> Result<Reply, Refusal> {
    match key {
        LOOKUPDS => return Ok(Reply::json(to_string(&app.cluster.lookupds()))),
        LOG_LEVEL => return Ok(Reply::json(Value::Level(log::level()).json())),
        _ => {}
    }
    let value = app.config.options.by_key(key);
    Ok(match value.ok_or_else(|| Refusal::bad("INVALID_OPTION"))? {
        Value::Text(text) if key == "graphite_url" || key == "notification_http_endpoint" => {
            Reply::text(masked(text))
        }
        Value::List(entries) if key == "nsqd_url_map" => {
            let entries = entries.iter().map(|entry| match entry.split_once('=') {
                Some((node, url)) => format!("{node}={}", masked(url)),
                None => entry.clone(),
            });
            Reply::json(Value::List(entries.collect()).json())
        }
        Value::Text(text) => Reply::text(text.clone()),
        // An empty list of a file means the same as no list.
        Value::NoList => Reply::json("[]"),
        value => Reply::json(value.json()),
    })
}

/// Answers `PUT /config/*`, and writes it to the audit log before it takes effect: with another level, the log
/// might have no such line.
pub(super) async fn put_option(
    app: &App,
    key: &str,
    request: &mut Request,
) -> Result<Reply, Refusal> {
    let setting = setting(key, request).await;
    let put = setting.as_ref().map(|_| Warnings::default());
    let put = put.map_err(Refusal::clone);
    let (action, subject) = put_of(key);
    let entry = Entry::new(app.actor(request), action, subject, &put);
    app.audit.write(entry).await;
    match setting? {
        Setting::Lookupds(addresses) => {
            log_info!("config: {LOOKUPDS} took effect: {addresses:?}");
            app.cluster.set_lookupds(addresses);
        }
        Setting::Level(level, text) => {
            log_info!("config: {LOG_LEVEL} took effect: {text}");
            log::set_level(level);
        }
    }
    option(app, key)
}

async fn setting(key: &str, request: &mut Request) -> Result<Setting, Refusal> {
    let body = request.read_body().await?;
    if body.is_empty() {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        return Err(Refusal::new(status, "INVALID_VALUE"));
    }
    let invalid = || Refusal::bad("INVALID_VALUE");
    match key {
        LOOKUPDS => Ok(Setting::Lookupds(addresses(&body).ok_or_else(invalid)?)),
        LOG_LEVEL => {
            let text = String::from_utf8(body.to_vec()).map_err(|_| invalid())?;
            let level = text.parse().map_err(|_| invalid())?;
            Ok(Setting::Level(level, text))
        }
        _ => Err(Refusal::bad("INVALID_OPTION")),
    }
}

/// Returns the texts of a JSON array.
fn addresses(body: &[u8]) -> Option<Vec<String>> {
    let read = serde_json::from_slice::<Option<Vec<String>>>(body);
    Some(read.ok()?.unwrap_or_default())
}
