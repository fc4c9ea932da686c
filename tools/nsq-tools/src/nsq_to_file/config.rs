//! The table of flags, and the checks of their values.

use std::path::Path;
use std::time::Duration;

use program::flag::{self, Flag};
use program::log::{Level, Style};
use program::{Exit, Options, Program, version};
use regex::Regex;
use ringq_client::Config as ClientConfig;

use super::compression::Compression;
use super::file_name::{self, NameFormat, normalized};
use super::settings::Settings;
use super::unknown_tokens;
use crate::flags::{
    self, CONSUMER_OPT, SourceError, Sources, boolean, duration, integer, list, text,
};

/// nsq_to_file, as its command line shows it.
pub static NSQ_TO_FILE: Program = Program {
    name: "nsq_to_file",
    version: version::of_tool,
    flags: FLAGS,
    own_flags: OWN_FLAGS,
};

/// The flags of NSQ's nsq_to_file.
#[rustfmt::skip]
const FLAGS: &[Flag] = &[
    flag::VERSION,
    text("log-level", "info", "set log verbosity: debug, info, warn, error, or fatal"),
    flag::log_prefix("[nsq_to_file] ").without_key(),
    text("channel", "nsq_to_file", "nsq channel"),
    flags::MAX_IN_FLIGHT,
    text("output-dir", "/tmp", "directory to write output files to"),
    text("work-dir", "", "directory for in-progress files before moving to output-dir"),
    text("datetime-format", "%Y-%m-%d_%H", "strftime compatible format for <DATETIME> in filename format"),
    text("filename-format", "<TOPIC>.<HOST><REV>.<DATETIME>.log", "output filename format (<TOPIC>, <HOST>, <PID>, <DATETIME>, <REV> are replaced. <REV> is increased when file already exists)"),
    text("host-identifier", "", "value to output in log filename in place of hostname. <SHORT_HOST> and <HOSTNAME> are valid replacement tokens"),
    integer("gzip-level", "6", "gzip compression level (1-9, 1=BestSpeed, 9=BestCompression)"),
    boolean("gzip", "gzip output files."),
    boolean("skip-empty-files", "skip writing empty files"),
    duration("topic-refresh", "1m0s", "how frequently the topic list should be refreshed"),
    text("topic-pattern", "", "only log topics matching the following pattern"),
    integer("rotate-size", "0", "rotate the file when it grows bigger than this number of bytes"),
    duration("rotate-interval", "0s", "rotate the file every duration"),
    duration("sync-interval", "30s", "sync file to disk every duration"),
    flags::HTTP_CLIENT_CONNECT_TIMEOUT,
    flags::http_client_request_timeout("5s"),
    flags::NSQD_TCP_ADDRESS,
    flags::LOOKUPD_HTTP_ADDRESS,
    list("topic", "nsq topic (may be given multiple times)"),
    CONSUMER_OPT,
];

/// The flags that NSQ's nsq_to_file does not have.
const OWN_FLAGS: &[Flag] = &[
    flags::DEDUP,
    flags::DEDUP_STATE,
    flags::LOG_FORMAT,
    boolean("zstd", "compress output files with zstd"),
    integer(
        "zstd-level",
        "3",
        "zstd compression level (1-22, 1 is the fastest)",
    ),
];

/// The largest level of zstd.
const ZSTD_LEVEL_MAX: i64 = 22;

/// The bytes of messages after which a batch is synced beside the next messages. nsqd sends the next
/// messages while the disk works: it gets the answers for one part of `--max-in-flight` before the
/// other parts are synced. Smaller batches would make the disk wait more often.
const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The time after which an archive that has ended is tried again, if `--topic-refresh` has no meaning for the topics and is
/// 0: the default of the flag.
const TOPIC_REFRESH: Duration = Duration::from_secs(60);

