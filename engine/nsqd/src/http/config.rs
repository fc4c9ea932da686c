//! `/config/<option>`: every option by its key in the configuration file; two can be changed. `/config/drain` is the
//! drain of this node.

use std::collections::BTreeMap;

use http::StatusCode;

use super::{BUSY, Background, Broker, Busy, admin};
use crate::config::Config;
use program::http::{Failure, Io, Reply, RequestBody};
use program::log::{self, Level};
use program::{GivenKey, GivenKeys, Value, log_info};
use wire::go_json::to_string;

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
    if let Some(value) = live_value(broker, option) {
        return Ok(shown(&value));
    }
    let info = broker.info();
    let value = match option {
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

/// Returns the value of an option that can change while nsqd runs. `None`: it is another option.
fn live_value(broker: &impl Broker, key: &str) -> Option<Value> {
    match key {
        LOG_LEVEL => Some(Value::Level(log::level())),
        LOOKUPD_ADDRESSES => {
            let addresses = broker.lookupd_addresses();
            Some(addresses.map_or(Value::NoList, Value::List))
        }
        _ => None,
    }
}

/// `PUT /config/<option>`: a new value, until the process ends.
pub(super) async fn put<B: Broker>(
    broker: &B,
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
            broker.set_lookupd_addresses(addresses);
        }
        DRAIN => {
            let is_draining = serde_json::from_slice(&received).map_err(|_| INVALID)?;
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

/// The outcome of one of several keys.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The value counts from now on, until the process ends.
    TakesEffect,
    /// The value is good, and changes nothing, for this reason.
    Stays(&'static str),
    /// The value cannot be used, for this reason.
    Refused(String),
}

impl Outcome {
    /// The text of the answer. If a value is refused, no key changes.
    fn text(&self, is_refused: bool) -> String {
        match self {
            Outcome::TakesEffect if is_refused => "unchanged".to_owned(),
            Outcome::TakesEffect => "took effect".to_owned(),
            Outcome::Stays(why) => (*why).to_owned(),
            Outcome::Refused(why) => format!("refused: {why}"),
        }
    }
}

/// The keys whose values a start would refuse, with the reasons.
type Reasons = BTreeMap<String, String>;

/// `PUT /config`: new values of several keys, until the process ends. If a value is refused, no key changes.
pub(super) async fn put_many<B: Broker>(
    broker: &B,
    body: &mut RequestBody<'_, impl Io>,
) -> Result<Reply, Failure> {
    let received = body
        .receive(KEYS_BYTES_MAX)
        .await
        .complete("BODY_TOO_BIG")?;
    // Patterns of topics are compared in pairs. A shard has no time for that.
    let config = broker.info().config.clone();
    let check = move || check(&config, &received);
    let checked = broker.in_background(Background::Report, check).await;
    let checked = checked.map_err(|Busy| BUSY)?;
    let (keys, refused) = checked.map_err(|why| Failure::bad("INVALID_BODY").because(why))?;
    let outcomes = judge(broker, &keys, refused);
    let is_refused = outcomes
        .values()
        .any(|it| matches!(it, Outcome::Refused(_)));
    if !is_refused {
        apply(broker, &keys, &outcomes).await?;
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

/// Reads keys and checks their values together, as a start does, but reads none of the files that they name.
///
/// # Errors
/// The text has no keys. The error says why.
fn check(config: &Config, bytes: &[u8]) -> Result<(GivenKeys, Reasons), String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let keys = config.options.read_keys(text)?;
    let check = |values: &[(&'static str, Value)]| {
        let config = config.with(values)?;
        config
            .check_before_tls()
            .and_then(|()| config.check_after_tls().map(drop))
    };
    let values = keys.iter().filter_map(|(key, given)| match given {
        GivenKey::Flag(name, value) => Some((key, *name, value.clone())),
        GivenKey::Refused(_) | GivenKey::Other(_) => None,
    });
    let values: Vec<_> = values.collect();
    let all: Vec<_> = values
        .iter()
        .map(|(_, name, value)| (*name, value.clone()))
        .collect();
    let mut refused = BTreeMap::new();
    if let Err(why) = check(&all) {
        // The reason names one of the values. It is refused by itself, or only together with the others.
        for (key, name, value) in &values {
            if let Err(why) = check(&[(*name, value.clone())]) {
                refused.insert((*key).clone(), why);
            }
        }
        if refused.is_empty() {
            refused.extend(values.iter().map(|(key, ..)| ((*key).clone(), why.clone())));
        }
    }
    Ok((keys, refused))
}

/// Decides what becomes of each key.
fn judge<B: Broker>(broker: &B, keys: &GivenKeys, refused: Reasons) -> BTreeMap<String, Outcome> {
    let outcomes = keys
        .iter()
        .map(|(key, given)| (key.clone(), outcome(broker, key, given)));
    let mut outcomes: BTreeMap<String, Outcome> = outcomes.collect();
    let refused = refused.into_iter();
    outcomes.extend(refused.map(|(key, why)| (key, Outcome::Refused(why))));
    outcomes
}

fn outcome<B: Broker>(broker: &B, key: &str, given: &GivenKey) -> Outcome {
    match (key, given) {
        (_, GivenKey::Refused(why)) => Outcome::Refused(why.clone()),
        (DRAIN, GivenKey::Other(Some(wanted))) => {
            if *wanted == broker.is_draining() {
                Outcome::Stays("unchanged")
            } else {
                Outcome::TakesEffect
            }
        }
        (DRAIN, _) => Outcome::Refused("drain must be true or false".to_owned()),
        (_, GivenKey::Other(_)) => Outcome::Stays("unknown"),
        (_, GivenKey::Flag(name, value)) => {
            let live = live_value(broker, key);
            let now = live.as_ref();
            let now = now.unwrap_or_else(|| broker.info().config.options.value(name));
            if value.means(now) {
                Outcome::Stays("unchanged")
            } else if live.is_some() {
                Outcome::TakesEffect
            } else {
                // nsqd does not keep the value.
                Outcome::Stays("needs a restart")
            }
        }
    }
}

/// Puts the values into use that take effect without a restart.
///
/// # Errors
/// The process ends, so a drain does not begin. No other value counts then.
async fn apply<B: Broker>(
    broker: &B,
    keys: &GivenKeys,
    outcomes: &BTreeMap<String, Outcome>,
) -> Result<(), Failure> {
    let changes = |key: &str| outcomes.get(key) == Some(&Outcome::TakesEffect);
    if changes(DRAIN)
        && let Some(GivenKey::Other(Some(wanted))) = keys.get(DRAIN)
    {
        let done = broker.set_draining(*wanted).await;
        done.map_err(admin::failure_of)?;
    }
    if changes(LOOKUPD_ADDRESSES)
        && let Some(GivenKey::Flag(_, value)) = keys.get(LOOKUPD_ADDRESSES)
    {
        broker.set_lookupd_addresses(match value {
            Value::List(addresses) => Some(addresses.clone()),
            _ => None,
        });
        log_info!(
            "PUT /config: {LOOKUPD_ADDRESSES} took effect: {}",
            value.json()
        );
    }
    if changes(LOG_LEVEL)
        && let Some(GivenKey::Flag(_, Value::Level(level))) = keys.get(LOG_LEVEL)
    {
        // With the lower of the two levels, the line about the change is written in both directions.
        let before = log::level();
        log::set_level((*level).min(before));
        let (new, old) = (level.name(), before.name());
        log_info!("PUT /config: {LOG_LEVEL} took effect: {new}, before {old}");
        log::set_level(*level);
    }
    Ok(())
}

/// Texts as they are, everything else as JSON.
fn shown(value: &Value) -> Reply {
    match value {
        Value::Text(text) => Reply::text(text.clone()),
        other => Reply::json(StatusCode::OK, other.json()),
    }
}
