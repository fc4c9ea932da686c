//! [`Dedup`]: the flags `--dedup` and `--dedup-state`, which let a consuming tool recognise messages that it has
//! handled before.
//!
//! ```text
//!   --dedup=KEY[,filter=FILTER][,OPTION=VALUE]...
//!           │            │       └─ settings: those of the filter
//!           │            └─ plan: inverse, forgetful, roaring, memcached
//!           └─ body, json:/pointer
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use program::flag::{self, FlagOf};
use program::{Options, log_info, log_warn};
use ringq_client::dedup::filters::{
    ForgetfulBloom, ForgetfulOptions, InverseBloom, KeyHasher, Memcached, MemcachedOptions,
    RoaringPair, arithmetic,
};
use ringq_client::dedup::{self, AnyFilter, JsonPointer, Key, PointerError, WhenUnavailable};
use tokio::task::spawn_blocking;
use wire::go_value::parse_duration;

use super::given::given;

/// The recognition of messages that were handled before.
pub const DEDUP: FlagOf<String> = flag::new(
    "dedup",
    "",
    "finish messages that were handled before: body or json:/pointer, then options of the filter",
)
.without_key()
.checked_by(check);

/// The file of the filter.
pub const DEDUP_STATE: FlagOf<String> = flag::new(
    "dedup-state",
    "",
    "file that keeps the filter of --dedup over restarts",
)
.without_key();

/// The time between two saves of the filter.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// The values of `--dedup` and `--dedup-state`.
#[derive(Clone, Debug)]
pub struct Dedup {
    /// The part that two copies of a message have in common. `None` means the body.
    key: Option<JsonPointer>,
    filter: Plan,
    state: Option<PathBuf>,
}

impl Dedup {
    /// Reads the flags. `None` without `--dedup`.
    ///
    /// # Errors
    /// A value is wrong. The error is the text for the user.
    pub fn from_options(options: &Options) -> Result<Option<Dedup>, String> {
        let given =
            |flag: &FlagOf<String>, wanted| given(options, flag.name(), options.get(flag), wanted);
        let value = given(&DEDUP, "body, or json: and a pointer such as json:/id")?;
        let state = given(&DEDUP_STATE, "the path of the filter's file")?;
        let Some(value) = value else {
            return match state {
                Some(_) => Err("--dedup-state needs --dedup".to_owned()),
                None => Ok(None),
            };
        };
        let mut dedup = Dedup::parse(&value).map_err(|why| format!("--dedup: {why}"))?;
        if state.is_some() && matches!(dedup.filter, Plan::Memcached(..)) {
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
        let filter = Plan::parse(&mut settings)?;
        settings.end()?;
        if matches!(filter, Plan::Roaring { .. }) && key.is_none() {
            return Err(
                "filter=roaring compares numbers: use json:/pointer of a number instead of body"
                    .to_owned(),
            );
        }
        Ok(Dedup {
            key,
            filter,
            state: None,
        })
    }

    /// Makes the filter, which takes its memory now, and logs what it is. A saved filter is restored, on a thread that
    /// may block: a disk that hangs does not keep the tool from its signals.
    ///
    /// # Errors
    /// The sizes make no filter, or the saved filter cannot be used. The error is the text for the user.
    pub async fn start(&self) -> Result<dedup::Dedup, String> {
        let flags = self.clone();
        let made = spawn_blocking(move || flags.make()).await;
        let dedup = made.map_err(|error| format!("--dedup: {error}"))??;
        if let Plan::Memcached(_, when_unavailable) = &self.filter {
            tokio::spawn(warn_if_unavailable(dedup.clone(), *when_unavailable));
        }
        Ok(dedup)
    }

    fn make(&self) -> Result<dedup::Dedup, String> {
        let filter = self
            .filter
            .make()
            .map_err(|why| format!("--dedup: {why}"))?;
        let mut builder = dedup::Dedup::builder(self.key(), filter);
        if let Some(path) = &self.state {
            builder = builder.state_file(path).save_interval(SAVE_INTERVAL);
        }
        if let Plan::Memcached(_, when_unavailable) = &self.filter {
            builder = builder.when_store_unavailable(*when_unavailable);
        }
        let dedup = builder
            .build()
            .map_err(|error| format!("--dedup-state: {error}"))?;
        log_info!(
            "deduplication by {}: {}",
            self.key_text(),
            self.describe(&dedup)
        );
        if let Some(warning) = self.filter.warning() {
            log_warn!("{warning}");
        }
        if let Some(warning) = dedup.state_warning() {
            log_warn!("--dedup-state: {warning}");
        }
        Ok(dedup)
    }

    fn key(&self) -> Key {
        let json = "a pointer that was parsed is a pointer";
        match (&self.key, &self.filter) {
            (None, _) => Key::body(),
            (Some(number), Plan::Roaring { source, .. }) => {
                let source = source.as_ref().map(JsonPointer::to_string);
                Key::json_number(source.as_deref(), &number.to_string()).expect(json)
            }
            (Some(pointer), _) => Key::json(&pointer.to_string()).expect(json),
        }
    }

    fn key_text(&self) -> String {
        match &self.key {
            None => "body".to_owned(),
            Some(pointer) => format!("json:{pointer}"),
        }
    }

    /// Returns the filter, its memory and its file in words.
    fn describe(&self, dedup: &dedup::Dedup) -> String {
        let filter = self.filter.describe();
        if let Plan::Memcached(..) = self.filter {
            return filter;
        }
        let state = match (&self.state, dedup.is_restored()) {
            (Some(path), true) => format!(", restored from {}", path.display()),
            (Some(path), false) => format!(", new in {}", path.display()),
            (None, _) => String::new(),
        };
        let (now, most) = (dedup.bytes(), dedup.bytes_max());
        let memory = match self.filter.bytes_if_consecutive() {
            None => format!("{most} bytes of memory"),
            Some(usual) => format!(
                "{now} bytes of memory now, at most {usual} if the numbers of each source follow each other, and {most} \
                 otherwise"
            ),
        };
        format!("{filter}, {memory}{state}")
    }
}

/// Logs a warning if memcached is unavailable at the start, before a message needs it.
async fn warn_if_unavailable(dedup: dedup::Dedup, when_unavailable: WhenUnavailable) {
    if let Err(error) = dedup.check_store().await {
        let meanwhile = match when_unavailable {
            WhenUnavailable::Wait => "messages wait",
            WhenUnavailable::Handle => "messages are handled without the filter",
        };
        log_warn!("--dedup: {error}; {meanwhile} until it answers");
    }
}

/// Checks a value of `--dedup`. [`Dedup::from_options`] refuses an empty one: the flag's default is empty, too.
fn check(value: &str) -> Result<(), String> {
    if value.is_empty() {
        Ok(())
    } else {
        Dedup::parse(value).map(drop)
    }
}

fn parse_key(text: &str) -> Result<Option<JsonPointer>, String> {
    match (text, text.strip_prefix("json:")) {
        ("body", _) => Ok(None),
        (_, Some(pointer)) => parse_pointer(pointer).map(Some),
        _ => Err(format!(
            "the key is {text:?}: begin with body, or with json: and a pointer such as json:/id"
        )),
    }
}

/// The slots of an inverse Bloom filter, and the numbers of a source, if the command line does not say how many.
const KEYS_DEFAULT: u64 = 1_000_000;

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
    Roaring {
        numbers: u64,
        sources: u64,
        source: Option<JsonPointer>,
    },
    /// All consumers need the same secret, so it is that of the options.
    Memcached(MemcachedOptions, WhenUnavailable),
}

