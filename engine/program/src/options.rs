//! [`Options`]: the values of all flags of a program.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use crate::command_line::{self, CommandLine, Given};
use crate::config_file::{File, FileError};
use crate::flag::{self, Flag, FlagOf, Kind};
use crate::flag_set::FlagSet;
use crate::log::{Format, Style};
use crate::program::{Exit, Program};
use crate::value::{FlagValue, Value};
use crate::version;
use wire::go_value::duration_text;

/// The value of every flag. The command line takes precedence over the configuration file, and the
/// file over the default.
///
/// [`Options::read`] returns the values of the program's flags in their types. Methods that take the name of a flag take it
/// without dashes, and panic if the program has no such flag.
#[derive(Clone, Debug)]
pub struct Options {
    program: &'static Program,
    hostname: String,
    /// The values of the command line.
    given: Given,
    arguments: Vec<String>,
    values: BTreeMap<&'static str, Value>,
    /// The names of the flags that the configuration file has.
    in_file: BTreeSet<&'static str>,
    unknown_keys: Vec<String>,
    overruled_keys: Vec<String>,
}

impl Program {
    /// Reads the command line, without the program's name, and the configuration file that
    /// `--config` names.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub fn options(
        &'static self,
        args: impl IntoIterator<Item = OsString>,
        hostname: &str,
    ) -> Result<Options, Exit> {
        self.options_checked_before_version(args, hostname, |_| Ok(()))
    }

    /// Does the same as [`Program::options`], for a program that checks some arguments and values
    /// before it looks for `--version`. `check` returns the reason for the user.
    ///
    /// # Errors
    /// The program ends: as for [`Program::options`], or `check` refuses the command line.
    pub fn options_checked_before_version(
        &'static self,
        args: impl IntoIterator<Item = OsString>,
        hostname: &str,
        check: impl FnOnce(&Options) -> Result<(), String>,
    ) -> Result<Options, Exit> {
        let command_line = command_line::parse(|name| self.flag(name), args)
            .map_err(|stop| self.stopped(stop, hostname))?;
        let asks_version = command_line.given.get("version") == Some(&Value::Boolean(true));
        let shown = Exit {
            code: 0,
            stdout: format!("{}\n{}\n", (self.version)(self.name), version::of_ringq()),
            stderr: String::new(),
        };
        let options = Options::collect(self, command_line, hostname);
        if asks_version && options.is_err() {
            return Err(shown);
        }
        let options = options.map_err(|error| match error {
            FileError::Fatal(why) => self.fatal(&why),
            FileError::Error(why) => self.failed(&format!("ERROR: {why}")),
        })?;
        check(&options).map_err(|why| self.failed(&why))?;
        if asks_version {
            Err(shown)
        } else {
            Ok(options)
        }
    }
}

impl PartialEq for Options {
    fn eq(&self, other: &Options) -> bool {
        self.values == other.values && self.unknown_keys == other.unknown_keys
    }
}

impl Options {
    pub(crate) fn collect(
        program: &'static Program,
        CommandLine { given, arguments }: CommandLine,
        hostname: &str,
    ) -> Result<Options, FileError> {
        let file = match config_path(&given) {
            Some(path) => File::read(program, path)?,
            None => File::default(),
        };
        let mut values = BTreeMap::new();
        let mut in_file = BTreeSet::new();
        let mut overruled_keys = Vec::new();
        for flag in program.all_flags() {
            if file.has(flag) {
                in_file.insert(flag.name);
            }
            let value = match given.get(flag.name) {
                Some(value) => {
                    // A value that counts for nothing may be wrong, as in NSQ's programs.
                    let in_file = file.value(program, flag, hostname).ok().flatten();
                    if in_file.is_some_and(|in_file| !in_file.means(value)) {
                        overruled_keys.extend(flag.key());
                    }
                    value.clone()
                }
                None => file
                    .value(program, flag, hostname)?
                    .unwrap_or_else(|| command_line::default_value(flag, hostname)),
            };
            values.insert(flag.name, value);
        }
        Ok(Options {
            program,
            hostname: hostname.to_owned(),
            given,
            arguments,
            values,
            in_file,
            unknown_keys: file.unknown_keys(program),
            overruled_keys,
        })
    }

    /// Reads the configuration file again, and returns the values of all flags. Those of the command
    /// line stay.
    ///
    /// # Errors
    /// The reason for the operator.
    pub fn reread(&self) -> Result<Options, String> {
        let command_line = CommandLine {
            given: self.given.clone(),
            arguments: self.arguments.clone(),
        };
        let read = Options::collect(self.program, command_line, &self.hostname);
        read.map_err(FileError::into_why)
    }

    /// Returns the path of the configuration file.
    pub fn config_path(&self) -> Option<&str> {
        config_path(&self.given)
    }

