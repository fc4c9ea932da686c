//! [`Flag`]: one row of a program's table of flags. [`new`] declares a flag.

use std::fmt;
use std::marker::PhantomData;

use crate::go_value;
use crate::log::{Format, Level};
use crate::value::{BadValue, FlagValue, Value, choice};

pub use crate::value::{Kind, Words};

/// One row of a program's table of flags.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name without dashes.
    pub name: &'static str,
    /// The type of the values, with the accepted values.
    pub kind: Kind,
    /// The value of a flag that is not given.
    pub default: DefaultValue,
    /// The text in `--help` and in the documentation.
    pub help: &'static str,
    /// The effect, compared with that of the flag of NSQ's program.
    pub effect: Effect,
    key: Key,
    field: Option<&'static str>,
    check: Option<Check>,
}

/// The effect of a flag, compared with that of the flag of NSQ's program. `--check` and the documentation tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// NSQ's.
    Same,
    /// Another one. The text says which.
    Differs(&'static str),
    /// None. The text says why.
    Nothing(&'static str),
}

/// A function that returns the reason why a text is not a value of a flag.
pub type Check = fn(&str) -> Result<(), String>;

/// The value of a flag that is not given, as command-line text.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// This text.
    Fixed(&'static str),
    /// The result of this function for the name of the host.
    OfHost(fn(&str) -> String),
}

/// The key of a flag in the configuration file and in `/config`.
#[derive(Clone, Copy, Debug)]
enum Key {
    /// The name with underscores.
    Name,
    Other(&'static str),
    None,
}

/// A [`Flag`] with the type of its values in the program. It is the declaration of the flag in [`flags!`](crate::flags).
#[derive(Debug)]
pub struct FlagOf<T> {
    row: Flag,
    value: PhantomData<fn() -> T>,
}

/// Returns a flag whose key is its name with underscores. `default` is the value of a flag that is not given, as a text of
/// the command line.
pub const fn new<T: FlagValue>(
    name: &'static str,
    default: &'static str,
    help: &'static str,
) -> FlagOf<T> {
    FlagOf {
        row: Flag {
            name,
            kind: T::KIND,
            default: DefaultValue::Fixed(default),
            help,
            effect: Effect::Same,
            key: Key::Name,
            field: None,
            check: None,
        },
        value: PhantomData,
    }
}

impl<T> FlagOf<T> {
    /// Returns the row of the table.
    pub const fn row(&self) -> Flag {
        self.row
    }

    /// Returns the name without dashes.
    pub const fn name(&self) -> &'static str {
        self.row.name
    }

    /// Returns the flag with bounds of its number, both inclusive. A duration has nanoseconds.
    /// [`Options::check_bounds`](crate::Options::check_bounds) compares them.
    #[must_use]
    pub const fn within(mut self, min: i64, max: i64) -> FlagOf<T> {
        self.row.kind = match self.row.kind {
            Kind::Integer(..) => Kind::Integer(min, max),
            Kind::Duration(..) => Kind::Duration(min, max),
            _ => panic!("only numbers have bounds"),
        };
        self
    }

    /// Returns the flag with a lower bound of its number.
    #[must_use]
    pub const fn at_least(self, min: i64) -> FlagOf<T> {
        self.within(min, i64::MAX)
    }

    /// Returns the flag with a default that depends on the name of the host.
    #[must_use]
    pub const fn of_host(mut self, default: fn(&str) -> String) -> FlagOf<T> {
        self.row.default = DefaultValue::OfHost(default);
        self
    }

    /// Returns the flag with this key.
    #[must_use]
    pub const fn with_key(mut self, key: &'static str) -> FlagOf<T> {
        self.row.key = Key::Other(key);
        self
    }

    /// Returns the flag without a key: only the command line has it.
    #[must_use]
    pub const fn without_key(mut self) -> FlagOf<T> {
        self.row.key = Key::None;
        self
    }

    /// Returns the flag with another field than its name suggests. See [`Flag::field`].
    #[must_use]
    pub const fn with_field(mut self, field: &'static str) -> FlagOf<T> {
        self.row.field = Some(field);
        self
    }

    /// Returns the flag with another effect than in NSQ's program.
    #[must_use]
    pub const fn differing(mut self, how: &'static str) -> FlagOf<T> {
        self.row.effect = Effect::Differs(how);
        self
    }

    /// Returns the flag as one without effect.
    #[must_use]
    pub const fn without_effect(mut self, why: &'static str) -> FlagOf<T> {
        self.row.effect = Effect::Nothing(why);
        self
    }

    /// Returns the flag with a check for each value on the command line. The check runs before the
    /// type is parsed. A refusal is an error in the flags: it ends the program with code 2.
    #[must_use]
    pub const fn checked_by(mut self, check: Check) -> FlagOf<T> {
        self.row.check = Some(check);
        self
    }
}

impl FlagOf<String> {
    /// Returns the flag with these texts as its only values.
    #[must_use]
    pub const fn one_of(mut self, choices: &'static [&'static str]) -> FlagOf<String> {
        self.row.kind = Kind::Choice(choices);
        self
    }
}

impl Flag {
    /// Returns the default on this host.
    pub(crate) fn default_on(&self, hostname: &str) -> String {
        match self.default {
            DefaultValue::Fixed(text) => text.to_string(),
            DefaultValue::OfHost(text) => text(hostname),
        }
    }

    /// Returns the key in the configuration file and in `/config`, or `None` if the flag has no
    /// key.
    pub fn key(&self) -> Option<String> {
        match self.key {
            Key::Name => Some(self.name.replace('-', "_")),
            Key::Other(key) => Some(key.to_string()),
            Key::None => None,
        }
    }

