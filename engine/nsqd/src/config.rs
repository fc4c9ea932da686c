//! The operator's settings: nsqd's table of flags (`table.rs`), and the typed form of their values ([`Config`]).
//!
//! The crate `program` reads the command line and the configuration file.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine_rules::{DeadLetterRules, DedupRules, Required, UnclaimedRules};
use program::log::{Level, Style};
use program::{Exit, Options, Value, version};
use table::NSQD;

mod checks;
mod dead_letter;
mod dedup;
mod required;
mod table;
mod topic_pattern;
mod unclaimed;
mod words;

pub use words::{Check, TlsRequired, TlsVersion};

/// Returns `nsqd v1.3.0 (built w/rust1.95)`: the first line of the log, of the text stats, and of the output of
/// `--version`.
pub fn version_line() -> String {
    version::of_daemon(NSQD.name)
}

/// Upper bound of `--shards`: what the kernel's default affinity mask can name.
pub const SHARDS_MAX: i64 = 1024;

/// The program's configuration. Durations and sizes that were given as negative are 0 here, which
/// is what they amount to. The bounds below hold once the checks have passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `--log-level`
    pub log_level: Level,
    /// `--log-prefix`, `--log-format`
    pub log_style: Style,
    /// `--node-id`, below 1024.
    pub node_id: u16,
    /// `--tcp-address`
    pub tcp_address: String,
    /// `--http-address`; empty: no listener.
    pub http_address: String,
    /// `--https-address`; empty: no listener.
    pub https_address: String,
    /// `--lookupd-tcp-address`; `None`: an empty list in the configuration file.
    pub lookupd_tcp_addresses: Option<Vec<String>>,
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
    /// `--unix-socket`; empty: none.
    pub unix_socket: String,
    /// `--http-unix-socket`; empty: none.
    pub http_unix_socket: String,
    /// `--unix-socket-mode`, at most 0o777; `None`: the umask decides.
    pub unix_socket_mode: Option<u32>,
    /// `--shards`, with 0 already replaced by the number of usable cores.
    pub shard_count: NonZeroUsize,
    /// `--pin-shards`
    pub pin_shards: bool,
    /// `--io`: `auto`, or the name of an [`crate::reactor::Engine`].
    pub io: String,
    /// `--look`; zero: never.
    pub look: Duration,
    /// `--check`
    pub check: Check,
    /// `--peek`
    pub peek: bool,
    /// `--old-http-endpoints`
    pub old_http_endpoints: bool,
    /// `--allowed-host`; empty: any name.
    pub allowed_hosts: Vec<String>,
    /// `--create`: `topic` or `topic/channel`.
    pub create: Vec<String>,
    /// `--new-topic-grace`
    pub new_topic_grace: Duration,
    /// `--dead-letter`, as given.
    pub dead_letter: Vec<String>,
    /// `--dedup`, as given.
    pub dedup: Vec<String>,
    /// `--new-topic-grace-bytes`
    pub new_topic_grace_bytes: u64,
    /// `--unclaimed-messages`: `pattern=policy`.
    pub unclaimed_messages: Vec<String>,
    /// `--drain-on-sigterm`
    pub drain_on_sigterm: bool,
    /// `--drain-timeout`; 0: no limit.
    pub drain_timeout: Duration,
    /// `--lookupd-tls-root-ca-file`; empty: no TLS to nsqlookupds.
    pub lookupd_tls_root_ca_file: String,
    /// All values as they were given, for `/config`.
    pub options: Arc<Options>,
}

