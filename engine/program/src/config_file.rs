//! The configuration file, in TOML. Its keys are those of the flags. NSQ's programs convert the
//! values in the same way, but where they crash or turn a value into another one, the start fails
//! here.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use toml::Value as Toml;
use wire::go_error::system_text;

use crate::flag::{Flag, Kind};
use crate::go_value;
use crate::program::Program;
use crate::value::{self, Value};

/// The keys and values of a file. There are none without a file.
#[derive(Debug, Default)]
pub(crate) struct File {
    table: toml::Table,
    /// The path, for errors.
    path: String,
}

/// The reason why a file, or a value in it, is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileError {
    /// NSQ's programs report it as FATAL.
    Fatal(String),
    /// NSQ's programs report it as ERROR, without their prefix.
    Error(String),
}

impl FileError {
    /// Returns the text, whatever the level.
    pub(crate) fn into_why(self) -> String {
        let (FileError::Fatal(why) | FileError::Error(why)) = self;
        why
    }
}

impl File {
    /// Reads a file and checks its words. Like NSQ's programs, checks a word even if a flag
    /// overrules it.
    pub(crate) fn read(program: &Program, path: &str) -> Result<File, FileError> {
        let fail =
            |why: String| FileError::Fatal(format!("failed to load config file {path} - {why}"));
        let text = std::fs::read(Path::new(path)).map_err(|error| {
            let verb = match error.kind() {
                io::ErrorKind::IsADirectory => "read",
                _ => "open",
            };
            fail(format!("{verb} {path}: {}", system_text(&error)))
        })?;
        let text = String::from_utf8(text).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            fail(format!("toml: the text is not UTF-8 at byte {at}"))
        })?;
        let file = File {
            table: parse(&text).map_err(fail)?,
            path: path.to_owned(),
        };
        file.check_words(program)?;
        Ok(file)
    }

    /// Checks the words. Like nsqd, checks the level of the log last.
    fn check_words(&self, program: &Program) -> Result<(), FileError> {
        let is_level = |flag: &&Flag| matches!(flag.kind, Kind::Level);
        let words = program.all_flags().filter(|flag| !is_level(flag));
        for flag in words.chain(program.all_flags().filter(is_level)) {
            if let Some((key, given)) = self.given(flag) {
                self.word(flag.kind, &key, given).transpose()?;
            }
        }
        Ok(())
    }

    /// Returns the key of a flag and its value in this file, or `None` if the file has no value.
    fn given(&self, flag: &Flag) -> Option<(String, &Toml)> {
        let key = flag.key()?;
        let given = self.table.get(&key)?;
        Some((key, given))
    }

    /// Returns true if the file has a value of the flag.
    pub(crate) fn has(&self, flag: &Flag) -> bool {
        self.given(flag).is_some()
    }

    /// Returns the value of a flag in this file, or `None` if the file has no value.
    pub(crate) fn value(
        &self,
        program: &Program,
        flag: &Flag,
        hostname: &str,
    ) -> Result<Option<Value>, FileError> {
        let Some((key, given)) = self.given(flag) else {
            return Ok(None);
        };
        if let Some(word) = self.word(flag.kind, &key, given) {
            return word.map(Some);
        }
        convert(program, flag.kind, given).map(Some).map_err(|why| {
            let default = match flag.kind {
                Kind::List | Kind::Floats => "[]".to_string(),
                _ => flag.default_on(hostname),
            };
            FileError::Error(format!(
                "Resolve failed to coerce value {} ({default}) for field {} - {why}{}",
                go_text(given),
                flag.field(),
                self.place(&format!("key {key} in")),
            ))
        })
    }

    /// Returns the keys and tables that belong to no flag. NSQ's programs ignore them without a
    /// message.
    pub(crate) fn unknown_keys(&self, program: &Program) -> Vec<String> {
        let known: BTreeSet<String> = program.all_flags().filter_map(Flag::key).collect();
        let unknown = self.table.keys().filter(|key| !known.contains(*key));
        unknown.cloned().collect()
    }

    /// Returns the value of a flag whose values are words, or `None` for a flag of another type.
    fn word(&self, kind: Kind, key: &str, given: &Toml) -> Option<Result<Value, FileError>> {
        let parsed = match (kind, given) {
            (Kind::Word(words), Toml::Boolean(is_true)) if words.is_boolean => {
                (words.parse)(&is_true.to_string()).ok().map(Value::Word)
            }
            (Kind::Word(words), Toml::String(text)) => (words.parse)(text).ok().map(Value::Word),
            (Kind::Level, Toml::String(text)) => text.parse().ok().map(Value::Level),
            (Kind::Choice(choices), Toml::String(text)) => value::choice(choices, text).ok(),
            (Kind::Word(_) | Kind::Level | Kind::Choice(_), _) => None,
            _ => return None,
        };
        // nsqd gives no reason.
        let refusal = || {
            let place = self.place("in");
            FileError::Fatal(format!("failed parsing {key} {}{place}", go_text(given)))
        };
        Some(parsed.ok_or_else(refusal))
    }

    /// Returns the place of a value, which follows the original's text: ` (key msg_timeout in nsqd.toml)`.
    fn place(&self, what: &str) -> String {
        format!(" ({what} {})", self.path)
    }
}

