//! [`Plan`]: the filter that `--dedup` describes, before it is made.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringq_client::dedup::filters::{
    FilterOptionError, ForgetfulBloom, ForgetfulOptions, InverseBloom, KeyHasher, Memcached,
    MemcachedOptions, RoaringPair, arithmetic,
};
use ringq_client::dedup::{AnyFilter, JsonPointer, PointerError, WhenUnavailable};

use super::settings::Settings;

/// The slots of an inverse Bloom filter, and the numbers of a source, if the command line does not say how many.
const KEYS_DEFAULT: u64 = 1_000_000;

/// A filter that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    Inverse {
        slots: u64,
    },
    Forgetful {
        window: Duration,
        rate: f64,
        false_positives: f64,
    },
    Roaring {
        numbers: u64,
        sources: u64,
        source: Option<JsonPointer>,
    },
    Memcached {
        address: String,
        prefix: String,
        /// `None`: the message timeout of each connection.
        lease: Option<Duration>,
        window: Duration,
        when_unavailable: WhenUnavailable,
    },
}

impl Plan {
    /// Takes the name of the filter and its options. The error is the text for the user.
    pub(super) fn parse(settings: &mut Settings) -> Result<Plan, String> {
        let filter = settings
            .text("filter")
            .unwrap_or_else(|| "inverse".to_owned());
        Ok(match filter.as_str() {
            "inverse" => inverse(settings)?,
            "forgetful" => Plan::Forgetful {
                window: settings.needed_duration("window")?,
                rate: settings.needed_rate("rate")?,
                false_positives: settings.probability("false-positives", 0.001)?,
            },
            "roaring" => Plan::Roaring {
                numbers: settings.count("numbers", KEYS_DEFAULT)?,
                sources: settings.count("sources", 1000)?,
                source: match settings.text("source") {
                    Some(pointer) => Some(parse_pointer(&pointer)?),
                    None => None,
                },
            },
            "memcached" => Plan::Memcached {
                address: settings.needed("address", "host:port or unix:///path")?,
                prefix: settings.text("prefix").unwrap_or_else(|| "nsq:".to_owned()),
                lease: settings.duration("lease")?,
                window: settings
                    .duration("window")?
                    .unwrap_or(Duration::from_secs(3600)),
                when_unavailable: when_unavailable(settings)?,
            },
            other => {
                return Err(format!(
                    "there is no filter {other:?}: choose inverse, forgetful, roaring or memcached"
                ));
            }
        })
    }

    /// Makes the filter, which takes its memory now. The error is the text for the user.
    pub(super) fn make(&self) -> Result<AnyFilter, String> {
        let hasher = KeyHasher::new(rand::random());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since_1970.unwrap_or_default();
        let refused = |error: FilterOptionError| error.to_string();
        Ok(match self {
            Plan::Inverse { slots } => InverseBloom::with_hasher(*slots, hasher)
                .map_err(refused)?
                .into(),
            Plan::Forgetful {
                window,
                rate,
                false_positives,
            } => {
                let options = ForgetfulOptions {
                    filters: 5,
                    window: *window,
                    rate: *rate,
                    false_positives_max: *false_positives,
                    hasher,
                };
                ForgetfulBloom::new(options, now).map_err(refused)?.into()
            }
            Plan::Roaring {
                numbers, sources, ..
            } => RoaringPair::new(*numbers, *sources as usize)
                .map_err(refused)?
                .into(),
            Plan::Memcached {
                address,
                prefix,
                lease,
                window,
                ..
            } => {
                // All consumers need the same secret, so it is that of the options.
                let options = MemcachedOptions {
                    prefix: prefix.clone(),
                    lease: *lease,
                    window: *window,
                    ..MemcachedOptions::new(address)
                };
                Memcached::new(options)
                    .map_err(|error| error.to_string())?
                    .into()
            }
        })
    }

    /// Returns the filter in words.
    pub(super) fn describe(&self) -> String {
        match self {
            Plan::Inverse { slots } => format!("inverse Bloom filter with {slots} slots"),
            Plan::Forgetful { window, rate, .. } => {
                format!("forgetful Bloom filter for {window:?} at {rate} messages per second")
            }
            Plan::Roaring {
                numbers, sources, ..
            } => format!("exact sets of the last {numbers} numbers of {sources} sources"),
            Plan::Memcached {
                address,
                lease,
                window,
                ..
            } => {
                let lease = match lease {
                    Some(lease) => format!("leases of {lease:?}"),
                    None => "leases of the message timeout".to_owned(),
                };
                format!("memcached at {address}, {lease}, window of {window:?}")
            }
        }
    }

    /// Returns the most bytes that a filter of numbers takes in the usual case. Its bound, which is that of random
    /// numbers, is two thousand times as high. Other filters have no usual case.
    pub(super) fn bytes_if_consecutive(&self) -> Option<u64> {
        let Plan::Roaring {
            numbers, sources, ..
        } = self
        else {
            return None;
        };
        // Empty sets take no memory.
        let sets = RoaringPair::new(*numbers, *sources as usize).ok()?;
        Some(sets.bytes_if_consecutive())
    }

    /// Returns what the user must know about a filter that may drop fresh messages.
    pub(super) fn warning(&self) -> Option<String> {
        let Plan::Forgetful {
            false_positives, ..
        } = self
        else {
            return None;
        };
        Some(format!(
            "filter=forgetful takes up to {false_positives} of the fresh messages for duplicates, and finishes them: these \
             messages are lost. filter=inverse loses none"
        ))
    }
}

/// Parses a JSON pointer. The error is the text for the user.
pub(super) fn parse_pointer(text: &str) -> Result<JsonPointer, String> {
    text.parse()
        .map_err(|error: PointerError| error.to_string())
}

/// Reads the sizes of an inverse Bloom filter: its slots, or what they follow from.
fn inverse(settings: &mut Settings) -> Result<Plan, String> {
    let Some(window) = settings.duration("window")? else {
        let slots = settings.count("slots", KEYS_DEFAULT)?;
        return Ok(Plan::Inverse { slots });
    };
    if settings.has("slots") {
        return Err("give slots, or window and rate, and not both".to_owned());
    }
    let rate = settings.needed_rate("rate")?;
    let forgotten = settings.probability("forgotten", 0.01)?;
    let slots =
        arithmetic::slots_for(rate, window, forgotten).map_err(|error| error.to_string())?;
    Ok(Plan::Inverse { slots })
}

fn when_unavailable(settings: &mut Settings) -> Result<WhenUnavailable, String> {
    match settings.text("when-unavailable").as_deref() {
        None | Some("wait") => Ok(WhenUnavailable::Wait),
        Some("handle") => Ok(WhenUnavailable::Handle),
        Some(other) => Err(format!(
            "when-unavailable is {other:?}: choose wait, or handle, which may handle duplicates"
        )),
    }
}
