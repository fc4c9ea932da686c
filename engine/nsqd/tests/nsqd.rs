//! The tests of nsqd: the program over real sockets and files, and with real clients. Each module has the tests of one subject.

mod answers;
mod attempts;
mod auth;
mod check;
mod cluster;
mod cluster_page;
mod crash;
mod create;
mod curl;
mod dead_disk;
mod dedup;
mod dedup_content;
mod dedup_memory;
mod deletion;
mod deploy_files;
mod differential;
mod discovery;
mod drain;
mod grace;
mod http;
mod http_deadlines;
mod inherited_sockets;
mod interop;
mod lifecycle;
mod limits;
mod lookup;
mod lookup_names;
mod lost_disks;
mod monitoring;
mod moves;
#[path = "cluster/network.rs"]
mod network;
mod operator;
mod our_lookupd;
mod peek;
mod peek_attempts;
mod peek_published;
mod pressure;
mod reload;
#[path = "support/ringq_lookupd.rs"]
mod ringq_lookupd;
mod start_up;
mod statsd;
mod streams;
mod support;
#[path = "cluster/traffic.rs"]
mod traffic;
mod unclaimed;
mod unix_sockets;
mod upgrade;
mod upgrades;