impl Plan {
    /// Takes the name of the filter and its options. The error is the text for the user.
    fn parse(settings: &mut Settings) -> Result<Plan, String> {
        let filter = settings
            .text("filter")
            .unwrap_or_else(|| "inverse".to_owned());
        Ok(match filter.as_str() {
            "inverse" => inverse(settings)?,
            "forgetful" => Plan::Forgetful {
                window: settings
                    .duration("window")?
                    .ok_or("this filter needs window, a duration such as 1h")?,
                rate: settings.needed_rate("rate")?,
                false_positives: settings.probability("false-positives", 0.001)?,
            },
            "roaring" => Plan::Roaring {
                numbers: settings.count("numbers", KEYS_DEFAULT)?,
                sources: settings.count("sources", 1000)?,
                source: settings
                    .text("source")
                    .map(|pointer| parse_pointer(&pointer))
                    .transpose()?,
            },
            "memcached" => {
                let address = settings
                    .text("address")
                    .ok_or("this filter needs address=host:port or unix:///path")?;
                let mut options = MemcachedOptions::new(&address);
                if let Some(prefix) = settings.text("prefix") {
                    options.prefix = prefix;
                }
                options.lease = settings.duration("lease")?;
                if let Some(window) = settings.duration("window")? {
                    options.window = window;
                }
                Plan::Memcached(options, when_unavailable(settings)?)
            }
            other => {
                return Err(format!(
                    "there is no filter {other:?}: choose inverse, forgetful, roaring or memcached"
                ));
            }
        })
    }

