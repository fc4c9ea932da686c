//! `nsq_tail`: prints the messages of topics, one on each line, or makes a file of each.
//!
//! ```text
//!   consumers of all topics ─► Tail: one stream ─► Printer: a group ─► Output: one write ─► finish
//!                                                                        ├─► lines on stdout
//!                                                                        └─► MessageFile
//! ```
//!
//! A message is finished when its line has left for stdout, or when its file survives a power failure. So a run with `-n`
//! finishes exactly the messages that it printed, and the others go back to nsqd.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream::{SelectAll, select_all};
use futures_util::{FutureExt, StreamExt};
use new_file::{Directory, FILE_MODE};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use program::{Options, Program, flag, log_info, log_warn, version};
use ringq_client::{Acker, AutoTouch, Consumer, Control, Message, MessageId};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::consuming::ConsumerFlags;
use crate::flags::{self, CONSUMER_OPT, NSQD_TCP_ADDRESS, Refusal, Sources};
use crate::process::{
    self, STOP_TIME_MAX, StopSignals, TOUCH_TIME_MAX, advice, give_back, print, shut_down,
};

/// Runs the program with this command line, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::run_tool(&NSQ_TAIL, args, Config::new, tail)
}

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    struct Flags {
        = flag::VERSION;
        channel: String = flags::new("channel", "", "NSQ channel; by default an ephemeral one of this run");
        = flags::MAX_IN_FLIGHT;
        message_count: i64 = flags::new("n", "0", "total messages to show (will wait if starved)");
        prints_topic: bool = flags::new("print-topic", "false", "print topic name where message was received");
        = flags::NSQD_TCP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
        topics: Vec<String> = flags::new("topic", "", "NSQ topic (may be given multiple times)");
        = flags::CONSUMER_OPT;
    }
    own {
        output_dir: String = flags::new("output-dir", "", "write each message to a file of its own in this directory, instead of standard output");
        = flags::DEDUP;
        = flags::DEDUP_STATE;
        = flags::LOG_FORMAT;
    }
}

