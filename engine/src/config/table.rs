//! The table of flags: name, type, bounds, default, help text; and what follows from it: the key in
//! the configuration file, clap's command, the usage text.

use std::fmt::Write as _;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command};

use super::value::Value;
use super::{SHARDS_MAX, default_node_id};
use crate::log;

/// One row of the table.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// In Go's syntax, as shown by `--help`. Empty where it depends on the machine.
    pub(super) default: &'static str,
    pub(super) help: &'static str,
}

/// A flag's type and the values that are accepted, both bounds inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

/// The flags of nsqd. The bounds refuse two sorts of values: those that nsqd refuses, in its words, and
/// those with which it crashes later. A negative value that nsqd accepts means 0.
#[rustfmt::skip]
pub(super) const NSQD_FLAGS: &[Flag] = {
    use Kind::{Floats, Integer, List, Span, Switch, Text};
    &[
    flag("version", Switch, "false", "print version string"),
    flag("config", Text, "", "path to a configuration file (TOML)"),
    flag("log-level", Kind::Level, "info", "set log verbosity: debug, info, warn, error, or fatal"),
    flag("log-prefix", Text, log::PREFIX_DEFAULT, "log message prefix"),
    flag("verbose", Switch, "false", "[deprecated] has no effect, use --log-level"),
    flag("worker-id", Switch, "false", "[deprecated] has no effect, use --node-id"),

    flag("node-id", Integer(0, 1023), "", "unique part for message IDs, in [0,1024); by default from the host name"),
    flag("tcp-address", Text, "0.0.0.0:4150", "<addr>:<port> or path of a unix socket to listen on for TCP clients"),
    flag("http-address", Text, "0.0.0.0:4151", "<addr>:<port> or path of a unix socket to listen on for HTTP clients; empty for none"),
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
    flag("mem-queue-size", Integer(0, MAX), "10000", "number of messages per topic that stay in memory; what is beyond is on disk only"),
    flag("max-bytes-per-file", Integer(MIN, MAX), "104857600", "upper bound in bytes of a file of messages, at most 64 MiB"),
    flag("sync-every", Integer(MIN, MAX), "2500", "number of messages per sync; at the default only --sync-timeout counts, 1 answers a publish after its sync"),
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
    ]
};

/// The flags that nsqd does not have.
#[rustfmt::skip]
pub(super) const OWN_FLAGS: &[Flag] = {
    use Kind::{Integer, Span, Switch};
    &[
    flag("shards", Integer(0, SHARDS_MAX), "0", "number of shards; 0 for one per core that this process may use"),
    flag("pin-shards", Switch, "false", "bind each shard to a core"),
    flag("http-read-timeout", Span(MIN, MAX), "1m0s", "time that an HTTP client may take for a TLS handshake, for the head of a request, and for every 4 KiB of a body; 0 for no limit"),
    flag("http-write-timeout", Span(MIN, MAX), "1m0s", "time that an HTTP client may take to read 4 KiB of an answer; 0 for no limit"),
    flag("http-idle-timeout", Span(MIN, MAX), "15m0s", "time that an HTTP connection may be open without a request; 0 for no limit"),
    flag("old-http-endpoints", Switch, "false", "also serve the HTTP endpoints of nsqd before 1.0: /put, /mput, /create_topic, ..."),
    ]
};

/// Every flag.
pub(super) fn flags() -> impl Iterator<Item = &'static Flag> {
    NSQD_FLAGS.iter().chain(OWN_FLAGS)
}

/// The flag of this name.
pub(super) fn find(name: &str) -> Option<&'static Flag> {
    flags().find(|flag| flag.name == name)
}

impl Kind {
    /// The type as Go's usage text names it; nothing for booleans.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Switch => "",
            Kind::Text => "string",
            Kind::List | Kind::Floats | Kind::Level | Kind::TlsRequired | Kind::TlsVersion => {
                "value"
            }
            Kind::Integer(..) => "int",
            Kind::Span(..) => "duration",
        }
    }

    /// Without a value these mean true.
    pub(super) fn is_switch(self) -> bool {
        matches!(self, Kind::Switch | Kind::TlsRequired)
    }
}

