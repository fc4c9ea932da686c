//! [`Registry`]: the topics and channels of all shards, and the commands by which every nsqlookupd is told of them.

use engine_rules::Change;
use std::collections::{BTreeMap, BTreeSet};
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

/// The topics of this node with their channels, as the shards have told so far.
#[derive(Debug, Default)]
pub(super) struct Registry {
    topics: BTreeMap<Arc<str>, BTreeSet<Box<str>>>,
}

impl Registry {
    /// Carries out a change. Returns the command that tells the change. `None` if nothing is new.
    pub(super) fn apply(&mut self, change: Change) -> Option<Command> {
        let Change {
            topic,
            channel,
            is_there,
        } = change;
        let is_new = match (&channel, is_there) {
            (None, true) => {
                let is_new = !self.topics.contains_key(&topic);
                self.topics.entry(topic.clone()).or_default();
                is_new
            }
            (None, false) => self.topics.remove(&topic).is_some(),
            (Some(channel), true) => {
                let channels = self.topics.entry(topic.clone()).or_default();
                channels.insert(channel.clone())
            }
            (Some(channel), false) => {
                let channels = self.topics.get_mut(&topic);
                channels.is_some_and(|channels| channels.remove(channel))
            }
        };
        let command = if is_there {
            Command::Register(topic, channel)
        } else {
            Command::Unregister(topic, channel)
        };
        is_new.then_some(command)
    }

    /// Returns the commands that register everything at an nsqlookupd that knows nothing. A channel's command registers
    /// its topic, too.
    pub(super) fn commands(&self) -> Vec<Command> {
        let mut commands = Vec::new();
        for (topic, channels) in &self.topics {
            if channels.is_empty() {
                commands.push(Command::Register(topic.clone(), None));
            }
            let channels = channels.iter().cloned().map(Some);
            commands.extend(channels.map(|channel| Command::Register(topic.clone(), channel)));
        }
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_and_what_is_told_again() {
        let mut registry = Registry::default();
        let mut note = |line: &str| {
            let (is_there, name) = (line.starts_with('+'), &line[1..]);
            let (topic, channel) = match name.split_once('/') {
                Some((topic, channel)) => (topic, Some(channel.into())),
                None => (name, None),
            };
            let told = registry.apply(Change {
                topic: topic.into(),
                channel,
                is_there,
            });
            let all = registry.commands().into_iter();
            let all: Vec<String> = all.map(|command| command.to_string()).collect();
            (told.map(|command| command.to_string()), all.join(", "))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(note("+b"), (some("REGISTER b"), "REGISTER b".to_owned()));
        // Told by the start, and by the creation.
        assert_eq!(note("+b"), (None, "REGISTER b".to_owned()));
        assert_eq!(
            note("+b/x"),
            (some("REGISTER b x"), "REGISTER b x".to_owned())
        );
        assert_eq!(
            note("+a#ephemeral"),
            (
                some("REGISTER a#ephemeral"),
                "REGISTER a#ephemeral, REGISTER b x".to_owned()
            )
        );
        assert_eq!(note("-a#ephemeral").0, some("UNREGISTER a#ephemeral"));
        assert_eq!(
            note("-b/x"),
            (some("UNREGISTER b x"), "REGISTER b".to_owned())
        );
        assert_eq!(note("-b/x").0, None);
        assert_eq!(note("-b"), (some("UNREGISTER b"), String::new()));
    }
}