/// `nsq_tail`, as its command line shows it.
pub static NSQ_TAIL: Program = Program::of::<Flags>("nsq_tail", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
struct Config {
    topics: Vec<String>,
    channel: String,
    /// The number of messages to print. `None` means without end.
    message_count: Option<u64>,
    prints_topic: bool,
    /// The directory of the files of messages. `None` means standard output.
    output_dir: Option<PathBuf>,
    consumer: ConsumerFlags,
}

impl Config {
    /// Checks all values, in the order of the original.
    fn new(options: &Options) -> Result<Config, Refusal> {
        let mut client = flags::client_config();
        if options.is_given("output-dir") {
            // A message that came back from a full disk must not be lost.
            client.max_attempts = 0;
        }
        let mut client = flags::client_with_options(&NSQ_TAIL, options, &CONSUMER_OPT, client)?;
        let sources = Sources::from_options(options, &NSQD_TCP_ADDRESS)?;
        let flags: Flags = options.read()?;
        // Two consumers of one topic would print its messages in no better way than one.
        let topics = flags::distinct(flags.topics.clone());
        if topics.is_empty() {
            return Err("--topic required".into());
        }
        let message_count = flags::limit("n", flags.message_count)?;
        let max_in_flight = flags::max_in_flight(options)?;
        let wanted = message_count.and_then(|count| u32::try_from(count).ok());
        client.max_in_flight = wanted.map_or(max_in_flight, |count| count.min(max_in_flight));
        let output_dir = output_dir(options, &flags)?;
        let consumer = ConsumerFlags::new(options, sources, client)?;
        Ok(Config {
            topics,
            channel: match flags.channel {
                channel if channel.is_empty() => random_channel(),
                channel => channel,
            },
            message_count,
            prints_topic: flags.prints_topic,
            output_dir,
            consumer,
        })
    }
}

fn output_dir(options: &Options, flags: &Flags) -> Result<Option<PathBuf>, String> {
    let wanted = "the name of a directory";
    let output_dir = flags::given(options, "output-dir", flags.output_dir.clone(), wanted)?;
    if output_dir.is_some() && flags.prints_topic {
        return Err(
            "--print-topic has no use with --output-dir: the name of each file begins with the topic"
                .to_owned(),
        );
    }
    Ok(output_dir.map(PathBuf::from))
}

/// Returns the name of a channel that nobody else uses, and that disappears with this run.
fn random_channel() -> String {
    format!("tail{:06}#ephemeral", fastrand::u32(..999_999))
}

/// The longest time that a stop waits for a reader of stdout that does not read.
const STALL_TIME_MAX: Duration = Duration::from_secs(2);

/// All consumers, and the lines of their messages.
struct Tail {
    signals: StopSignals,
    is_stopping: bool,
    messages: SelectAll<Consumer>,
    controls: Vec<Control>,
    /// The longest time that a write may take while the tool stops.
    stall_time_max: Duration,
    printer: Printer<Acker>,
}

/// The reason why messages are not written.
enum Failure {
    /// A write failed. The text is for the user.
    Write(String),
    /// A stop began, and nobody reads stdout, or the disk does not answer.
    Stalled,
}

/// Prints messages until a signal comes or `-n` is reached. The error is the text for the user.
async fn tail(config: Config, mut signals: StopSignals) -> Result<(), String> {
    if let Some(directory) = &config.output_dir {
        check(directory)?;
    }
    let connecting = connect(&config);
    let consumers = tokio::select! {
        consumers = connecting => consumers?,
        () = signals.wait() => return Ok(()),
    };
    let mut tail = Tail::new(&config, signals, consumers);
    let mut result = tail.print_all().await;
    if result.is_ok() {
        result = tail.stop().await;
    }
    match result {
        Ok(()) => Ok(()),
        Err(Failure::Write(why)) => {
            tail.give_back().await;
            Err(why)
        }
        Err(Failure::Stalled) => {
            let why = match config.output_dir {
                None => "nobody reads standard output",
                Some(_) => "the disk does not answer",
            };
            log_warn!("{why}, so messages that were not written go back to nsqd");
            tail.give_back().await;
            Ok(())
        }
    }
}

/// Connects the consumers of all topics.
async fn connect(config: &Config) -> Result<Vec<Consumer>, String> {
    // A slow disk takes long for many files.
    let touch = AutoTouch {
        limit: TOUCH_TIME_MAX,
    };
    let touch = config.output_dir.is_some().then_some(touch);
    for topic in &config.topics {
        log_info!("Adding consumer for topic: {topic}");
    }
    config
        .consumer
        .connect(&config.topics, &config.channel, |builder| {
            let builder = builder.auto_touch(touch);
            // With -n, messages beyond this number must not be printed.
            builder.give_back_at_shutdown(config.message_count.is_some())
        })
        .await
}

impl Tail {
    fn new(config: &Config, signals: StopSignals, consumers: Vec<Consumer>) -> Tail {
        let (output, stall_time_max) = match &config.output_dir {
            None => (Output::lines(config.prints_topic), STALL_TIME_MAX),
            Some(directory) => (Output::files(&**directory), STOP_TIME_MAX),
        };
        Tail {
            signals,
            is_stopping: false,
            controls: consumers.iter().map(Consumer::control).collect(),
            messages: select_all(consumers),
            stall_time_max,
            printer: Printer::new(output, config.message_count),
        }
    }

    /// Prints messages until a signal comes or `-n` is reached.
    async fn print_all(&mut self) -> Result<(), Failure> {
        while !self.printer.is_done() && !self.is_stopping {
            tokio::select! {
                biased;
                () = self.signals.wait() => self.is_stopping = true,
                Some(message) = self.messages.next() => self.take_group(message).await?,
            }
        }
        Ok(())
    }

    /// Prints a message and those that have come with it, up to `-n`.
    async fn take_group(&mut self, first: Message) -> Result<(), Failure> {
        let mut message = first;
        loop {
            // The split takes the message, so the rest is copied before.
            let (published, id) = (message.timestamp(), message.id());
            let topic = message.topic().to_owned();
            let (body, acker) = message.split();
            let received = Received {
                topic: &topic,
                body: &body,
                published,
                id,
            };
            self.printer.add(&received, acker);
            if self.printer.is_full() || self.printer.is_done() {
                break;
            }
            match self.messages.next().now_or_never().flatten() {
                Some(next) => message = next,
                None => break,
            }
        }
        self.write().await
    }

    /// Writes the collected messages, and finishes them. The write has a thread of its own, because it waits for the reader
    /// of stdout, or for the disk.
    async fn write(&mut self) -> Result<(), Failure> {
        let (output, count) = self.printer.take();
        let mut write = spawn_blocking(move || output.write(count));
        let mut ends_at = Instant::now() + self.stall_time_max;
        let written = loop {
            tokio::select! {
                biased;
                written = &mut write => break written,
                () = self.signals.wait(), if !self.is_stopping => {
                    self.is_stopping = true;
                    ends_at = Instant::now() + self.stall_time_max;
                }
                () = sleep_until(ends_at), if self.is_stopping => return Err(Failure::Stalled),
            }
        };
        let (count, result) = written.map_err(|error| Failure::Write(format!("ERROR: {error}")))?;
        for acker in self.printer.written(count) {
            // If the connection is lost, the message comes again.
            drop(acker.finish());
        }
        result.map_err(Failure::Write)
    }

    /// Stops all consumers. Without `-n`, the messages that they still have are printed.
    async fn stop(&mut self) -> Result<(), Failure> {
        self.is_stopping = true;
        let mut stopped = pin!(shut_down(self.controls.clone()));
        loop {
            tokio::select! {
                biased;
                () = &mut stopped => return Ok(()),
                Some(message) = self.messages.next() => self.take_group(message).await?,
            }
        }
    }

    /// Gives everything that was not written back to nsqd.
    async fn give_back(self) {
        give_back(self.messages, self.printer.into_unfinished()).await;
    }
}

/// The size at which collected messages are written, in bytes.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// The number at which collected messages are written. Each file waits for the disk.
const WRITE_MESSAGES_MAX: usize = 1000;

/// Collects messages that are written together. `M` stands for a message that is to be finished when it is written.
struct Printer<M> {
    output: Output,
    /// The number of messages that may still be taken.
    left: u64,
    /// The messages that are collected, or that are being written.
    unfinished: Vec<M>,
}

impl<M> Printer<M> {
    /// Returns a printer that takes at most `message_count` messages. `None` sets no limit.
    fn new(output: Output, message_count: Option<u64>) -> Printer<M> {
        Printer {
            output,
            left: message_count.unwrap_or(u64::MAX),
            unfinished: Vec::new(),
        }
    }

    /// Returns true if the number of messages is reached.
    fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Returns true if the collected messages are many enough to be written now.
    fn is_full(&self) -> bool {
        self.unfinished.len() >= WRITE_MESSAGES_MAX || self.output.size() >= WRITE_BYTES_MAX
    }

    /// Adds a message.
    fn add(&mut self, received: &Received<'_>, message: M) {
        debug_assert!(!self.is_done(), "the caller looks first");
        self.output.add(received);
        self.left -= 1;
        self.unfinished.push(message);
    }

    /// Takes the collected messages for a write, and returns their number. The messages are unfinished until
    /// [`Printer::written`].
    fn take(&mut self) -> (Output, usize) {
        (self.output.take(), self.unfinished.len())
    }

    /// Returns the oldest `count` messages, which were written.
    fn written(&mut self, count: usize) -> impl Iterator<Item = M> + use<'_, M> {
        self.unfinished.drain(..count)
    }

    /// Returns the messages that were not written.
    fn into_unfinished(self) -> Vec<M> {
        self.unfinished
    }
}

