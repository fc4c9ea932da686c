//! The table of flags, and the typed form of their values.

use std::ffi::OsString;
use std::time::Duration;

use program::flag::{self, Flag, Kind};
use program::{Exit, Options, Program, version};

use super::sample::Question;
use super::state::Start;
use super::table::View;
use crate::cluster::{NSQD_HTTP_ADDRESS, QueryTimeouts, Sources};
use crate::flags;

/// `nsqtop`, as its command line shows it.
pub static NSQTOP: Program = Program {
    name: "nsqtop",
    version: version::of_tool,
    flags: FLAGS,
    own_flags: &[],
};

/// NSQ has no such program, so all flags are our own.
const FLAGS: &[Flag] = &[
    flag::VERSION,
    flags::LOOKUPD_HTTP_ADDRESS,
    NSQD_HTTP_ADDRESS,
    flags::text(
        "topic",
        "",
        "show only this topic; without the flag, all topics",
    ),
    flags::text(
        "channel",
        "",
        "show only channels of this name; without the flag, all channels",
    ),
    flags::duration("interval", "2s", "time between samples"),
    Flag::new(
        "view",
        Kind::Choice(&["channels", "topics", "clients", "nodes", "shards"]),
        "channels",
        "what to show first: channels, topics, clients, nodes or shards",
    )
    .without_key(),
    flags::text(
        "sort",
        "",
        "heading of the column to sort by, such as depth; with a minus in front, the smallest or the \
         last comes first",
    ),
    flags::text("filter", "", "show only rows with this text"),
    flags::boolean(
        "once",
        "print one plain table and end; this is also what happens without a terminal",
    ),
    flags::HTTP_CLIENT_CONNECT_TIMEOUT,
    flags::http_client_request_timeout("5s"),
];

/// The values of the flags.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) question: Question,
    pub(super) interval: Duration,
    pub(super) once: bool,
    pub(super) start: Start,
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub(super) fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = NSQTOP.options(args, &program::hostname())?;
        Config::new(&options).map_err(|why| NSQTOP.failed(&why))
    }

    fn new(options: &Options) -> Result<Config, String> {
        flags::check_no_words(options)?;
        for name in [
            "interval",
            "http-client-connect-timeout",
            "http-client-request-timeout",
        ] {
            if options.number(name) <= 0 {
                return Err(format!("--{name} should be positive"));
            }
        }
        let sources = Sources::from_options(options)?;
        let view = View::of_name(&options.text("view"));
        let sort = match options.text("sort").as_str() {
            "" => view.usual_sort(),
            text => view.sort_by_name(text)?,
        };
        Ok(Config {
            question: Question {
                sources,
                topic: options.text("topic"),
                channel: options.text("channel"),
                timeouts: QueryTimeouts {
                    connect: options.duration("http-client-connect-timeout"),
                    request: options.duration("http-client-request-timeout"),
                },
            },
            interval: options.duration("interval"),
            once: options.boolean("once"),
            start: Start {
                view,
                sort,
                filter: options.text("filter"),
            },
        })
    }
}

#[cfg(test)]
mod tests;