impl Flag {
    /// The default on this machine.
    pub(super) fn default_on(&self, hostname: &str) -> String {
        match self.name {
            "node-id" => default_node_id(hostname).to_string(),
            "broadcast-address" => hostname.to_string(),
            _ => self.default.to_string(),
        }
    }

    /// The key in the configuration file and in `/config`. `None`: the flag has none.
    pub(super) fn key(&self) -> Option<String> {
        match self.name {
            "version" | "config" | "verbose" | "worker-id" => None,
            "node-id" => Some("id".to_string()),
            "lookupd-tcp-address" => Some("nsqlookupd_tcp_addresses".to_string()),
            "auth-http-address" => Some("auth_http_addresses".to_string()),
            "e2e-processing-latency-percentile" => {
                Some("e2e_processing_latency_percentiles".to_string())
            }
            name => Some(name.replace('-', "_")),
        }
    }

    /// What nsqd calls the field that a value from the configuration file does not fit into.
    pub(super) fn field(&self) -> String {
        match self.name {
            "node-id" => return "ID".to_string(),
            "lookupd-tcp-address" => return "NSQLookupdTCPAddresses".to_string(),
            "auth-http-address" => return "AuthHTTPAddresses".to_string(),
            "e2e-processing-latency-percentile" => {
                return "E2EProcessingLatencyPercentiles".to_string();
            }
            "deflate" => return "DeflateEnabled".to_string(),
            "snappy" => return "SnappyEnabled".to_string(),
            "enable-experiment" => return "Experiments".to_string(),
            _ => {}
        }
        let mut field = String::new();
        for word in self.name.split('-') {
            match word {
                "tcp" | "http" | "https" | "tls" | "udp" | "ca" | "e2e" => {
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

    fn arg(&'static self, hostname: &str) -> Arg {
        let arg = Arg::new(self.name)
            .long(self.name)
            .value_parser(ValueParser::from(|text: &str| Value::parse(self, text)))
            .allow_hyphen_values(true);
        match self.kind {
            Kind::List | Kind::Floats => arg.action(ArgAction::Append),
            _ => arg
                .action(ArgAction::Set)
                .default_value(self.default_on(hostname))
                .overrides_with(self.name),
        }
    }
}

/// The table as clap's command.
pub(super) fn command(hostname: &str) -> Command {
    Command::new("nsqd")
        .no_binary_name(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(flags().map(|flag| flag.arg(hostname)))
}

/// The usage text in the format of Go's `flag` package, flags sorted by name, our own behind
/// nsqd's.
pub(super) fn usage(hostname: &str) -> String {
    let mut usage = String::from("Usage of nsqd:\n");
    append_usage(&mut usage, NSQD_FLAGS, hostname);
    usage.push_str("Flags of ringq that nsqd does not have:\n");
    append_usage(&mut usage, OWN_FLAGS, hostname);
    usage
}

fn append_usage(usage: &mut String, flags: &[Flag], hostname: &str) {
    let mut flags: Vec<&Flag> = flags.iter().collect();
    flags.sort_by_key(|flag| flag.name);
    for flag in flags {
        let Flag {
            name, kind, help, ..
        } = flag;
        let word = kind.word();
        let space = if word.is_empty() { "" } else { " " };
        let default = match flag.default_on(hostname).as_str() {
            "" | "0" | "false" | "0s" => String::new(),
            value if *kind == Kind::Text => format!(" (default {value:?})"),
            value if *kind == Kind::Level => format!(" (default {})", value.to_uppercase()),
            value => format!(" (default {value})"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(usage, "  -{name}{space}{word}\n    \t{help}{default}");
    }
}