    /// Makes the filter, which takes its memory now. The error is the text for the user.
    fn make(&self) -> Result<AnyFilter, Box<dyn Error>> {
        let hasher = KeyHasher::new(rand::random());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since_1970.unwrap_or_default();
        Ok(match self {
            Plan::Inverse { slots } => InverseBloom::with_hasher(*slots, hasher)?.into(),
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
                ForgetfulBloom::new(options, now)?.into()
            }
            Plan::Roaring {
                numbers, sources, ..
            } => RoaringPair::new(*numbers, *sources as usize)?.into(),
            Plan::Memcached(options, _) => Memcached::new(options.clone())?.into(),
        })
    }

    /// Returns the filter in words.
    fn describe(&self) -> String {
        match self {
            Plan::Inverse { slots } => format!("inverse Bloom filter with {slots} slots"),
            Plan::Forgetful { window, rate, .. } => {
                format!("forgetful Bloom filter for {window:?} at {rate} messages per second")
            }
            Plan::Roaring {
                numbers, sources, ..
            } => format!("exact sets of the last {numbers} numbers of {sources} sources"),
            Plan::Memcached(options, _) => {
                let (address, window) = (&options.address, options.window);
                let lease = match options.lease {
                    Some(lease) => format!("{lease:?}"),
                    None => "the message timeout".to_owned(),
                };
                format!("memcached at {address}, leases of {lease}, window of {window:?}")
            }
        }
    }

    /// Returns the most bytes that a filter of numbers takes in the usual case. Its bound, which is that of random
    /// numbers, is two thousand times as high. Other filters have no usual case.
    fn bytes_if_consecutive(&self) -> Option<u64> {
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
    fn warning(&self) -> Option<String> {
        match self {
            Plan::Forgetful {
                false_positives, ..
            } => Some(format!(
                "filter=forgetful takes up to {false_positives} of the fresh messages for duplicates, and finishes them: \
                 these messages are lost. filter=inverse loses none"
            )),
            _ => None,
        }
    }
}

/// Parses a JSON pointer. The error is the text for the user.
fn parse_pointer(text: &str) -> Result<JsonPointer, String> {
    text.parse()
        .map_err(|error: PointerError| error.to_string())
}

/// Reads the sizes of an inverse Bloom filter: its slots, or what they follow from.
fn inverse(settings: &mut Settings) -> Result<Plan, String> {
    let Some(window) = settings.duration("window")? else {
        let slots = settings.count("slots", KEYS_DEFAULT)?;
        return Ok(Plan::Inverse { slots });
    };
    if settings.left.iter().any(|(name, _)| name == "slots") {
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

/// The options that no one has taken yet, in their order.
#[derive(Debug)]
struct Settings {
    left: Vec<(String, String)>,
    /// The names that the filter knows, for the error about one that it does not know.
    known: Vec<&'static str>,
}

impl Settings {
    /// Reads texts in the form `name=value`.
    fn parse<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Settings, String> {
        let mut left: Vec<(String, String)> = Vec::new();
        for text in texts {
            let Some((name, value)) = text.split_once('=') else {
                return Err(format!("{text:?} is no option: write name=value"));
            };
            if value.is_empty() {
                return Err(format!("{name} has no value"));
            }
            if left.iter().any(|(known, _)| known == name) {
                return Err(format!("{name} is given twice"));
            }
            left.push((name.to_owned(), value.to_owned()));
        }
        Ok(Settings {
            left,
            known: Vec::new(),
        })
    }

    /// Takes the value of an option.
    fn text(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let index = self.left.iter().position(|(known, _)| known == name)?;
        Some(self.left.remove(index).1)
    }

    /// Takes a value that `read` understands. `form` says what values must be.
    fn value<T>(
        &mut self,
        name: &'static str,
        form: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let value = read(&text);
        let value = value.ok_or_else(|| format!("{name} is {text:?}, and must be {form}"))?;
        Ok(Some(value))
    }

    /// Takes a duration above zero.
    fn duration(&mut self, name: &'static str) -> Result<Option<Duration>, String> {
        self.value(name, "a duration above zero, such as 1h30m", |text| {
            let ns = u64::try_from(parse_duration(text).ok()?).ok()?;
            (ns > 0).then(|| Duration::from_nanos(ns))
        })
    }

    /// Takes a number for which `is_right` returns true.
    fn number<T: FromStr>(
        &mut self,
        name: &'static str,
        form: &str,
        is_right: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, String> {
        self.value(name, form, |text| text.parse().ok().filter(is_right))
    }

    /// Takes a rate in messages per second, which must be there.
    fn needed_rate(&mut self, name: &'static str) -> Result<f64, String> {
        let form = "a number of messages per second above zero";
        let rate = self.number(name, form, |rate: &f64| rate.is_finite() && *rate > 0.0)?;
        rate.ok_or_else(|| format!("window needs {name}, the usual number of messages per second"))
    }

    /// Takes a number above zero.
    fn count(&mut self, name: &'static str, default: u64) -> Result<u64, String> {
        let count = self.number(name, "a whole number above zero", |count| *count > 0)?;
        Ok(count.unwrap_or(default))
    }

    /// Takes a probability that is neither 0 nor 1.
    fn probability(&mut self, name: &'static str, default: f64) -> Result<f64, String> {
        let form = "a probability between 0 and 1";
        let value = self.number(name, form, |value| *value > 0.0 && *value < 1.0)?;
        Ok(value.unwrap_or(default))
    }

    /// Refuses options that the filter does not know.
    fn end(self) -> Result<(), String> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!(
                "this filter has no option {name}; it has: {}",
                self.known.join(", ")
            )),
        }
    }
}

#[cfg(test)]
mod tests;
