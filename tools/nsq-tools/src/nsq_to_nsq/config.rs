//! The declaration of the flags, and the checks of their values.

use program::{Options, Program, flag, version};
use ringq_client::{Address, Config as ClientConfig};

use super::filter::{Filter, Key, Requirement};
use crate::consuming::ConsumerFlags;
use crate::destinations::Mode;
use crate::flags::{self, NSQD_TCP_ADDRESS, Refusal, Sources};

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        topics: Vec<String> = flags::new("topic", "", "nsq topic (may be given multiple times)");
        channel: String = flags::new("channel", "nsq_to_nsq", "nsq channel");
        destination_topic: String = flags::new("destination-topic", "", "use this destination topic for all consumed topics (default is consumed topic name)");
        destinations: Vec<String> = flags::new("destination-nsqd-tcp-address", "", "destination nsqd TCP address (may be given multiple times)");
        = flags::NSQD_TCP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
        mode: String = flags::new("mode", "hostpool", "the upstream request mode options: round-robin, hostpool (default), epsilon-greedy");
        = flags::MAX_IN_FLIGHT;
        status_every: i64 = flags::new("status-every", "250", "the # of requests between logging status (per destination), 0 disables");
        whitelist: Vec<String> = flags::new("whitelist-json-field", "", "for JSON messages: pass this field (may be given multiple times)");
        require_field: String = flags::new("require-json-field", "", "for JSON messages: only pass messages that contain this field");
        require_value: String = flags::new("require-json-value", "", "for JSON messages: only pass messages in which the required field has this value");
        = flags::CONSUMER_OPT;
        = flags::PRODUCER_OPT;
    }
    own {
        key: String = flags::new("key-json-field", "", "for JSON messages: those with one value of this field (name or /pointer) go to one destination");
        = flags::DEDUP;
        = flags::DEDUP_STATE;
        = flags::LOG_FORMAT;
    }
}

/// `nsq_to_nsq`, as its command line shows it.
pub static NSQ_TO_NSQ: Program = Program::of::<Flags>("nsq_to_nsq", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// Each source topic is there once.
    pub(super) flags: Flags,
    /// `None` means the topic of the source.
    pub(super) destination_topic: Option<String>,
    pub(super) destinations: Vec<Address>,
    pub(super) mode: Mode,
    pub(super) key: Option<Key>,
    pub(super) filter: Filter,
    /// The number of messages between two lines about times. 0 means no lines.
    pub(super) status_every: usize,
    pub(super) consumer: ConsumerFlags,
    pub(super) producer: ClientConfig,
}

impl Config {
    pub(super) fn new(options: &Options) -> Result<Config, Refusal> {
        let client = |flag| {
            let base = ClientConfig {
                // A destination may be away for longer than some attempts. A message that is given up would be lost.
                max_attempts: 0,
                ..flags::client_config()
            };
            flags::client_with_options(&NSQ_TO_NSQ, options, flag, base)
        };
        let mut consumer = client(&flags::CONSUMER_OPT)?;
        let producer = client(&flags::PRODUCER_OPT)?;
        let mut flags: Flags = options.read()?;
        let (topics, channel) = (&mut flags.topics, &flags.channel);
        if topics.is_empty() || channel.is_empty() {
            return Err("--topic and --channel are required".into());
        }
        for topic in topics.iter() {
            flags::check_name("topic", topic)?;
        }
        topics.sort_unstable();
        topics.dedup();
        let destination_topic = Some(flags.destination_topic.clone());
        let destination_topic = destination_topic.filter(|topic| !topic.is_empty());
        if let Some(topic) = &destination_topic {
            flags::check_name("destination-topic", topic)?;
        }
        flags::check_name("channel", channel)?;
        let sources = Sources::from_options(options, &NSQD_TCP_ADDRESS)?;
        let destinations = destinations(&flags.destinations)?;
        check_no_circle(
            &sources,
            &destinations,
            &flags.topics,
            destination_topic.as_deref(),
        )?;
        let mode = &flags.mode;
        let mode = Mode::parse(mode).ok_or_else(|| {
            format!("--mode must be round-robin, hostpool or epsilon-greedy, not {mode:?}")
        })?;
        consumer.max_in_flight = flags::max_in_flight(options)?;
        let consumer = ConsumerFlags::new(options, sources, consumer)?;
        producer.validate().map_err(|error| error.to_string())?;
        let filter = filter(&flags)?;
        let wanted = "the name of a field or a JSON pointer such as /user/id";
        let key = flags::given(options, "key-json-field", flags.key.clone(), wanted)?;
        let key = key.map(|key| Key::parse(&key)).transpose();
        let key = key.map_err(|error| format!("--key-json-field: {error}"))?;
        Ok(Config {
            destination_topic,
            destinations,
            mode,
            key,
            filter,
            status_every: flags::status_every(flags.status_every)?,
            consumer,
            producer,
            flags,
        })
    }
}

fn destinations(texts: &[String]) -> Result<Vec<Address>, String> {
    if texts.is_empty() {
        return Err("--destination-nsqd-tcp-address required".to_owned());
    }
    let addresses = flags::parse_nsqds("destination-nsqd-tcp-address", texts)?;
    Ok(flags::distinct(addresses))
}

/// Refuses a destination that is a source of the same topic: the tool would copy its own copies without
/// end. It compares the texts of the addresses, and cannot see two names of one nsqd.
fn check_no_circle(
    sources: &Sources,
    destinations: &[Address],
    topics: &[String],
    destination_topic: Option<&str>,
) -> Result<(), String> {
    let Sources::Nsqds(nsqds) = sources else {
        return Ok(());
    };
    let sources: Vec<Address> = nsqds.iter().filter_map(|text| text.parse().ok()).collect();
    let Some(nsqd) = destinations.iter().find(|nsqd| sources.contains(nsqd)) else {
        return Ok(());
    };
    let topic = match destination_topic {
        None => topics.first().map(String::as_str),
        Some(topic) => Some(topic).filter(|topic| topics.iter().any(|source| source == topic)),
    };
    match topic {
        None => Ok(()),
        Some(topic) => Err(format!(
            "the topic {topic:?} of {nsqd} is a source and a destination, so nsq_to_nsq would copy its own copies \
             without end: choose another nsqd, or another --destination-topic"
        )),
    }
}

/// Refuses a required value without the field that must have it.
fn filter(flags: &Flags) -> Result<Filter, String> {
    let (field, value) = (&flags.require_field, &flags.require_value);
    if field.is_empty() && !value.is_empty() {
        return Err("--require-json-value needs --require-json-field".to_owned());
    }
    Ok(Filter {
        require: (!field.is_empty()).then(|| Requirement {
            field: field.clone(),
            value: (!value.is_empty()).then(|| value.clone()),
        }),
        whitelist: flags.whitelist.clone(),
    })
}

#[cfg(test)]
mod tests;
