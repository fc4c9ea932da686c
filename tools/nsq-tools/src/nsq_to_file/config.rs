//! The declaration of the flags, and the checks of their values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use program::flag::{self, FlagOf};
use program::log::{Level, Style};
use program::{Exit, Options, Program, version};
use regex::Regex;
use ringq_client::Config as ClientConfig;

use super::compression::Compression;
use super::file_name::{self, NameFormat, normalized};
use crate::cluster::QueryTimeouts;
use crate::consuming::ConsumerFlags;
use crate::flags::{self, CONSUMER_OPT, Refusal, Sources};

/// The largest level of zstd.
const ZSTD_LEVEL_MAX: i64 = 22;

/// The bytes of messages after which a batch is synced beside the next messages. nsqd sends the next
/// messages while the disk works: it gets the answers for one part of `--max-in-flight` before the
/// other parts are synced. Smaller batches would make the disk wait more often.
const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The time after which an archive that has ended is tried again, if `--topic-refresh` has no meaning for the topics and is
/// 0: the default of the flag.
const TOPIC_REFRESH: Duration = Duration::from_secs(60);

/// The level is no [`Level`]: the original checks it after the command line was read.
const LOG_LEVEL: FlagOf<String> = flags::new(
    "log-level",
    "info",
    "set log verbosity: debug, info, warn, error, or fatal",
);

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    pub(super) struct Flags {
        = flag::VERSION;
        = LOG_LEVEL;
        = flag::log_prefix("[nsq_to_file] ").without_key();
        channel: String = flags::new("channel", "nsq_to_file", "nsq channel");
        = flags::MAX_IN_FLIGHT;
        output_dir: String = flags::new("output-dir", "/tmp", "directory to write output files to");
        work_dir: String = flags::new("work-dir", "", "directory for in-progress files before moving to output-dir");
        datetime_format: String = flags::new("datetime-format", "%Y-%m-%d_%H", "strftime compatible format for <DATETIME> in filename format");
        filename_format: String = flags::new("filename-format", "<TOPIC>.<HOST><REV>.<DATETIME>.log", "output filename format (<TOPIC>, <HOST>, <PID>, <DATETIME> and <REV> are replaced)");
        host_identifier: String = flags::new("host-identifier", "", "text for <HOST> instead of the host name (<SHORT_HOST> and <HOSTNAME> are replaced)");
        gzip_level: i64 = flags::new("gzip-level", "6", "gzip compression level (1-9, 1=BestSpeed, 9=BestCompression)");
        gzip: bool = flags::new("gzip", "false", "gzip output files.");
        skip_empty_files: bool = flags::new("skip-empty-files", "false", "skip writing empty files");
        topic_refresh: Duration = flags::new("topic-refresh", "1m0s", "how frequently the topic list should be refreshed");
        topic_pattern: String = flags::new("topic-pattern", "", "only log topics matching the following pattern");
        rotate_size: i64 = flags::new("rotate-size", "0", "rotate the file when it grows bigger than this number of bytes");
        rotate_interval: Option<Duration> = flags::new("rotate-interval", "0s", "rotate the file every duration");
        sync_interval: Duration = flags::new("sync-interval", "30s", "sync file to disk every duration");
        timeouts: QueryTimeouts;
        = flags::NSQD_TCP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
        topics: Vec<String> = flags::new("topic", "", "nsq topic (may be given multiple times)");
        = flags::CONSUMER_OPT;
    }
    own {
        = flags::DEDUP;
        = flags::DEDUP_STATE;
        = flags::LOG_FORMAT;
        zstd: bool = flags::new("zstd", "false", "compress output files with zstd");
        zstd_level: i64 = flags::new("zstd-level", "3", "zstd compression level (1-22, 1 is the fastest)");
    }
}

