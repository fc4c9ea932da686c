//! What the operator chose: one table of flags (`FLAGS`) and its typed form ([`Config`]).
//!
//! ```text
//!   arguments --Go's syntax--> --name=value ... --clap--> typed values --ranges--> Config
//!   (flag_syntax)              (go_value)               (this file)
//! ```
//!
//! clap keeps the table, the defaults and the values. It does not read the command line itself:
//! nsqd's flags are those of Go's `flag` package, and scripts depend on the differences (`-x` is
//! `--x`, parsing stops at the first argument that is no flag, exit code and texts of errors).

use std::ffi::OsString;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::log::{self, Level};

mod flag_syntax;
mod go_value;

/// The version of nsqd that this program stands in for. Clients and tools decide by it what the
/// daemon can do, so it is not ringq's own.
pub const NSQD_VERSION: &str = "1.3.0";

/// The compiler. Its version is not known to a plain build, hence an optional variable that a
/// release build sets.
const TOOLCHAIN: &str = match option_env!("RINGQ_RUSTC_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_RUST_VERSION"),
};

/// `nsqd v1.3.0 (built w/rust1.95)`: the first line of the log, of the text stats, and all that
/// `--version` says.
pub fn version_line() -> String {
    format!("nsqd v{NSQD_VERSION} (built w/rust{TOOLCHAIN})")
}

/// Upper bound of `--shards`: what the kernel's default affinity mask can name.
pub const SHARDS_MAX: i64 = 1024;

/// Who has to use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsRequired {
    /// Nobody.
    No,
    /// TCP clients; plain HTTP is served, too (`tcp-https`).
    ExceptHttp,
    /// Everybody.
    Yes,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// 1.0
    V10,
    /// 1.1
    V11,
    /// 1.2
    V12,
    /// 1.3
    V13,
}

/// One row of the table.
struct Flag {
    name: &'static str,
    kind: Kind,
    /// In Go's syntax, as shown by `--help`. Empty where it depends on the machine.
    default: &'static str,
    help: &'static str,
}

/// A flag's type and the values that are accepted, both bounds inclusive.
enum Kind {
    Switch,
    Text,
    /// One text per occurrence.
    List,
    /// Numbers, several per occurrence if separated by commas.
    Floats,
    Level,
    TlsRequired,
    TlsVersion,
    Integer(i64, i64),
    /// Nanoseconds.
    Span(i64, i64),
}

/// No bound: the reference accepts what it likes, and so do we where nothing breaks.
const MIN: i64 = i64::MIN;
const MAX: i64 = i64::MAX;

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Flag {
    Flag {
        name,
        kind,
        default,
        help,
    }
}

