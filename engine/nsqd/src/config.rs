//! The operator's settings: the declaration of nsqd's flags ([`Config`]), and the checks of their values.
//!
//! The crate `program` reads the command line and the configuration file.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use program::check::{self, Check};
use program::flag;
use program::http::HttpTimeouts;
use program::log::Level;
use program::{Exit, Options, Program, version};
use wire::limits::Limits;

mod checks;
mod rules;
mod words;

pub use rules::Rules;
pub use words::{TlsRequired, TlsVersion, UnixSocketMode};

/// Returns `nsqd v1.3.0 (built w/rust1.95)`: the first line of the log, of the text stats, and of the output of
/// `--version`.
pub fn version_line() -> String {
    version::of_daemon(NSQD.name)
}

/// Upper bound of `--shards`: what the kernel's default affinity mask can name.
pub const SHARDS_MAX: i64 = 1024;

program::flags! {
    /// The values of nsqd's flags. Durations and sizes that were given as negative are 0 here, which is what they amount to.
    /// The bounds hold once the checks have passed. They refuse two sorts of values: those that nsqd refuses, in its words,
    /// and those with which it crashes later.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Config {
        options: Options;
        = flag::VERSION;
        = flag::CONFIG;
        log_level: Level = flag::LOG_LEVEL;
        = flag::log_prefix("[nsqd] ");
        = flag::VERBOSE;
        = flag::new::<bool>("worker-id", "false", "[deprecated] has no effect, use --node-id").without_key()
            .without_effect("NSQ ignores it, too");

        node_id: u16 = flag::new("node-id", "", "unique part for message IDs, in [0,1024); by default from the host name")
            .within(0, 1023).of_host(default_node_id).with_key("id").with_field("ID");
        tcp_address: String = flag::new("tcp-address", "0.0.0.0:4150", "<addr>:<port> or path of a unix socket to listen on for TCP clients");
        http_address: String = flag::new("http-address", "0.0.0.0:4151", "<addr>:<port> or path of a unix socket to listen on for HTTP clients; empty for none");
        https_address: String = flag::new("https-address", "0.0.0.0:4152", "<addr>:<port> to listen on for HTTPS clients, if there is a certificate; empty for none");
        broadcast_address: String = flag::new("broadcast-address", "", "address that is announced to nsqlookupd; by default the host name")
            .of_host(flag::hostname_itself);
        broadcast_tcp_port: u16 = flag::new("broadcast-tcp-port", "0", "TCP port that is announced to nsqlookupd; 0 for the one listened on")
            .within(0, 65535);
        broadcast_http_port: u16 = flag::new("broadcast-http-port", "0", "HTTP port that is announced to nsqlookupd; 0 for the one listened on")
            .within(0, 65535);
        lookupd_tcp_addresses: Option<Vec<String>> = flag::new("lookupd-tcp-address", "", "<addr>:<port> of nsqlookupds, or the name of their SRV records (may be given multiple times)")
            .with_key("nsqlookupd_tcp_addresses").with_field("NSQLookupdTCPAddresses")
            .differing("each address of a name is an nsqlookupd");
        auth_http_addresses: Vec<String> = flag::new("auth-http-address", "", "<addr>:<port> or URL of an auth server (may be given multiple times)")
            .with_key("auth_http_addresses").with_field("AuthHTTPAddresses")
            .differing("patterns lack \\Q..\\E and \\C");
        auth_http_request_method: String = flag::new("auth-http-request-method", "get", "HTTP method of queries to auth servers: get or post");
        http_connect_timeout: Duration = flag::new("http-client-connect-timeout", "2s", "timeout of connecting to auth servers and nsqlookupd over HTTP");
        http_request_timeout: Duration = flag::new("http-client-request-timeout", "5s", "timeout of HTTP requests to auth servers and nsqlookupd");
        topology_region: String = flag::new("topology-region", "", "region of this node, for clients that prefer near nodes");
        topology_zone: String = flag::new("topology-zone", "", "zone of this node, for clients that prefer near nodes");

        data_path: PathBuf = flag::new("data-path", "", "directory of messages and metadata; by default the current one");
        mem_queue_count: u64 = flag::new("mem-queue-size", "10000", "number of messages per topic that stay in memory")
            .at_least(0)
            .differing("all messages are in files; 4 to 32 MiB of a topic stay in memory in any case");
        file_bytes_max: u64 = flag::new("max-bytes-per-file", "104857600", "upper bound in bytes of a file of messages")
            .differing("bounds a segment, never above 64 MiB, but a larger MPUB gets its own");
        sync_every: u64 = flag::new("sync-every", "2500", "number of messages per sync")
            .differing("with 1, OK waits for the sync; by default, only --sync-timeout starts syncs");
        sync_timeout: Duration = flag::new("sync-timeout", "2s", "duration of time per sync").at_least(1);
        = flag::new::<i64>("queue-scan-worker-pool-max", "4", "accepted; timers are exact")
            .without_effect("nothing is scanned");
        = flag::new::<i64>("queue-scan-selection-count", "20", "accepted; timers are exact")
            .without_effect("nothing is scanned");

        msg_timeout: Duration = flag::new("msg-timeout", "1m0s", "default duration to wait before requeueing a message");
        msg_timeout_max: Duration = flag::new("max-msg-timeout", "15m0s", "maximum duration before a message will timeout");
        msg_bytes_max: u64 = flag::new("max-msg-size", "1048576", "maximum size of a single message in bytes");
        body_bytes_max: u64 = flag::new("max-body-size", "5242880", "maximum size of a single command body in bytes")
            .differing("bounds a whole MPUB, too");
        req_timeout_max: Duration = flag::new("max-req-timeout", "1h0m0s", "maximum requeuing and deferring timeout for a message");
        heartbeat_interval_max: Duration = flag::new("max-heartbeat-interval", "1m0s", "maximum client configurable duration between heartbeats");
        rdy_count_max: u64 = flag::new("max-rdy-count", "2500", "maximum RDY count for a client");
        output_buffer_bytes_max: u64 = flag::new("max-output-buffer-size", "65536", "maximum client configurable size in bytes of its output buffer")
            .differing("told to clients; output leaves at once");
        output_buffer_timeout_max: Duration = flag::new("max-output-buffer-timeout", "30s", "maximum client configurable duration between output flushes")
            .differing("told to clients; output leaves at once");
        output_buffer_timeout_min: Duration = flag::new("min-output-buffer-timeout", "25ms", "minimum client configurable duration between output flushes")
            .differing("told to clients; output leaves at once");
        output_buffer_timeout: Duration = flag::new("output-buffer-timeout", "250ms", "default duration between output flushes").at_least(1)
            .differing("told to clients; output leaves at once");
        channel_consumers_max: u64 = flag::new("max-channel-consumers", "0", "maximum number of consumers of a channel; 0 for no limit").at_least(0);

        statsd_address: String = flag::new("statsd-address", "", "UDP <addr>:<port> of a statsd daemon for pushing stats");
        statsd_interval: Duration = flag::new("statsd-interval", "1m0s", "duration between pushes to statsd").at_least(1);
        statsd_mem_stats: bool = flag::new("statsd-mem-stats", "true", "push memory stats to statsd, too")
            .differing("figures of Go's garbage collector are 0");
        statsd_prefix: String = flag::new("statsd-prefix", "nsq.%s", "prefix of keys sent to statsd (%s for host replacement)");
        statsd_packet_bytes: u64 = flag::new("statsd-udp-packet-size", "508", "maximum size in bytes of a statsd UDP packet");
        statsd_exclude_ephemeral: bool = flag::new("statsd-exclude-ephemeral", "false", "leave ephemeral topics and channels out of what is pushed to statsd");
        e2e_percentiles: Vec<f64> = flag::new("e2e-processing-latency-percentile", "", "message processing time percentiles, in (0, 1], to keep track of (multiple, or separated by commas)")
            .with_key("e2e_processing_latency_percentiles").with_field("E2EProcessingLatencyPercentiles");
        e2e_window: Duration = flag::new("e2e-processing-latency-window-time", "10m0s", "time that the end-to-end latency percentiles cover");

        tls_cert: String = flag::new("tls-cert", "", "path to the certificate file (PEM)");
        tls_key: String = flag::new("tls-key", "", "path to the private key file (PEM)");
        tls_client_auth_policy: String = flag::new("tls-client-auth-policy", "", "client certificate policy: require or require-verify")
            .differing("require-verify needs --tls-root-ca-file");
        tls_root_ca_file: String = flag::new("tls-root-ca-file", "", "path to the file of certificate authorities (PEM)");
        tls_required: TlsRequired = flag::new("tls-required", "false", "require TLS of client connections: true, false, tcp-https");
        tls_min_version: TlsVersion = flag::new("tls-min-version", "tls1.0", "lowest version of TLS: tls1.0, tls1.1, tls1.2, or tls1.3")
            .differing("tls1.0 and tls1.1 mean tls1.2");
        deflate: bool = flag::new("deflate", "true", "let clients negotiate deflate compression").with_field("DeflateEnabled");
        deflate_level_max: u8 = flag::new("max-deflate-level", "6", "maximum deflate compression level that a client can negotiate").within(1, 9);
        snappy: bool = flag::new("snappy", "true", "let clients negotiate snappy compression").with_field("SnappyEnabled");
        experiments: Vec<String> = flag::new("enable-experiment", "", "enable an experiment (may be given multiple times): topology-aware-consumption")
            .with_field("Experiments")
            .differing("near consumers also get waiting messages first");
    }
    own {
        = flag::LOG_FORMAT;
        unix_socket: String = flag::new("unix-socket", "", "path of a unix socket to listen on for TCP clients, beside --tcp-address; empty for none");
        http_unix_socket: String = flag::new("http-unix-socket", "", "path of a unix socket to listen on for HTTP clients, beside --http-address; empty for none");
        unix_socket_mode: UnixSocketMode;
        shard_count: NonZeroUsize = flag::new("shards", "0", "number of shards; 0 for one per core that this process may use").within(0, SHARDS_MAX);
        pin_shards: bool = flag::new("pin-shards", "false", "bind each shard to a core");
        io: String = flag::new("io", "auto", "how shards wait for sockets: io_uring, epoll, or auto: io_uring where the system allows it");
        look: Duration = flag::new("look", "50µs", "with io_uring: time that a shard with few connections looks for a request before it sleeps")
            .within(0, 1_000_000);
        check: Check = check::FLAG;
        like: String = flag::new("like", "", "with --check: HTTP address of the nsqd that is to be replaced; by default that at --http-address")
            .without_key();
        lookupd_tls_root_ca_file: String = flag::new("lookupd-tls-root-ca-file", "", "path to the authorities (PEM) of nsqlookupds' certificates; if given, nsqd talks TLS to them")
            .with_key("nsqlookupd_tls_root_ca_file");
        http_timeouts: HttpTimeouts;
        allowed_hosts: Vec<String> = flag::ALLOWED_HOST;
        create: Vec<String> = flag::new("create", "", "topic, or topic/channel, that always exists (may be given multiple times)");
        dead_letter: Vec<String> = flag::new("dead-letter", "", "<topic>/<channel>,max-attempts=<n>,topic=<dead-letter topic> (may be given multiple times)");
        dedup: Vec<String> = flag::new("dedup", "", "<topic pattern>=<publisher, body or json:/pointer>[,window=..][,memory=..]: store no copies");
        new_topic_grace: Duration = flag::new("new-topic-grace", "2m0s", "time in which a new topic keeps its messages for channels that nsqlookupd could not tell; 0: none");
        new_topic_grace_bytes: u64 = flag::new("new-topic-grace-bytes", "1073741824", "bytes of messages that a new topic keeps for --new-topic-grace; the oldest go first");
        unclaimed_messages: Vec<String> = flag::new("unclaimed-messages", "", "<topic pattern>=<keep, drop, bytes:<n>, age:<duration>>: messages that no channel owns");
        drain_on_sigterm: bool = flag::new("drain-on-sigterm", "false", "make SIGTERM drain this node: refuse publishes, serve consumers until no message is left, end");
        drain_timeout: Option<Duration> = flag::new("drain-timeout", "0s", "time after which a drain ends nsqd although messages are left, which stay on disk; 0 for no limit");
        peek: bool = flag::new("peek", "true", "serve /topic/peek and /channel/peek, which show messages without consuming them");
    }
}

