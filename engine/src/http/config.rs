//! `/config/<option>`: every option by its key in the configuration file; two can be changed.

use std::fmt::Write as _;

use http::StatusCode;

use super::Broker;
use super::body::{End, RequestBody};
use super::connection::Io;
use super::go_text::{push_json_array, push_json_float, push_json_string};
use super::reply::{Failure, Reply};
use crate::config::{TlsRequired, TlsVersion, Value};
use crate::log::{self, Level};

const LOG_LEVEL: &str = "log_level";
const LOOKUPD_ADDRESSES: &str = "nsqlookupd_tcp_addresses";

/// `GET /config/<option>`: the value as it is now.
pub(super) fn get<B: Broker>(broker: &B, option: &str) -> Result<Reply, Failure> {
    let info = broker.info();
    let value = match option {
        LOG_LEVEL => Value::Level(log::level()),
        LOOKUPD_ADDRESSES => {
            return Ok(list(broker.lookupd_addresses().as_deref()));
        }
        "broadcast_tcp_port" => Value::Integer(info.announced.tcp.into()),
        "broadcast_http_port" => Value::Integer(info.announced.http.into()),
        "statsd_prefix" => Value::Text(info.statsd_prefix.clone()),
        _ => match info.options.by_key(option) {
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
    let received = body.receive(broker.info().msg_bytes_max).await;
    match received.end {
        End::Complete if !received.bytes.is_empty() => {}
        End::Broken => return Err(Failure::INTERNAL),
        End::Complete | End::OverLimit => return Err(Failure::too_large("INVALID_VALUE")),
    }
    let invalid = Failure::bad("INVALID_VALUE");
    match option {
        LOG_LEVEL => {
            let text = std::str::from_utf8(&received.bytes).map_err(|_| invalid)?;
            log::set_level(text.parse::<Level>().map_err(|_| invalid)?);
        }
        LOOKUPD_ADDRESSES => {
            let addresses = serde_json::from_slice(&received.bytes).map_err(|_| invalid)?;
            broker.set_lookupd_addresses(addresses);
        }
        _ => return Err(Failure::bad("INVALID_OPTION")),
    }
    get(broker, option)
}

/// Texts as they are, everything else as JSON.
fn shown(value: &Value) -> Reply {
    let mut json = String::new();
    match value {
        Value::Text(text) => return Reply::text(text.clone()),
        Value::List(texts) => return list(Some(texts)),
        Value::NoList => return list(None),
        Value::Floats(numbers) => push_json_array(&mut json, numbers, |out, number| {
            push_json_float(out, *number);
        }),
        Value::Switch(value) => json.push_str(if *value { "true" } else { "false" }),
        Value::Integer(number) | Value::Span(number) => push_number(&mut json, *number),
        // The numbers are those of nsqd's types.
        Value::Level(level) => push_number(&mut json, *level as i64),
        Value::TlsRequired(required) => push_number(
            &mut json,
            match required {
                TlsRequired::No => 0,
                TlsRequired::ExceptHttp => 1,
                TlsRequired::Yes => 2,
            },
        ),
        Value::TlsVersion(version) => push_number(
            &mut json,
            match version {
                TlsVersion::V10 => 0x0301,
                TlsVersion::V11 => 0x0302,
                TlsVersion::V12 => 0x0303,
                TlsVersion::V13 => 0x0304,
            },
        ),
    }
    Reply::json(StatusCode::OK, json)
}

fn push_number(out: &mut String, number: i64) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{number}");
}

/// A list of texts, or `null`.
fn list(texts: Option<&[String]>) -> Reply {
    let mut json = String::new();
    match texts {
        None => json.push_str("null"),
        Some(texts) => push_json_array(&mut json, texts, |out, text| push_json_string(out, text)),
    }
    Reply::json(StatusCode::OK, json)
}
