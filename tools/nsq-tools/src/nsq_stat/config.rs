//! The declaration of the flags, and the checks of their values.

use std::ffi::OsString;
use std::time::Duration;

use program::flag;
use program::log::Style;
use program::{Exit, Options, Program, version};

use crate::cluster::{NSQD_HTTP_ADDRESS, QueryTimeouts, Sources};
use crate::flags;

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        topic: String = flags::new("topic", "", "NSQ topic");
        channel: String = flags::new("channel", "", "NSQ channel");
        interval: Duration = flags::new("interval", "2s", "time between polls, and between lines");
        count: i64 = flags::new("count", "0", "number of lines to print; without the flag, nsq_stat prints until a signal ends it").checked_by(is_decimal_of_32_bits);
        = NSQD_HTTP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
        timeouts: QueryTimeouts;
    }
    own {
        = flags::LOG_FORMAT;
    }
}

/// `nsq_stat`, as its command line shows it.
pub static NSQ_STAT: Program = Program::of::<Flags>("nsq_stat", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) flags: Flags,
    /// The number of lines, at least 1. `None` means no limit.
    pub(super) count: Option<u64>,
    pub(super) sources: Sources,
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
        let flags: Flags = options.read()?;
        if flags.topic.is_empty() || flags.channel.is_empty() {
            return Err("--topic and --channel are required".to_owned());
        }
        flags::check_positive("interval", flags.interval)?;
        flags.timeouts.check_positive()?;
        let count = options.is_given("count").then_some(flags.count);
        if count.is_some_and(|count| count <= 0) {
            return Err("--count should be positive".to_owned());
        }
        let sources = Sources::from_options(options)?;
        Ok(Config {
            flags,
            count: count.and_then(|count| u64::try_from(count).ok()),
            sources,
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
