//! [`Dedup`]: the flags `--dedup` and `--dedup-state`, which let a consuming tool recognise messages that it has handled
//! before.
//!
//! ```text
//!   --dedup=KEY[,filter=FILTER][,OPTION=VALUE]...
//!           │            │       └─ settings: those of the filter
//!           │            └─ inverse, forgetful, time-limited, roaring, memcached
//!           └─ body, json:/pointer
//! ```

mod settings;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use program::flag::{Flag, Kind};
use program::{Options, log_info, log_warn};
use ringq_client::dedup::filters::{
    ForgetfulBloom, ForgetfulOptions, InverseBloom, KeyHasher, Memcached, MemcachedOptions,
    RoaringPair, TimeLimitedBloom, TimeLimitedOptions, arithmetic,
};
use ringq_client::dedup::{self, Filter, JsonPointer, Key, StoreFailure};

use self::settings::Settings;

/// The recognition of messages that were handled before.
pub const DEDUP: Flag = Flag::new(
    "dedup",
    Kind::Text,
    "",
    "finish messages that were handled before: body or json:/pointer (what copies have in common), then options such as \
     filter=inverse,slots=1000000 (docs/deduplication.md). filter=forgetful and filter=time-limited may drop fresh messages",
)
.without_key()
.checked_by(check);

/// The file of the filter.
pub const DEDUP_STATE: Flag = Flag::new(
    "dedup-state",
    Kind::Text,
    "",
    "path of the file that keeps the filter of --dedup over restarts; written at the end and once per minute",
)
.without_key();

/// The time between two saves of the filter.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// The slots of an inverse Bloom filter, and the numbers of a source, if the command line does not say how many.
const KEYS_DEFAULT: u64 = 1_000_000;

/// The values of `--dedup` and `--dedup-state`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dedup {
    key: KeyPlace,
    filter: Plan,
    state: Option<PathBuf>,
}

/// The part that two copies of a message have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyPlace {
    Body,
    Json(JsonPointer),
}

/// A filter that is to be made.
#[derive(Clone, Debug, PartialEq)]
enum Plan {
    Inverse {
        slots: u64,
    },
    Forgetful {
        window: Duration,
        rate: f64,
        false_positives: f64,
    },
    TimeLimited {
        window: Duration,
        rate: f64,
        rate_max: f64,
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
        lease: Duration,
        window: Duration,
        when_away: StoreFailure,
    },
}

impl Dedup {
    /// Reads the flags. `None` without `--dedup`.
    ///
    /// # Errors
    /// A value is wrong. The error is the text for the user.
    pub fn from_options(options: &Options) -> Result<Option<Dedup>, String> {
        let state = Some(options.text(DEDUP_STATE.name)).filter(|path| !path.is_empty());
        let value = options.text(DEDUP.name);
        if value.is_empty() {
            return match state {
                Some(_) => Err("--dedup-state needs --dedup".to_owned()),
                None => Ok(None),
            };
        }
        let mut dedup = Dedup::parse(&value).map_err(|why| format!("--dedup: {why}"))?;
        if state.is_some() && matches!(dedup.filter, Plan::Memcached { .. }) {
            return Err(
                "memcached keeps its own state: use --dedup-state only with another filter"
                    .to_owned(),
            );
        }
        dedup.state = state.map(PathBuf::from);
        Ok(Some(dedup))
    }

