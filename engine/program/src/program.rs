//! [`Program`]: the name of a program and its table of flags.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::command_line::Stop;
use crate::flag::{Flag, Kind};
use crate::flag_set::FlagSet;
use crate::go_value;
use crate::log;

/// A program with its command line.
#[derive(Debug)]
pub struct Program {
    /// The name: `nsqd`.
    pub name: &'static str,
    /// Returns the first line of the output of `--version` for a name:
    /// [`version::of_daemon`](crate::version::of_daemon) or
    /// [`version::of_tool`](crate::version::of_tool).
    pub version: fn(&str) -> String,
    /// The flags of NSQ's program of this name.
    pub flags: &'static [Flag],
    /// The flags that only this project's program has.
    pub own_flags: &'static [Flag],
}

/// The end of the program, caused by the command line or the configuration file: the output and the
/// exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// 0 for `--help` and `--version`, 2 for errors in the flags, 1 for values that are refused.
    pub code: u8,
    /// The text for standard output.
    pub stdout: String,
    /// The text for standard error.
    pub stderr: String,
}

impl Exit {
    /// Prints the texts. Returns the result of `main`.
    pub fn print(&self) -> ExitCode {
        print!("{}", self.stdout);
        eprint!("{}", self.stderr);
        ExitCode::from(self.code)
    }

    fn error(code: u8, stderr: String) -> Exit {
        Exit {
            code,
            stdout: String::new(),
            stderr,
        }
    }
}

impl Program {
    /// Returns the program of this name with the flags of `F`. `version` is [`Program::version`].
    pub const fn of<F: FlagSet>(name: &'static str, version: fn(&str) -> String) -> Program {
        Program {
            name,
            version,
            flags: F::FLAGS,
            own_flags: F::OWN_FLAGS,
        }
    }

    /// Returns the end of a tool that cannot start: a line with the time and the reason, and exit
    /// code 1.
    pub fn failed(&self, why: &str) -> Exit {
        Exit::error(1, log::bare_line(why))
    }

    /// Returns the end of a program that refuses a value of a flag while it reads the command line:
    /// the reason, the usage text, and exit code 2.
    pub fn refused(&self, flag: &str, value: &str, why: &str, hostname: &str) -> Exit {
        let line = format!("invalid value {value:?} for flag -{flag}: {why}");
        self.stopped(Stop::Error(line), hostname)
    }

    /// Returns the end of a daemon that cannot start: a FATAL line, and exit code 1.
    pub fn fatal(&self, why: &str) -> Exit {
        Exit::error(1, log::fatal_line(self.name, why))
    }

    /// Returns every flag, in the order of the tables.
    pub fn all_flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.flags.iter().chain(self.own_flags)
    }

    /// Returns the flag of this name.
    pub fn flag(&self, name: &str) -> Option<&'static Flag> {
        self.all_flags().find(|flag| flag.name == name)
    }

    pub(crate) fn stopped(&self, stop: Stop, hostname: &str) -> Exit {
        match stop {
            Stop::Help => Exit::error(0, self.usage(hostname)),
            Stop::Error(line) => Exit::error(2, format!("{line}\n{}", self.usage(hostname))),
            Stop::Final(line) => Exit::error(1, log::bare_line(&line)),
        }
    }

    /// Returns the usage text in the format of Go's `flag` package. The flags are sorted by name.
    /// Our own flags come last.
    fn usage(&self, hostname: &str) -> String {
        let name = self.name;
        let mut usage = format!("Usage of {name}:\n");
        append_usage(&mut usage, self.flags, hostname);
        if !self.own_flags.is_empty() {
            usage += &format!("Flags of ringq that the original {name} does not have:\n");
            append_usage(&mut usage, self.own_flags, hostname);
        }
        usage
    }
}

fn append_usage(usage: &mut String, flags: &[Flag], hostname: &str) {
    let mut flags: Vec<&Flag> = flags.iter().collect();
    flags.sort_by_key(|flag| flag.name);
    for flag in flags {
        let Flag { name, kind, .. } = flag;
        let help = flag.meaning();
        let word = kind.word();
        let space = if word.is_empty() { "" } else { " " };
        let default = match (flag.default_on(hostname).as_str(), kind) {
            ("" | "0" | "false" | "0s", _) => String::new(),
            (value, Kind::Text | Kind::Choice(_)) => format!(" (default {value:?})"),
            (value, Kind::Float) => {
                let number = go_value::parse_float(value).map(go_value::float_text);
                format!(" (default {})", number.as_deref().unwrap_or(value))
            }
            (value, Kind::Level) => format!(" (default {})", value.to_uppercase()),
            (value, _) => format!(" (default {value})"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(usage, "  -{name}{space}{word}\n    \t{help}{default}");
    }
}
