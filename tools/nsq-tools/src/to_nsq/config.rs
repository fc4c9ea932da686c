//! The table of flags, and the typed form of their values.

use std::ffi::OsString;

use program::flag::{self, Flag};
use program::log::Style;
use program::{Exit, Options, Program, version};
use ringq_client::{Address, Config as ClientConfig};
use wire::name::{InvalidName, TopicName};

use crate::flags;

/// `to_nsq`, as its command line shows it.
pub static TO_NSQ: Program = Program {
    name: "to_nsq",
    version: version::of_tool,
    flags: FLAGS,
    own_flags: &[
        flag::VERSION,
        flags::list(
            "lookupd-http-address",
            "lookupd HTTP address, which names the nsqds: each record goes to one of them (may be given multiple times)",
        ),
        flags::boolean(
            "number-messages",
            "number the records, so that an nsqd with a rule --dedup=TOPIC=publisher stores a record once if it is sent \
             again after a lost connection",
        ),
        flags::LOG_FORMAT,
    ],
};

const FLAGS: &[Flag] = &[
    flags::text("topic", "", "NSQ topic to publish to"),
    flags::list(
        "nsqd-tcp-address",
        "destination nsqd TCP address: each record goes to all of them (may be given multiple times)",
    ),
    flags::text("delimiter", "\n", "character to split input from stdin"),
    flags::integer("rate", "0", "Throttle messages to n/second. 0 to disable"),
    flags::PRODUCER_OPT,
];

/// The values of the flags.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) topic: String,
    pub(super) targets: Targets,
    pub(super) delimiter: u8,
    /// Records per second. Below 1, there is no limit.
    pub(super) rate: i64,
    /// True when records that may be stored are sent again after a lost connection, with the same numbers.
    pub(super) numbers_messages: bool,
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
        let topic = options.text("topic");
        if topic.is_empty() {
            return Err("--topic required".to_owned());
        }
        if TopicName::new(topic.as_bytes()).is_none() {
            return Err(format!("--topic is invalid: {}", InvalidName(&topic)));
        }
        let delimiter = options.text("delimiter");
        let [delimiter] = *delimiter.as_bytes() else {
            return Err("--delimiter must be a single byte".to_owned());
        };
        let targets = Targets::new(
            options.list("nsqd-tcp-address"),
            options.list("lookupd-http-address"),
        )?;
        client.validate().map_err(|error| error.to_string())?;
        Ok(Config {
            topic,
            targets,
            delimiter,
            rate: options.number("rate"),
            numbers_messages: options.boolean("number-messages"),
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
    fn new(nsqds: Vec<String>, lookupds: Vec<String>) -> Result<Targets, String> {
        match (nsqds.is_empty(), lookupds.is_empty()) {
            (true, true) => {
                Err("--nsqd-tcp-address required (or --lookupd-http-address)".to_owned())
            }
            (false, false) => {
                Err("use --nsqd-tcp-address or --lookupd-http-address not both".to_owned())
            }
            (true, false) => {
                flags::check_lookupds(&lookupds)?;
                Ok(Targets::AnyOf(lookupds))
            }
            (false, true) => {
                let mut addresses = Vec::new();
                for address in flags::parse_nsqds(&nsqds)? {
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