    /// Reads the value of `--dedup`.
    fn parse(value: &str) -> Result<Dedup, String> {
        let mut parts = value.split(',');
        let key = parse_key(parts.next().unwrap_or_default())?;
        let mut settings = Settings::parse(parts)?;
        let filter = settings
            .text("filter")
            .unwrap_or_else(|| "inverse".to_owned());
        let filter = match filter.as_str() {
            "inverse" => inverse(&mut settings)?,
            "forgetful" => Plan::Forgetful {
                window: settings.needed_duration("window")?,
                rate: settings.needed_rate("rate")?,
                false_positives: settings.probability("false-positives", 0.001)?,
            },
            "time-limited" => {
                let rate = settings.needed_rate("rate")?;
                Plan::TimeLimited {
                    window: settings.needed_duration("window")?,
                    rate,
                    rate_max: settings.rate("rate-max")?.unwrap_or(2.0 * rate),
                    false_positives: settings.probability("false-positives", 0.001)?,
                }
            }
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
                lease: settings
                    .duration("lease")?
                    .unwrap_or(Duration::from_secs(60)),
                window: settings
                    .duration("window")?
                    .unwrap_or(Duration::from_secs(3600)),
                when_away: when_away(&mut settings)?,
            },
            other => {
                return Err(format!(
                    "there is no filter {other:?}: choose inverse, forgetful, time-limited, roaring or memcached"
                ));
            }
        };
        settings.end()?;
        let dedup = Dedup {
            key,
            filter,
            state: None,
        };
        if matches!(dedup.filter, Plan::Roaring { .. }) && dedup.key == KeyPlace::Body {
            return Err(
                "filter=roaring compares numbers: use json:/pointer of a number instead of body"
                    .to_owned(),
            );
        }
        Ok(dedup)
    }

    /// Makes the filter, which takes its memory now, and logs what it is. A saved filter is restored.
    ///
    /// # Errors
    /// The sizes make no filter, or the saved filter cannot be used. The error is the text for the user.
    pub fn start(&self) -> Result<dedup::Dedup, String> {
        let filter = self.filter().map_err(|why| format!("--dedup: {why}"))?;
        let mut builder = dedup::Dedup::builder(self.key(), filter);
        if let Some(path) = &self.state {
            builder = builder.state_file(path).save_interval(SAVE_INTERVAL);
        }
        if let Plan::Memcached { when_away, .. } = &self.filter {
            builder = builder.when_store_fails(*when_away);
        }
        let dedup = builder
            .build()
            .map_err(|error| format!("--dedup-state: {error}"))?;
        log_info!(
            "de-duplication by {}: {}",
            self.key_text(),
            self.describe(&dedup)
        );
        if let Some(warning) = self.warning() {
            log_warn!("WARNING: {warning}");
        }
        Ok(dedup)
    }

    fn key(&self) -> Key {
        let json = "a pointer that was parsed is a pointer";
        match (&self.key, &self.filter) {
            (KeyPlace::Body, _) => Key::body(),
            (KeyPlace::Json(number), Plan::Roaring { source, .. }) => {
                let source = source.as_ref().map(JsonPointer::to_string);
                Key::json_number(source.as_deref(), &number.to_string()).expect(json)
            }
            (KeyPlace::Json(pointer), _) => Key::json(&pointer.to_string()).expect(json),
        }
    }

    fn key_text(&self) -> String {
        match &self.key {
            KeyPlace::Body => "body".to_owned(),
            KeyPlace::Json(pointer) => format!("json:{pointer}"),
        }
    }

    fn filter(&self) -> Result<Filter, String> {
        let hasher = KeyHasher::new(rand::random());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since_1970.unwrap_or_default();
        let no_sizes = |error: ringq_client::dedup::filters::SizeError| error.to_string();
        Ok(match &self.filter {
            Plan::Inverse { slots } => InverseBloom::with_hasher(*slots, hasher)
                .map_err(no_sizes)?
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
                ForgetfulBloom::new(options, now).map_err(no_sizes)?.into()
            }
            Plan::TimeLimited {
                window,
                rate,
                rate_max,
                false_positives,
            } => {
                let options = TimeLimitedOptions {
                    window: *window,
                    rate: *rate,
                    rate_max: *rate_max,
                    false_positives_max: *false_positives,
                    hasher,
                };
                TimeLimitedBloom::new(options, now)
                    .map_err(no_sizes)?
                    .into()
            }
            Plan::Roaring {
                numbers, sources, ..
            } => RoaringPair::new(*numbers, *sources as usize)
                .map_err(no_sizes)?
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

    /// Returns the filter and its memory in words.
    fn describe(&self, dedup: &dedup::Dedup) -> String {
        let filter = match &self.filter {
            Plan::Inverse { slots } => format!("inverse Bloom filter with {slots} slots"),
            Plan::Forgetful { window, rate, .. } => {
                format!("forgetful Bloom filter for {window:?} at {rate} messages per second")
            }
            Plan::TimeLimited {
                window,
                rate,
                rate_max,
                ..
            } => format!(
                "time-limited Bloom filter for {window:?} at {rate} to {rate_max} messages per second"
            ),
            Plan::Roaring {
                numbers, sources, ..
            } => format!(
                "exact sets of the last {numbers} numbers of {sources} sources; memory follows the numbers"
            ),
            Plan::Memcached {
                address,
                lease,
                window,
                ..
            } => {
                return format!(
                    "memcached at {address}, leases of {lease:?}, window of {window:?}"
                );
            }
        };
        let state = match (&self.state, dedup.is_restored()) {
            (Some(path), true) => format!(", restored from {}", path.display()),
            (Some(path), false) => format!(", new in {}", path.display()),
            (None, _) => String::new(),
        };
        format!("{filter}, {} bytes of memory{state}", dedup.bytes())
    }

    /// Returns what the user must know about a filter that may drop fresh messages.
    fn warning(&self) -> Option<String> {
        let (name, bound) = match &self.filter {
            Plan::Forgetful {
                false_positives, ..
            } => ("forgetful", false_positives),
            Plan::TimeLimited {
                false_positives, ..
            } => ("time-limited", false_positives),
            _ => return None,
        };
        Some(format!(
            "filter={name} takes up to {bound} of the fresh messages for duplicates, and finishes them: these messages are \
             lost. filter=inverse loses none"
        ))
    }
}

fn check(value: &str) -> Result<(), String> {
    match value.is_empty() {
        true => Ok(()),
        false => Dedup::parse(value).map(drop),
    }
}

fn parse_key(text: &str) -> Result<KeyPlace, String> {
    match (text, text.strip_prefix("json:")) {
        ("body", _) => Ok(KeyPlace::Body),
        (_, Some(pointer)) => Ok(KeyPlace::Json(parse_pointer(pointer)?)),
        _ => Err(format!(
            "the key is {text:?}: begin with body, or with json: and a pointer such as json:/id"
        )),
    }
}

fn parse_pointer(text: &str) -> Result<JsonPointer, String> {
    text.parse()
        .map_err(|error: dedup::PointerError| error.to_string())
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

fn when_away(settings: &mut Settings) -> Result<StoreFailure, String> {
    match settings.text("when-away").as_deref() {
        None | Some("wait") => Ok(StoreFailure::Wait),
        Some("handle") => Ok(StoreFailure::Handle),
        Some(other) => Err(format!(
            "when-away is {other:?}: choose wait, or handle, which may handle duplicates"
        )),
    }
}

#[cfg(test)]
mod tests;
