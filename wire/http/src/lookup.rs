//! The answers of nsqlookupd, and nsqd's `/info`.

use crate::lenient::lenient;
use crate::url::host_port;

lenient! {
    /// An answer of nsqlookupd. `/lookup` has channels and producers, and the other endpoints have one of the lists.
    #[derive(Eq)]
    pub struct Lookup {
        /// The names of the topics, in `/topics`.
        pub topics: Vec<String>,
        /// The names of the topic's channels, in `/channels` and `/lookup`.
        pub channels: Vec<String>,
        /// The nsqds: in `/nodes` all of them, in `/lookup` those that have the topic.
        pub producers: Vec<NodeInfo>,
    }
}

lenient! {
    /// An nsqd: an entry of an nsqlookupd, or nsqd's own `/info`.
    #[derive(Eq)]
    pub struct NodeInfo {
        /// The address from which the nsqd has connected to the nsqlookupd.
        pub remote_address: String,
        /// The name of the nsqd's machine.
        pub hostname: String,
        /// The address that the nsqd tells to its clients: a name or an IP address.
        pub broadcast_address: String,
        /// The port of the protocol, as the nsqd has told it: any number.
        pub tcp_port: i64,
        /// The port of HTTP, as the nsqd has told it: any number. A wrong one is the failure of this nsqd alone.
        pub http_port: i64,
        /// The version of nsqd.
        pub version: String,
        /// The start of the nsqd in seconds since 1970, in `/info`.
        pub start_time: i64,
        /// The version of ringq, in `/info`. Only ringq's nsqd has it.
        pub ringq_version: Option<String>,
        /// The zone, or an empty text.
        pub topology_zone: String,
        /// The region, or an empty text.
        pub topology_region: String,
        /// The topics, in `/nodes`.
        pub topics: Vec<String>,
        /// A flag for each topic: true if the topic is tombstoned there, and the nsqd is hidden from lookups of the
        /// topic. The list may be shorter than that of the topics.
        pub tombstones: Vec<bool>,
    }
}

impl NodeInfo {
    /// Returns `host:port` for clients of the protocol.
    #[must_use]
    pub fn tcp_address(&self) -> String {
        host_port(&self.broadcast_address, self.tcp_port)
    }

    /// Returns `host:port` of the HTTP interface.
    #[must_use]
    pub fn http_address(&self) -> String {
        host_port(&self.broadcast_address, self.http_port)
    }
}
