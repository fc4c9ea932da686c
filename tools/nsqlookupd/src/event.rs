//! [`Event`]: something that the log shows, with the original's texts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use program::go_value::duration_text;
use program::log::Level;

use crate::peer::Peer;

/// A registration as the log names it: that of a producer of a topic or of a channel, or of the client itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    client: Arc<str>,
    names: Option<Names>,
}

/// A line of the log.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first four bytes of a connection have arrived.
    Magic {
        /// The client's address.
        client: Arc<str>,
        /// The bytes.
        magic: [u8; 4],
    },
    /// The first four bytes are not those of a known protocol.
    BadMagic {
        /// The client's address.
        client: Arc<str>,
        /// The bytes.
        magic: [u8; 4],
    },
    /// A connection ended before its first four bytes.
    NoMagic {
        /// The reason.
        why: String,
    },
    /// A client has said who it is.
    Identified(Arc<Peer>),
    /// A PING.
    Pinged {
        /// The client's address.
        client: Arc<str>,
        /// Time since the last PING or the IDENTIFY.
        last: Duration,
    },
    /// A command was answered with an error.
    Refused {
        /// The client's address.
        client: Arc<str>,
        /// The error and its cause.
        error: String,
    },
    /// No more commands of this client are carried out.
    Exiting {
        /// The client's address.
        client: Arc<str>,
    },
    /// A connection has ended, for this reason.
    Ended {
        /// The client's address.
        client: Arc<str>,
        /// The reason.
        why: String,
    },
    /// A client became a producer.
    Registered(Registration),
    /// A client is no producer any more.
    Unregistered(Registration),
    /// An UNREGISTER of a topic removed a client from a channel.
    UnexpectedUnregister {
        /// The client's address.
        client: Arc<str>,
        /// The topic.
        topic: Arc<str>,
        /// The channel.
        channel: Arc<str>,
    },
    /// `/topic/create`, `/channel/create`
    AddingTopic(String),
    /// `/channel/create`
    AddingChannel {
        /// The topic.
        topic: String,
        /// The channel.
        channel: String,
    },
    /// `/topic/delete`
    RemovingTopic(Arc<str>),
    /// `/topic/delete`, `/channel/delete`
    RemovingChannel {
        /// The topic.
        topic: Arc<str>,
        /// The channel.
        channel: Arc<str>,
    },
    /// `/topic/tombstone`
    SettingTombstone {
        /// The topic.
        topic: String,
        /// The node.
        node: String,
    },
}

/// The names of a topic and perhaps of its channel.
type Names = (Arc<str>, Option<Arc<str>>);

impl Event {
    pub(crate) fn registered(peer: &Peer, names: Option<Names>) -> Event {
        let client = peer.address.clone();
        Event::Registered(Registration { client, names })
    }

    pub(crate) fn unregistered(peer: &Peer, names: Option<Names>) -> Event {
        let client = peer.address.clone();
        Event::Unregistered(Registration { client, names })
    }

    /// Returns the importance of the line.
    pub fn level(&self) -> Level {
        match self {
            Event::BadMagic { .. }
            | Event::NoMagic { .. }
            | Event::Refused { .. }
            | Event::Ended { .. } => Level::Error,
            Event::UnexpectedUnregister { .. } => Level::Warn,
            _ => Level::Info,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Magic { client, magic } => {
                let magic = String::from_utf8_lossy(magic);
                write!(f, "CLIENT({client}): desired protocol magic '{magic}'")
            }
            Event::BadMagic { client, magic } => {
                let magic = String::from_utf8_lossy(magic);
                write!(f, "client({client}) bad protocol magic '{magic}'")
            }
            Event::NoMagic { why } => write!(f, "failed to read protocol version - {why}"),
            Event::Identified(peer) => {
                let info = &peer.info;
                write!(
                    f,
                    "CLIENT({}): IDENTIFY Address:{} TCP:{} HTTP:{} Version:{}",
                    peer.address,
                    info.broadcast_address,
                    info.tcp_port,
                    info.http_port,
                    info.version
                )
            }
            Event::Pinged { client, last } => {
                let last = duration_text(*last);
                write!(f, "CLIENT({client}): pinged (last ping {last})")
            }
            Event::Refused { client, error } => write!(f, "[{client}] - {error}"),
            Event::Exiting { client } => {
                write!(f, "PROTOCOL(V1): [{client}] exiting ioloop")
            }
            Event::Ended { client, why } => write!(f, "client({client}) - {why}"),
            Event::Registered(registration) => registration.write(f, "REGISTER"),
            Event::Unregistered(registration) => registration.write(f, "UNREGISTER"),
            Event::UnexpectedUnregister {
                client,
                topic,
                channel,
            } => write!(
                f,
                "client({client}) unexpected UNREGISTER category:channel key:{topic} \
                 subkey:{channel}"
            ),
            Event::AddingTopic(topic) => write!(f, "DB: adding topic({topic})"),
            Event::AddingChannel { topic, channel } => {
                write!(f, "DB: adding channel({channel}) in topic({topic})")
            }
            Event::RemovingTopic(topic) => write!(f, "DB: removing topic({topic})"),
            Event::RemovingChannel { topic, channel } => {
                write!(f, "DB: removing channel({channel}) from topic({topic})")
            }
            Event::SettingTombstone { topic, node } => write!(
                f,
                "DB: setting tombstone for producer@{node} of topic({topic})"
            ),
        }
    }
}

impl Registration {
    fn write(&self, f: &mut fmt::Formatter<'_>, command: &str) -> fmt::Result {
        let (category, topic, channel) = match &self.names {
            None => ("client", "", ""),
            Some((topic, None)) => ("topic", &**topic, ""),
            Some((topic, Some(channel))) => ("channel", &**topic, &**channel),
        };
        write!(
            f,
            "DB: client({}) {command} category:{category} key:{topic} subkey:{channel}",
            self.client
        )
    }
}

/// Writes events to the log.
pub(crate) fn log(events: &[Event]) {
    for event in events {
        program::log_at!(event.level(), "{event}");
    }
}
