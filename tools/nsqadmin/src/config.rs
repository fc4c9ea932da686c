//! The declaration of nsqadmin's flags.

use std::ffi::OsString;
use std::fmt::Display;
use std::time::Duration;

use program::check::{self, Check};
use program::flag::{self, Kind};
use program::log::Level;
use program::{Exit, FlagValue, Options, Program, Value, version};
use tokio_daemon::tls::ListenerTls;

use crate::access::BodyReaders;

mod checks;
mod url_map;

pub use checks::Checked;
pub use url_map::UrlMap;

program::flags! {
    /// The values of nsqadmin's flags.
    #[derive(Clone, Debug)]
    pub struct Config {
        options: Options;
        = flag::VERSION;
        = flag::CONFIG;
        log_level: Level = flag::LOG_LEVEL;
        = flag::log_prefix("[nsqadmin] ");
        = flag::VERBOSE;
        http_address: String = flag::new("http-address", "0.0.0.0:4171", "<addr>:<port> to listen on for HTTP clients");
        base_path: String = flag::new("base-path", "/", "URL base path");
        dev_static_dir: String = flag::new("dev-static-dir", "", "serve the page's files from this directory instead of the embedded ones (development use only)");
        graphite: GraphiteFlags;
        notification_http_endpoint: String = flag::new("notification-http-endpoint", "", "HTTP endpoint (fully qualified) to which POST notifications of admin actions will be sent");
        client: ClientFlags;
        allow_config_from_cidr: String = flag::new("allow-config-from-cidr", "127.0.0.1/8", "A CIDR from which to allow HTTP requests to the /config endpoint");
        acl_http_header: String = flag::new("acl-http-header", "X-Forwarded-User", "HTTP header to check for authenticated admin users");
        admin_users: Vec<String> = flag::new("admin-user", "", "user who may act, by --acl-http-header; without any, everybody may (may be given multiple times)")
            .with_key("admin_users");
        lookupd_http_addresses: Vec<String> = flag::new("lookupd-http-address", "", "lookupd HTTP address (may be given multiple times)")
            .with_key("nsqlookupd_http_addresses");
        nsqd_http_addresses: Vec<String> = flag::new("nsqd-http-address", "", "nsqd HTTP address (may be given multiple times)")
            .with_key("nsqd_http_addresses");
    }
    own {
        = flag::LOG_FORMAT;
        check: Check = check::FLAG;
        trusted_proxy_cidrs: Vec<String> = flag::new("trusted-proxy-cidr", "127.0.0.0/8,::1/128", "CIDR of the proxies whose --acl-http-header counts (may be given multiple times)");
        allowed_origins: Vec<String> = flag::new("allowed-origin", "", "origin of pages that may act, if a proxy changes the Host header (may be given multiple times)");
        allowed_hosts: Vec<String> = flag::new("allowed-host", "", "name under which browsers on this machine reach nsqadmin (may be given multiple times)");
        body_readers: BodyReaders = flag::new("peek-bodies", "admins", "users who may read the bodies of messages: admins (of --admin-user), everybody or nobody");
        audit_log_file: String = flag::new("audit-log-file", "", "file that gets a line of JSON for every act of an admin, and for refused ones");
        nsqd_url_map: Vec<String> = flag::new("nsqd-url-map", "", "<broadcast address>:<http port>=<URL>: where to reach this nsqd (may be given multiple times)");
        nodes_max: usize = flag::new("max-nodes", "1000", "most nsqds that are asked; further ones are left out with a warning").within(1, 100_000);
        answer_bytes_max: usize = flag::new("max-answer-size", "67108864", "most bytes of an answer of an nsqd or nsqlookupd")
            .at_least(1024).checked_by(checks::whole_bytes);
        live: LiveFlags;
        tls: ListenerTls;
        read_timeout: Option<Duration> = flag::new("http-read-timeout", "1m0s", "time that a client may take for a TLS handshake, a head (and the wait for it), a body; 0: no limit")
            .at_least(0);
        write_timeout: Option<Duration> = flag::new("http-write-timeout", "1m0s", "time that an HTTP client may take without reading any of its answer; 0 for no limit")
            .at_least(0);
    }
}

