//! nsqd's table of flags: name, type, bounds, default, help text.

use program::flag::{self, Flag, Kind};
use program::{Program, version};

use super::{SHARDS_MAX, default_node_id, words};

/// nsqd, as its command line shows it.
pub(super) static NSQD: Program = Program {
    name: "nsqd",
    version: version::of_daemon,
    flags: NSQD_FLAGS,
    own_flags: OWN_FLAGS,
};

/// No bound: the reference accepts what it likes, and so do we where nothing breaks.
const MIN: i64 = i64::MIN;
const MAX: i64 = i64::MAX;

/// The flags of nsqd. The bounds refuse two sorts of values: those that nsqd refuses, in its words, and
/// those with which it crashes later. A negative value that nsqd accepts means 0.
#[rustfmt::skip]
const NSQD_FLAGS: &[Flag] = {
    use Kind::{Boolean, Duration, Floats, Integer, List, Text, Word};
    &[
    flag::VERSION,
    flag::CONFIG,
    flag::LOG_LEVEL,
    flag::log_prefix("[nsqd] "),
    flag::VERBOSE,
    Flag::new("worker-id", Boolean, "false", "[deprecated] has no effect, use --node-id").without_key(),

    Flag::new("node-id", Integer(0, 1023), "", "unique part for message IDs, in [0,1024); by default from the host name")
        .of_host(default_node_id).with_key("id").with_field("ID"),
    Flag::new("tcp-address", Text, "0.0.0.0:4150", "<addr>:<port> or path of a unix socket to listen on for TCP clients"),
    Flag::new("http-address", Text, "0.0.0.0:4151", "<addr>:<port> or path of a unix socket to listen on for HTTP clients; empty for none"),
    Flag::new("https-address", Text, "0.0.0.0:4152", "<addr>:<port> to listen on for HTTPS clients, if there is a certificate; empty for none"),
    Flag::new("broadcast-address", Text, "", "address that is announced to nsqlookupd; by default the host name")
        .of_host(flag::hostname_itself),
    Flag::new("broadcast-tcp-port", Integer(0, 65535), "0", "TCP port that is announced to nsqlookupd; 0 for the one listened on"),
    Flag::new("broadcast-http-port", Integer(0, 65535), "0", "HTTP port that is announced to nsqlookupd; 0 for the one listened on"),
    Flag::new("lookupd-tcp-address", List, "", "<addr>:<port> of nsqlookupds, or the name of their SRV records, which begins with _ (may be given multiple times)")
        .with_key("nsqlookupd_tcp_addresses").with_field("NSQLookupdTCPAddresses"),
    Flag::new("auth-http-address", List, "", "<addr>:<port> or URL of an auth server (may be given multiple times)")
        .with_key("auth_http_addresses").with_field("AuthHTTPAddresses"),
    Flag::new("auth-http-request-method", Text, "get", "HTTP method of queries to auth servers: get or post"),
    Flag::new("http-client-connect-timeout", Duration(MIN, MAX), "2s", "timeout of connecting to auth servers and nsqlookupd over HTTP"),
    Flag::new("http-client-request-timeout", Duration(MIN, MAX), "5s", "timeout of HTTP requests to auth servers and nsqlookupd"),
    Flag::new("topology-region", Text, "", "region of this node, for clients that prefer near nodes"),
    Flag::new("topology-zone", Text, "", "zone of this node, for clients that prefer near nodes"),

    Flag::new("data-path", Text, "", "directory of messages and metadata; by default the current one"),
    Flag::new("mem-queue-size", Integer(0, MAX), "10000", "number of messages per topic that stay in memory; what is beyond is on disk only"),
    Flag::new("max-bytes-per-file", Integer(MIN, MAX), "104857600", "upper bound in bytes of a file of messages; values above 64 MiB mean 64 MiB"),
    Flag::new("sync-every", Integer(MIN, MAX), "2500", "number of messages per sync; at the default only --sync-timeout counts, 1 answers a publish after its sync"),
    Flag::new("sync-timeout", Duration(1, MAX), "2s", "duration of time per sync"),
    Flag::new("queue-scan-worker-pool-max", Integer(MIN, MAX), "4", "accepted, but has no effect: timers are exact"),
    Flag::new("queue-scan-selection-count", Integer(MIN, MAX), "20", "accepted, but has no effect: timers are exact"),

    Flag::new("msg-timeout", Duration(MIN, MAX), "1m0s", "default duration to wait before requeueing a message"),
    Flag::new("max-msg-timeout", Duration(MIN, MAX), "15m0s", "maximum duration before a message will timeout"),
    Flag::new("max-msg-size", Integer(MIN, MAX), "1048576", "maximum size of a single message in bytes"),
    Flag::new("max-body-size", Integer(MIN, MAX), "5242880", "maximum size of a single command body in bytes"),
    Flag::new("max-req-timeout", Duration(MIN, MAX), "1h0m0s", "maximum requeuing and deferring timeout for a message"),
    Flag::new("max-heartbeat-interval", Duration(MIN, MAX), "1m0s", "maximum client configurable duration between heartbeats"),
    Flag::new("max-rdy-count", Integer(MIN, MAX), "2500", "maximum RDY count for a client"),
    Flag::new("max-output-buffer-size", Integer(MIN, MAX), "65536", "maximum client configurable size in bytes of its output buffer"),
    Flag::new("max-output-buffer-timeout", Duration(MIN, MAX), "30s", "maximum client configurable duration between output flushes"),
    Flag::new("min-output-buffer-timeout", Duration(MIN, MAX), "25ms", "minimum client configurable duration between output flushes"),
    Flag::new("output-buffer-timeout", Duration(1, MAX), "250ms", "default duration between output flushes"),
    Flag::new("max-channel-consumers", Integer(0, MAX), "0", "maximum number of consumers of a channel; 0 for no limit"),

    Flag::new("statsd-address", Text, "", "UDP <addr>:<port> of a statsd daemon for pushing stats"),
    Flag::new("statsd-interval", Duration(1, MAX), "1m0s", "duration between pushes to statsd"),
    Flag::new("statsd-mem-stats", Boolean, "true", "push memory stats to statsd, too"),
    Flag::new("statsd-prefix", Text, "nsq.%s", "prefix of keys sent to statsd (%s for host replacement)"),
    Flag::new("statsd-udp-packet-size", Integer(MIN, MAX), "508", "maximum size in bytes of a statsd UDP packet"),
    Flag::new("statsd-exclude-ephemeral", Boolean, "false", "leave ephemeral topics and channels out of what is pushed to statsd"),
    Flag::new("e2e-processing-latency-percentile", Floats, "", "message processing time percentiles, in (0, 1], to keep track of (multiple, or separated by commas)")
        .with_key("e2e_processing_latency_percentiles").with_field("E2EProcessingLatencyPercentiles"),
    Flag::new("e2e-processing-latency-window-time", Duration(MIN, MAX), "10m0s", "time that the end-to-end latency percentiles cover"),

    Flag::new("tls-cert", Text, "", "path to the certificate file (PEM)"),
    Flag::new("tls-key", Text, "", "path to the private key file (PEM)"),
    Flag::new("tls-client-auth-policy", Text, "", "client certificate policy: require or require-verify"),
    Flag::new("tls-root-ca-file", Text, "", "path to the file of certificate authorities (PEM)"),
    Flag::new("tls-required", Word(&words::TLS_REQUIRED), "false", "require TLS of client connections: true, false, tcp-https"),
    Flag::new("tls-min-version", Word(&words::TLS_VERSION), "tls1.0", "lowest version of TLS: tls1.0, tls1.1, tls1.2, or tls1.3"),
    Flag::new("deflate", Boolean, "true", "let clients negotiate deflate compression").with_field("DeflateEnabled"),
    Flag::new("max-deflate-level", Integer(1, 9), "6", "maximum deflate compression level that a client can negotiate"),
    Flag::new("snappy", Boolean, "true", "let clients negotiate snappy compression").with_field("SnappyEnabled"),
    Flag::new("enable-experiment", List, "", "enable an experiment (may be given multiple times): topology-aware-consumption")
        .with_field("Experiments"),
    ]
};

