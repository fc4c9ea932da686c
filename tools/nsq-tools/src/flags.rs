//! The flags that several tools have, with the checks of their values.
//!
//! A tool's declaration takes rows from here and adds its own:
//!
//! ```
//! use nsq_tools::flags::{self, Sources};
//! use program::{Options, Program, flag, version};
//!
//! program::flags! {
//!     struct Flags {
//!         = flag::VERSION;
//!         topic: String = flags::new("topic", "", "NSQ topic");
//!         = flags::MAX_IN_FLIGHT;
//!         = flags::NSQD_TCP_ADDRESS;
//!         = flags::LOOKUPD_HTTP_ADDRESS;
//!     }
//!     own {
//!         = flags::LOG_FORMAT;
//!     }
//! }
//!
//! static NSQ_COUNT: Program = Program::of::<Flags>("nsq_count", version::of_tool);
//!
//! # fn main() {
//! let args = ["-topic", "clicks", "-nsqd-tcp-address=127.0.0.1:4150"];
//! let options = NSQ_COUNT.options(args.map(Into::into), "vm").unwrap();
//! let flags: Flags = options.read().unwrap();
//! assert_eq!(flags.topic, "clicks");
//! let sources = Sources::from_options(&options, &flags::NSQD_TCP_ADDRESS).unwrap();
//! assert_eq!(sources, Sources::Nsqds(vec!["127.0.0.1:4150".to_owned()]));
//! # }
//! ```

mod dedup;
mod given;

use std::ffi::OsString;
use std::time::Duration;

use program::flag::{self, FlagOf};
use program::log::Format;
use program::{Exit, FlagValue, Options, Program, version};
use ringq_client::{Address, Config, Lookupd};
use wire::name::{InvalidName, is_valid_name};

pub use self::dedup::{DEDUP, DEDUP_STATE, Dedup};
pub use self::given::given;

/// The addresses of nsqds, to which the tool connects directly.
pub const NSQD_TCP_ADDRESS: FlagOf<Vec<String>> = new(
    "nsqd-tcp-address",
    "",
    "nsqd TCP address (may be given multiple times)",
);

/// The addresses of nsqlookupds, which name the nsqds.
pub const LOOKUPD_HTTP_ADDRESS: FlagOf<Vec<String>> = new(
    "lookupd-http-address",
    "",
    "lookupd HTTP address (may be given multiple times)",
);

/// The options of the consumers. Each is checked while the command line is read.
pub const CONSUMER_OPT: FlagOf<Vec<String>> = new(
    "consumer-opt",
    "",
    "option of go-nsq for the consumer: name,value (may be given multiple times)",
)
.checked_by(check_client_option);

/// The options of the producers. Each is checked while the command line is read.
pub const PRODUCER_OPT: FlagOf<Vec<String>> = new(
    "producer-opt",
    "",
    "option of go-nsq for the producer: name,value (may be given multiple times)",
)
.checked_by(check_client_option);

/// The most messages that a consumer has and has not answered.
pub const MAX_IN_FLIGHT: FlagOf<i64> = new(
    "max-in-flight",
    "200",
    "max number of messages to allow in flight",
);

/// The form of the log's lines. NSQ's tools have no such flag.
pub const LOG_FORMAT: FlagOf<Format> = flag::LOG_FORMAT.without_key();

/// The time limit for connecting to an HTTP server: a `Duration`, or an `Option` if zero is no limit.
pub const fn http_client_connect_timeout<T: FlagValue>() -> FlagOf<T> {
    new(
        "http-client-connect-timeout",
        "2s",
        "timeout for HTTP connect",
    )
}

/// The time limit for an HTTP request: a `Duration`, or an `Option` if zero is no limit. `default` is the value of a flag
/// that is not given.
pub const fn http_client_request_timeout<T: FlagValue>(default: &'static str) -> FlagOf<T> {
    new(
        "http-client-request-timeout",
        default,
        "timeout for HTTP request",
    )
}

/// Returns a flag that only the command line has.
pub const fn new<T: FlagValue>(
    name: &'static str,
    default: &'static str,
    help: &'static str,
) -> FlagOf<T> {
    flag::new(name, default, help).without_key()
}

