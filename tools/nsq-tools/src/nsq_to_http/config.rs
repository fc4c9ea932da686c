//! The declaration of the flags, and the checks of their values.

use std::ffi::OsString;
use std::time::Duration;

use program::flag;
use program::log::Style;
use program::{Exit, Options, Program, version};
use ringq_client::Config as ClientConfig;
use wire::name::{ChannelName, InvalidName, TopicName};

use super::endpoint::Endpoint;
use super::headers::{self, Headers};
use crate::flags::{self, Sources};
use crate::host_pool::Mode;

/// The content type of a POST without the flag.
const CONTENT_TYPE: &str = "application/octet-stream";

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        topics: Vec<String> = flags::new("topic", "", "nsq topic (may be given multiple times)");
        channel: String = flags::new("channel", "nsq_to_http", "nsq channel");
        posts: Vec<String> = flags::new("post", "", "HTTP address to make a POST request to.  data will be in the body (may be given multiple times)");
        gets: Vec<String> = flags::new("get", "", "HTTP address to make a GET request to. '%s' will be printf replaced with data (may be given multiple times)");
        mode: String = flags::new("mode", "hostpool", "the upstream request mode options: round-robin, hostpool (default), epsilon-greedy, multicast");
        concurrency: usize = flags::new("n", "100", "number of concurrent requests");
        = flags::MAX_IN_FLIGHT;
        sample: f64 = flags::new("sample", "1", "% of messages to publish (float b/w 0 -> 1)");
        content_type: String = flags::new("content-type", CONTENT_TYPE, "the Content-Type used for POST requests");
        headers: Vec<String> = flags::new("header", "", "Custom header for HTTP requests: name: value (may be given multiple times)");
        status_every: i64 = flags::new("status-every", "250", "the # of requests between logging status, 0 disables");
        connect_timeout: Option<Duration> = flags::http_client_connect_timeout();
        request_timeout: Option<Duration> = flags::http_client_request_timeout("20s");
        = flags::NSQD_TCP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
        = flags::CONSUMER_OPT;
    }
    own {
        = flags::DEDUP;
        = flags::DEDUP_STATE;
        = flags::LOG_FORMAT;
    }
}

/// `nsq_to_http`, as its command line shows it.
pub static NSQ_TO_HTTP: Program = Program::of::<Flags>("nsq_to_http", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// The topics are at least one, each once. The concurrency is at least 1. The share of the messages that are sent is from
    /// 0 to 1.
    pub(super) flags: Flags,
    pub(super) endpoints: Vec<Endpoint>,
    /// The headers of each request, without `Host` and `Content-Length`.
    pub(super) headers: Headers,
    /// `None` means multicast: each message goes to all endpoints.
    pub(super) mode: Option<Mode>,
    /// The number of requests between two lines about times. 0 means no lines.
    pub(super) status_every: usize,
    pub(super) sources: Sources,
    pub(super) client: ClientConfig,
    /// The recognition of messages that were handled before.
    pub(super) dedup: Option<flags::Dedup>,
    pub(super) log_style: Style,
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub(super) fn from_args(args: impl IntoIterator<Item = OsString>) -> Result<Config, Exit> {
        let options = NSQ_TO_HTTP.options(args, &program::hostname())?;
        let mut client = flags::client_config();
        flags::apply_client_options(&NSQ_TO_HTTP, &options, &flags::CONSUMER_OPT, &mut client)?;
        client.user_agent = flags::user_agent(NSQ_TO_HTTP.name);
        Config::new(&options, client).map_err(|why| NSQ_TO_HTTP.failed(&why))
    }

    fn new(options: &Options, mut client: ClientConfig) -> Result<Config, String> {
        flags::check_no_words(options)?;
        let mut flags: Flags = options.read()?;
        let custom = headers::parse(&flags.headers)?;
        if flags.topics.iter().all(String::is_empty) || flags.channel.is_empty() {
            return Err("--topic and --channel are required".to_owned());
        }
        let is_post = !flags.posts.is_empty();
        let content_type = content_type(&flags.content_type, !is_post)?;
        let sources = Sources::from_options(options).map_err(|error| error.to_string())?;
        let endpoints = endpoints(&flags.posts, &flags.gets)?;
        if !(0.0..=1.0).contains(&flags.sample) {
            return Err("ERROR: --sample must be between 0.0 and 1.0".to_owned());
        }
        let is_wrong = |topic: &&String| TopicName::new(topic.as_bytes()).is_none();
        if let Some(topic) = flags.topics.iter().find(is_wrong) {
            return Err(format!("invalid topic name: {}", InvalidName(topic)));
        }
        flags.topics.sort_unstable();
        flags.topics.dedup();
        if ChannelName::new(flags.channel.as_bytes()).is_none() {
            let why = InvalidName(&flags.channel);
            return Err(format!("invalid channel name: {why}"));
        }
        let mode = mode(&flags.mode)?;
        if flags.concurrency == 0 {
            return Err("no handlers: -n must be at least 1".to_owned());
        }
        let status_every = usize::try_from(flags.status_every)
            .map_err(|_| "--status-every must not be negative".to_owned())?;
        client.max_in_flight = flags::max_in_flight(options)?;
        client.validate().map_err(|error| error.to_string())?;
        let dedup = flags::Dedup::from_options(options)?;
        Ok(Config {
            flags,
            endpoints,
            headers: Headers::new(is_post.then_some(content_type), custom),
            mode,
            status_every,
            sources,
            client,
            dedup,
            log_style: options.log_style_of_tool(),
        })
    }
}

fn content_type(text: &str, is_get: bool) -> Result<http::HeaderValue, String> {
    if text != CONTENT_TYPE {
        if is_get {
            return Err("--content-type only used with --post".to_owned());
        }
        if text.is_empty() {
            return Err("--content-type requires a value when used".to_owned());
        }
    }
    text.parse()
        .map_err(|_| format!("--content-type is no value of a header: {text:?}"))
}

fn endpoints(posts: &[String], gets: &[String]) -> Result<Vec<Endpoint>, String> {
    match (posts.is_empty(), gets.is_empty()) {
        (true, true) => Err("--get or --post required".to_owned()),
        (false, false) => Err("use --get or --post not both".to_owned()),
        (false, true) => posts.iter().map(|url| Endpoint::post(url)).collect(),
        (true, false) => gets.iter().map(|url| Endpoint::get(url)).collect(),
    }
}

/// Returns the mode, or `None` for multicast.
fn mode(name: &str) -> Result<Option<Mode>, String> {
    if name == "multicast" {
        return Ok(None);
    }
    match Mode::parse(name) {
        Some(mode) => Ok(Some(mode)),
        None => Err(format!(
            "--mode must be round-robin, hostpool, epsilon-greedy or multicast, not {name:?}"
        )),
    }
}

#[cfg(test)]
mod tests;