/// `nsq_to_file`, as its command line shows it.
pub static NSQ_TO_FILE: Program = Program::of::<Flags>("nsq_to_file", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) log_level: Level,
    pub(super) log_style: Style,
    pub(super) topics: Topics,
    pub(super) flags: Flags,
    pub(super) consumer: ConsumerFlags,
    pub(super) archive: Settings,
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
        let config = Config::new(&options, level);
        config.map_err(|refusal| refusal.exit(&NSQ_TO_FILE))
    }

    /// Checks all values, in the order of the original.
    fn new(options: &Options, log_level: Level) -> Result<Config, Refusal> {
        let client = ClientConfig {
            // A message that is given up after some attempts would be lost.
            max_attempts: 0,
            ..flags::client_config()
        };
        let mut client = flags::client_with_options(&NSQ_TO_FILE, options, &CONSUMER_OPT, client)?;
        let mut flags: Flags = options.read()?;
        if flags.channel.is_empty() {
            return Err("--channel is required".into());
        }
        flags.timeouts.check_positive()?;
        let sources = Sources::from_options_with_full_stop(options)?;
        let compression = compression(&flags)?;
        let (topics, mut warnings) = topics(&flags, &sources)?;
        warnings.extend(file_name::warnings(
            &flags.filename_format,
            &flags.datetime_format,
            &flags.host_identifier,
        ));
        flags::check_positive("sync-interval", flags.sync_interval)?;
        client.max_in_flight = flags::max_in_flight(options)?;
        let batch_max = client.max_in_flight as usize;
        let consumer = ConsumerFlags::new(options, sources, client)?;
        let archive = archive(&flags, compression, batch_max, options.hostname())?;
        if flags.topic_refresh.is_zero() {
            flags.topic_refresh = TOPIC_REFRESH;
        }
        Ok(Config {
            log_level,
            log_style: options.log_style(),
            topics,
            flags,
            consumer,
            archive,
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
    let level = options.get(&LOG_LEVEL).parse();
    level.map_err(|_| "--log-level is invalid".to_owned())
}

fn compression(flags: &Flags) -> Result<Compression, String> {
    let (gzip_level, zstd_level) = (flags.gzip_level, flags.zstd_level);
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
    match (flags.gzip, flags.zstd) {
        (false, false) => Ok(Compression::None),
        (true, false) => Ok(Compression::Gzip(gzip_level as u32)),
        (false, true) => Ok(Compression::Zstd(zstd_level as i32)),
        (true, true) => Err("use --gzip or --zstd not both".to_owned()),
    }
}

/// Returns the topics, and a warning for each topic that `--topic-pattern` excludes.
fn topics(flags: &Flags, sources: &Sources) -> Result<(Topics, Vec<String>), String> {
    let (topics, text) = (flags.topics.clone(), &flags.topic_pattern);
    if topics.is_empty() && text.is_empty() {
        return Err("--topic or --topic-pattern required".to_owned());
    }
    if topics.is_empty() && matches!(sources, Sources::Nsqds(_)) {
        let why = "--lookupd-http-address must be specified when no --topic specified";
        return Err(why.to_owned());
    }
    let pattern = pattern(text)?;
    if topics.is_empty() {
        flags::check_positive("topic-refresh", flags.topic_refresh)?;
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
    flags: &Flags,
    compression: Compression,
    batch_max: usize,
    hostname: &str,
) -> Result<Settings, String> {
    let output_dir = &flags.output_dir;
    let work_dir = match &flags.work_dir {
        text if text.is_empty() => output_dir,
        text => text,
    };
    let [output_dir, work_dir] = [output_dir, work_dir].map(|path| normalized(Path::new(path)));
    let rotate_size = flags::limit("rotate-size", flags.rotate_size)?;
    let rotate_interval = flags.rotate_interval;
    let is_rotated = rotate_size.is_some() || rotate_interval.is_some();
    let names = NameFormat {
        format: flags.filename_format.clone(),
        date_format: flags.datetime_format.clone(),
        host: file_name::host(&flags.host_identifier, hostname),
        pid: std::process::id(),
        suffix: compression.suffix(),
        needs_revision: is_rotated || compression != Compression::None || work_dir != output_dir,
    };
    names.check()?;
    Ok(Settings {
        output_dir,
        work_dir,
        names,
        compression,
        rotate_size,
        rotate_interval,
        skips_empty_files: flags.skip_empty_files,
        batch_max,
        batch_bytes_max: BATCH_BYTES_MAX,
    })
}

/// The part of the flags that says how files are named, written and rotated.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The directory of finished files, without `.` and trailing slashes.
    pub(super) output_dir: PathBuf,
    /// The directory of the files that are being written, in the same form.
    pub(super) work_dir: PathBuf,
    /// The names of files.
    pub(super) names: NameFormat,
    /// The form of files.
    pub(super) compression: Compression,
    /// The size in bytes above which a file is rotated. `None` sets no limit.
    pub(super) rotate_size: Option<u64>,
    /// The age above which a file is rotated. `None` sets no limit.
    pub(super) rotate_interval: Option<Duration>,
    /// True if a rotation at the end of `--sync-interval` opens no file.
    pub(super) skips_empty_files: bool,
    /// The number of messages after which a batch is synced.
    pub(super) batch_max: usize,
    /// The bytes of messages after which a batch is synced, beside the next messages.
    pub(super) batch_bytes_max: u64,
}

impl Settings {
    /// Returns true if files are written in another directory than that of finished files.
    pub(super) fn moves_files(&self) -> bool {
        self.work_dir != self.output_dir
    }

    /// Returns true if a file that is there already is never continued. A compressed file would get
    /// members behind a torn one. A file that is rotated by age has to begin now.
    pub(super) fn opens_only_new_files(&self) -> bool {
        self.compression != Compression::None || self.rotate_interval.is_some()
    }
}

#[cfg(test)]
mod tests;
