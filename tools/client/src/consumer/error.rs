//! The errors of a consumer.

use std::fmt;
use std::sync::Arc;

use wire::name::InvalidName;

use crate::address::{Address, AddressError};
use crate::config::OptionError;
use crate::error::ConnectionError;
use crate::lookupd::LookupdError;

/// The reason why a consumer could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The topic is no valid name: 1 to 64 bytes of `.a-zA-Z0-9_-`, with or without `#ephemeral` at the end.
    Topic(String),
    /// The channel is no valid name.
    Channel(String),
    /// An option of the configuration is wrong.
    Option(OptionError),
    /// There is neither a node nor an nsqlookupd.
    NoAddress,
    /// The address of a node is wrong.
    Address(AddressError),
    /// An nsqlookupd cannot be used.
    Lookupd(LookupdError),
    /// A node cannot be used.
    Node(NodeError),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Topic(name) => write!(f, "invalid topic name: {}", InvalidName(name)),
            ConnectError::Channel(name) => {
                write!(f, "invalid channel name: {}", InvalidName(name))
            }
            ConnectError::Option(error) => error.fmt(f),
            ConnectError::NoAddress => {
                f.write_str("a consumer needs the address of an nsqd or of an nsqlookupd")
            }
            ConnectError::Address(error) => error.fmt(f),
            ConnectError::Lookupd(error) => error.fmt(f),
            ConnectError::Node(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectError::Option(error) => Some(error),
            ConnectError::Address(error) => Some(error),
            ConnectError::Lookupd(error) => Some(error),
            ConnectError::Node(error) => Some(error),
            ConnectError::Topic(_) | ConnectError::Channel(_) | ConnectError::NoAddress => None,
        }
    }
}

/// The reason why an address of a running consumer could not be added or removed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeError {
    /// The node is connected already, or being connected.
    AlreadyConnected(Address),
    /// The consumer has no such node.
    NotConnected(Address),
    /// The first connection failed, and `retry_first_connection` is off.
    Connection(Address, Arc<ConnectionError>),
    /// The consumer has no such nsqlookupd.
    UnknownLookupd(String),
    /// The nsqlookupd is the last one, which cannot be removed.
    LastLookupd(String),
    /// The consumer has this many nodes already, the most that nsqlookupds can bring.
    TooMany(usize),
    /// The consumer is stopping, or has stopped.
    Stopped,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::AlreadyConnected(node) => write!(f, "already connected: {node}"),
            NodeError::NotConnected(node) => write!(f, "not connected: {node}"),
            NodeError::Connection(node, error) => {
                write!(f, "({node}) error connecting to nsqd - {error}")
            }
            NodeError::UnknownLookupd(address) => write!(f, "not connected: nsqlookupd {address}"),
            NodeError::LastLookupd(address) => write!(
                f,
                "cannot disconnect from only remaining nsqlookupd HTTP address {address}"
            ),
            NodeError::TooMany(most) => {
                write!(
                    f,
                    "{most} nodes are connected already, and nsqlookupds bring no more"
                )
            }
            NodeError::Stopped => f.write_str("consumer stopped"),
        }
    }
}

impl std::error::Error for NodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NodeError::Connection(_, error) => Some(&**error),
            _ => None,
        }
    }
}
