//! The table of flags, and the typed form of their values.

use std::ffi::OsString;
use std::time::Duration;

use program::flag::{self, Flag};
use program::log::Style;
use program::{Exit, Options, Program, version};

use crate::cluster::{NSQD_HTTP_ADDRESS, QueryTimeouts, Sources};
use crate::flags;

/// `nsq_stat`, as its command line shows it.
pub static NSQ_STAT: Program = Program {
    name: "nsq_stat",
    version: version::of_tool,
    flags: FLAGS,
    own_flags: &[flags::LOG_FORMAT],
};

const FLAGS: &[Flag] = &[
    flag::VERSION,
    flags::text("topic", "", "NSQ topic"),
    flags::text("channel", "", "NSQ channel"),
    flags::duration("interval", "2s", "time between polls, and between lines"),
    flags::integer(
        "count",
        "0",
        "number of lines to print; without the flag, nsq_stat prints until a signal ends it",
    )
    .checked_by(is_decimal_of_32_bits),
    NSQD_HTTP_ADDRESS,
    flags::LOOKUPD_HTTP_ADDRESS,
    flags::HTTP_CLIENT_CONNECT_TIMEOUT,
    flags::http_client_request_timeout("5s"),
];

/// The values of the flags.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) topic: String,
    pub(super) channel: String,
    pub(super) interval: Duration,
    /// The number of lines, at least 1. `None` means no limit.
    pub(super) count: Option<u64>,
    pub(super) sources: Sources,
    pub(super) timeouts: QueryTimeouts,
    pub(super) log_style: Style,
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub(super) fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = NSQ_STAT.options(args, &program::hostname())?;
        Config::new(&options).map_err(|why| NSQ_STAT.failed(&why))
    }

    fn new(options: &Options) -> Result<Config, String> {
        flags::check_no_words(options)?;
        let (topic, channel) = (options.text("topic"), options.text("channel"));
        if topic.is_empty() || channel.is_empty() {
            return Err("--topic and --channel are required".to_owned());
        }
        let times = [
            "interval",
            "http-client-connect-timeout",
            "http-client-request-timeout",
        ];
        let count = options.is_given("count").then(|| options.number("count"));
        let is_positive = |name: &str| match options.number(name) {
            1.. => Ok(()),
            _ => Err(format!("--{name} should be positive")),
        };
        for name in times {
            is_positive(name)?;
        }
        if count.is_some() {
            is_positive("count")?;
        }
        let sources = Sources::from_options(options)?;
        Ok(Config {
            topic,
            channel,
            interval: options.duration("interval"),
            count: count.and_then(|count| u64::try_from(count).ok()),
            sources,
            timeouts: QueryTimeouts {
                connect: options.duration("http-client-connect-timeout"),
                request: options.duration("http-client-request-timeout"),
            },
            log_style: options.log_style_of_tool(),
        })
    }
}

/// Refuses what the original refuses: this flag is decimal, unlike other integers.
fn is_decimal_of_32_bits(text: &str) -> Result<(), String> {
    let refused = |why| Err(format!("strconv.ParseInt: parsing {text:?}: {why}"));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return refused("invalid syntax");
    }
    match text.parse::<i32>() {
        Ok(_) => Ok(()),
        Err(_) => refused("value out of range"),
    }
}

#[cfg(test)]
mod tests;