impl Config {
    /// Returns whether a certificate or its key is configured. A start fails if only one of them is.
    pub fn has_certificate(&self) -> bool {
        !self.tls_cert.is_empty() || !self.tls_key.is_empty()
    }

    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or `--help` or `--version` is given.
    pub fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        Config::from_args_on_host(args, &program::hostname())
    }

    fn from_args_on_host(
        args: impl IntoIterator<Item = OsString>,
        hostname: &str,
    ) -> Result<Config, Exit> {
        let options = NSQD.options(args, hostname)?;
        Config::new(options, hostname).map_err(|why| NSQD.fatal(&why))
    }

    /// The error is the text for the FATAL line.
    fn new(options: Options, hostname: &str) -> Result<Config, String> {
        let text = |name| options.text(name);
        let list = |name| options.list(name);
        let boolean = |name| options.boolean(name);
        let count = |name| options.count(name, u64::MAX);
        let duration = |name| options.duration(name);
        Ok(Config {
            log_level: options.log_level(),
            log_style: options.log_style(),
            node_id: options.count("node-id", u16::MAX),
            tcp_address: text("tcp-address"),
            http_address: text("http-address"),
            https_address: text("https-address"),
            lookupd_tcp_addresses: options.list_or_none("lookupd-tcp-address"),
            auth_http_addresses: list("auth-http-address"),
            auth_http_request_method: text("auth-http-request-method"),
            http_connect_timeout: duration("http-client-connect-timeout"),
            http_request_timeout: duration("http-client-request-timeout"),
            broadcast_address: text("broadcast-address"),
            hostname: hostname.to_string(),
            broadcast_tcp_port: options.count("broadcast-tcp-port", u16::MAX),
            broadcast_http_port: options.count("broadcast-http-port", u16::MAX),
            topology_region: text("topology-region"),
            topology_zone: text("topology-zone"),
            data_path: data_path(&text("data-path"))?,
            mem_queue_count: count("mem-queue-size"),
            file_bytes_max: count("max-bytes-per-file"),
            sync_every: count("sync-every"),
            sync_timeout: duration("sync-timeout"),
            msg_timeout: duration("msg-timeout"),
            msg_timeout_max: duration("max-msg-timeout"),
            msg_bytes_max: count("max-msg-size"),
            body_bytes_max: count("max-body-size"),
            req_timeout_max: duration("max-req-timeout"),
            heartbeat_interval_max: duration("max-heartbeat-interval"),
            rdy_count_max: count("max-rdy-count"),
            output_buffer_bytes_max: count("max-output-buffer-size"),
            output_buffer_timeout_max: duration("max-output-buffer-timeout"),
            output_buffer_timeout_min: duration("min-output-buffer-timeout"),
            output_buffer_timeout: duration("output-buffer-timeout"),
            channel_consumers_max: count("max-channel-consumers"),
            statsd_address: text("statsd-address"),
            statsd_interval: duration("statsd-interval"),
            statsd_mem_stats: boolean("statsd-mem-stats"),
            statsd_prefix: text("statsd-prefix"),
            statsd_packet_bytes: count("statsd-udp-packet-size"),
            statsd_exclude_ephemeral: boolean("statsd-exclude-ephemeral"),
            e2e_percentiles: options.floats("e2e-processing-latency-percentile"),
            e2e_window: duration("e2e-processing-latency-window-time"),
            tls_cert: text("tls-cert"),
            tls_key: text("tls-key"),
            tls_client_auth_policy: text("tls-client-auth-policy"),
            tls_root_ca_file: text("tls-root-ca-file"),
            tls_required: TlsRequired::of(options.word("tls-required")),
            tls_min_version: TlsVersion::of(options.word("tls-min-version")),
            deflate: boolean("deflate"),
            deflate_level_max: options.count("max-deflate-level", u8::MAX),
            snappy: boolean("snappy"),
            experiments: list("enable-experiment"),
            unix_socket: text("unix-socket"),
            http_unix_socket: text("http-unix-socket"),
            unix_socket_mode: unix_socket_mode(&text("unix-socket-mode"))?,
            shard_count: shard_count(count("shards")),
            pin_shards: boolean("pin-shards"),
            io: text("io"),
            look: duration("look"),
            check: Check::of(options.word("check")),
            lookupd_tls_root_ca_file: text("lookupd-tls-root-ca-file"),
            peek: boolean("peek"),
            old_http_endpoints: boolean("old-http-endpoints"),
            allowed_hosts: list("allowed-host"),
            create: list("create"),
            dead_letter: list("dead-letter"),
            dedup: list("dedup"),
            new_topic_grace: duration("new-topic-grace"),
            new_topic_grace_bytes: count("new-topic-grace-bytes"),
            unclaimed_messages: list("unclaimed-messages"),
            drain_on_sigterm: boolean("drain-on-sigterm"),
            drain_timeout: duration("drain-timeout"),
            options: Arc::new(options),
        })
    }

    /// Reads the configuration file again.
    ///
    /// # Errors
    /// The reason for the operator.
    pub(crate) fn reread(&self) -> Result<Config, String> {
        Config::new(self.options.reread()?, &self.hostname)
    }

    /// Returns this configuration with other values for some flags. These values are not checked yet.
    ///
    /// # Errors
    /// The reason for the operator.
    pub(crate) fn with(&self, values: &[(&'static str, Value)]) -> Result<Config, String> {
        Config::new(self.options.with(values), &self.hostname)
    }

    /// The topics and channels of `--create`.
    ///
    /// # Errors
    /// Names the entry that is wrong, for the FATAL line.
    pub fn required(&self) -> Result<Required, String> {
        required::required(&self.create)
    }

    /// The rules of `--unclaimed-messages`.
    ///
    /// # Errors
    /// Names the entry that is wrong, for the FATAL line.
    pub fn unclaimed(&self) -> Result<UnclaimedRules, String> {
        unclaimed::unclaimed(&self.unclaimed_messages)
    }

    /// The rules of `--dead-letter`.
    ///
    /// # Errors
    /// Names the rule that is wrong, for the FATAL line.
    pub fn dead_letter_rules(&self) -> Result<DeadLetterRules, String> {
        dead_letter::rules(&self.dead_letter)
    }

    /// The rules of `--dedup`.
    ///
    /// # Errors
    /// Names the rule that is wrong, for the FATAL line.
    pub fn dedup_rules(&self) -> Result<DedupRules, String> {
        dedup::rules(&self.dedup)
    }
}

/// nsqd resolves the current directory at start, too: log lines and errors show the full path.
fn data_path(text: &str) -> Result<PathBuf, String> {
    if !text.is_empty() {
        return Ok(PathBuf::from(text));
    }
    std::env::current_dir().map_err(|error| {
        format!(
            "failed to instantiate nsqd - failed to find the current directory for --data-path - \
             {error}"
        )
    })
}

fn unix_socket_mode(text: &str) -> Result<Option<u32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let is_octal = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(text, 8).ok();
    match mode.filter(|mode| is_octal && *mode <= 0o777) {
        Some(mode) => Ok(Some(mode)),
        None => Err(format!(
            "--unix-socket-mode must be an octal number up to 0777, as chmod takes it, and not {text:?}"
        )),
    }
}

/// One shard per core. The standard library asks `sched_getaffinity` and then the control group's
/// CPU quota: in a container that is allowed two of 64 cores, 64 shards would only throttle each
/// other.
fn shard_count(wanted: u64) -> NonZeroUsize {
    // A check refuses more than SHARDS_MAX.
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    NonZeroUsize::new(wanted)
        .or_else(|| std::thread::available_parallelism().ok())
        .unwrap_or(NonZeroUsize::MIN)
}

/// nsqd's choice, kept so that a node keeps its id through the change to ringq.
fn default_node_id(hostname: &str) -> String {
    use md5::{Digest, Md5};
    (crc32fast::hash(&Md5::digest(hostname.as_bytes())) % 1024).to_string()
}

#[cfg(test)]
mod tests;