/// Every flag. The bounds refuse two sorts of values: those that nsqd refuses, in its words, and
/// those with which it crashes later. A negative value that nsqd accepts means 0.
#[rustfmt::skip]
const FLAGS: &[Flag] = {
    use Kind::{Floats, Integer, List, Span, Switch, Text};
    &[
    flag("version", Switch, "false", "print version string"),
    flag("log-level", Kind::Level, "info", "set log verbosity: debug, info, warn, error, or fatal"),
    flag("log-prefix", Text, log::PREFIX_DEFAULT, "log message prefix"),
    flag("verbose", Switch, "false", "[deprecated] has no effect, use --log-level"),
    flag("worker-id", Switch, "false", "[deprecated] has no effect, use --node-id"),

    flag("node-id", Integer(0, 1023), "", "unique part for message IDs, in [0,1024); by default from the host name"),
    flag("tcp-address", Text, "0.0.0.0:4150", "<addr>:<port> to listen on for TCP clients"),
    flag("http-address", Text, "0.0.0.0:4151", "<addr>:<port> to listen on for HTTP clients; empty for none"),
    flag("https-address", Text, "0.0.0.0:4152", "<addr>:<port> to listen on for HTTPS clients, if there is a certificate; empty for none"),
    flag("broadcast-address", Text, "", "address that is announced to nsqlookupd; by default the host name"),
    flag("broadcast-tcp-port", Integer(0, 65535), "0", "TCP port that is announced to nsqlookupd; 0 for the one listened on"),
    flag("broadcast-http-port", Integer(0, 65535), "0", "HTTP port that is announced to nsqlookupd; 0 for the one listened on"),
    flag("lookupd-tcp-address", List, "", "TCP address of an nsqlookupd (may be given multiple times)"),
    flag("auth-http-address", List, "", "<addr>:<port> or URL of an auth server (may be given multiple times)"),
    flag("auth-http-request-method", Text, "get", "HTTP method of queries to auth servers: get or post"),
    flag("http-client-connect-timeout", Span(MIN, MAX), "2s", "timeout of connecting to auth servers and nsqlookupd over HTTP"),
    flag("http-client-request-timeout", Span(MIN, MAX), "5s", "timeout of HTTP requests to auth servers and nsqlookupd"),
    flag("topology-region", Text, "", "region of this node, for clients that prefer near nodes"),
    flag("topology-zone", Text, "", "zone of this node, for clients that prefer near nodes"),

    flag("data-path", Text, "", "directory of messages and metadata; by default the current one"),
    flag("mem-queue-size", Integer(0, MAX), "10000", "number of messages to keep in memory (per topic/channel)"),
    flag("max-bytes-per-file", Integer(MIN, MAX), "104857600", "number of bytes per file before rolling"),
    flag("sync-every", Integer(MIN, MAX), "2500", "number of messages per sync; 1 answers a publish only after its sync"),
    flag("sync-timeout", Span(1, MAX), "2s", "duration of time per sync"),
    flag("queue-scan-worker-pool-max", Integer(MIN, MAX), "4", "accepted, but has no effect: timers are exact"),
    flag("queue-scan-selection-count", Integer(MIN, MAX), "20", "accepted, but has no effect: timers are exact"),

    flag("msg-timeout", Span(MIN, MAX), "1m0s", "default duration to wait before requeueing a message"),
    flag("max-msg-timeout", Span(MIN, MAX), "15m0s", "maximum duration before a message will timeout"),
    flag("max-msg-size", Integer(MIN, MAX), "1048576", "maximum size of a single message in bytes"),
    flag("max-body-size", Integer(MIN, MAX), "5242880", "maximum size of a single command body in bytes"),
    flag("max-req-timeout", Span(MIN, MAX), "1h0m0s", "maximum requeuing and deferring timeout for a message"),
    flag("max-heartbeat-interval", Span(MIN, MAX), "1m0s", "maximum client configurable duration between heartbeats"),
    flag("max-rdy-count", Integer(MIN, MAX), "2500", "maximum RDY count for a client"),
    flag("max-output-buffer-size", Integer(MIN, MAX), "65536", "maximum client configurable size in bytes of its output buffer"),
    flag("max-output-buffer-timeout", Span(MIN, MAX), "30s", "maximum client configurable duration between output flushes"),
    flag("min-output-buffer-timeout", Span(MIN, MAX), "25ms", "minimum client configurable duration between output flushes"),
    flag("output-buffer-timeout", Span(1, MAX), "250ms", "default duration between output flushes"),
    flag("max-channel-consumers", Integer(0, MAX), "0", "maximum number of consumers of a channel; 0 for no limit"),

    flag("statsd-address", Text, "", "UDP <addr>:<port> of a statsd daemon for pushing stats"),
    flag("statsd-interval", Span(1, MAX), "1m0s", "duration between pushes to statsd"),
    flag("statsd-mem-stats", Switch, "true", "push memory stats to statsd, too"),
    flag("statsd-prefix", Text, "nsq.%s", "prefix of keys sent to statsd (%s for host replacement)"),
    flag("statsd-udp-packet-size", Integer(MIN, MAX), "508", "maximum size in bytes of a statsd UDP packet"),
    flag("statsd-exclude-ephemeral", Switch, "false", "leave ephemeral topics and channels out of what is pushed to statsd"),
    flag("e2e-processing-latency-percentile", Floats, "", "message processing time percentiles, in (0, 1], to keep track of (multiple, or separated by commas)"),
    flag("e2e-processing-latency-window-time", Span(MIN, MAX), "10m0s", "time that the end-to-end latency percentiles cover"),

    flag("tls-cert", Text, "", "path to the certificate file (PEM)"),
    flag("tls-key", Text, "", "path to the private key file (PEM)"),
    flag("tls-client-auth-policy", Text, "", "client certificate policy: require or require-verify"),
    flag("tls-root-ca-file", Text, "", "path to the file of certificate authorities (PEM)"),
    flag("tls-required", Kind::TlsRequired, "false", "require TLS of client connections: true, false, tcp-https"),
    flag("tls-min-version", Kind::TlsVersion, "tls1.0", "lowest version of TLS: tls1.0, tls1.1, tls1.2, or tls1.3"),
    flag("deflate", Switch, "true", "let clients negotiate deflate compression"),
    flag("max-deflate-level", Integer(1, 9), "6", "maximum deflate compression level that a client can negotiate"),
    flag("snappy", Switch, "true", "let clients negotiate snappy compression"),
    flag("enable-experiment", List, "", "enable an experiment (may be given multiple times): topology-aware-consumption"),

    flag("shards", Integer(0, SHARDS_MAX), "0", "number of shards; 0 for one per core that this process may use"),
    flag("pin-shards", Switch, "false", "bind each shard to a core"),
    ]
};