/// nsqd, as its command line shows it.
pub static NSQD: Program = Program::of::<Config>("nsqd", version::of_daemon);

impl Config {
    /// Returns whether a certificate or its key is configured. A start fails if only one of them is.
    pub fn has_certificate(&self) -> bool {
        !self.tls_cert.is_empty() || !self.tls_key.is_empty()
    }

    /// Returns the largest sizes and numbers in commands.
    pub(crate) fn limits(&self) -> Limits {
        let narrow = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
        Limits {
            message_bytes_max: narrow(self.msg_bytes_max),
            body_bytes_max: narrow(self.body_bytes_max),
            rdy_count_max: i64::try_from(self.rdy_count_max).unwrap_or(i64::MAX),
            req_timeout_max: self.req_timeout_max,
        }
    }

    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or `--help` or `--version` is given.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        Config::from_args_on_host(args, &program::hostname())
    }

    pub(crate) fn from_args_on_host(
        args: impl IntoIterator<Item = OsString>,
        hostname: &str,
    ) -> Result<Config, Exit> {
        let options = NSQD.options(args, hostname)?;
        Config::new(&options).map_err(|why| NSQD.fatal(&why))
    }

    /// The error is the text for the FATAL line.
    fn new(options: &Options) -> Result<Config, String> {
        let mut config: Config = options.read()?;
        if config.data_path.as_os_str().is_empty() {
            // nsqd resolves the current directory at start, too: log lines and errors show the full path.
            config.data_path = std::env::current_dir().map_err(|error| {
                format!(
                    "failed to instantiate nsqd - failed to find the current directory for --data-path - {error}"
                )
            })?;
        }
        Ok(config)
    }

    /// Reads the configuration file again.
    ///
    /// # Errors
    /// The reason for the operator.
    pub(crate) fn reread(&self) -> Result<Config, String> {
        Config::new(&self.options.reread()?)
    }
}

/// nsqd's choice, kept so that a node keeps its id through the change to ringq.
fn default_node_id(hostname: &str) -> String {
    let digest = md5::compute(hostname.as_bytes());
    (crc32fast::hash(&*digest) % 1024).to_string()
}

#[cfg(test)]
mod tests;
