//! The declaration of the flags, and the checks of their values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use program::flag;
use program::log::Style;
use program::{Exit, Options, Program, version};
use ringq_client::Config as ClientConfig;
use wire::name::{InvalidName, is_valid_name};

use super::field::Field;
use super::table::{Limits, NAME_BYTES_MAX};
use crate::flags::{self, CONSUMER_OPT, Sources};

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        topic: String = flags::new("topic", "", "NSQ topic");
        channel: String = flags::new("channel", "", "NSQ channel");
        field: String = flags::new("field", "", "place in the JSON messages whose values are counted: the name of a field, or a JSON pointer such as /user/country");
        distribution: String = flags::new("distribution", "", "name of the distribution of these values; by default the topic");
        distribution_field: String = flags::new("distribution-field", "", "place in the JSON messages whose value is the name of the distribution; by default all messages belong to one");
        rate: f64 = flags::new("rate", "0.02", "part of each count that is forgotten per second; half is forgotten after 0.693/rate seconds");
        bins_max: usize = flags::new("bins-max", "1000", "most values of one distribution; the rarest make room for new ones");
        distributions_max: usize = flags::new("distributions-max", "1000", "most distributions; those that have not changed for longest make room for new ones");
        http_address: String = flags::new("http-address", "0.0.0.0:8080", "<addr>:<port> to listen on for HTTP clients");
        state_file: String = flags::new("state-file", "", "path of the file with the counts, which is read at the start; by default the counts end with the program");
        save_interval: Duration = flags::new("save-interval", "10s", "time between two writes of the state file");
        = flags::MAX_IN_FLIGHT;
        = flags::NSQD_TCP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
        = flags::CONSUMER_OPT;
        = flags::DEDUP;
        = flags::DEDUP_STATE;
        = flags::LOG_FORMAT;
    }
}

/// `nsq_forget`, as its command line shows it.
pub static NSQ_FORGET: Program = Program::of::<Flags>("nsq_forget", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) log_style: Style,
    pub(super) flags: Flags,
    pub(super) field: Field,
    pub(super) distribution: String,
    pub(super) distribution_field: Option<Field>,
    pub(super) limits: Limits,
    pub(super) state_file: Option<PathBuf>,
    pub(super) sources: Sources,
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
        let options = NSQ_FORGET.options(args, &program::hostname())?;
        let mut client = flags::client_config();
        flags::apply_client_options(&NSQ_FORGET, &options, &CONSUMER_OPT, &mut client)?;
        Config::new(&options, client).map_err(|why| NSQ_FORGET.failed(&why))
    }

    fn new(options: &Options, mut client: ClientConfig) -> Result<Config, String> {
        flags::check_no_words(options)?;
        let flags: Flags = options.read()?;
        let (topic, channel) = (&flags.topic, &flags.channel);
        if topic.is_empty() || channel.is_empty() || flags.field.is_empty() {
            return Err("--topic, --channel and --field are required".to_owned());
        }
        for (flag, name) in [("topic", topic), ("channel", channel)] {
            if !is_valid_name(name.as_bytes()) {
                return Err(format!("--{flag} is invalid: {}", InvalidName(name)));
            }
        }
        let place =
            |flag: &str, text: &str| Field::parse(text).map_err(|why| format!("--{flag}: {why}"));
        let field = place("field", &flags.field)?;
        let distribution_field = match flags.distribution_field.as_str() {
            "" => None,
            text => Some(place("distribution-field", text)?),
        };
        let distribution = match flags.distribution.as_str() {
            "" => topic.clone(),
            name => name.to_owned(),
        };
        if distribution.len() > NAME_BYTES_MAX {
            return Err(format!(
                "--distribution has more than {NAME_BYTES_MAX} bytes"
            ));
        }
        if !(flags.rate.is_finite() && flags.rate > 0.0) {
            return Err("--rate should be positive".to_owned());
        }
        let limits = Limits {
            distributions_max: flags.distributions_max,
            bins_max: flags.bins_max,
        };
        for (name, count) in [
            ("distributions-max", limits.distributions_max),
            ("bins-max", limits.bins_max),
        ] {
            if count == 0 {
                return Err(format!("--{name} should be positive"));
            }
        }
        flags::check_positive("save-interval", flags.save_interval)?;
        client.max_in_flight = flags::max_in_flight(options)?;
        client.user_agent = flags::user_agent(NSQ_FORGET.name);
        let sources = Sources::from_options(options).map_err(|error| error.to_string())?;
        client.validate().map_err(|error| error.to_string())?;
        let dedup = flags::Dedup::from_options(options)?;
        let state_file = Some(&flags.state_file).filter(|path| !path.is_empty());
        Ok(Config {
            log_style: options.log_style_of_tool(),
            field,
            distribution,
            distribution_field,
            limits,
            state_file: state_file.map(PathBuf::from),
            sources,
            client,
            dedup,
            flags,
        })
    }
}

#[cfg(test)]
mod tests;