/// Flags of nsqd that are not there yet. They must fail: a daemon that runs without the TLS that it
/// was told to require is worse than one that does not start.
const FLAGS_NOT_YET: &[&str] = &[
    "config",
    "https-address",
    "statsd-address",
    "statsd-interval",
    "statsd-mem-stats",
    "statsd-prefix",
    "statsd-udp-packet-size",
    "statsd-exclude-ephemeral",
    "e2e-processing-latency-percentile",
    "e2e-processing-latency-window-time",
    "tls-cert",
    "tls-key",
    "tls-client-auth-policy",
    "tls-root-ca-file",
    "tls-required",
    "tls-min-version",
    "deflate",
    "snappy",
];

/// The program's configuration. Durations and sizes that were given as negative are 0 here, which
/// is what they amount to.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `--log-level`
    pub log_level: Level,
    /// `--log-prefix`
    pub log_prefix: String,
    /// `--node-id`, below 1024.
    pub node_id: u16,
    /// `--tcp-address`
    pub tcp_address: String,
    /// `--http-address`; empty: no listener.
    pub http_address: String,
    /// `--https-address`; empty: no listener.
    pub https_address: String,
    /// `--lookupd-tcp-address`
    pub lookupd_tcp_addresses: Vec<String>,
    /// `--auth-http-address`
    pub auth_http_addresses: Vec<String>,
    /// `--auth-http-request-method`: `get` or `post`.
    pub auth_http_request_method: String,
    /// `--http-client-connect-timeout`
    pub http_connect_timeout: Duration,
    /// `--http-client-request-timeout`
    pub http_request_timeout: Duration,
    /// `--broadcast-address`
    pub broadcast_address: String,
    /// The system's name for this machine, as shown by `/info`.
    pub hostname: String,
    /// `--broadcast-tcp-port`; 0: the port listened on.
    pub broadcast_tcp_port: u16,
    /// `--broadcast-http-port`; 0: the port listened on.
    pub broadcast_http_port: u16,
    /// `--topology-region`
    pub topology_region: String,
    /// `--topology-zone`
    pub topology_zone: String,
    /// `--data-path`, or the current directory.
    pub data_path: PathBuf,
    /// `--mem-queue-size`
    pub mem_queue_count: u64,
    /// `--max-bytes-per-file`
    pub file_bytes_max: u64,
    /// `--sync-every`; 0: only `sync_timeout` counts.
    pub sync_every: u64,
    /// `--sync-timeout`, above 0.
    pub sync_timeout: Duration,
    /// `--msg-timeout`; 0: a delivered message times out at once.
    pub msg_timeout: Duration,
    /// `--max-msg-timeout`
    pub msg_timeout_max: Duration,
    /// `--max-msg-size`; inclusive. 0: every message is too big.
    pub msg_bytes_max: u64,
    /// `--max-body-size`; inclusive.
    pub body_bytes_max: u64,
    /// `--max-req-timeout`
    pub req_timeout_max: Duration,
    /// `--max-heartbeat-interval`
    pub heartbeat_interval_max: Duration,
    /// `--max-rdy-count`
    pub rdy_count_max: u64,
    /// `--max-output-buffer-size`
    pub output_buffer_bytes_max: u64,
    /// `--max-output-buffer-timeout`
    pub output_buffer_timeout_max: Duration,
    /// `--min-output-buffer-timeout`
    pub output_buffer_timeout_min: Duration,
    /// `--output-buffer-timeout`, above 0.
    pub output_buffer_timeout: Duration,
    /// `--max-channel-consumers`; 0: no limit.
    pub channel_consumers_max: u64,
    /// `--statsd-address`; empty: nothing is pushed.
    pub statsd_address: String,
    /// `--statsd-interval`, above 0.
    pub statsd_interval: Duration,
    /// `--statsd-mem-stats`
    pub statsd_mem_stats: bool,
    /// `--statsd-prefix`, as given.
    pub statsd_prefix: String,
    /// `--statsd-udp-packet-size`; 0 stands for 4096.
    pub statsd_packet_bytes: u64,
    /// `--statsd-exclude-ephemeral`
    pub statsd_exclude_ephemeral: bool,
    /// `--e2e-processing-latency-percentile`, in the order of the answers.
    pub e2e_percentiles: Vec<f64>,
    /// `--e2e-processing-latency-window-time`
    pub e2e_window: Duration,
    /// `--tls-cert`; empty: none.
    pub tls_cert: String,
    /// `--tls-key`; empty: none.
    pub tls_key: String,
    /// `--tls-client-auth-policy`
    pub tls_client_auth_policy: String,
    /// `--tls-root-ca-file`; empty: none.
    pub tls_root_ca_file: String,
    /// `--tls-required`
    pub tls_required: TlsRequired,
    /// `--tls-min-version`
    pub tls_min_version: TlsVersion,
    /// `--deflate`
    pub deflate: bool,
    /// `--max-deflate-level`, 1 to 9.
    pub deflate_level_max: u8,
    /// `--snappy`
    pub snappy: bool,
    /// `--enable-experiment`
    pub experiments: Vec<String>,
    /// `--shards`, with 0 already replaced by the number of usable cores.
    pub shard_count: NonZeroUsize,
    /// `--pin-shards`
    pub pin_shards: bool,
}

