//! The table of flags, and the typed form of their values.

use std::ffi::OsString;
use std::time::Duration;

use program::flag::{self, Flag, Kind};
use program::log::{Level, Style};
use program::tls::ListenerTls;
use program::{Exit, Options, Program, version};

use crate::access::BodyReaders;

mod checks;

pub use checks::Checked;

/// nsqadmin, as its command line shows it.
pub static NSQADMIN: Program = Program {
    name: "nsqadmin",
    version: version::of_daemon,
    flags: FLAGS,
    own_flags: OWN_FLAGS,
};

/// The flags of nsqadmin.
#[rustfmt::skip]
const FLAGS: &[Flag] = {
    use Kind::{Boolean, Duration, List, Text};
    const MIN: i64 = i64::MIN;
    const MAX: i64 = i64::MAX;
    &[
    flag::VERSION,
    flag::CONFIG,
    flag::LOG_LEVEL,
    flag::log_prefix("[nsqadmin] "),
    flag::VERBOSE,
    Flag::new("http-address", Text, "0.0.0.0:4171", "<addr>:<port> to listen on for HTTP clients"),
    Flag::new("base-path", Text, "/", "URL base path"),
    Flag::new("dev-static-dir", Text, "", "serve the page's files from this directory instead of the embedded ones (development use only)"),
    Flag::new("graphite-url", Text, "", "graphite HTTP address; enables graphs"),
    Flag::new("proxy-graphite", Boolean, "false", "proxy HTTP requests to graphite"),
    Flag::new("statsd-counter-format", Text, "stats.counters.%s.count", "The counter stats key formatting applied by the implementation of statsd. If no formatting is desired, set this to an empty string."),
    Flag::new("statsd-gauge-format", Text, "stats.gauges.%s", "The gauge stats key formatting applied by the implementation of statsd. If no formatting is desired, set this to an empty string."),
    Flag::new("statsd-prefix", Text, "nsq.%s", "prefix used for keys sent to statsd (%s for host replacement, must match nsqd)"),
    Flag::new("statsd-interval", Duration(MIN, MAX), "1m0s", "time interval nsqd is configured to push to statsd (must match nsqd)"),
    Flag::new("notification-http-endpoint", Text, "", "HTTP endpoint (fully qualified) to which POST notifications of admin actions will be sent"),
    Flag::new("http-client-connect-timeout", Duration(MIN, MAX), "2s", "timeout for HTTP connect"),
    Flag::new("http-client-request-timeout", Duration(MIN, MAX), "5s", "timeout for HTTP request"),
    Flag::new("http-client-tls-insecure-skip-verify", Boolean, "false", "configure the HTTP client to skip verification of TLS certificates"),
    Flag::new("http-client-tls-root-ca-file", Text, "", "path to CA file for the HTTP client"),
    Flag::new("http-client-tls-cert", Text, "", "path to certificate file for the HTTP client"),
    Flag::new("http-client-tls-key", Text, "", "path to key file for the HTTP client"),
    Flag::new("allow-config-from-cidr", Text, "127.0.0.1/8", "A CIDR from which to allow HTTP requests to the /config endpoint"),
    Flag::new("acl-http-header", Text, "X-Forwarded-User", "HTTP header to check for authenticated admin users"),
    Flag::new("admin-user", List, "", "admin user (may be given multiple times; if specified, only these users will be able to perform privileged actions; acl-http-header is used to determine the authenticated user)")
        .with_key("admin_users"),
    Flag::new("lookupd-http-address", List, "", "lookupd HTTP address (may be given multiple times)")
        .with_key("nsqlookupd_http_addresses"),
    Flag::new("nsqd-http-address", List, "", "nsqd HTTP address (may be given multiple times)")
        .with_key("nsqd_http_addresses"),
    ]
};

