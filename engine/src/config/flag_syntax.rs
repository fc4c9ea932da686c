//! A command line as Go's `flag` package takes it apart. The result goes to clap as `--name=value`,
//! one argument per flag; clap never sees anything that it could understand differently.

use std::ffi::OsString;

use clap::ArgMatches;

use super::ConfigExit;
use super::table;
use super::value::BadValue;
use crate::log;

/// Why the command line cannot be read further.
enum Stop {
    /// `-h`, `-help`, `--help`: the usage text is the answer, and it is not an error.
    Help,
    /// The line to print before the usage text.
    Error(String),
}

/// Reads all flags. The first error from the left wins, whether it is one of syntax (found here) or
/// of a value (found by clap): so what stands before a syntax error is judged first.
pub(super) fn parse(
    hostname: &str,
    args: impl IntoIterator<Item = OsString>,
) -> Result<ArgMatches, ConfigExit> {
    let mut plain = Vec::new();
    let stopped = collect(args, &mut plain);
    let matches = table::command(hostname)
        .try_get_matches_from(plain)
        .map_err(|error| {
            let source = std::error::Error::source(&error);
            match source.and_then(|source| source.downcast_ref::<BadValue>()) {
                Some(bad) if bad.is_final => ConfigExit {
                    code: 1,
                    stdout: String::new(),
                    stderr: log::bare_line(&bad.text),
                },
                Some(bad) => exit(hostname, Stop::Error(bad.text.clone())),
                None => exit(hostname, Stop::Error(error.to_string())),
            }
        })?;
    match stopped {
        Ok(()) => Ok(matches),
        Err(stop) => Err(exit(hostname, stop)),
    }
}

fn exit(hostname: &str, stop: Stop) -> ConfigExit {
    let usage = table::usage(hostname);
    let (code, stderr) = match stop {
        Stop::Help => (0, usage),
        Stop::Error(line) => (2, format!("{line}\n{usage}")),
    };
    ConfigExit {
        code,
        stdout: String::new(),
        stderr,
    }
}

/// Rewrites flags into `plain` until the first argument that is no flag; what follows is ignored,
/// as nsqd does.
fn collect(args: impl IntoIterator<Item = OsString>, plain: &mut Vec<String>) -> Result<(), Stop> {
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        // An argument that is not Unicode cannot be a flag of ours, but it can hold one's value.
        let arg = arg.into_string().map_err(|arg| not_unicode(&arg))?;
        let Some((name, value)) = split(&arg)? else {
            break;
        };
        let Some(flag) = table::find(name) else {
            return Err(undefined(name));
        };
        let value = match (value, flag.kind.is_switch()) {
            (Some(value), _) => value.to_string(),
            (None, true) => "true".to_string(),
            (None, false) => match args.next() {
                Some(value) => value.into_string().map_err(|value| not_unicode(&value))?,
                None => return Err(Stop::Error(format!("flag needs an argument: -{name}"))),
            },
        };
        plain.push(format!("--{name}={value}"));
    }
    Ok(())
}

/// A flag's name and its value after `=`; `None` for an argument that ends the flags.
fn split(arg: &str) -> Result<Option<(&str, Option<&str>)>, Stop> {
    let Some(one_dash) = arg.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
        return Ok(None);
    };
    let body = one_dash.strip_prefix('-').unwrap_or(one_dash);
    if one_dash == "-" {
        return Ok(None);
    }
    if body.is_empty() || body.starts_with(['-', '=']) {
        return Err(Stop::Error(format!("bad flag syntax: {arg}")));
    }
    Ok(Some(match body.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (body, None),
    }))
}

fn undefined(name: &str) -> Stop {
    if name == "help" || name == "h" {
        return Stop::Help;
    }
    Stop::Error(format!("flag provided but not defined: -{name}"))
}

fn not_unicode(arg: &OsString) -> Stop {
    Stop::Error(format!("argument is not valid UTF-8: {arg:?}"))
}