/// The command line ends the program: what to print where, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigExit {
    /// 0 for `--help` and `--version`, 2 for flag errors, 1 for values that are refused.
    pub code: u8,
    /// To be printed as it is.
    pub stdout: String,
    /// To be printed as it is.
    pub stderr: String,
}

impl Config {
    /// Reads the command line, without the program's name.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, ConfigExit> {
        Config::from_args_on_host(args, &hostname())
    }

    fn from_args_on_host(
        args: impl IntoIterator<Item = OsString>,
        hostname: &str,
    ) -> Result<Config, ConfigExit> {
        let command = command(hostname);
        let matches = flag_syntax::parse(&command, args)?;
        if switch(&matches, "version") {
            let stdout = version_line() + "\n";
            return Err(ConfigExit {
                code: 0,
                stdout,
                stderr: String::new(),
            });
        }
        check_ranges(&matches).map_err(ConfigExit::refused)?;
        Config::from_matches(&matches, hostname).map_err(ConfigExit::refused)
    }

    fn from_matches(matches: &ArgMatches, hostname: &str) -> Result<Config, String> {
        let narrow = "check_ranges has bounded it";
        Ok(Config {
            log_level: *value(matches, "log-level"),
            log_prefix: text(matches, "log-prefix"),
            node_id: count(matches, "node-id").try_into().expect(narrow),
            tcp_address: text(matches, "tcp-address"),
            http_address: text(matches, "http-address"),
            https_address: text(matches, "https-address"),
            lookupd_tcp_addresses: list(matches, "lookupd-tcp-address"),
            auth_http_addresses: list(matches, "auth-http-address"),
            auth_http_request_method: text(matches, "auth-http-request-method"),
            http_connect_timeout: span(matches, "http-client-connect-timeout"),
            http_request_timeout: span(matches, "http-client-request-timeout"),
            broadcast_address: text(matches, "broadcast-address"),
            hostname: hostname.to_string(),
            broadcast_tcp_port: count(matches, "broadcast-tcp-port")
                .try_into()
                .expect(narrow),
            broadcast_http_port: count(matches, "broadcast-http-port")
                .try_into()
                .expect(narrow),
            topology_region: text(matches, "topology-region"),
            topology_zone: text(matches, "topology-zone"),
            data_path: data_path(&text(matches, "data-path"))?,
            mem_queue_count: count(matches, "mem-queue-size"),
            file_bytes_max: count(matches, "max-bytes-per-file"),
            sync_every: count(matches, "sync-every"),
            sync_timeout: span(matches, "sync-timeout"),
            msg_timeout: span(matches, "msg-timeout"),
            msg_timeout_max: span(matches, "max-msg-timeout"),
            msg_bytes_max: count(matches, "max-msg-size"),
            body_bytes_max: count(matches, "max-body-size"),
            req_timeout_max: span(matches, "max-req-timeout"),
            heartbeat_interval_max: span(matches, "max-heartbeat-interval"),
            rdy_count_max: count(matches, "max-rdy-count"),
            output_buffer_bytes_max: count(matches, "max-output-buffer-size"),
            output_buffer_timeout_max: span(matches, "max-output-buffer-timeout"),
            output_buffer_timeout_min: span(matches, "min-output-buffer-timeout"),
            output_buffer_timeout: span(matches, "output-buffer-timeout"),
            channel_consumers_max: count(matches, "max-channel-consumers"),
            statsd_address: text(matches, "statsd-address"),
            statsd_interval: span(matches, "statsd-interval"),
            statsd_mem_stats: switch(matches, "statsd-mem-stats"),
            statsd_prefix: text(matches, "statsd-prefix"),
            statsd_packet_bytes: count(matches, "statsd-udp-packet-size"),
            statsd_exclude_ephemeral: switch(matches, "statsd-exclude-ephemeral"),
            e2e_percentiles: percentiles(matches),
            e2e_window: span(matches, "e2e-processing-latency-window-time"),
            tls_cert: text(matches, "tls-cert"),
            tls_key: text(matches, "tls-key"),
            tls_client_auth_policy: text(matches, "tls-client-auth-policy"),
            tls_root_ca_file: text(matches, "tls-root-ca-file"),
            tls_required: *value(matches, "tls-required"),
            tls_min_version: *value(matches, "tls-min-version"),
            deflate: switch(matches, "deflate"),
            deflate_level_max: count(matches, "max-deflate-level")
                .try_into()
                .expect(narrow),
            snappy: switch(matches, "snappy"),
            experiments: list(matches, "enable-experiment"),
            shard_count: shard_count(count(matches, "shards")),
            pin_shards: switch(matches, "pin-shards"),
        })
    }
}