    /// Returns the arguments after the flags. Most of NSQ's programs ignore them.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns true if the command line has the flag.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Returns the flags that the command line or the configuration file has, but those about both, and whether NSQ's
    /// program lacks the flag.
    pub fn set_flags(&self) -> impl Iterator<Item = (&'static Flag, bool)> {
        let flags = self.program.flags.iter().map(|flag| (flag, false));
        let own = self.program.own_flags.iter().map(|flag| (flag, true));
        flags.chain(own).filter(|(flag, _)| {
            let is_set = self.is_given(flag.name) || self.in_file.contains(flag.name);
            is_set && !matches!(flag.name, "check" | "config" | "like")
        })
    }

    /// Returns the flags with a key, each with its key and its value.
    pub fn keys(&self) -> impl Iterator<Item = (&'static Flag, String, &Value)> {
        let flags = self.program.all_flags();
        flags.filter_map(|flag| Some((flag, flag.key()?, self.value(flag.name))))
    }

    /// Returns the keys whose value in the configuration file counts for nothing, because the command
    /// line has another value.
    pub fn overruled_keys(&self) -> &[String] {
        &self.overruled_keys
    }

    /// Returns the value of a key of the configuration file, or `None` if no flag has this key.
    pub fn by_key(&self, key: &str) -> Option<&Value> {
        let has_key = |flag: &&Flag| flag.key().is_some_and(|known| known == key);
        self.values
            .get(self.program.all_flags().find(has_key)?.name)
    }

    /// Returns the keys and tables of the configuration file that belong to no flag. NSQ's programs
    /// ignore them without a message. An operator who mistyped a key needs one.
    pub fn unknown_keys(&self) -> &[String] {
        &self.unknown_keys
    }

    /// Returns a sentence for each part of the command line and the configuration file that counts for nothing. NSQ's
    /// daemons ignore these parts without a message.
    pub fn ignored(&self) -> Vec<String> {
        let mut ignored = Vec::new();
        if !self.unknown_keys.is_empty() {
            let keys = self.unknown_keys.join(", ");
            ignored.push(format!(
                "keys in the config file that mean nothing, ignored: {keys}"
            ));
        }
        if !self.arguments.is_empty() {
            let words = self.arguments.join(" ");
            ignored.push(format!(
                "everything from a word on that is no flag is ignored: {words} (a value of a boolean flag follows behind =)"
            ));
        }
        ignored
    }

    /// Returns the value of a flag.
    pub fn value(&self, name: &str) -> &Value {
        &self.values[name]
    }

    /// Returns the value of a flag of this program, in its type.
    pub fn get<T: FlagValue>(&self, flag: &FlagOf<T>) -> T {
        T::of(self.value(flag.name()))
    }

    /// Returns the values of flags of this program.
    ///
    /// # Errors
    /// A value is wrong. The error is the reason for the operator.
    pub fn read<F: FlagSet>(&self) -> Result<F, String> {
        F::read(self)
    }

    /// Returns the name of the host.
    pub fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Returns the style of the log from `--log-prefix` and `--log-format`
    /// ([`flag::log_prefix`], [`flag::LOG_FORMAT`]).
    pub fn log_style(&self) -> Style {
        Style {
            program: self.program.name,
            prefix: self.get(&flag::log_prefix("")),
            format: self.get(&flag::LOG_FORMAT),
        }
    }

    /// Returns the style of a tool's log from `--log-format` ([`flag::LOG_FORMAT`]): lines without prefix and level, or
    /// JSON.
    pub fn log_style_of_tool(&self) -> Style {
        Style {
            program: self.program.name,
            prefix: String::new(),
            format: match self.get(&flag::LOG_FORMAT) {
                Format::Text => Format::Plain,
                format => format,
            },
        }
    }

    /// Checks an integer or a duration against the bounds in the table of flags. Flags of other
    /// types always pass.
    ///
    /// # Errors
    /// The error is the reason for the operator: `--max-deflate-level must be [1,9]`.
    pub fn check_bounds(&self, name: &str) -> Result<(), String> {
        let (min, max, shown): (_, _, fn(i64) -> String) =
            match self.program.flag(name).map(|flag| flag.kind) {
                Some(Kind::Integer(min, max)) => (min, max, |bound| bound.to_string()),
                Some(Kind::Duration(min, max)) => (min, max, |bound| {
                    duration_text(Duration::from_nanos(bound as u64))
                }),
                _ => return Ok(()),
            };
        match self.value(name) {
            Value::Integer(value) | Value::Duration(value) if !(min..=max).contains(value) => {}
            _ => return Ok(()),
        }
        Err(match (min, max) {
            (0, i64::MAX) => format!("--{name} must not be negative"),
            (1, i64::MAX) => format!("--{name} must be greater than {}", shown(0)),
            _ => format!("--{name} must be [{},{}]", shown(min), shown(max)),
        })
    }
}

fn config_path(given: &Given) -> Option<&str> {
    match given.get("config") {
        Some(Value::Text(path)) if !path.is_empty() => Some(path),
        _ => None,
    }
}
