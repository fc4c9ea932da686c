//! Parses a command line like Go's `flag` package.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::flag::{Flag, Kind};
use crate::value::{BadValue, Value};

/// The values of the given flags, by name.
pub(crate) type Given = BTreeMap<&'static str, Value>;

/// A parsed command line.
pub(crate) struct CommandLine {
    pub(crate) given: Given,
    /// The arguments from the first one that is not a flag. The mark `--` is not among them.
    pub(crate) arguments: Vec<String>,
}

/// The reason why the parser stops.
pub(crate) enum Stop {
    /// `-h`, `-help`, `--help`: the usage text is the answer, and it is not an error.
    Help,
    /// The line to print before the usage text.
    Error(String),
    /// The line to print instead of the usage text.
    Final(String),
}

impl From<BadValue> for Stop {
    fn from(bad: BadValue) -> Stop {
        if bad.is_final {
            Stop::Final(bad.text)
        } else {
            Stop::Error(bad.text)
        }
    }
}

/// Parses the flags up to the first argument that is not a flag. The leftmost error is the result. With `--check`, the
/// flags of the start to check may follow the mark `--`.
pub(crate) fn parse(
    find: impl Fn(&str) -> Option<&'static Flag>,
    args: impl IntoIterator<Item = OsString>,
) -> Result<CommandLine, Stop> {
    let mut given = Given::new();
    let mut arguments = Vec::new();
    let mut args = args.into_iter();
    let mut has_mark = false;
    while let Some(arg) = args.next() {
        // An argument that is not Unicode cannot be a flag of ours, but it can be the value of one.
        let arg = arg.into_string().map_err(|arg| not_unicode(&arg))?;
        let Some((name, value)) = split(&arg)? else {
            if arg == "--" && !has_mark && given.contains_key("check") {
                has_mark = true;
                continue;
            }
            let argument = Some(arg).filter(|arg| arg != "--");
            let rest = args.map(|arg| arg.to_string_lossy().into_owned());
            arguments.extend(argument.into_iter().chain(rest));
            break;
        };
        let Some(flag) = find(name) else {
            return Err(undefined(name));
        };
        let value = match (value, flag.kind.is_boolean()) {
            (Some(value), _) => flag.parse(value)?,
            (None, true) => flag.parse("true")?,
            (None, false) => match args.next() {
                Some(value) => {
                    let value = value.into_string().map_err(|value| not_unicode(&value))?;
                    flag.parse(&value)?
                }
                None => return Err(Stop::Error(format!("flag needs an argument: -{name}"))),
            },
        };
        match given.get_mut(flag.name) {
            Some(known) => known.add(value),
            None => {
                given.insert(flag.name, value);
            }
        }
    }
    for value in given.values_mut() {
        if let Value::Floats(numbers) = value {
            // nsqd sorts in this order. Numbers of a configuration file stay in their order.
            numbers.sort_by(|a, b| b.total_cmp(a));
        }
    }
    Ok(CommandLine { given, arguments })
}

/// Returns the value of a flag that the command line does not have.
pub(crate) fn default_value(flag: &Flag, hostname: &str) -> Value {
    match flag.kind {
        Kind::List => Value::List(texts(&flag.default_on(hostname))),
        Kind::Floats => Value::Floats(Vec::new()),
        _ => flag
            .parse(&flag.default_on(hostname))
            .unwrap_or_else(|bad| panic!("the default of --{}: {}", flag.name, bad.text)),
    }
}

/// Returns the texts of a default list, which commas separate.
fn texts(list: &str) -> Vec<String> {
    let texts = list.split(',').filter(|text| !text.is_empty());
    texts.map(str::to_owned).collect()
}

/// Returns a flag's name and its value after `=`, or `None` for an argument that ends the flags.
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