/// The flags that the original nsqadmin does not have.
#[rustfmt::skip]
const OWN_FLAGS: &[Flag] = {
    use Kind::{Choice, Duration, Integer, List, Text};
    const MAX: i64 = i64::MAX;
    &[
    flag::LOG_FORMAT,
    Flag::new("trusted-proxy-cidr", List, "127.0.0.0/8,::1/128", "CIDR of the proxies whose acl-http-header counts (may be given multiple times; replaces the default); 0.0.0.0/0,::/0 for everywhere"),
    Flag::new("allowed-origin", List, "", "origin of pages that may act, such as https://nsq.example.com, for proxies that change the Host header (may be given multiple times)"),
    Flag::new("allowed-host", List, "", "name under which browsers on this machine reach nsqadmin, beside localhost and the machine's name; a page of any other name may be that of a stranger, and gets 421 (may be given multiple times)"),
    Flag::new("peek-bodies", Choice(&["admins", "everybody", "nobody"]), "admins", "users who may read the bodies of messages: admins (those of --admin-user, and without it nobody), everybody or nobody"),
    Flag::new("audit-log-file", Text, "", "file that gets a line of JSON for every act of an admin, and for refused ones (100 at once, then one every 10s)"),
    Flag::new("nsqd-url-map", List, "", "<broadcast address>:<http port>=<URL>: where to reach an nsqd whose broadcast address cannot be reached from here (may be given multiple times)"),
    Flag::new("max-nodes", Integer(1, 100_000), "1000", "most nsqds that are asked; further ones are left out with a warning"),
    Flag::new("max-answer-size", Integer(1024, MAX), "67108864", "most bytes of an answer of an nsqd or nsqlookupd")
        .checked_by(checks::whole_bytes),
    Flag::new("live-interval", Duration(0, MAX), "1s", "time between two questions to all nsqds for live figures; longer if an answer takes more than a fifth of that time; 0 for no live figures"),
    Flag::new("history-max-bytes", Integer(0, MAX), "268435456", "most bytes of memory for the past of all topics, channels and nodes; if they do not fit, the past of all becomes shorter")
        .checked_by(checks::whole_bytes),
    Flag::new("history-file", Text, "", "file in which the past is saved every minute and at the end; it belongs to one nsqadmin; empty for none"),
    flag::HTTPS[0],
    flag::HTTPS[1],
    flag::HTTPS[2],
    flag::HTTPS[3],
    flag::HTTPS[4],
    flag::HTTPS[5],
    Flag::new("http-read-timeout", Duration(0, MAX), "1m0s", "time that an HTTP client may take for a TLS handshake, for the head of a request (also for the wait between two requests), and for a body; 0 for no limit"),
    Flag::new("http-write-timeout", Duration(0, MAX), "1m0s", "time that an HTTP client may take without reading any of its answer; 0 for no limit"),
    ]
};

/// The values of the flags.
#[derive(Clone, Debug)]
pub struct Config {
    /// Every flag as it was given, for `/config`.
    pub options: Options,
    /// `--log-level`
    pub log_level: Level,
    /// `--log-prefix`, `--log-format`
    pub log_style: Style,
    /// `--http-address`
    pub http_address: String,
    /// `--base-path`
    pub base_path: String,
    /// `--dev-static-dir`
    pub dev_static_dir: String,
    /// `--graphite-url`, `--proxy-graphite`, `--statsd-*`
    pub graphite: GraphiteFlags,
    /// `--notification-http-endpoint`
    pub notification_http_endpoint: String,
    /// `--http-client-*`, `--max-answer-size`
    pub client: ClientFlags,
    /// `--allow-config-from-cidr`
    pub allow_config_from_cidr: String,
    /// `--acl-http-header`
    pub acl_http_header: String,
    /// `--admin-user`
    pub admin_users: Vec<String>,
    /// `--trusted-proxy-cidr`
    pub trusted_proxy_cidrs: Vec<String>,
    /// `--allowed-origin`
    pub allowed_origins: Vec<String>,
    /// `--allowed-host`
    pub allowed_hosts: Vec<String>,
    /// `--peek-bodies`
    pub body_readers: BodyReaders,
    /// `--audit-log-file`
    pub audit_log_file: String,
    /// `--lookupd-http-address`
    pub lookupd_http_addresses: Vec<String>,
    /// `--nsqd-http-address`
    pub nsqd_http_addresses: Vec<String>,
    /// `--nsqd-url-map`
    pub nsqd_url_map: Vec<String>,
    /// `--max-nodes`
    pub nodes_max: usize,
    /// `--live-interval`, `--history-*`; `None` for no live figures.
    pub collection: Option<Collection>,
    /// `--https-address`, or an empty text
    pub https_address: String,
    /// `--tls-*`
    pub tls: ListenerTls,
    /// `--http-read-timeout`; `None` is no limit.
    pub read_timeout: Option<Duration>,
    /// `--http-write-timeout`; `None` is no limit.
    pub write_timeout: Option<Duration>,
    /// Sentences about the parts of the command line and the configuration file that count for nothing.
    pub ignored: Vec<String>,
}

/// The flags about graphite.
#[derive(Clone, Debug, Default)]
pub struct GraphiteFlags {
    /// `--graphite-url`, without slashes at its end
    pub url: String,
    /// `--proxy-graphite`
    pub is_proxied: bool,
    /// `--statsd-counter-format`
    pub counter_format: String,
    /// `--statsd-gauge-format`
    pub gauge_format: String,
    /// `--statsd-prefix`
    pub prefix: String,
    /// `--statsd-interval`
    pub interval: Duration,
}

