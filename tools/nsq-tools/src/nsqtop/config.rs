//! The declaration of the flags, and the checks of their values.

use std::time::Duration;

use program::flag::{self, Kind};
use program::{FlagValue, Options, Program, Value, version};

use super::sample::Sampler;
use super::state::Start;
use super::views::{self, View};
use crate::cluster::{self, Cluster, NSQD_HTTP_ADDRESS, QueryTimeouts};
use crate::flags::{self, Refusal, Sources};

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        = flags::LOOKUPD_HTTP_ADDRESS;
        = NSQD_HTTP_ADDRESS;
        topic: String = flags::new("topic", "", "show only this topic; without the flag, all topics");
        channel: String = flags::new("channel", "", "show only channels of this name; without the flag, all channels");
        interval: Duration = flags::new("interval", "2s", "time between samples");
        view: View = flags::new("view", "channels", "what to show first: channels, topics, clients, nodes or shards");
        sort: String = flags::new("sort", "", "heading of the column to sort by, such as depth; with a minus in front, the smallest first");
        filter: String = flags::new("filter", "", "show only rows with this text");
        once: bool = flags::new("once", "false", "print one plain table and end; this is also what happens without a terminal");
        timeouts: QueryTimeouts;
    }
}

impl FlagValue for View {
    const KIND: Kind = Kind::Choice(views::NAMES);

    fn of(value: &Value) -> View {
        View::of_name(&String::of(value))
    }
}

/// `nsqtop`, as its command line shows it.
pub static NSQTOP: Program = Program::of::<Flags>("nsqtop", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) sources: Sources,
    pub(super) flags: Flags,
    pub(super) start: Start,
}

impl Config {
    /// Checks the values of the flags.
    ///
    /// # Errors
    /// A value is wrong.
    pub(super) fn new(options: &Options) -> Result<Config, Refusal> {
        let flags: Flags = options.read()?;
        flags::check_positive("interval", flags.interval)?;
        flags.timeouts.check_positive()?;
        let sources = cluster::sources(options)?;
        let sort = match flags.sort.as_str() {
            "" => flags.view.usual_sort(),
            text => flags.view.sort_by_name(text)?,
        };
        Ok(Config {
            sources,
            start: Start {
                view: flags.view,
                sort,
                filter: flags.filter.clone(),
            },
            flags,
        })
    }

    /// Returns what asks the nodes.
    pub(super) fn sampler(&self) -> Sampler {
        let Flags {
            topic,
            channel,
            timeouts,
            ..
        } = &self.flags;
        Sampler::new(Cluster::new(*timeouts), &self.sources, topic, channel)
    }
}

#[cfg(test)]
mod tests;