impl ConfigExit {
    /// A value that was understood and refused: a FATAL line, as every failure to start.
    fn refused(why: String) -> ConfigExit {
        let stderr = log::fatal_line(&format!("failed to instantiate nsqd - {why}"));
        ConfigExit {
            code: 1,
            stdout: String::new(),
            stderr,
        }
    }
}

/// The table as clap's command.
fn command(hostname: &str) -> Command {
    let mut command = Command::new("nsqd")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true);
    for flag in FLAGS {
        let default = match flag.name {
            "node-id" => default_node_id(hostname).to_string(),
            "broadcast-address" => hostname.to_string(),
            _ => flag.default.to_string(),
        };
        let arg = Arg::new(flag.name)
            .long(flag.name)
            .help(flag.help)
            .value_name(flag.kind.word())
            .value_parser(flag.value_parser())
            .allow_hyphen_values(true);
        command = command.arg(match flag.kind {
            Kind::List | Kind::Floats => arg.action(ArgAction::Append),
            _ => arg
                .action(ArgAction::Set)
                .default_value(default)
                .overrides_with(flag.name),
        });
    }
    command
}

impl Kind {
    /// The type as Go's usage text names it; nothing for booleans.
    fn word(&self) -> &'static str {
        match self {
            Kind::Switch => "",
            Kind::Text => "string",
            Kind::List | Kind::Floats => "value",
            Kind::Level | Kind::TlsRequired | Kind::TlsVersion => "value",
            Kind::Integer(..) => "int",
            Kind::Span(..) => "duration",
        }
    }
}