/// The flags about the requests to nsqds and nsqlookupds.
#[derive(Clone, Debug, Default)]
pub struct ClientFlags {
    /// `--http-client-connect-timeout`; zero means no limit.
    pub connect_timeout: Duration,
    /// `--http-client-request-timeout`; zero means no limit.
    pub request_timeout: Duration,
    /// `--http-client-tls-insecure-skip-verify`
    pub skips_verification: bool,
    /// `--http-client-tls-root-ca-file`
    pub root_ca_file: String,
    /// `--http-client-tls-cert`
    pub cert: String,
    /// `--http-client-tls-key`
    pub key: String,
    /// `--max-answer-size`, in bytes.
    pub answer_bytes_max: usize,
}

/// The flags about live figures.
#[derive(Clone, Debug, Default)]
pub struct Collection {
    /// `--live-interval`
    pub interval: Duration,
    /// `--history-max-bytes`
    pub history_bytes_max: usize,
    /// `--history-file`, or an empty text.
    pub file: String,
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = NSQADMIN.options(args, &program::hostname());
        Ok(Config::new(options.map_err(with_replacement)?))
    }

    fn new(options: Options) -> Config {
        let limit = |name| Some(options.duration(name)).filter(|timeout| !timeout.is_zero());
        Config {
            log_level: options.log_level(),
            log_style: options.log_style(),
            http_address: options.text("http-address"),
            base_path: checks::base_path(&options.text("base-path")),
            dev_static_dir: options.text("dev-static-dir"),
            graphite: GraphiteFlags {
                url: options
                    .text("graphite-url")
                    .trim_end_matches('/')
                    .to_owned(),
                is_proxied: options.boolean("proxy-graphite"),
                counter_format: options.text("statsd-counter-format"),
                gauge_format: options.text("statsd-gauge-format"),
                prefix: options.text("statsd-prefix"),
                interval: options.duration("statsd-interval"),
            },
            notification_http_endpoint: options.text("notification-http-endpoint"),
            client: ClientFlags {
                connect_timeout: options.duration("http-client-connect-timeout"),
                request_timeout: options.duration("http-client-request-timeout"),
                skips_verification: options.boolean("http-client-tls-insecure-skip-verify"),
                root_ca_file: options.text("http-client-tls-root-ca-file"),
                cert: options.text("http-client-tls-cert"),
                key: options.text("http-client-tls-key"),
                answer_bytes_max: options.count("max-answer-size", usize::MAX),
            },
            allow_config_from_cidr: options.text("allow-config-from-cidr"),
            acl_http_header: options.text("acl-http-header"),
            admin_users: options.list("admin-user"),
            trusted_proxy_cidrs: options.list("trusted-proxy-cidr"),
            allowed_origins: options.list("allowed-origin"),
            allowed_hosts: options.list("allowed-host"),
            body_readers: match options.text("peek-bodies").as_str() {
                "everybody" => BodyReaders::Everybody,
                "nobody" => BodyReaders::Nobody,
                _ => BodyReaders::Admins,
            },
            audit_log_file: options.text("audit-log-file"),
            lookupd_http_addresses: options.list("lookupd-http-address"),
            nsqd_http_addresses: options.list("nsqd-http-address"),
            nsqd_url_map: options.list("nsqd-url-map"),
            nodes_max: options.count("max-nodes", usize::MAX),
            collection: limit("live-interval").map(|interval| Collection {
                interval,
                history_bytes_max: options.count("history-max-bytes", usize::MAX),
                file: options.text("history-file"),
            }),
            https_address: options.text("https-address"),
            tls: ListenerTls::from_options(&options),
            read_timeout: limit("http-read-timeout"),
            write_timeout: limit("http-write-timeout"),
            ignored: options.ignored(),
            options,
        }
    }
}

/// Flags of earlier versions, and the flags that replace them.
const REPLACED: [(&str, &str); 1] = [("history-max-series", "history-max-bytes")];

/// Says which flag replaces an unknown one that an earlier version had.
fn with_replacement(mut exit: Exit) -> Exit {
    for (old, new) in REPLACED {
        let line = format!("flag provided but not defined: -{old}");
        if let Some(rest) = exit.stderr.strip_prefix(&format!("{line}\n")) {
            exit.stderr = format!("{line}; it is replaced by --{new}\n{rest}");
        }
    }
    exit
}

#[cfg(test)]
mod tests;
