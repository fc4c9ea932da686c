//! The commands of nsqlookupd's protocol that a node sends, besides IDENTIFY.

use std::fmt;
use std::sync::Arc;

/// One command. The content of its answer does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// This node is alive.
    Ping,
    /// This node has the topic, or the channel of it.
    Register(Arc<str>, Option<Box<str>>),
    /// This node no longer has the topic, or the channel of it.
    Unregister(Arc<str>, Option<Box<str>>),
}

impl Command {
    /// Returns the kind of thing that the command names, for the log.
    pub(super) fn subject(&self) -> &'static str {
        match self {
            Command::Ping => "node",
            Command::Register(_, None) | Command::Unregister(_, None) => "topic",
            Command::Register(..) | Command::Unregister(..) => "channel",
        }
    }
}

/// The command's line without its line feed.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, topic, channel) = match self {
            Command::Ping => return f.write_str("PING"),
            Command::Register(topic, channel) => ("REGISTER", topic, channel),
            Command::Unregister(topic, channel) => ("UNREGISTER", topic, channel),
        };
        write!(f, "{verb} {topic}")?;
        match channel {
            Some(channel) => write!(f, " {channel}"),
            None => Ok(()),
        }
    }
}
