//! The table of flags, and the typed form of their values.

use std::ffi::OsString;

use program::flag::{self, Flag, Kind};
use program::http::HttpTimeouts;
use program::log::{Level, Style};
use program::tcp_address::has_variable;
use program::tls::ListenerTls;
use program::{Exit, Options, Program, version};

use crate::database::Lifetimes;

/// nsqlookupd, as its command line shows it.
pub static NSQLOOKUPD: Program = Program {
    name: "nsqlookupd",
    version: version::of_daemon,
    flags: FLAGS,
    own_flags: OWN_FLAGS,
};

/// The flags of nsqlookupd.
#[rustfmt::skip]
const FLAGS: &[Flag] = {
    use Kind::{Duration, Text};
    const MIN: i64 = i64::MIN;
    const MAX: i64 = i64::MAX;
    &[
    flag::VERSION,
    flag::CONFIG,
    flag::LOG_LEVEL,
    flag::log_prefix("[nsqlookupd] "),
    flag::VERBOSE,
    Flag::new("tcp-address", Text, "0.0.0.0:4160", "<addr>:<port> to listen on for TCP clients, which are nsqds"),
    Flag::new("http-address", Text, "0.0.0.0:4161", "<addr>:<port> to listen on for HTTP clients"),
    Flag::new("broadcast-address", Text, "", "address of this nsqlookupd that is told to nsqds; by default the host name")
        .of_host(flag::hostname_itself),
    Flag::new("inactive-producer-timeout", Duration(MIN, MAX), "5m0s", "duration of time a producer will remain in the active list since its last ping"),
    Flag::new("tombstone-lifetime", Duration(MIN, MAX), "45s", "duration of time a producer will remain tombstoned if registration remains"),
    ]
};

/// The flags that nsqlookupd does not have.
const OWN_FLAGS: &[Flag] = &[
    flag::LOG_FORMAT,
    text(
        "tls-tcp-address",
        "<addr>:<port> to listen on for TCP clients with TLS; empty for none",
    ),
    flag::HTTPS[0],
    flag::HTTPS[1],
    flag::HTTPS[2],
    flag::HTTPS[3],
    flag::HTTPS[4],
    flag::HTTPS[5],
    flag::HTTP_TIMEOUTS[0],
    flag::HTTP_TIMEOUTS[1],
    flag::HTTP_TIMEOUTS[2],
    flag::ALLOWED_HOST,
    Flag::new(
        "old-http-endpoints",
        Kind::Boolean,
        "false",
        "also serve the HTTP endpoints of nsqlookupd before 1.0: /create_topic, /delete_topic, ...",
    ),
];

const fn text(name: &'static str, help: &'static str) -> Flag {
    Flag::new(name, Kind::Text, "", help)
}

/// The values of the flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// `--log-level`
    pub log_level: Level,
    /// `--log-prefix`, `--log-format`
    pub log_style: Style,
    /// `--tcp-address`
    pub tcp_address: String,
    /// `--http-address`
    pub http_address: String,
    /// `--broadcast-address`
    pub broadcast_address: String,
    /// The system's name for this machine.
    pub hostname: String,
    /// `--inactive-producer-timeout`, `--tombstone-lifetime`
    pub lifetimes: Lifetimes,
    /// `--http-read-timeout`, `--http-write-timeout`, `--http-idle-timeout`
    pub http_timeouts: HttpTimeouts,
    /// `--old-http-endpoints`
    pub has_old_endpoints: bool,
    /// `--allowed-host`; empty: any name.
    pub allowed_hosts: Vec<String>,
    /// `--tls-tcp-address`, or an empty text
    pub tls_tcp_address: String,
    /// `--https-address`, or an empty text
    pub https_address: String,
    /// `--tls-cert` and the other flags about TLS
    pub tls: ListenerTls,
    /// Sentences about the parts of the command line and the configuration file that count for nothing.
    pub ignored: Vec<String>,
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let hostname = program::hostname();
        let options = NSQLOOKUPD.options(args, &hostname)?;
        Ok(Config::new(&options, hostname))
    }

    fn new(options: &Options, hostname: String) -> Config {
        let broadcast_address = options.text("broadcast-address");
        let mut ignored = options.ignored();
        if has_variable(&broadcast_address) {
            ignored.push(format!(
                "--broadcast-address={broadcast_address}: a variable was not replaced, so no nsqd finds this nsqlookupd for \
                 questions"
            ));
        }
        Config {
            log_level: options.log_level(),
            log_style: options.log_style(),
            tcp_address: options.text("tcp-address"),
            http_address: options.text("http-address"),
            broadcast_address,
            hostname,
            lifetimes: Lifetimes {
                inactive: options.duration("inactive-producer-timeout"),
                tombstone: options.duration("tombstone-lifetime"),
            },
            http_timeouts: HttpTimeouts::from_options(options),
            has_old_endpoints: options.boolean("old-http-endpoints"),
            allowed_hosts: options.list("allowed-host"),
            tls_tcp_address: options.text("tls-tcp-address"),
            https_address: options.text("https-address"),
            tls: ListenerTls::from_options(options),
            ignored,
        }
    }
}

#[cfg(test)]
mod tests;