/// Parses the text. The error says where the syntax is wrong.
fn parse(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        let why = error.message().replace('\n', " ");
        format!("toml: line {line}: {why}")
    })
}

/// Converts a value to the flag's type. The error is the reason of the refusal.
fn convert(program: &Program, kind: Kind, given: &Toml) -> Result<Value, String> {
    match kind {
        Kind::List | Kind::Floats if given.as_array().is_some_and(Vec::is_empty) => {
            Ok(Value::NoList)
        }
        Kind::Text => match given {
            Toml::String(text) => Ok(Value::Text(text.clone())),
            other => Err(wrong_type("string", other)),
        },
        Kind::Boolean => match given {
            Toml::Boolean(value) => Ok(Value::Boolean(*value)),
            Toml::String(text) => go_value::parse_bool(text)
                .map(Value::Boolean)
                .map_err(|_| format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
            Toml::Integer(_) => {
                let name = program.name;
                Err(format!("write true or false: {name} takes 0 for true"))
            }
            other => Err(wrong_type("bool", other)),
        },
        Kind::Float => match given {
            Toml::Float(number) => Ok(Value::Float(*number)),
            Toml::String(text) => go_value::parse_float(text)
                .map(Value::Float)
                .ok_or_else(|| format!("strconv.ParseFloat: parsing {text:?}: invalid syntax")),
            other => Err(wrong_type("float64", other)),
        },
        Kind::Integer(..) => match given {
            Toml::Integer(value) => Ok(Value::Integer(*value)),
            Toml::String(text) => go_value::parse_decimal(text)
                .map(Value::Integer)
                .map_err(|why| format!("strconv.ParseInt: parsing {text:?}: {why}")),
            other => Err(wrong_type("int64", other)),
        },
        Kind::Duration(..) => match given {
            Toml::Integer(millis) => Ok(Value::Duration(millis.saturating_mul(1_000_000))),
            Toml::String(text) => go_value::parse_duration(text)
                .map(Value::Duration)
                .map_err(|_| go_value::duration_error(text)),
            other => Err(wrong_type("time.Duration", other)),
        },
        Kind::List => match given {
            Toml::String(text) => Ok(Value::List(text.split(',').map(str::to_string).collect())),
            Toml::Array(array) => {
                let text = |element: &Toml| element.as_str().map(str::to_owned);
                elements(array, "strings", text).map(Value::List)
            }
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
            Toml::Array(array) => {
                elements(array, "floats (1.0, not 1)", Toml::as_float).map(Value::Floats)
            }
            other => Err(wrong_type("[]float64", other)),
        },
        Kind::Level | Kind::Word(_) | Kind::Choice(_) => {
            unreachable!("words are no plain values")
        }
    }
}

fn wrong_type(wanted: &str, given: &Toml) -> String {
    format!("invalid {wanted} value type {}", go_type(given))
}

/// Reads the elements of an array, each of which must be one of `wanted`.
fn elements<T>(
    array: &[Toml],
    wanted: &str,
    read: impl Fn(&Toml) -> Option<T>,
) -> Result<Vec<T>, String> {
    let wrong = |it| format!("{} in an array that takes only {wanted}", go_text(it));
    let elements = array.iter().map(|it| read(it).ok_or_else(|| wrong(it)));
    elements.collect()
}

/// Returns Go's name of a value's type.
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

/// Formats a value as Go prints it (`%v`).
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
