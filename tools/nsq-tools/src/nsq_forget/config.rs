//! The table of flags, and the typed form of their values.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use program::flag::{self, Flag, Kind};
use program::log::Style;
use program::{Exit, Options, Program, version};
use ringq_client::Config as ClientConfig;
use wire::name::{InvalidName, is_valid_name};

use super::field::Field;
use super::table::{Limits, NAME_BYTES_MAX};
use crate::flags::{self, CONSUMER_OPT, Sources};

/// `nsq_forget`, as its command line shows it.
pub static NSQ_FORGET: Program = Program {
    name: "nsq_forget",
    version: version::of_tool,
    flags: FLAGS,
    own_flags: &[],
};

/// NSQ has no such program, so all flags are our own.
const FLAGS: &[Flag] = &[
    flag::VERSION,
    flags::text("topic", "", "NSQ topic"),
    flags::text("channel", "", "NSQ channel"),
    flags::text(
        "field",
        "",
        "place in the JSON messages whose values are counted: the name of a field, or a JSON pointer \
         such as /user/country",
    ),
    flags::text(
        "distribution",
        "",
        "name of the distribution of these values; by default the topic",
    ),
    flags::text(
        "distribution-field",
        "",
        "place in the JSON messages whose value is the name of the distribution; by default all \
         messages belong to one",
    ),
    Flag::new(
        "rate",
        Kind::Float,
        "0.02",
        "part of each count that is forgotten per second; half is forgotten after 0.693/rate seconds",
    )
    .without_key(),
    flags::integer(
        "bins-max",
        "1000",
        "most values of one distribution; the rarest make room for new ones",
    ),
    flags::integer(
        "distributions-max",
        "1000",
        "most distributions; those that have not changed for longest make room for new ones",
    ),
    flags::text("http-address", "0.0.0.0:8080", "<addr>:<port> to listen on for HTTP clients"),
    flags::text(
        "state-file",
        "",
        "path of the file with the counts, which is read at the start; by default the counts end with \
         the program",
    ),
    flags::duration("save-interval", "10s", "time between two writes of the state file"),
    flags::MAX_IN_FLIGHT,
    flags::NSQD_TCP_ADDRESS,
    flags::LOOKUPD_HTTP_ADDRESS,
    CONSUMER_OPT,
    flags::DEDUP,
    flags::DEDUP_STATE,
    flags::LOG_FORMAT,
];

/// The values of the flags.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) log_style: Style,
    pub(super) topic: String,
    pub(super) channel: String,
    pub(super) field: Field,
    pub(super) distribution: String,
    pub(super) distribution_field: Option<Field>,
    pub(super) rate: f64,
    pub(super) limits: Limits,
    pub(super) http_address: String,
    pub(super) state_file: Option<PathBuf>,
    pub(super) save_interval: Duration,
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
        let [topic, channel, field] = ["topic", "channel", "field"].map(|name| options.text(name));
        if topic.is_empty() || channel.is_empty() || field.is_empty() {
            return Err("--topic, --channel and --field are required".to_owned());
        }
        for (flag, name) in [("topic", &topic), ("channel", &channel)] {
            if !is_valid_name(name.as_bytes()) {
                return Err(format!("--{flag} is invalid: {}", InvalidName(name)));
            }
        }
        let place =
            |flag: &str, text: &str| Field::parse(text).map_err(|why| format!("--{flag}: {why}"));
        let field = place("field", &field)?;
        let distribution_field = match options.text("distribution-field").as_str() {
            "" => None,
            text => Some(place("distribution-field", text)?),
        };
        let distribution = match options.text("distribution") {
            name if name.is_empty() => topic.clone(),
            name => name,
        };
        if distribution.len() > NAME_BYTES_MAX {
            return Err(format!(
                "--distribution has more than {NAME_BYTES_MAX} bytes"
            ));
        }
        let rate = options.float("rate");
        if !(rate.is_finite() && rate > 0.0) {
            return Err("--rate should be positive".to_owned());
        }
        let count = |name: &str| match usize::try_from(options.number(name)) {
            Ok(count @ 1..) => Ok(count),
            _ => Err(format!("--{name} should be positive")),
        };
        let limits = Limits {
            distributions_max: count("distributions-max")?,
            bins_max: count("bins-max")?,
        };
        if options.number("save-interval") <= 0 {
            return Err("--save-interval should be positive".to_owned());
        }
        client.max_in_flight = flags::max_in_flight(options)?;
        client.user_agent = flags::user_agent(NSQ_FORGET.name);
        let sources = Sources::from_options(options).map_err(|error| error.to_string())?;
        client.validate().map_err(|error| error.to_string())?;
        let dedup = flags::Dedup::from_options(options)?;
        let state_file = options.text("state-file");
        Ok(Config {
            log_style: options.log_style_of_tool(),
            topic,
            channel,
            field,
            distribution,
            distribution_field,
            rate,
            limits,
            http_address: options.text("http-address"),
            state_file: (!state_file.is_empty()).then(|| PathBuf::from(state_file)),
            save_interval: options.duration("save-interval"),
            sources,
            client,
            dedup,
        })
    }
}

#[cfg(test)]
mod tests;
