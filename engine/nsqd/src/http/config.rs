//! `/config/<option>`: every option by its key in the configuration file; two can be changed. `/config/drain` is the
//! drain of this node.

use std::collections::BTreeMap;

use http::StatusCode;

use super::{BUSY, Background, Broker, Busy, admin};
use many::{Checked, Outcome};
use program::Value;
use program::http::{End, Failure, Io, Reply, RequestBody};
use program::log::{self, Level};
use wire::go_json::to_string;

mod many;

/// The key of the log's level, which can change while nsqd runs.
pub(crate) const LOG_LEVEL: &str = "log_level";
/// The key of the nsqlookupds, which can change while nsqd runs.
pub(crate) const LOOKUPD_ADDRESSES: &str = "nsqlookupd_tcp_addresses";

/// The largest body with several keys.
const KEYS_BYTES_MAX: u64 = 64 * 1024;

/// The key of the drain, which is no flag.
const DRAIN: &str = "drain";

/// `GET /config/<option>`: the value as it is now.
pub(super) fn get<B: Broker>(broker: &B, option: &str) -> Result<Reply, Failure> {
    let info = broker.info();
    let value = match option {
        LOG_LEVEL => Value::Level(log::level()),
        LOOKUPD_ADDRESSES => broker
            .lookupd_addresses()
            .map_or(Value::NoList, Value::List),
        DRAIN => Value::Boolean(broker.is_draining()),
        "broadcast_tcp_port" => Value::Integer(info.announced.tcp.into()),
        "broadcast_http_port" => Value::Integer(info.announced.http.into()),
        "statsd_prefix" => Value::Text(info.statsd_prefix.clone()),
        _ => match info.config.options.by_key(option) {
            Some(value) => value.clone(),
            None => return Err(Failure::bad("INVALID_OPTION")),
        },
    };
    Ok(shown(&value))
}

/// `PUT /config/<option>`: a new value, until the process ends.
pub(super) async fn put<B: Broker>(
    broker: &B,
    option: &str,
    body: &mut RequestBody<'_, impl Io>,
) -> Result<Reply, Failure> {
    let received = body.receive(broker.info().config.msg_bytes_max).await;
    match received.end {
        End::Complete if !received.bytes.is_empty() => {}
        End::Broken => return Err(Failure::INTERNAL),
        End::Complete | End::OverLimit => return Err(Failure::too_large("INVALID_VALUE")),
    }
    const INVALID: Failure = Failure::bad("INVALID_VALUE");
    match option {
        LOG_LEVEL => {
            let text = std::str::from_utf8(&received.bytes).map_err(|_| INVALID)?;
            log::set_level(text.parse::<Level>().map_err(|_| INVALID)?);
        }
        LOOKUPD_ADDRESSES => {
            let addresses = serde_json::from_slice(&received.bytes).map_err(|_| INVALID)?;
            broker.set_lookupd_addresses(addresses);
        }
        DRAIN => {
            let is_draining = serde_json::from_slice(&received.bytes).map_err(|_| INVALID)?;
            let done = broker.set_draining(is_draining).await;
            done.map_err(admin::failure_of)?;
        }
        _ => {
            // nsqd has the same answer for an unknown option and one that cannot be set.
            let invalid = Failure::bad("INVALID_OPTION");
            let is_known = broker.info().config.options.by_key(option).is_some();
            return Err(if is_known {
                invalid.because(format!("a change of {option} needs a restart"))
            } else {
                invalid
            });
        }
    }
    get(broker, option)
}

/// `PUT /config`: new values of several keys, until the process ends. If a value is refused, no key changes.
pub(super) async fn put_many<B: Broker>(
    broker: &B,
    body: &mut RequestBody<'_, impl Io>,
) -> Result<Reply, Failure> {
    let received = body.receive(KEYS_BYTES_MAX).await;
    match received.end {
        End::Complete => {}
        End::Broken => return Err(Failure::INTERNAL),
        End::OverLimit => return Err(Failure::too_large("BODY_TOO_BIG")),
    }
    // Patterns of topics are compared in pairs. A shard has no time for that.
    let config = broker.info().config.clone();
    let check = move || many::check(&config, &received.bytes);
    let checked = broker.in_background(Background::Report, check).await;
    let checked = checked.map_err(|Busy| BUSY)?;
    let Checked { keys, refused } =
        checked.map_err(|why| Failure::bad("INVALID_BODY").because(why))?;
    let outcomes = many::judge(broker, &keys, refused);
    let is_refused = outcomes
        .values()
        .any(|it| matches!(it, Outcome::Refused(_)));
    if !is_refused {
        many::apply(broker, &keys, &outcomes).await?;
    }
    let status = if is_refused {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    let texts = outcomes.iter();
    let texts = texts.map(|(key, outcome)| (key, outcome.text(is_refused)));
    let texts: BTreeMap<_, _> = texts.collect();
    Ok(Reply::json(status, to_string(&texts)))
}

/// Texts as they are, everything else as JSON.
fn shown(value: &Value) -> Reply {
    match value {
        Value::Text(text) => Reply::text(text.clone()),
        other => Reply::json(StatusCode::OK, other.json()),
    }
}
