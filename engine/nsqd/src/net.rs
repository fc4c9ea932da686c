//! Clients' sockets: listening, accepting, reading and writing, plain or through TLS and compression. No rules of NSQ
//! here.

pub mod address;
pub(crate) mod input;
pub(crate) mod listener;
pub(crate) mod socket;
pub(crate) mod transport;
pub(crate) mod upgraded;
