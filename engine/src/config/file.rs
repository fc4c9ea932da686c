//! The configuration file: TOML, its keys the flags' names with underscores, its values converted
//! as nsqd converts them. Where nsqd crashes or makes something else of a value, the start fails.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use toml::Value as Toml;

use super::go_value;
use super::table::{self, Flag, Kind};
use super::value::Value;
use crate::log::Level;

/// A file's keys and values; none without a file.
#[derive(Debug, Default)]
pub(super) struct File {
    table: toml::Table,
}

/// Why a file, or a value in it, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileError {
    /// nsqd reports it as FATAL.
    Fatal(String),
    /// nsqd reports it as ERROR, without its prefix.
    Error(String),
}

impl File {
    /// Reads a file, and checks the three values that nsqd checks even if flags overrule them.
    pub(super) fn read(path: &str) -> Result<File, FileError> {
        let fail =
            |why: String| FileError::Fatal(format!("failed to load config file {path} - {why}"));
        let text = std::fs::read(Path::new(path)).map_err(|error| {
            let verb = match error.kind() {
                io::ErrorKind::IsADirectory => "read",
                _ => "open",
            };
            fail(format!("{verb} {path}: {}", diskq::system_text(&error)))
        })?;
        let text = String::from_utf8(text).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            fail(format!("toml: byte {at} and those behind it are not UTF-8"))
        })?;
        File::parse(&text).map_err(|error| match error {
            FileError::Error(why) => fail(why),
            fatal => fatal,
        })
    }

    /// The error of a syntax error is `Error`, to be put into words by the caller.
    pub(super) fn parse(text: &str) -> Result<File, FileError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.unwrap_or_default().matches('\n').count() + 1;
            let why = error.message().replace('\n', " ");
            FileError::Error(format!("toml: line {line}: {why}"))
        })?;
        let file = File { table };
        for key in ["tls_required", "tls_min_version", "log_level"] {
            if let Some(given) = file.table.get(key) {
                word(key, given)?;
            }
        }
        Ok(file)
    }

    /// The value of a flag in this file, `None` if it has none.
    pub(super) fn value(&self, flag: &Flag, hostname: &str) -> Result<Option<Value>, FileError> {
        let given = flag.key().and_then(|key| self.table.get(&key));
        let Some(given) = given else {
            return Ok(None);
        };
        if let Kind::Level | Kind::TlsRequired | Kind::TlsVersion = flag.kind {
            return word(&flag.key().unwrap_or_default(), given).map(Some);
        }
        convert(flag.kind, given).map(Some).map_err(|why| {
            let default = match flag.kind {
                Kind::List | Kind::Floats => "[]".to_string(),
                _ => flag.default_on(hostname),
            };
            FileError::Error(format!(
                "Resolve failed to coerce value {} ({default}) for field {} - {why}",
                go_text(given),
                flag.field(),
            ))
        })
    }

    /// Keys and tables that no flag has, which nsqd ignores without a word.
    pub(super) fn unknown_keys(&self) -> Vec<String> {
        let known: BTreeSet<String> = table::flags().filter_map(Flag::key).collect();
        let unknown = self.table.keys().filter(|key| !known.contains(*key));
        unknown.cloned().collect()
    }
}

/// The three that are words of their own.
fn word(key: &str, given: &Toml) -> Result<Value, FileError> {
    let parsed = match (key, given) {
        ("tls_required", Toml::Boolean(is_required)) => {
            go_value::parse_tls_required(&is_required.to_string()).map(Value::TlsRequired)
        }
        ("tls_required", Toml::String(text)) => {
            go_value::parse_tls_required(text).map(Value::TlsRequired)
        }
        ("tls_min_version", Toml::String(text)) => {
            go_value::parse_tls_version(text).map(Value::TlsVersion)
        }
        ("log_level", Toml::String(text)) => text
            .parse::<Level>()
            .map(Value::Level)
            .map_err(|error| error.to_string()),
        _ => Err("of another type".to_string()),
    };
    // nsqd gives no reason.
    parsed.map_err(|_| FileError::Fatal(format!("failed parsing {key} {}", go_text(given))))
}

