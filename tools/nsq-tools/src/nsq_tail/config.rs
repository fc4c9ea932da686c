//! The declaration of the flags, and the checks of their values.

use std::ffi::OsString;
use std::path::PathBuf;

use program::flag;
use program::log::Style;
use program::{Exit, Options, Program, version};
use ringq_client::Config as ClientConfig;

use crate::flags::{self, CONSUMER_OPT, Sources};

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        channel: String = flags::new("channel", "", "NSQ channel; by default an ephemeral one of this run");
        = flags::MAX_IN_FLIGHT;
        message_count: i64 = flags::new("n", "0", "total messages to show (will wait if starved)");
        prints_topic: bool = flags::new("print-topic", "false", "print topic name where message was received");
        = flags::NSQD_TCP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
        topics: Vec<String> = flags::new("topic", "", "NSQ topic (may be given multiple times)");
        = flags::CONSUMER_OPT;
    }
    own {
        output_dir: String = flags::new("output-dir", "", "write each message to a file of its own in this directory, instead of standard output");
        = flags::DEDUP;
        = flags::DEDUP_STATE;
        = flags::LOG_FORMAT;
    }
}

/// `nsq_tail`, as its command line shows it.
pub static NSQ_TAIL: Program = Program::of::<Flags>("nsq_tail", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) log_style: Style,
    pub(super) topics: Vec<String>,
    pub(super) channel: String,
    /// The number of messages to print. `None` means without end.
    pub(super) message_count: Option<u64>,
    pub(super) prints_topic: bool,
    /// The directory of the files of messages. `None` means standard output.
    pub(super) output_dir: Option<PathBuf>,
    pub(super) sources: Sources,
    /// The settings of each topic's consumer.
    pub(super) client: ClientConfig,
    /// The recognition of messages that were handled before.
    pub(super) dedup: Option<flags::Dedup>,
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub(super) fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = NSQ_TAIL.options(args, &program::hostname())?;
        let mut client = flags::client_config();
        if options.is_given("output-dir") {
            // A message that came back from a full disk must not be lost.
            client.max_attempts = 0;
        }
        flags::apply_client_options(&NSQ_TAIL, &options, &CONSUMER_OPT, &mut client)?;
        Config::new(&options, client).map_err(|why| NSQ_TAIL.failed(&why))
    }

    /// Checks all values, in the order of the original.
    fn new(options: &Options, mut client: ClientConfig) -> Result<Config, String> {
        flags::check_no_words(options)?;
        let sources = Sources::from_options(options).map_err(|error| error.to_string())?;
        let flags: Flags = options.read()?;
        let mut topics = Vec::new();
        for topic in &flags.topics {
            // Two consumers of one topic would print its messages in no better way than one.
            if !topics.contains(topic) {
                topics.push(topic.clone());
            }
        }
        if topics.is_empty() {
            return Err("--topic required".to_owned());
        }
        let message_count = flags::limit("n", flags.message_count)?;
        let max_in_flight = flags::max_in_flight(options)?;
        let wanted = message_count.and_then(|count| u32::try_from(count).ok());
        client.max_in_flight = wanted.map_or(max_in_flight, |count| count.min(max_in_flight));
        client.user_agent = flags::user_agent(NSQ_TAIL.name);
        client.validate().map_err(|error| error.to_string())?;
        let output_dir = output_dir(options, &flags)?;
        let dedup = flags::Dedup::from_options(options)?;
        Ok(Config {
            log_style: options.log_style_of_tool(),
            topics,
            channel: match flags.channel {
                channel if channel.is_empty() => random_channel(),
                channel => channel,
            },
            message_count,
            prints_topic: flags.prints_topic,
            output_dir,
            sources,
            client,
            dedup,
        })
    }
}

fn output_dir(options: &Options, flags: &Flags) -> Result<Option<PathBuf>, String> {
    if !options.is_given("output-dir") {
        return Ok(None);
    }
    if flags.output_dir.is_empty() {
        return Err(
            "--output-dir has no value: write the name of a directory, or leave the flag out"
                .to_owned(),
        );
    }
    if flags.prints_topic {
        return Err(
            "--print-topic has no use with --output-dir: the name of each file begins with the topic"
                .to_owned(),
        );
    }
    Ok(Some(PathBuf::from(&flags.output_dir)))
}

/// Returns the name of a channel that nobody else uses, and that disappears with this run.
fn random_channel() -> String {
    format!("tail{:06}#ephemeral", fastrand::u32(..999_999))
}

#[cfg(test)]
mod tests;
