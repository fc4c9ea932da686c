//! The outcomes of several keys that are set together.

use super::{DRAIN, LOG_LEVEL, LOOKUPD_ADDRESSES};
use crate::config::Config;
use crate::http::{Broker, admin};
use program::http::Failure;
use program::log;
use program::{GivenKey, GivenKeys, Value, log_info};
use std::collections::BTreeMap;

/// The outcome of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The value counts from now on, until the process ends.
    TakesEffect,
    /// The value is good, but counts only after a restart with it. nsqd does not keep the value.
    NeedsRestart,
    /// The value is already in use.
    Unchanged,
    /// There is no such key.
    Unknown,
    /// The value cannot be used, for this reason.
    Refused(String),
}

impl Outcome {
    /// The text of the answer. If a value is refused, no key changes.
    pub(super) fn text(&self, is_refused: bool) -> String {
        match self {
            Outcome::TakesEffect if is_refused => "unchanged".to_owned(),
            Outcome::TakesEffect => "took effect".to_owned(),
            Outcome::NeedsRestart => "needs a restart".to_owned(),
            Outcome::Unchanged => "unchanged".to_owned(),
            Outcome::Unknown => "unknown".to_owned(),
            Outcome::Refused(why) => format!("refused: {why}"),
        }
    }
}

/// Keys whose values were checked.
pub(super) struct Checked {
    pub(super) keys: GivenKeys,
    /// The keys whose values a start would refuse, with the reasons.
    pub(super) refused: BTreeMap<String, String>,
}

/// Reads keys and checks their values together, as a start does, but reads none of the files that they name.
///
/// # Errors
/// The text has no keys. The error says why.
pub(super) fn check(config: &Config, bytes: &[u8]) -> Result<Checked, String> {
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
    Ok(Checked { keys, refused })
}

/// Decides what becomes of each key.
pub(super) fn judge<B: Broker>(
    broker: &B,
    keys: &GivenKeys,
    refused: BTreeMap<String, String>,
) -> BTreeMap<String, Outcome> {
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
                Outcome::Unchanged
            } else {
                Outcome::TakesEffect
            }
        }
        (DRAIN, _) => Outcome::Refused("drain must be true or false".to_owned()),
        (_, GivenKey::Other(_)) => Outcome::Unknown,
        (_, GivenKey::Flag(name, value)) => {
            let is_live = matches!(key, LOG_LEVEL | LOOKUPD_ADDRESSES);
            let now = match key {
                LOG_LEVEL => Value::Level(log::level()),
                LOOKUPD_ADDRESSES => {
                    let addresses = broker.lookupd_addresses();
                    addresses.map_or(Value::NoList, Value::List)
                }
                _ => broker.info().config.options.value(name).clone(),
            };
            match (value.means(&now), is_live) {
                (true, _) => Outcome::Unchanged,
                (false, true) => Outcome::TakesEffect,
                (false, false) => Outcome::NeedsRestart,
            }
        }
    }
}

/// Puts the values into use that take effect without a restart.
///
/// # Errors
/// The process ends, so a drain does not begin. No other value counts then.
pub(super) async fn apply<B: Broker>(
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