/// The error is the reason.
fn convert(kind: Kind, given: &Toml) -> Result<Value, String> {
    match kind {
        Kind::List | Kind::Floats if given.as_array().is_some_and(Vec::is_empty) => {
            Ok(Value::NoList)
        }
        Kind::Text => match given {
            Toml::String(text) => Ok(Value::Text(text.clone())),
            other => Err(wrong_type("string", other)),
        },
        Kind::Switch => match given {
            Toml::Boolean(value) => Ok(Value::Switch(*value)),
            Toml::String(text) => go_value::parse_bool(text)
                .map(Value::Switch)
                .map_err(|_| format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
            Toml::Integer(_) => Err("write true or false: nsqd takes 0 for true".to_string()),
            other => Err(wrong_type("bool", other)),
        },
        Kind::Integer(..) => match given {
            Toml::Integer(value) => Ok(Value::Integer(*value)),
            Toml::String(text) => go_value::parse_decimal(text)
                .map(Value::Integer)
                .map_err(|why| format!("strconv.ParseInt: parsing {text:?}: {why}")),
            other => Err(wrong_type("int64", other)),
        },
        Kind::Span(..) => match given {
            Toml::Integer(millis) => Ok(Value::Span(millis.saturating_mul(1_000_000))),
            Toml::String(text) => go_value::parse_duration(text)
                .map(Value::Span)
                .map_err(|_| go_value::duration_error(text)),
            other => Err(wrong_type("time.Duration", other)),
        },
        Kind::List => match given {
            Toml::String(text) => Ok(Value::List(text.split(',').map(str::to_string).collect())),
            Toml::Array(elements) => elements
                .iter()
                .map(|element| match element {
                    Toml::String(text) => Ok(text.clone()),
                    other => Err(wrong_element("strings", other)),
                })
                .collect::<Result<_, _>>()
                .map(Value::List),
            other => Err(wrong_type("[]string", other)),
        },
        Kind::Floats => match given {
            Toml::String(text) => text
                .split(',')
                .map(|part| {
                    let part = part.trim();
                    go_value::parse_float(part).ok_or_else(|| {
                        format!("strconv.ParseFloat: parsing {part:?}: invalid syntax")
                    })
                })
                .collect::<Result<_, _>>()
                .map(Value::Floats),
            Toml::Array(elements) => elements
                .iter()
                .map(|element| match element {
                    Toml::Float(number) => Ok(*number),
                    other => Err(wrong_element("floats (1.0, not 1)", other)),
                })
                .collect::<Result<_, _>>()
                .map(Value::Floats),
            other => Err(wrong_type("[]float64", other)),
        },
        Kind::Level | Kind::TlsRequired | Kind::TlsVersion => {
            unreachable!("words are no plain values")
        }
    }
}

fn wrong_type(wanted: &str, given: &Toml) -> String {
    format!("invalid {wanted} value type {}", go_type(given))
}

fn wrong_element(wanted: &str, given: &Toml) -> String {
    format!("{} in an array that takes only {wanted}", go_text(given))
}

/// Go's name of a value's type.
fn go_type(value: &Toml) -> &'static str {
    match value {
        Toml::String(_) => "string",
        Toml::Integer(_) => "int64",
        Toml::Float(_) => "float64",
        Toml::Boolean(_) => "bool",
        Toml::Datetime(_) => "time.Time",
        Toml::Array(_) => "[]interface {}",
        Toml::Table(_) => "map[string]interface {}",
    }
}

/// A value as Go prints it (`%v`).
fn go_text(value: &Toml) -> String {
    match value {
        Toml::String(text) => text.clone(),
        Toml::Integer(number) => number.to_string(),
        Toml::Float(number) => go_value::float_text(*number),
        Toml::Boolean(value) => value.to_string(),
        Toml::Datetime(at) => at.to_string(),
        Toml::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(go_text).collect();
            format!("[{}]", elements.join(" "))
        }
        Toml::Table(table) => {
            let mut pairs: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_text(value)))
                .collect();
            pairs.sort();
            format!("map[{}]", pairs.join(" "))
        }
    }
}
