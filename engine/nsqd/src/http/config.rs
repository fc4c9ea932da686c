//! `/config/<option>`: every option by its key in the configuration file; two can be changed. `/config/drain` is the
//! drain of this node.

use http::StatusCode;

use super::{EXITING, HttpBroker};
use crate::drain::Ending;
use program::Value;
use program::http::{Failure, Io, Reply, RequestBody};
use program::log::{self, Level};

/// The key of the log's level, which can change while nsqd runs.
pub(crate) const LOG_LEVEL: &str = "log_level";
/// The key of the nsqlookupds, which can change while nsqd runs.
pub(crate) const LOOKUPD_ADDRESSES: &str = "nsqlookupd_tcp_addresses";

/// The key of the drain, which is no flag.
const DRAIN: &str = "drain";

/// `GET /config/<option>`: the value as it is now.
pub(super) fn get(broker: &HttpBroker, option: &str) -> Result<Reply, Failure> {
    let info = broker.info();
    let value = match option {
        LOG_LEVEL => Value::Level(log::level()),
        LOOKUPD_ADDRESSES => {
            let addresses = broker.shared().lookup.addresses();
            addresses.map_or(Value::NoList, Value::List)
        }
        DRAIN => Value::Boolean(broker.shared().drain.is_draining()),
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
pub(super) async fn put(
    broker: &HttpBroker,
    option: &str,
    body: &mut RequestBody<'_, impl Io>,
) -> Result<Reply, Failure> {
    let received = body.receive(broker.info().config.msg_bytes_max).await;
    let received = received.complete("INVALID_VALUE")?;
    if received.is_empty() {
        return Err(Failure::too_large("INVALID_VALUE"));
    }
    const INVALID: Failure = Failure::bad("INVALID_VALUE");
    match option {
        LOG_LEVEL => {
            let text = std::str::from_utf8(&received).map_err(|_| INVALID)?;
            log::set_level(text.parse::<Level>().map_err(|_| INVALID)?);
        }
        LOOKUPD_ADDRESSES => {
            let addresses = serde_json::from_slice(&received).map_err(|_| INVALID)?;
            broker.shared().lookup.set_addresses(addresses);
        }
        DRAIN => {
            let is_draining = serde_json::from_slice(&received).map_err(|_| INVALID)?;
            let drain = &broker.shared().drain;
            let done = drain.set(is_draining, "PUT /config/drain").await;
            done.map_err(|Ending| EXITING)?;
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

/// Texts as they are, everything else as JSON.
fn shown(value: &Value) -> Reply {
    match value {
        Value::Text(text) => Reply::text(text.clone()),
        other => Reply::json(StatusCode::OK, other.json()),
    }
}
