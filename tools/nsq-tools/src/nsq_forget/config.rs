//! The declaration of the flags, and the checks of their values. [`Field`]: a place in a JSON message, and the values there.

use std::path::PathBuf;
use std::time::Duration;

use program::{Options, Program, flag, version};
use ringq_client::dedup::JsonPointer;
use serde_json::Value;

use super::table::{Limits, NAME_BYTES_MAX};
use crate::consuming::ConsumerFlags;
use crate::flags::{self, CONSUMER_OPT, NSQD_TCP_ADDRESS, Refusal, Sources};

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        topic: String = flags::new("topic", "", "NSQ topic");
        channel: String = flags::new("channel", "", "NSQ channel");
        field: String = flags::new("field", "", "field of the JSON messages whose values are counted: a name, or a JSON pointer");
        distribution: String = flags::new("distribution", "", "name of the distribution of these values; by default the topic");
        distribution_field: String = flags::new("distribution-field", "", "field of the JSON messages that names the distribution; by default there is one distribution");
        rate: f64 = flags::new("rate", "0.02", "part of each count that is forgotten per second; half is forgotten after 0.693/rate seconds");
        bins_max: usize = flags::new("bins-max", "1000", "most values of one distribution; the rarest make room for new ones");
        distributions_max: usize = flags::new("distributions-max", "1000", "most distributions; those that have not changed for longest make room for new ones");
        http_address: String = flags::new("http-address", "0.0.0.0:8080", "<addr>:<port> to listen on for HTTP clients");
        state_file: String = flags::new("state-file", "", "file that keeps the counts over restarts; by default, no file does");
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
    pub(super) flags: Flags,
    pub(super) field: Field,
    pub(super) distribution: String,
    pub(super) distribution_field: Option<Field>,
    pub(super) limits: Limits,
    pub(super) state_file: Option<PathBuf>,
    pub(super) consumer: ConsumerFlags,
}

impl Config {
    pub(super) fn new(options: &Options) -> Result<Config, Refusal> {
        let base = flags::client_config();
        let mut client = flags::client_with_options(&NSQ_FORGET, options, &CONSUMER_OPT, base)?;
        let flags: Flags = options.read()?;
        let (topic, channel) = (&flags.topic, &flags.channel);
        if topic.is_empty() || channel.is_empty() || flags.field.is_empty() {
            return Err("--topic, --channel and --field are required".into());
        }
        flags::check_name("topic", topic)?;
        flags::check_name("channel", channel)?;
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
            let why = format!("--distribution has more than {NAME_BYTES_MAX} bytes");
            return Err(why.into());
        }
        if !(flags.rate.is_finite() && flags.rate > 0.0) {
            return Err("--rate should be positive".into());
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
                return Err(format!("--{name} should be positive").into());
            }
        }
        flags::check_positive("save-interval", flags.save_interval)?;
        client.max_in_flight = flags::max_in_flight(options)?;
        let sources = Sources::from_options(options, &NSQD_TCP_ADDRESS)?;
        let state_file = Some(&flags.state_file).filter(|path| !path.is_empty());
        Ok(Config {
            field,
            distribution,
            distribution_field,
            limits,
            state_file: state_file.map(PathBuf::from),
            consumer: ConsumerFlags::new(options, sources, client)?,
            flags,
        })
    }
}

/// A place in a JSON message: the name of a field of the object, or a JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field(String);

impl Field {
    /// Returns the place that a user names. A name that begins with a slash is a JSON pointer.
    ///
    /// # Errors
    /// The text is empty, or a wrong JSON pointer. The error is the reason for the user.
    fn parse(text: &str) -> Result<Field, String> {
        if text.is_empty() {
            return Err("the name of a field is empty".to_owned());
        }
        if text.starts_with('/') {
            // The check alone: the search of serde_json takes the text, and does not see wrong escapes.
            let pointer = text.parse::<JsonPointer>();
            pointer.map_err(|error| error.to_string())?;
        }
        Ok(Field(text.to_owned()))
    }

    /// Returns the values at this place: a text, a number or a boolean, or those of an array.
    pub(super) fn values(&self, message: &Value) -> Vec<String> {
        let found = if self.0.starts_with('/') {
            message.pointer(&self.0)
        } else {
            message.get(&self.0)
        };
        match found {
            Some(Value::Array(values)) => values.iter().filter_map(scalar).collect(),
            Some(value) => scalar(value).into_iter().collect(),
            None => Vec::new(),
        }
    }
}

/// Returns a message as JSON. The error is the reason for the log.
pub(super) fn parse_message(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| format!("the message is not JSON: {error}"))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