    /// Returns the name of the field in NSQ's program. Errors of the configuration file contain
    /// this name.
    pub fn field(&self) -> String {
        if let Some(field) = self.field {
            return field.to_string();
        }
        let mut field = String::new();
        for word in self.name.split('-') {
            match word {
                "acl" | "ca" | "cidr" | "e2e" | "http" | "https" | "tcp" | "tls" | "udp"
                | "url" => {
                    field.push_str(&word.to_ascii_uppercase());
                }
                _ => {
                    let (first, rest) = word.split_at(1);
                    field.push_str(&first.to_ascii_uppercase());
                    field.push_str(rest);
                }
            }
        }
        field
    }

    /// Returns the help, with what the flag does unlike NSQ's.
    pub fn meaning(&self) -> String {
        let help = self.help;
        match self.effect {
            Effect::Same => help.to_owned(),
            Effect::Differs(how) => format!("{help}. Unlike NSQ: {how}"),
            Effect::Nothing(why) => format!("{help}. No effect: {why}"),
        }
    }

    /// Parses a value on the command line.
    pub(crate) fn parse(&self, text: &str) -> Result<Value, BadValue> {
        let bad = |text: String| BadValue {
            text,
            is_final: false,
        };
        let name = self.name;
        let refuse = |reason: &dyn fmt::Display| {
            bad(format!("invalid value {text:?} for flag -{name}: {reason}"))
        };
        let refuse_boolean = |reason: &dyn fmt::Display| {
            bad(format!(
                "invalid boolean value {text:?} for -{name}: {reason}"
            ))
        };
        self.check(text).map_err(|why| refuse(&why))?;
        match self.kind {
            Kind::Text => Ok(Value::Text(text.to_string())),
            Kind::Choice(choices) => choice(choices, text).map_err(|why| refuse(&why)),
            Kind::List => Ok(Value::List(vec![text.to_string()])),
            Kind::Floats => go_value::parse_floats(text)
                .map(Value::Floats)
                .map_err(|part| BadValue {
                    text: format!("Could not parse: {part}"),
                    is_final: true,
                }),
            Kind::Float => go_value::parse_float(text)
                .map(Value::Float)
                .ok_or_else(|| refuse(&go_value::PARSE_ERROR)),
            Kind::Boolean => go_value::parse_bool(text)
                .map(Value::Boolean)
                .map_err(|why| refuse_boolean(&why)),
            Kind::Word(words) => (words.parse)(text).map(Value::Word).map_err(|why| {
                if words.is_boolean {
                    refuse_boolean(&why)
                } else {
                    refuse(&why)
                }
            }),
            Kind::Level => text
                .parse()
                .map(Value::Level)
                .map_err(|why: String| refuse(&why)),
            Kind::Integer(..) => go_value::parse_int(text)
                .map(Value::Integer)
                .map_err(|why| refuse(&why)),
            Kind::Duration(..) => go_value::parse_duration(text)
                .map(Value::Duration)
                .map_err(|why| refuse(&why)),
        }
    }

    pub(crate) fn check(&self, text: &str) -> Result<(), String> {
        self.check.map_or(Ok(()), |check| check(text))
    }
}

impl Kind {
    /// Returns the type as Go's usage text names it. Booleans have no name there.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Boolean => "",
            Kind::Text | Kind::Choice(_) => "string",
            Kind::List | Kind::Floats | Kind::Level | Kind::Word(_) => "value",
            Kind::Float => "float",
            Kind::Integer(..) => "int",
            Kind::Duration(..) => "duration",
        }
    }

    /// Returns true for a flag that means `true` without a value.
    pub fn is_boolean(self) -> bool {
        match self {
            Kind::Boolean => true,
            Kind::Word(words) => words.is_boolean,
            _ => false,
        }
    }
}

/// The flag that prints the version and ends the program.
pub const VERSION: FlagOf<bool> = new("version", "false", "print version string").without_key();

/// The path of the configuration file.
pub const CONFIG: FlagOf<String> =
    new("config", "", "path to a configuration file (TOML)").without_key();

/// The lowest level that is logged.
pub const LOG_LEVEL: FlagOf<Level> = new(
    "log-level",
    "info",
    "set log verbosity: debug, info, warn, error, or fatal",
);

/// The prefix of each log line. `default` is the name of the program in brackets and a space.
pub const fn log_prefix(default: &'static str) -> FlagOf<String> {
    new("log-prefix", default, "log message prefix")
}

/// The form of the log's lines. NSQ's programs have no such flag.
pub const LOG_FORMAT: FlagOf<Format> = new(
    "log-format",
    "text",
    "form of log lines: text, or json: one object a line with time, level, program and message",
);

/// The names under which clients may reach the HTTP interface of nsqd and nsqlookupd. NSQ's programs have no such flag.
pub const ALLOWED_HOST: FlagOf<Vec<String>> = new(
    "allowed-host",
    "",
    "name in Host that is answered; any name if none is given (may be given multiple times)",
);

/// A flag without effect that NSQ's daemons still accept.
pub const VERBOSE: FlagOf<bool> = new(
    "verbose",
    "false",
    "[deprecated] has no effect, use --log-level",
)
.without_key()
.without_effect("NSQ ignores it, too");

/// Returns `hostname`, for a flag whose default is the name of the host.
pub fn hostname_itself(hostname: &str) -> String {
    hostname.to_string()
}