/// The place for messages, with the messages that are collected for the next write.
#[derive(Debug, PartialEq, Eq)]
enum Output {
    /// Standard output gets a line for each message.
    Lines {
        /// True if the topic stands in front of each message.
        prints_topic: bool,
        lines: Vec<u8>,
    },
    /// A directory gets a file for each message.
    Files {
        directory: Arc<Path>,
        files: Vec<MessageFile>,
    },
}

impl Output {
    /// Returns an output of lines, with the topic in front if `prints_topic`.
    fn lines(prints_topic: bool) -> Output {
        let lines = Vec::new();
        Output::Lines {
            prints_topic,
            lines,
        }
    }

    /// Returns an output of files in this directory.
    fn files(directory: impl Into<Arc<Path>>) -> Output {
        Output::Files {
            directory: directory.into(),
            files: Vec::new(),
        }
    }

    /// Adds a message. A line is the body as it is, and a line feed.
    fn add(&mut self, message: &Received<'_>) {
        match self {
            Output::Lines {
                prints_topic,
                lines,
            } => {
                if *prints_topic {
                    lines.extend_from_slice(message.topic.as_bytes());
                    lines.extend_from_slice(b" | ");
                }
                lines.extend_from_slice(message.body);
                lines.push(b'\n');
            }
            Output::Files { files, .. } => files.push(MessageFile {
                name: name(message.topic, message.published, message.id),
                body: message.body.clone(),
            }),
        }
    }