/// The values of the flags.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) log_level: Level,
    pub(super) log_style: Style,
    pub(super) topics: Topics,
    /// The time between two questions for topics, and between two tries of a topic whose disk fails.
    pub(super) topic_refresh: Duration,
    pub(super) channel: String,
    pub(super) sources: Sources,
    pub(super) sync_interval: Duration,
    pub(super) archive: Settings,
    /// The settings of each topic's consumer.
    pub(super) client: ClientConfig,
    /// The recognition of messages that were handled before.
    pub(super) dedup: Option<flags::Dedup>,
    /// The limits of requests for the list of topics: connect, whole request.
    pub(super) http_timeouts: (Duration, Duration),
    /// The lines about values that are allowed and probably mistakes.
    pub(super) warnings: Vec<String>,
}

/// The topics to archive.
#[derive(Clone, Debug)]
pub(super) enum Topics {
    /// `--topic`, those that do not match `--topic-pattern` left out.
    Fixed(Vec<String>),
    /// All topics of the nsqlookupds that match.
    Discovered { pattern: Regex },
}

impl Config {
    /// Reads the command line, without the program's name.
    ///
    /// # Errors
    /// The program ends: a value or a flag is wrong, or the command line has `--help` or
    /// `--version`.
    pub(super) fn from_args(
        args: impl IntoIterator<Item = std::ffi::OsString>,
    ) -> Result<Config, Exit> {
        let hostname = program::hostname();
        let mut level = Level::Info;
        let check = |options: &Options| {
            check_arguments(options)?;
            level = log_level(options)?;
            Ok(())
        };
        let options = NSQ_TO_FILE.options_checked_before_version(args, &hostname, check)?;
        let mut client = ClientConfig {
            // A message that is given up after some attempts would be lost.
            max_attempts: 0,
            ..flags::client_config()
        };
        flags::apply_client_options(&NSQ_TO_FILE, &options, &CONSUMER_OPT, &mut client)?;
        let config = Config::new(&options, level, client, &hostname);
        config.map_err(|why| NSQ_TO_FILE.failed(&why))
    }

    /// Checks all values, in the order of the original.
    fn new(
        options: &Options,
        log_level: Level,
        mut client: ClientConfig,
        hostname: &str,
    ) -> Result<Config, String> {
        let channel = options.text("channel");
        if channel.is_empty() {
            return Err("--channel is required".to_owned());
        }
        let connect_timeout = positive(options, "http-client-connect-timeout")?;
        let request_timeout = positive(options, "http-client-request-timeout")?;
        let sources = Sources::from_options(options).map_err(|error| match error {
            SourceError::Missing => format!("{error}."),
            SourceError::Both => error.to_string(),
        })?;
        let compression = compression(options)?;
        let (topics, mut warnings) = topics(options, &sources)?;
        warnings.extend(unknown_tokens::warnings(
            &options.text("filename-format"),
            &options.text("datetime-format"),
            &options.text("host-identifier"),
        ));
        let sync_interval = positive(options, "sync-interval")?;
        client.max_in_flight = flags::max_in_flight(options)?;
        client.user_agent = flags::user_agent(NSQ_TO_FILE.name);
        client.validate().map_err(|error| error.to_string())?;
        let dedup = flags::Dedup::from_options(options)?;
        let batch_max = client.max_in_flight as usize;
        let archive = archive(options, compression, batch_max, hostname)?;
        Ok(Config {
            log_level,
            log_style: Style {
                prefix: options.text("log-prefix"),
                ..options.log_style()
            },
            topics,
            topic_refresh: match options.duration("topic-refresh") {
                Duration::ZERO => TOPIC_REFRESH,
                refresh => refresh,
            },
            channel,
            sources,
            sync_interval,
            archive,
            client,
            dedup,
            http_timeouts: (connect_timeout, request_timeout),
            warnings,
        })
    }
}

fn check_arguments(options: &Options) -> Result<(), String> {
    match options.arguments() {
        [] => Ok(()),
        arguments => Err(format!("unknown arguments: [{}]", arguments.join(" "))),
    }
}

fn log_level(options: &Options) -> Result<Level, String> {
    let level = options.text("log-level").parse();
    level.map_err(|_| "--log-level is invalid".to_owned())
}

/// Returns a duration above zero.
fn positive(options: &Options, name: &str) -> Result<Duration, String> {
    let value = options.duration(name);
    match value.is_zero() {
        true => Err(format!("--{name} should be positive")),
        false => Ok(value),
    }
}

