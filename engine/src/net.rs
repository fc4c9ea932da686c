//! Clients' sockets: accepting connections, reading their commands, writing their output. No rules of NSQ here.

pub mod address;
pub(crate) mod connection;
mod deadline;
pub(crate) mod http_stream;
pub(crate) mod input;
pub(crate) mod layered;
pub(crate) mod listener;
pub(crate) mod socket;