impl Flag {
    /// Parsers give the complete message, since only they know flag, value and reason together.
    fn value_parser(&self) -> ValueParser {
        let name = self.name;
        let refuse = move |text: &str, reason: &dyn std::fmt::Display| {
            format!("invalid value {text:?} for flag -{name}: {reason}")
        };
        match self.kind {
            Kind::Text | Kind::List => ValueParser::string(),
            Kind::Floats => ValueParser::from(move |text: &str| go_value::parse_floats(text)),
            Kind::TlsRequired => ValueParser::from(move |text: &str| {
                go_value::parse_tls_required(text)
                    .map_err(|why| format!("invalid boolean value {text:?} for -{name}: {why}"))
            }),
            Kind::TlsVersion => ValueParser::from(move |text: &str| {
                go_value::parse_tls_version(text).map_err(|why| refuse(text, &why))
            }),
            Kind::Switch => ValueParser::from(move |text: &str| {
                go_value::parse_bool(text)
                    .map_err(|why| format!("invalid boolean value {text:?} for -{name}: {why}"))
            }),
            Kind::Level => ValueParser::from(move |text: &str| {
                text.parse::<Level>().map_err(|why| refuse(text, &why))
            }),
            Kind::Integer(..) => ValueParser::from(move |text: &str| {
                go_value::parse_int(text).map_err(|why| refuse(text, &why))
            }),
            Kind::Span(..) => ValueParser::from(move |text: &str| {
                go_value::parse_duration(text).map_err(|why| refuse(text, &why))
            }),
        }
    }

    /// Why a value outside the bounds is refused.
    fn range_text(&self, min: i64, max: i64, unit: &str) -> String {
        let name = self.name;
        match (name, min, max) {
            ("max-deflate-level", ..) => "--max-deflate-level must be [1,9]".to_string(),
            ("node-id", ..) => "--node-id must be [0,1024)".to_string(),
            (_, 0, MAX) => format!("--{name} must not be negative"),
            (_, 1, MAX) => format!("--{name} must be greater than 0{unit}"),
            _ => format!("--{name} must be [{min},{max}]"),
        }
    }
}