program::flags! {
    /// The flags about graphite. The URL has no slashes at its end.
    #[derive(Clone, Debug, Default)]
    pub struct GraphiteFlags {
        url: String = flag::new("graphite-url", "", "graphite HTTP address; enables graphs");
        is_proxied: bool = flag::new("proxy-graphite", "false", "proxy HTTP requests to graphite");
        counter_format: String = flag::new("statsd-counter-format", "stats.counters.%s.count", "key format of counters in statsd (%s for the key); empty for none");
        gauge_format: String = flag::new("statsd-gauge-format", "stats.gauges.%s", "key format of gauges in statsd (%s for the key); empty for none");
        prefix: String = flag::new("statsd-prefix", "nsq.%s", "prefix used for keys sent to statsd (%s for host replacement, must match nsqd)");
        interval: Duration = flag::new("statsd-interval", "1m0s", "time interval nsqd is configured to push to statsd (must match nsqd)");
    }
}

program::flags! {
    /// The flags about the requests to nsqds and nsqlookupds.
    #[derive(Clone, Debug, Default)]
    pub struct ClientFlags {
        connect_timeout: Option<Duration> = flag::new("http-client-connect-timeout", "2s", "timeout for HTTP connect");
        request_timeout: Option<Duration> = flag::new("http-client-request-timeout", "5s", "timeout for HTTP request");
        skips_verification: bool = flag::new("http-client-tls-insecure-skip-verify", "false", "configure the HTTP client to skip verification of TLS certificates");
        root_ca_file: String = flag::new("http-client-tls-root-ca-file", "", "path to CA file for the HTTP client");
        cert: String = flag::new("http-client-tls-cert", "", "path to certificate file for the HTTP client");
        key: String = flag::new("http-client-tls-key", "", "path to key file for the HTTP client");
    }
}

program::flags! {
    /// The flags about live figures.
    #[derive(Clone, Debug, Default)]
    pub struct LiveFlags {
        interval: Duration = flag::new("live-interval", "1s", "time between two questions to all nsqds for live figures; 0 for no live figures")
            .at_least(0);
        history_bytes_max: usize = flag::new("history-max-bytes", "268435456", "most bytes of memory for the past of all topics, channels and nodes")
            .at_least(0).checked_by(checks::whole_bytes);
        file: String = flag::new("history-file", "", "file in which the past is saved every minute and at the end; empty for none");
    }
}

/// nsqadmin, as its command line shows it.
pub static NSQADMIN: Program = Program::of::<Config>("nsqadmin", version::of_daemon);

impl FlagValue for BodyReaders {
    const KIND: Kind = Kind::Choice(&["admins", "everybody", "nobody"]);

    fn of(value: &Value) -> BodyReaders {
        match String::of(value).as_str() {
            "everybody" => BodyReaders::Everybody,
            "nobody" => BodyReaders::Nobody,
            _ => BodyReaders::Admins,
        }
    }
}

impl Config {
    /// Returns the flags of the addresses to listen on, and their values. An empty text switches off the last one.
    pub(crate) fn addresses(&self) -> [(&'static str, &str); 2] {
        [
            ("http-address", &self.http_address),
            ("https-address", &self.tls.https_address),
        ]
    }

    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = NSQADMIN.options(args, &program::hostname());
        let options = options.map_err(with_replacement)?;
        let mut config: Config = options.read().map_err(|why| NSQADMIN.fatal(&why))?;
        config.base_path = checks::base_path(&config.base_path);
        let url = config.graphite.url.trim_end_matches('/');
        config.graphite.url = url.to_owned();
        Ok(config)
    }

    /// Returns the flags about live figures, or `None` for no live figures.
    pub fn collection(&self) -> Option<&LiveFlags> {
        Some(&self.live).filter(|live| !live.interval.is_zero())
    }
}

/// Returns the text about a value of a flag that cannot be parsed.
pub fn not_parsed(flag: &str, value: &str, why: impl Display) -> String {
    format!("failed to parse --{flag} ({value}) - {why}")
}

/// Says which flag replaces an unknown one that an earlier version had.
fn with_replacement(mut exit: Exit) -> Exit {
    let line = "flag provided but not defined: -history-max-series";
    if let Some(rest) = exit
        .stderr
        .strip_prefix(line)
        .filter(|rest| rest.starts_with('\n'))
    {
        exit.stderr = format!("{line}; it is replaced by --history-max-bytes{rest}");
    }
    exit
}

#[cfg(test)]
mod tests;