/// The reason why a tool does not start.
#[derive(Debug)]
pub enum Refusal {
    /// The reason for the user, which ends the tool with code 1.
    Reason(String),
    /// The end that the table of flags decides.
    Exit(Exit),
}

impl<T: ToString + ?Sized> From<&T> for Refusal {
    fn from(reason: &T) -> Refusal {
        Refusal::Reason(reason.to_string())
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Refusal {
        Refusal::Reason(reason)
    }
}

impl From<Exit> for Refusal {
    fn from(exit: Exit) -> Refusal {
        Refusal::Exit(exit)
    }
}

/// Reads a command line, without the program's name, and checks the values of its flags with `config`.
///
/// # Errors
/// The program ends: a value or a flag is wrong, or the command line has `--help` or
/// `--version`.
pub fn read<C>(
    program: &'static Program,
    args: impl IntoIterator<Item = OsString>,
    config: impl FnOnce(&Options) -> Result<C, Refusal>,
) -> Result<C, Exit> {
    let options = program.options(args, &program::hostname())?;
    let config = match config(&options) {
        // A flag that cannot be read is told before a word behind the flags, as in NSQ's tools.
        Err(Refusal::Exit(exit)) => return Err(exit),
        config => config,
    };
    match options.arguments() {
        [] => config.map_err(|refusal| refusal.exit(program)),
        // NSQ's tools end their flags at the first such word, and ignore all flags behind the word.
        words => Err(program.failed(&format!(
            "unknown arguments: [{}]; a value of a boolean flag follows behind =, as in -flag=false",
            words.join(" ")
        ))),
    }
}

impl Refusal {
    /// Returns the end of the program.
    pub fn exit(self, program: &Program) -> Exit {
        match self {
            Refusal::Reason(why) => program.failed(&why),
            Refusal::Exit(exit) => exit,
        }
    }
}

/// The places where a tool finds the nsqds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sources {
    /// These nsqds: `host:port`, or for a consumer the path of a unix socket.
    Nsqds(Vec<String>),
    /// The nsqds that these nsqlookupds name: `host:port`, or for a consumer a URL.
    Lookupds(Vec<String>),
}

impl Sources {
    /// Returns the addresses of `nsqd_flag` or [`LOOKUPD_HTTP_ADDRESS`].
    ///
    /// # Errors
    /// The command line has addresses of neither kind, or of both kinds. The error is the text of NSQ's tools.
    pub fn from_options(
        options: &Options,
        nsqd_flag: &FlagOf<Vec<String>>,
    ) -> Result<Sources, String> {
        let (nsqds, lookupds) = (options.get(nsqd_flag), options.get(&LOOKUPD_HTTP_ADDRESS));
        let (nsqd, lookupd) = (nsqd_flag.name(), LOOKUPD_HTTP_ADDRESS.name());
        match (nsqds.is_empty(), lookupds.is_empty()) {
            (true, true) => Err(format!("--{nsqd} or --{lookupd} required")),
            (false, false) => Err(format!("use --{nsqd} or --{lookupd} not both")),
            (false, true) => Ok(Sources::Nsqds(nsqds)),
            (true, false) => Ok(Sources::Lookupds(lookupds)),
        }
    }

    /// Returns the addresses of [`NSQD_TCP_ADDRESS`] or [`LOOKUPD_HTTP_ADDRESS`], for a tool whose line about missing
    /// addresses ends with a full stop.
    ///
    /// # Errors
    /// Those of [`Sources::from_options`].
    pub fn from_options_with_full_stop(options: &Options) -> Result<Sources, String> {
        Sources::from_options(options, &NSQD_TCP_ADDRESS).map_err(|why| {
            let full_stop = if why.ends_with("required") { "." } else { "" };
            why + full_stop
        })
    }
}

/// Parses the values of a flag such as [`NSQD_TCP_ADDRESS`].
///
/// # Errors
/// An address is wrong. The error is the text for the user.
pub fn parse_nsqds(flag: &str, addresses: &[String]) -> Result<Vec<Address>, String> {
    let parsed = addresses.iter().map(|address| address.parse::<Address>());
    let parsed: Result<_, _> = parsed.collect();
    parsed.map_err(|error| format!("--{flag}: {error}"))
}

