//! The declaration of the flags, and the checks of their values.

use std::time::Duration;

use program::{Options, Program, flag, version};
use wire::name::{InvalidName, is_valid_name};

use super::endpoint::Endpoint;
use super::request::{self, Headers};
use crate::consuming::ConsumerFlags;
use crate::destinations::Mode;
use crate::flags::{self, NSQD_TCP_ADDRESS, Refusal, Sources};

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
        gets: Vec<String> = flags::new("get", "", "HTTP address to make a GET request to; %s stands for the message (may be given multiple times)");
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
    pub(super) consumer: ConsumerFlags,
}

impl Config {
    pub(super) fn new(options: &Options) -> Result<Config, Refusal> {
        let base = flags::client_config();
        let mut client =
            flags::client_with_options(&NSQ_TO_HTTP, options, &flags::CONSUMER_OPT, base)?;
        let mut flags: Flags = options.read()?;
        let custom = request::parse_headers(&flags.headers)?;
        if flags.topics.iter().all(String::is_empty) || flags.channel.is_empty() {
            return Err("--topic and --channel are required".into());
        }
        let is_post = !flags.posts.is_empty();
        let content_type = content_type(&flags.content_type, !is_post)?;
        let sources = Sources::from_options(options, &NSQD_TCP_ADDRESS)?;
        let endpoints = endpoints(&flags.posts, &flags.gets)?;
        if !(0.0..=1.0).contains(&flags.sample) {
            return Err("ERROR: --sample must be between 0.0 and 1.0".into());
        }
        let names = flags.topics.iter().map(|topic| ("topic", topic));
        for (kind, name) in names.chain([("channel", &flags.channel)]) {
            if !is_valid_name(name.as_bytes()) {
                return Err(format!("invalid {kind} name: {}", InvalidName(name)).into());
            }
        }
        flags.topics.sort_unstable();
        flags.topics.dedup();
        let mode = mode(&flags.mode)?;
        if flags.concurrency == 0 {
            return Err("no handlers: -n must be at least 1".into());
        }
        let status_every = flags::status_every(flags.status_every)?;
        client.max_in_flight = flags::max_in_flight(options)?;
        Ok(Config {
            flags,
            endpoints,
            headers: Headers::new(is_post.then_some(content_type), custom),
            mode,
            status_every,
            consumer: ConsumerFlags::new(options, sources, client)?,
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
    Mode::parse(name).map(Some).ok_or_else(|| {
        format!("--mode must be round-robin, hostpool, epsilon-greedy or multicast, not {name:?}")
    })
}

#[cfg(test)]
mod tests;