fn compression(options: &Options) -> Result<Compression, String> {
    let [gzip_level, zstd_level] = ["gzip-level", "zstd-level"].map(|name| options.number(name));
    if !(1..=9).contains(&gzip_level) {
        return Err(format!(
            "invalid --gzip-level value ({gzip_level}), should be 1-9"
        ));
    }
    if !(1..=ZSTD_LEVEL_MAX).contains(&zstd_level) {
        return Err(format!(
            "invalid --zstd-level value ({zstd_level}), should be 1-{ZSTD_LEVEL_MAX}"
        ));
    }
    match (options.boolean("gzip"), options.boolean("zstd")) {
        (false, false) => Ok(Compression::None),
        (true, false) => Ok(Compression::Gzip(gzip_level as u32)),
        (false, true) => Ok(Compression::Zstd(zstd_level as i32)),
        (true, true) => Err("use --gzip or --zstd not both".to_owned()),
    }
}

/// Returns the topics, and a warning for each topic that `--topic-pattern` excludes.
fn topics(options: &Options, sources: &Sources) -> Result<(Topics, Vec<String>), String> {
    let topics = options.list("topic");
    let text = options.text("topic-pattern");
    if topics.is_empty() && text.is_empty() {
        return Err("--topic or --topic-pattern required".to_owned());
    }
    if topics.is_empty() && matches!(sources, Sources::Nsqds(_)) {
        let why = "--lookupd-http-address must be specified when no --topic specified";
        return Err(why.to_owned());
    }
    let pattern = pattern(&text)?;
    if topics.is_empty() {
        positive(options, "topic-refresh")?;
        return Ok((Topics::Discovered { pattern }, Vec::new()));
    }
    let all = topics.into_iter();
    let (matching, others): (Vec<String>, Vec<String>) =
        all.partition(|topic| pattern.is_match(topic));
    if matching.is_empty() {
        return Err(format!("no --topic matches --topic-pattern {text}"));
    }
    let skipped = others.into_iter().map(|topic| skipped(&topic, &pattern));
    Ok((Topics::Fixed(matching), skipped.collect()))
}

/// Returns the original's line about a topic that the pattern excludes.
pub(super) fn skipped(topic: &str, pattern: &Regex) -> String {
    let topic = topic.escape_debug();
    format!("skipping topic {topic} (doesn't match pattern {pattern})")
}

/// Returns the pattern. An empty one matches every topic.
fn pattern(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| {
        // The error has a drawing of several lines. Its last line has the reason.
        let drawing = error.to_string();
        let reason = drawing.lines().last().unwrap_or_default();
        let reason = reason.trim_start_matches("error: ");
        format!("invalid --topic-pattern value ({text}): {reason}")
    })
}

fn archive(
    options: &Options,
    compression: Compression,
    batch_max: usize,
    hostname: &str,
) -> Result<Settings, String> {
    let output_dir = options.text("output-dir");
    let work_dir = match options.text("work-dir") {
        text if text.is_empty() => output_dir.clone(),
        text => text,
    };
    let [output_dir, work_dir] = [output_dir, work_dir].map(|path| normalized(Path::new(&path)));
    let rotate_size = flags::limit(options, "rotate-size")?;
    let rotate_interval = Some(options.duration("rotate-interval")).filter(|age| !age.is_zero());
    let is_rotated = rotate_size.is_some() || rotate_interval.is_some();
    let names = NameFormat {
        format: options.text("filename-format"),
        date_format: options.text("datetime-format"),
        host: file_name::host(&options.text("host-identifier"), hostname),
        pid: std::process::id(),
        suffix: compression.suffix(),
        needs_revision: is_rotated || compression != Compression::None || work_dir != output_dir,
    };
    names.check().map_err(|error| error.to_string())?;
    Ok(Settings {
        output_dir,
        work_dir,
        names,
        compression,
        rotate_size,
        rotate_interval,
        skips_empty_files: options.boolean("skip-empty-files"),
        batch_max,
        batch_bytes_max: BATCH_BYTES_MAX,
    })
}

#[cfg(test)]
mod tests;