    /// Returns the number of bytes that are collected.
    fn size(&self) -> usize {
        match self {
            Output::Lines { lines, .. } => lines.len(),
            Output::Files { files, .. } => files.iter().map(|file| file.body.len()).sum(),
        }
    }

    /// Takes the collected messages out, for a write.
    fn take(&mut self) -> Output {
        let empty = match self {
            Output::Lines { prints_topic, .. } => Output::lines(*prints_topic),
            Output::Files { directory, .. } => Output::files(Arc::clone(directory)),
        };
        std::mem::replace(self, empty)
    }

    /// Writes the collected messages, whose number is `count`. Blocks while nobody reads stdout, or until the files are
    /// synced. Returns the number of messages that were written as a whole, the oldest first, and the reason for the user
    /// why the others were not.
    fn write(self, count: usize) -> (usize, Result<(), String>) {
        match self {
            Output::Lines { lines, .. } => match print(&lines) {
                Ok(()) => (count, Ok(())),
                Err(error) => {
                    let why = wire::go_error::system_text(&error);
                    let failure = format!("ERROR: failed to write to os.Stdout - {why}");
                    (0, Err(failure))
                }
            },
            Output::Files { directory, files } => save(&directory, &files),
        }
    }
}

/// A message, as nsqd sent it.
#[derive(Clone, Copy, Debug)]
struct Received<'a> {
    topic: &'a str,
    body: &'a Bytes,
    published: SystemTime,
    id: MessageId,
}

/// A message that becomes a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MessageFile {
    /// The name of the file: topic, time and id.
    name: String,
    body: Bytes,
}

/// Returns the name of a message's file: `clicks-1795253285000000000-0d1c2b3a49586776`. The names of a topic sort by the time
/// of the publish, in nanoseconds since 1970 with 19 digits, which are enough until 2286.
///
/// A topic that begins with a dot or a hyphen follows an underscore, because shells hide such names, and programs read them
/// as flags. nsqd's ids are hexadecimal; other bytes are escaped as in a URL, so no id leads to another directory.
fn name(topic: &str, published: SystemTime, id: MessageId) -> String {
    let mark = if topic.starts_with(['.', '-']) {
        "_"
    } else {
        ""
    };
    let time = published.duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = percent_encode(id.as_bytes(), NON_ALPHANUMERIC);
    format!("{mark}{topic}-{:019}-{id}", time.as_nanos())
}

/// Makes a file in the directory, removes the file, and syncs the directory.
///
/// # Errors
/// The directory is missing, takes no files, or cannot be read and so cannot be synced.
fn check(path: &Path) -> Result<(), String> {
    let checked = Directory::open(path).and_then(|directory| {
        let (temporary, _) = directory.temporary_file(OsStr::new("nsq_tail"), FILE_MODE)?;
        directory.remove_file(&temporary)?;
        directory.sync()
    });
    checked.map_err(|source| failure("make a file in", path, &source))
}

/// Makes the files, in order. Returns how many survive a power failure now, under their names, and why there are no more.
///
/// The directory is opened once. So a directory that gets the path meanwhile is not synced in the place of the one that has
/// the files.
fn save(path: &Path, files: &[MessageFile]) -> (usize, Result<(), String>) {
    let directory = match Directory::open(path) {
        Ok(directory) => directory,
        Err(source) => return (0, Err(failure("open", path, &source))),
    };
    let mut count = 0;
    let mut result = Ok(());
    for file in files {
        if let Err(source) = save_one(&directory, OsStr::new(&file.name), &file.body) {
            result = Err(failure("write", &path.join(&file.name), &source));
            break;
        }
        count += 1;
    }
    match directory.sync() {
        Ok(()) => (count, result),
        Err(source) => (0, Err(failure("sync", path, &source))),
    }
}

/// Writes and syncs a file under a temporary name, and renames the file. A message that has its file already needs no room.
fn save_one(directory: &Directory, name: &OsStr, body: &[u8]) -> io::Result<()> {
    if has_content(directory, name, body) {
        return Ok(());
    }
    let (temporary, file) = directory.temporary_file(name, FILE_MODE)?;
    let done = write(file, body).and_then(|()| rename(directory, &temporary, name, body));
    if done.is_err() {
        // A full disk gets its space back. The error of the write is the reason that counts.
        let _ = directory.remove_file(&temporary);
    }
    done
}