/// Checks the bounds in nsqd's order: first the two that it checks itself, then ours.
fn check_ranges(matches: &ArgMatches) -> Result<(), String> {
    let is_first = |flag: &&Flag| flag.name == "max-deflate-level";
    let is_second = |flag: &&Flag| flag.name == "node-id";
    let ordered = FLAGS
        .iter()
        .filter(is_first)
        .chain(FLAGS.iter().filter(is_second))
        .chain(
            FLAGS
                .iter()
                .filter(|flag| !is_first(flag) && !is_second(flag)),
        );
    for flag in ordered {
        let (min, max, unit) = match flag.kind {
            Kind::Integer(min, max) => (min, max, ""),
            Kind::Span(min, max) => (min, max, "s"),
            _ => continue,
        };
        let value: i64 = *value(matches, flag.name);
        if value < min || value > max {
            return Err(flag.range_text(min, max, unit));
        }
    }
    Ok(())
}

/// The usage text in the format of Go's `flag` package, flags sorted by name.
fn usage(command: &Command) -> String {
    let mut arguments: Vec<&Arg> = command.get_arguments().collect();
    arguments.sort_by_key(|argument| argument.get_id());
    let mut usage = String::from("Usage of nsqd:\n");
    for argument in arguments {
        let name = argument.get_id();
        let kind = argument.get_value_names().and_then(|names| names.first());
        let kind = kind.map_or("", |kind| kind.as_str());
        let space = if kind.is_empty() { "" } else { " " };
        let help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let default = argument
            .get_default_values()
            .first()
            .and_then(|value| value.to_str());
        let default = match default.unwrap_or_default() {
            "" | "0" | "false" | "0s" => String::new(),
            value if kind == "string" => format!(" (default {value:?})"),
            value => format!(" (default {value})"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(usage, "  -{name}{space}{kind}\n    \t{help}{default}");
    }
    usage
}

fn value<'a, T: Clone + Send + Sync + 'static>(matches: &'a ArgMatches, name: &str) -> &'a T {
    matches
        .get_one(name)
        .expect("every flag in the table has a default of its type")
}

fn text(matches: &ArgMatches, name: &str) -> String {
    value::<String>(matches, name).clone()
}

fn list(matches: &ArgMatches, name: &str) -> Vec<String> {
    let texts = matches.get_many::<String>(name);
    texts.map_or_else(Vec::new, |texts| texts.cloned().collect())
}

/// In nsqd's order: descending.
fn percentiles(matches: &ArgMatches) -> Vec<f64> {
    let given = matches.get_many::<Vec<f64>>("e2e-processing-latency-percentile");
    let mut percentiles: Vec<f64> = given.into_iter().flatten().flatten().copied().collect();
    percentiles.sort_by(|a, b| b.total_cmp(a));
    percentiles
}

fn switch(matches: &ArgMatches, name: &str) -> bool {
    *value(matches, name)
}

/// An integer, with negative ones as 0.
fn count(matches: &ArgMatches, name: &str) -> u64 {
    u64::try_from(*value::<i64>(matches, name)).unwrap_or(0)
}

/// A duration, with negative ones as 0.
fn span(matches: &ArgMatches, name: &str) -> Duration {
    Duration::from_nanos(count(matches, name))
}

/// nsqd resolves the current directory at start, too: log lines and errors show the full path.
fn data_path(text: &str) -> Result<PathBuf, String> {
    if !text.is_empty() {
        return Ok(PathBuf::from(text));
    }
    std::env::current_dir()
        .map_err(|error| format!("failed to find the current directory for --data-path - {error}"))
}

/// One shard per core. The standard library asks `sched_getaffinity` and then the control group's
/// CPU quota: in a container that is allowed two of 64 cores, 64 shards would only throttle each
/// other.
fn shard_count(wanted: u64) -> NonZeroUsize {
    let wanted = usize::try_from(wanted).expect("at most SHARDS_MAX");
    NonZeroUsize::new(wanted)
        .or_else(|| std::thread::available_parallelism().ok())
        .unwrap_or(NonZeroUsize::MIN)
}

fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// nsqd's choice, kept so that a node keeps its id through the change to ringq.
fn default_node_id(hostname: &str) -> u32 {
    use md5::{Digest, Md5};
    crc32fast::hash(&Md5::digest(hostname.as_bytes())) % 1024
}

#[cfg(test)]
mod tests;
