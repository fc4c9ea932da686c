//! [`Value`]: what a flag or a key of the configuration file was given; [`Options`]: all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::file::{File, FileError};
use super::table::{self, Flag, Kind};
use super::{TlsRequired, TlsVersion, go_value};
use crate::log::Level;

/// A value of one of the types in the table of flags.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A boolean.
    Switch(bool),
    /// Any text.
    Text(String),
    /// Texts, in order.
    List(Vec<String>),
    /// Numbers, in order.
    Floats(Vec<f64>),
    /// An empty list in the configuration file: nsqd stores a nil slice for it, and shows `null`.
    NoList,
    /// Of `--log-level`.
    Level(Level),
    /// Of `--tls-required`.
    TlsRequired(TlsRequired),
    /// Of `--tls-min-version`.
    TlsVersion(TlsVersion),
    /// An integer.
    Integer(i64),
    /// Nanoseconds.
    Span(i64),
}

/// Why a text is no value of a flag. The text is complete: only the parser knows flag, value and
/// reason together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadValue {
    pub(super) text: String,
    /// nsqd ends at once, with code 1 and without the usage text.
    pub(super) is_final: bool,
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for BadValue {}

impl Value {
    /// The value of a flag on the command line.
    pub(super) fn parse(flag: &Flag, text: &str) -> Result<Value, BadValue> {
        let bad = |text: String| BadValue {
            text,
            is_final: false,
        };
        let name = flag.name;
        let refuse = |reason: &dyn fmt::Display| {
            bad(format!("invalid value {text:?} for flag -{name}: {reason}"))
        };
        let refuse_boolean = |reason: &dyn fmt::Display| {
            bad(format!(
                "invalid boolean value {text:?} for -{name}: {reason}"
            ))
        };
        match flag.kind {
            Kind::Text => Ok(Value::Text(text.to_string())),
            Kind::List => Ok(Value::List(vec![text.to_string()])),
            Kind::Floats => go_value::parse_floats(text)
                .map(Value::Floats)
                .map_err(|part| BadValue {
                    text: format!("Could not parse: {part}"),
                    is_final: true,
                }),
            Kind::Switch => go_value::parse_bool(text)
                .map(Value::Switch)
                .map_err(|why| refuse_boolean(&why)),
            Kind::TlsRequired => go_value::parse_tls_required(text)
                .map(Value::TlsRequired)
                .map_err(|why| refuse_boolean(&why)),
            Kind::TlsVersion => go_value::parse_tls_version(text)
                .map(Value::TlsVersion)
                .map_err(|why| refuse(&why)),
            Kind::Level => text
                .parse()
                .map(Value::Level)
                .map_err(|why: crate::log::UnknownLevel| refuse(&why)),
            Kind::Integer(..) => go_value::parse_int(text)
                .map(Value::Integer)
                .map_err(|why| refuse(&why)),
            Kind::Span(..) => go_value::parse_duration(text)
                .map(Value::Span)
                .map_err(|why| refuse(&why)),
        }
    }
}

/// The value of every flag, by its name: from the command line, else from the configuration file,
/// else the default.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    values: BTreeMap<&'static str, Value>,
    /// Keys of the configuration file that name nothing.
    pub(super) unknown_keys: Vec<String>,
}

impl Options {
    pub(super) fn collect(
        matches: &ArgMatches,
        file: &File,
        hostname: &str,
    ) -> Result<Options, FileError> {
        let mut values = BTreeMap::new();
        for flag in table::flags() {
            let is_given = matches.value_source(flag.name) == Some(ValueSource::CommandLine);
            let from_file = if is_given {
                None
            } else {
                file.value(flag, hostname)?
            };
            let value = from_file.unwrap_or_else(|| matched(matches, flag));
            values.insert(flag.name, value);
        }
        Ok(Options {
            values,
            unknown_keys: file.unknown_keys(),
        })
    }

    /// The value of a key of the configuration file, with its type.
    pub fn by_key(&self, key: &str) -> Option<&Value> {
        let has_key = |flag: &&Flag| flag.key().is_some_and(|known| known == key);
        self.values.get(table::flags().find(has_key)?.name)
    }

    fn value(&self, name: &str) -> &Value {
        &self.values[name]
    }

    pub(super) fn switch(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Switch(value) => *value,
            other => mistyped(name, other),
        }
    }

    pub(super) fn text(&self, name: &str) -> String {
        match self.value(name) {
            Value::Text(value) => value.clone(),
            other => mistyped(name, other),
        }
    }

    pub(super) fn list(&self, name: &str) -> Vec<String> {
        self.list_or_none(name).unwrap_or_default()
    }

    pub(super) fn list_or_none(&self, name: &str) -> Option<Vec<String>> {
        match self.value(name) {
            Value::List(value) => Some(value.clone()),
            Value::NoList => None,
            other => mistyped(name, other),
        }
    }

    pub(super) fn floats(&self, name: &str) -> Vec<f64> {
        match self.value(name) {
            Value::Floats(value) => value.clone(),
            Value::NoList => Vec::new(),
            other => mistyped(name, other),
        }
    }

    pub(super) fn level(&self, name: &str) -> Level {
        match self.value(name) {
            Value::Level(value) => *value,
            other => mistyped(name, other),
        }
    }

    pub(super) fn tls_required(&self, name: &str) -> TlsRequired {
        match self.value(name) {
            Value::TlsRequired(value) => *value,
            other => mistyped(name, other),
        }
    }

    pub(super) fn tls_version(&self, name: &str) -> TlsVersion {
        match self.value(name) {
            Value::TlsVersion(value) => *value,
            other => mistyped(name, other),
        }
    }

    /// An integer, or a duration in nanoseconds.
    pub(super) fn number(&self, name: &str) -> i64 {
        match self.value(name) {
            Value::Integer(value) | Value::Span(value) => *value,
            other => mistyped(name, other),
        }
    }

    /// An integer, with negative ones as 0 and large ones as the largest that fits.
    pub(super) fn count<T: TryFrom<i64>>(&self, name: &str, max: T) -> T {
        T::try_from(self.number(name).max(0)).unwrap_or(max)
    }

    /// A duration, with negative ones as 0.
    pub(super) fn span(&self, name: &str) -> Duration {
        Duration::from_nanos(self.count(name, u64::MAX))
    }
}

/// What clap has: the command line's value or the default.
fn matched(matches: &ArgMatches, flag: &Flag) -> Value {
    let mut given = matches.get_many::<Value>(flag.name).into_iter().flatten();
    match flag.kind {
        Kind::List => Value::List(
            given
                .flat_map(|value| match value {
                    Value::List(texts) => texts.clone(),
                    other => mistyped(flag.name, other),
                })
                .collect(),
        ),
        Kind::Floats => {
            let mut numbers: Vec<f64> = given
                .flat_map(|value| match value {
                    Value::Floats(numbers) => numbers.clone(),
                    other => mistyped(flag.name, other),
                })
                .collect();
            // nsqd's order. In a configuration file they stay as they are.
            numbers.sort_by(|a, b| b.total_cmp(a));
            Value::Floats(numbers)
        }
        _ => given
            .next()
            .cloned()
            .expect("every other flag has a default"),
    }
}

fn mistyped(name: &str, value: &Value) -> ! {
    unreachable!("the table says otherwise about --{name} than {value:?}")
}
