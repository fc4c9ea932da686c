//! The declaration of the flags, and the checks of their values.

use std::ffi::OsString;

use program::flag;
use program::log::Style;
use program::{Exit, Options, Program, version};
use ringq_client::{Address, Config as ClientConfig};
use wire::name::{InvalidName, TopicName};

use crate::flags;

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        topic: String = flags::new("topic", "", "NSQ topic to publish to");
        nsqds: Vec<String> = flags::new("nsqd-tcp-address", "", "destination nsqd TCP address: each record goes to all of them (may be given multiple times)");
        delimiter: String = flags::new("delimiter", "\n", "character to split input from stdin");
        rate: i64 = flags::new("rate", "0", "Throttle messages to n/second. 0 to disable");
        = flags::PRODUCER_OPT;
    }
    own {
        = flag::VERSION;
        lookupds: Vec<String> = flags::new("lookupd-http-address", "", "lookupd HTTP address, which names the nsqds: each record goes to one of them (may be given multiple times)");
        numbers_messages: bool = flags::new("number-messages", "false", "number the records, so that an nsqd with a rule --dedup=TOPIC=publisher stores a record once if it is sent again after a lost connection");
        = flags::LOG_FORMAT;
    }
}

/// `to_nsq`, as its command line shows it.
pub static TO_NSQ: Program = Program::of::<Flags>("to_nsq", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) flags: Flags,
    pub(super) targets: Targets,
    pub(super) delimiter: u8,
    pub(super) client: ClientConfig,
    pub(super) log_style: Style,
}

/// The nsqds that get the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Targets {
    /// Each record goes to each of these nsqds.
    All(Vec<Address>),
    /// Each record goes to one of the nsqds that these nsqlookupds name.
    AnyOf(Vec<String>),
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub(super) fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = TO_NSQ.options(args, &program::hostname())?;
        let mut client = flags::client_config();
        flags::apply_client_options(&TO_NSQ, &options, &flags::PRODUCER_OPT, &mut client)?;
        client.user_agent = flags::user_agent(TO_NSQ.name);
        Config::new(&options, client).map_err(|why| TO_NSQ.failed(&why))
    }

    fn new(options: &Options, client: ClientConfig) -> Result<Config, String> {
        flags::check_no_words(options)?;
        let flags: Flags = options.read()?;
        let topic = &flags.topic;
        if topic.is_empty() {
            return Err("--topic required".to_owned());
        }
        if TopicName::new(topic.as_bytes()).is_none() {
            return Err(format!("--topic is invalid: {}", InvalidName(topic)));
        }
        let [delimiter] = *flags.delimiter.as_bytes() else {
            return Err("--delimiter must be a single byte".to_owned());
        };
        let targets = Targets::new(&flags.nsqds, &flags.lookupds)?;
        client.validate().map_err(|error| error.to_string())?;
        Ok(Config {
            flags,
            targets,
            delimiter,
            client,
            log_style: options.log_style_of_tool(),
        })
    }
}

impl Targets {
    /// Returns the number of copies of each record.
    pub(super) fn count(&self) -> usize {
        match self {
            Targets::All(addresses) => addresses.len(),
            Targets::AnyOf(_) => 1,
        }
    }

    /// Takes the addresses of one kind. An address that is given twice counts once.
    fn new(nsqds: &[String], lookupds: &[String]) -> Result<Targets, String> {
        match (nsqds.is_empty(), lookupds.is_empty()) {
            (true, true) => {
                Err("--nsqd-tcp-address required (or --lookupd-http-address)".to_owned())
            }
            (false, false) => {
                Err("use --nsqd-tcp-address or --lookupd-http-address not both".to_owned())
            }
            (true, false) => {
                flags::check_lookupds(lookupds)?;
                Ok(Targets::AnyOf(lookupds.to_vec()))
            }
            (false, true) => {
                let mut addresses = Vec::new();
                for address in flags::parse_nsqds(nsqds)? {
                    if !addresses.contains(&address) {
                        addresses.push(address);
                    }
                }
                Ok(Targets::All(addresses))
            }
        }
    }
}

#[cfg(test)]
mod tests;