fn write(mut file: File, body: &[u8]) -> io::Result<()> {
    file.write_all(body)?;
    file.sync_all()
}

/// Gives a file its name. If there is a file of this name with the same content, then the message came before, and its FIN
/// was lost: the old file stays alone. A file with other content is that of another nsqd, and the new one gets a number.
fn rename(directory: &Directory, temporary: &OsStr, name: &OsStr, body: &[u8]) -> io::Result<()> {
    let mut target = name.to_owned();
    for number in 1_u32.. {
        match directory.rename_new(temporary, &target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            renamed => return renamed,
        }
        if has_content(directory, &target, body) {
            return directory.remove_file(temporary);
        }
        target = name.to_owned();
        target.push(format!("-{number}"));
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns true if there is a file with this content. What cannot be read, or is no file, has another content.
fn has_content(directory: &Directory, name: &OsStr, body: &[u8]) -> bool {
    let Ok(Some(mut file)) = directory.open_regular_file(name) else {
        return false;
    };
    let is_as_long = file
        .metadata()
        .is_ok_and(|found| found.len() == body.len() as u64);
    let mut content = Vec::with_capacity(body.len());
    is_as_long && file.read_to_end(&mut content).is_ok() && content == body
}

/// Returns the failure of a file or of its directory. The text says what to do.
fn failure(verb: &str, path: &Path, source: &io::Error) -> String {
    let why = wire::go_error::system_text(source);
    let advice = match source.kind() {
        io::ErrorKind::NotFound => "make the directory",
        _ => advice(source).unwrap_or("look at the disk"),
    };
    format!(
        "ERROR: cannot {verb} {}: {why}; {advice}, or choose another directory (--output-dir). Messages without a file are \
         not finished, and come again",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::time::{Duration, UNIX_EPOCH};

    use program::Exit;

    use super::*;
    use crate::flags::tests::{check_exits, words};
    use bytes::Bytes;
    use ringq_client::MessageId;
    use test_support::tmpfs::Tmpfs;

    fn read(args: Vec<OsString>) -> Result<Config, Exit> {
        flags::read(&NSQ_TAIL, args, Config::new)
    }

    /// A command line that is right.
    const GOOD: &str = "-topic=events -nsqd-tcp-address=127.0.0.1:4150";

    fn config(args: &str) -> Config {
        read(words(&format!("{GOOD} {args}"))).unwrap()
    }

    #[test]
    fn each_wrong_value_has_its_message() {
        check_exits(
            &NSQ_TAIL,
            read,
            GOOD,
            r#"
         | 1 | --nsqd-tcp-address or --lookupd-http-address required
        -lookupd-http-address=a:1 -nsqd-tcp-address=127.0.0.1:4150 | 1 | use --nsqd-tcp-address or --lookupd-http-address not both
        -nsqd-tcp-address=127.0.0.1:4150 | 1 | --topic required
        + -max-in-flight=0 | 1 | --max-in-flight should be positive
        + -max-in-flight=-1 | 1 | --max-in-flight should be positive
        + -n=-1 | 1 | --n must not be negative; 0 sets no limit
        + -output-dir= | 1 | --output-dir has no value: write the name of a directory, or leave the flag out
        + -output-dir=d -print-topic | 1 | --print-topic has no use with --output-dir: the name of each file begins with the topic
        + -consumer-opt=heartbeat_interval,70s | 1 | HeartbeatInterval 1m10s must be less than ReadTimeout 1m0s
        + -consumer-opt=bogus,1 | 2 | invalid value "bogus,1" for flag -consumer-opt: invalid option bogus
        + -n=x | 2 | invalid value "x" for flag -n: parse error
        + -max-in-flight=x | 2 | invalid value "x" for flag -max-in-flight: parse error
        + -print-topic=x | 2 | invalid boolean value "x" for -print-topic: parse error
        "#,
        );
    }

    #[test]
    fn a_channel_is_invented_for_each_run() {
        let channel = config("").channel;
        let number = channel
            .strip_prefix("tail")
            .and_then(|rest| rest.strip_suffix("#ephemeral"));
        let number = number.unwrap();
        assert!(
            number.len() == 6 && number.parse::<u32>().is_ok(),
            "{number}"
        );
        assert_eq!(config("-channel=c").channel, "c");
    }

    #[test]
    fn a_small_number_of_messages_limits_those_in_flight() {
        for (args, count, max_in_flight) in [
            ("", None, 200),
            ("-n=3", Some(3), 3),
            ("-n=0x200", Some(512), 200),
            ("-n=0", None, 200),
            ("-n=5 -max-in-flight=2", Some(5), 2),
            // The flag counts more than the option.
            ("-consumer-opt=max_in_flight,7", None, 200),
        ] {
            let config = config(args);
            let client = &config.consumer.client;
            assert_eq!(
                (config.message_count, client.max_in_flight),
                (count, max_in_flight),
                "{args}"
            );
        }
    }

    #[test]
    fn topics_are_distinct() {
        let found = config("-topic=a -topic=events -print-topic");
        assert_eq!(found.topics, ["events", "a"]);
        assert!(found.prints_topic && found.output_dir.is_none());
        let found = config("-output-dir=a/b");
        assert_eq!(found.output_dir, Some("a/b".into()));
        assert_eq!(found.consumer.client.max_attempts, 0);
        let found = config("-consumer-opt=max_attempts,3 -output-dir=d");
        assert_eq!(found.consumer.client.max_attempts, 3);
        let agent = found.consumer.client.user_agent;
        assert!(agent.starts_with("nsq_tail/1.3.0 ringq-client/"), "{agent}");
    }

    /// Returns a message as nsqd sent it.
    fn received<'a>(topic: &'a str, body: &'a Bytes) -> Received<'a> {
        Received {
            topic,
            body,
            published: UNIX_EPOCH,
            id: ID,
        }
    }

    fn add(printer: &mut Printer<i32>, length: usize, message: i32) {
        let body = Bytes::from(vec![b'x'; length]);
        printer.add(&received("t", &body), message);
    }

    #[test]
    fn messages_are_finished_after_one_write() {
        let mut printer = Printer::new(Output::lines(true), Some(4));
        for message in 1..=3 {
            add(&mut printer, 1, message);
        }
        assert!(!printer.is_done());
        add(&mut printer, 1, 4);
        assert!(printer.is_done() && !printer.is_full());
        let (output, count) = printer.take();
        assert_eq!((output.size(), count), (24, 4));
        let finished: Vec<i32> = printer.written(4).collect();
        assert_eq!(finished, [1, 2, 3, 4]);
        let (output, count) = printer.take();
        assert_eq!((output.size(), count), (0, 0));
    }

    #[test]
    fn without_a_limit_the_messages_are_written_when_there_are_many() {
        let mut printer = Printer::new(Output::lines(false), None);
        add(&mut printer, WRITE_BYTES_MAX - 2, 1);
        assert!(!printer.is_full());
        add(&mut printer, 0, 2);
        assert!(printer.is_full() && !printer.is_done());

        let mut printer = Printer::new(Output::files(std::path::Path::new("d")), None);
        for message in 1..WRITE_MESSAGES_MAX as i32 {
            add(&mut printer, 1, message);
        }
        assert!(!printer.is_full());
        add(&mut printer, 1, 0);
        assert!(printer.is_full());
    }

    #[test]
    fn messages_that_were_not_written_are_not_finished() {
        let mut printer = Printer::new(Output::lines(false), None);
        for message in 1..=3 {
            add(&mut printer, 4, message);
        }
        assert_eq!(printer.take().1, 3);
        assert_eq!(printer.written(1).collect::<Vec<_>>(), [1]);
        assert_eq!(printer.into_unfinished(), [2, 3]);
    }

    /// Adds messages of these topics.
    fn add_all(output: &mut Output, messages: &[(&str, &'static [u8])]) {
        for (topic, body) in messages {
            output.add(&received(topic, &Bytes::from_static(body)));
        }
    }

    #[test]
    fn lines_are_taken_as_a_whole() {
        let mut output = Output::lines(true);
        add_all(
            &mut output,
            &[("a", b"one\ntwo"), ("b", b""), ("a", b"\xff")],
        );
        assert_eq!(output.size(), 23);
        let expected = Output::Lines {
            prints_topic: true,
            lines: b"a | one\ntwo\nb | \na | \xff\n".to_vec(),
        };
        assert_eq!(output.take(), expected);
        assert_eq!(output, Output::lines(true));

        let mut output = Output::lines(false);
        add_all(&mut output, &[("a", b"one")]);
        assert!(matches!(output.take(), Output::Lines { lines, .. } if lines == b"one\n"));
    }

    const ID: MessageId = MessageId(*b"0d1c2b3a49586776");

    fn file(name: &str, body: &'static str) -> MessageFile {
        MessageFile {
            name: name.to_owned(),
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    /// Returns the files of a directory, with those whose names are hidden.
    fn texts(directory: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(directory).unwrap();
        let texts = entries.map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        });
        texts.collect()
    }

    fn expect(directory: &Path, expected: &[(&str, &str)]) {
        let found = texts(directory);
        let found: Vec<_> = found
            .iter()
            .map(|(name, text)| (&**name, &**text))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn names_sort_by_time_and_are_safe() {
        let at = |ns| UNIX_EPOCH + Duration::from_nanos(ns);
        let named = |topic, ns| name(topic, at(ns), ID);
        let usual = named("clicks", 1_795_253_285_000_000_001);
        assert_eq!(usual, "clicks-1795253285000000001-0d1c2b3a49586776");
        assert!(named("t", 999_999_999) < named("t", 1_000_000_000));
        // The longest name is far below the 255 bytes of file systems.
        let longest = format!("{}#ephemeral", "t".repeat(54));
        assert!(named(&longest, u64::MAX).len() < 128);
        for (topic, start) in [(".", "_.-0"), ("..", "_..-0"), ("-rf", "_-rf-0")] {
            assert!(named(topic, 1).starts_with(start), "{}", named(topic, 1));
        }
        let hostile = name("t", at(1), MessageId(*b"/../../etc/\0pass"));
        test_support::assert_like(&hostile, "…-%2F%2E%2E%2F%2E%2E%2Fetc%2F%00pass");
        // A clock before 1970.
        let early = name("t", UNIX_EPOCH - Duration::from_secs(1), ID);
        assert_eq!(early, "t-0000000000000000000-0d1c2b3a49586776");
    }

    #[test]
    fn a_message_that_comes_again_has_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        for body in ["one", "one", "two", "six", "two"] {
            let (count, result) = save(directory, &[file("a", body)]);
            assert!(count == 1 && result.is_ok());
        }
        // The same name from other nsqds, which is very improbable.
        expect(directory, &[("a", "one"), ("a-1", "two"), ("a-2", "six")]);
    }

    #[test]
    fn the_files_before_a_failure_count() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let files = [file("a", "1"), file("missing/b", "2"), file("c", "3")];
        let (count, result) = save(directory, &files);
        let text = result.unwrap_err();
        let expected = format!(
            "ERROR: cannot write {}/missing/b: no such file or directory; make the directory, or choose another directory \
         (--output-dir). Messages without a file are not finished, and come again",
            directory.display()
        );
        assert_eq!((count, text), (1, expected));
        expect(directory, &[("a", "1")]);
        let (count, result) = save(&directory.join("none"), &[]);
        assert!(count == 0 && result.unwrap_err().starts_with("ERROR: cannot open "));
    }

    #[test]
    fn a_message_that_has_its_file_needs_no_room() {
        let Some(small) = Tmpfs::mount("64k") else {
            return;
        };
        let files = [file("a", "one")];
        assert_eq!(save(&small.path(), &files).0, 1);
        let filler = small.fill("filler");
        let (count, result) = save(&small.path(), &files);
        assert!(count == 1 && result.is_ok(), "{result:?}");
        fs::remove_file(filler).unwrap();
        expect(&small.path(), &[("a", "one")]);
    }

    #[test]
    fn whatever_has_the_name_of_a_message_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::create_dir(&path).unwrap();
        // A body of the same length as the directory.
        let body = "x".repeat(fs::metadata(&path).unwrap().len() as usize);
        let files = [MessageFile {
            name: "a".to_owned(),
            body: Bytes::from(body.clone()),
        }];
        let (count, result) = save(directory.path(), &files);
        assert!(count == 1 && result.is_ok(), "{result:?}");
        assert!(path.is_dir());
        let saved = fs::read_to_string(directory.path().join("a-1")).unwrap();
        assert_eq!(saved, body);
    }
}