/// The flags that nsqd does not have.
#[rustfmt::skip]
const OWN_FLAGS: &[Flag] = {
    use Kind::{Boolean, Duration, Integer, List, Text, Word};
    &[
    flag::LOG_FORMAT,
    Flag::new("unix-socket", Text, "", "path of a unix socket to listen on for TCP clients, beside --tcp-address; empty for none"),
    Flag::new("http-unix-socket", Text, "", "path of a unix socket to listen on for HTTP clients, beside --http-address; empty for none"),
    Flag::new("unix-socket-mode", Text, "", "permissions of the files of all unix sockets, in octal (0660); empty for 0777 minus the umask"),
    Flag::new("shards", Integer(0, SHARDS_MAX), "0", "number of shards; 0 for one per core that this process may use"),
    Flag::new("pin-shards", Boolean, "false", "bind each shard to a core"),
    Flag::new("io", Text, "auto", "how shards wait for sockets: io_uring, epoll (runs everywhere), or auto: io_uring where the system allows it, else epoll"),
    Flag::new("look", Duration(0, 1_000_000), "50µs", "with io_uring: how long a shard with at most 4 active connections looks for the next request before it sleeps, while that pays; 0 to sleep at once"),
    Flag::new("check", Word(&words::CHECK), "false", "check whether this machine is ready for a start with these flags, and end: true for a text, json for programs")
        .without_key(),
    Flag::new("lookupd-tls-root-ca-file", Text, "", "path to the file of authorities that sign the certificates of nsqlookupds (PEM); if given, nsqd registers over TLS and asks over HTTPS")
        .with_key("nsqlookupd_tls_root_ca_file"),
    flag::HTTP_TIMEOUTS[0],
    flag::HTTP_TIMEOUTS[1],
    flag::HTTP_TIMEOUTS[2],
    flag::ALLOWED_HOST,
    Flag::new("create", List, "", "topic, or topic/channel, that always exists (may be given multiple times): made at the start, and again after a deletion"),
    Flag::new("dead-letter", List, "", "'<topic>/<channel>,max-attempts=<n>,topic=<dead-letter topic>': a message of the channel that had n attempts goes to the dead-letter topic; * in a name stands for any characters (may be given multiple times, the first that fits counts; messages of ephemeral topics and channels are lost when these end, dead letters included)"),
    Flag::new("dedup", List, "", "<topic pattern>=<publisher, body or json:/pointer>[,window=<count or duration>][,memory=<bytes>]: the topics store no message twice that is published again, recognised by the number that its publisher gives it, by its body, or by a value in it; of bodies and values that are not in memory, fingerprints of 80 bits are compared (may be given multiple times; the first pattern that matches counts)"),
    Flag::new("new-topic-grace", Duration(MIN, MAX), "2m0s", "time in which a channel that is made gets all messages of a new topic whose channels elsewhere nsqlookupd could not tell; 0 for none"),
    Flag::new("new-topic-grace-bytes", Integer(MIN, MAX), "1073741824", "bytes of messages that a new topic keeps for --new-topic-grace; the oldest go first"),
    Flag::new("unclaimed-messages", List, "", "<topic pattern>=<policy> of messages of topics without any channel (may be given multiple times; the first pattern that matches counts): keep, drop, bytes:<n>, age:<duration>, or bytes:<n>+age:<duration>"),
    Flag::new("drain-on-sigterm", Boolean, "false", "make SIGTERM drain this node: refuse publishes, serve consumers until no message is left, then end; a second SIGTERM ends it at once"),
    Flag::new("drain-timeout", Duration(MIN, MAX), "0s", "time after which a drain ends nsqd although messages are left, which stay on disk; 0 for no limit"),
    Flag::new("peek", Boolean, "true", "serve /topic/peek and /channel/peek, which show messages over HTTP without consuming them; never served with --auth-http-address"),
    Flag::new("old-http-endpoints", Boolean, "false", "also serve the HTTP endpoints of nsqd before 1.0: /put, /mput, /create_topic, ..."),
    ]
};
