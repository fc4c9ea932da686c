//! The declaration of the flags, and the checks of their values.

use program::{Options, Program, flag, version};
use ringq_client::{Address, Config as ClientConfig};

use crate::flags::{self, Refusal};

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
        lookupds: Vec<String> = flags::new("lookupd-http-address", "", "lookupd HTTP address: each record goes to one of its nsqds (may be given multiple times)");
        numbers_messages: bool = flags::new("number-messages", "false", "number the records, and send them again after a lost connection (needs --dedup in nsqd)");
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
    pub(super) fn new(options: &Options) -> Result<Config, Refusal> {
        let base = flags::client_config();
        let client = flags::client_with_options(&TO_NSQ, options, &flags::PRODUCER_OPT, base)?;
        let flags: Flags = options.read()?;
        if flags.topic.is_empty() {
            return Err("--topic required".into());
        }
        flags::check_name("topic", &flags.topic)?;
        let [delimiter] = *flags.delimiter.as_bytes() else {
            return Err("--delimiter must be a single byte".into());
        };
        let targets = Targets::new(&flags.nsqds, &flags.lookupds)?;
        client.validate().map_err(|error| error.to_string())?;
        Ok(Config {
            flags,
            targets,
            delimiter,
            client,
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
                let addresses = flags::parse_nsqds("nsqd-tcp-address", nsqds)?;
                Ok(Targets::All(flags::distinct(addresses)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