/// Returns the values, each once, in the order in which they first come.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// Checks the values of [`LOOKUPD_HTTP_ADDRESS`].
///
/// # Errors
/// An address is wrong. The error is the text for the user.
pub fn check_lookupds(addresses: &[String]) -> Result<(), String> {
    let mut checked = addresses
        .iter()
        .map(|address| Lookupd::check_address(address));
    let result: Result<(), _> = checked.try_for_each(|result| result);
    result.map_err(|error| format!("--{}: {error}", LOOKUPD_HTTP_ADDRESS.name()))
}

/// Returns the value of [`MAX_IN_FLIGHT`].
///
/// # Errors
/// The value is no number of messages. The error is the reason for the user.
pub fn max_in_flight(options: &Options) -> Result<u32, String> {
    match options.get(&MAX_IN_FLIGHT) {
        ..=0 => Err("--max-in-flight should be positive".to_owned()),
        value => u32::try_from(value)
            .map_err(|_| format!("--max-in-flight must not be above {}", u32::MAX)),
    }
}

/// Returns the value of a flag that limits something. `None` means that nothing is limited: the value is 0.
///
/// # Errors
/// The value is negative. The error is the reason for the user.
pub fn limit(name: &str, value: i64) -> Result<Option<u64>, String> {
    match u64::try_from(value) {
        Ok(0) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(format!("--{name} must not be negative; 0 sets no limit")),
    }
}

/// Checks a name of a topic or channel.
///
/// # Errors
/// The name is not valid. The error is the reason for the user.
pub fn check_name(flag: &str, name: &str) -> Result<(), String> {
    if is_valid_name(name.as_bytes()) {
        Ok(())
    } else {
        Err(format!("--{flag} is invalid: {}", InvalidName(name)))
    }
}

/// Returns the number of requests between two lines about times, for the value of a flag. 0 means no lines.
///
/// # Errors
/// The value is negative. The error is the reason for the user.
pub fn status_every(value: i64) -> Result<usize, String> {
    usize::try_from(value).map_err(|_| "--status-every must not be negative".to_owned())
}

/// Checks that the time of a flag is above zero.
///
/// # Errors
/// The time is not. The error is the reason for the user.
pub fn check_positive(name: &str, time: Duration) -> Result<(), String> {
    if time.is_zero() {
        Err(format!("--{name} should be positive"))
    } else {
        Ok(())
    }
}

/// Returns the settings of a tool's consumers and producers before its options. A tool moves messages by the million, and
/// a connection that ends in the middle makes duplicates. So an nsqd may take nothing for 30 s (the client's default is
/// 1 s).
#[must_use]
pub fn client_config() -> Config {
    Config {
        write_timeout: Duration::from_secs(30),
        ..Config::default()
    }
}

/// Returns the settings of a tool's consumers or producers: `base` with the values of [`CONSUMER_OPT`] or
/// [`PRODUCER_OPT`], in the order of the command line.
///
/// # Errors
/// The client refuses a value: `tls_key` may not belong to `tls_cert`, which only both together
/// show.
pub fn client_with_options(
    program: &Program,
    options: &Options,
    flag: &FlagOf<Vec<String>>,
    base: Config,
) -> Result<Config, Refusal> {
    let mut config = base;
    for value in options.get(flag) {
        let (name, setting) = split_client_option(&value);
        if let Err(error) = config.set(name, setting) {
            let (why, hostname) = (error.to_string(), options.hostname());
            return Err(program.refused(flag.name(), &value, &why, hostname).into());
        }
    }
    config.user_agent = user_agent(program.name);
    Ok(config)
}

/// Returns the name and the value of a client's option. A name without a value means true.
fn split_client_option(text: &str) -> (&str, &str) {
    text.split_once(',').unwrap_or((text, "true"))
}

fn check_client_option(text: &str) -> Result<(), String> {
    let (name, setting) = split_client_option(text);
    let set = Config::default().set(name, setting);
    set.map_err(|error| error.to_string())
}

/// Returns the name under which a tool introduces itself to nsqd: `nsq_tail/1.3.0
/// ringq-client/0.1.0`.
fn user_agent(tool: &str) -> String {
    let library = Config::default().user_agent;
    format!("{tool}/{} {library}", version::NSQ_VERSION)
}

#[cfg(test)]
pub(crate) mod tests;
