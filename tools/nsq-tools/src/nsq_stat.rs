//! `nsq_stat`: prints the statistics of one channel, summed over the cluster, a line per interval.
//!
//! ```text
//!   nsqlookupd ─/lookup─► nodes ─/stats─► Poller ─Figures─► Table ─► a line
//! ```
//!
//! The original ends if any address does not answer. This tool ends if no address answers. A node
//! that does not answer counts with its last figures, so the rates of the other nodes stay right, and
//! a warning names the node. If no node that answers has the channel, the tool waits for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::process::{self, ExitCode};
use std::thread;
use std::time::Duration;

use nsq_http::{ChannelStats, NodeInfo, Stats};
use program::log::{self, Level, Style};
use program::stop::StopSignals;
use program::{Options, Program, flag, log_fatal, log_warn, thread_refused, version};

use crate::cluster::{
    self, Answer, Cluster, Failure, NSQD_HTTP_ADDRESS, QueryError, QueryTimeouts,
};
use crate::flags::{self, Refusal, Sources};
use crate::process::print;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let read = |options: &Options| Ok((options.log_style_of_tool(), Config::new(options)?));
    let (style, config) = match flags::read(&NSQ_STAT, args, read) {
        Ok(read) => read,
        Err(exit) => return exit.print(),
    };
    if let Err(why) = start(style) {
        return NSQ_STAT.failed(&format!("ERROR: {why}")).print();
    }
    let result = poll(&config);
    log::flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log_fatal!("ERROR: {why}");
            ExitCode::from(1)
        }
    }
}

/// Takes the signals over, and starts the log.
fn start(style: Style) -> Result<(), String> {
    let signals = StopSignals::catch_with_hangup();
    let signals = signals.map_err(|error| format!("cannot receive signals - {error}"))?;
    thread::spawn(move || {
        // The tool holds nothing that an end at once would damage.
        signals.wait(|| process::exit(0), |_| true);
        process::exit(0);
    });
    log::init_tool(Level::Info, style).map_err(|error| thread_refused("the log's thread", &error))
}

/// Polls and prints until `--count` lines are printed. The error is the reason for the user.
fn poll(config: &Config) -> Result<(), String> {
    let mut poller = Poller::new(config);
    let mut table = Table::new(config.flags.interval);
    loop {
        let poll = poller.poll()?;
        for warning in &poll.warnings {
            log_warn!("{warning}");
        }
        if let Some(figures) = poll.figures {
            print(table.rows(figures).as_bytes())
                .map_err(|error| format!("failed to write to standard output - {error}"))?;
        }
        thread::sleep(config.flags.interval);
        // The first poll has no line.
        if config.count.is_some_and(|count| table.polls == count + 1) {
            return Ok(());
        }
    }
}

program::flags! {
    /// The values of the flags.
    #[derive(Clone, Debug)]
    struct Flags {
        = flag::VERSION;
        topic: String = flags::new("topic", "", "NSQ topic");
        channel: String = flags::new("channel", "", "NSQ channel");
        interval: Duration = flags::new("interval", "2s", "time between polls, and between lines");
        count: i64 = flags::new("count", "0", "number of lines to print; without the flag, nsq_stat prints until a signal ends it").checked_by(is_decimal_of_32_bits);
        = NSQD_HTTP_ADDRESS;
        = flags::LOOKUPD_HTTP_ADDRESS;
        timeouts: QueryTimeouts;
    }
    own {
        = flags::LOG_FORMAT;
    }
}

/// `nsq_stat`, as its command line shows it.
pub static NSQ_STAT: Program = Program::of::<Flags>("nsq_stat", version::of_tool);

/// The values of the flags, checked.
#[derive(Clone, Debug)]
struct Config {
    flags: Flags,
    /// The number of lines, at least 1. `None` means no limit.
    count: Option<u64>,
    sources: Sources,
}

impl Config {
    fn new(options: &Options) -> Result<Config, Refusal> {
        let flags: Flags = options.read()?;
        if flags.topic.is_empty() || flags.channel.is_empty() {
            return Err("--topic and --channel are required".into());
        }
        flags::check_positive("interval", flags.interval)?;
        flags.timeouts.check_positive()?;
        let count = options.is_given("count").then_some(flags.count);
        if count.is_some_and(|count| count <= 0) {
            return Err("--count should be positive".into());
        }
        let sources = cluster::sources(options)?;
        Ok(Config {
            flags,
            count: count.and_then(|count| u64::try_from(count).ok()),
            sources,
        })
    }
}

/// Refuses what the original refuses: this flag is decimal, unlike other integers.
fn is_decimal_of_32_bits(text: &str) -> Result<(), String> {
    let refused = |why| Err(format!("strconv.ParseInt: parsing {text:?}: {why}"));
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return refused("invalid syntax");
    }
    match text.parse::<i32>() {
        Ok(_) => Ok(()),
        Err(_) => refused("value out of range"),
    }
}

/// The figures of one poll.
#[derive(Debug)]
struct Poll {
    /// `None` while only addresses that do not answer can have the channel.
    figures: Option<Figures>,
    /// The addresses that have stopped answering since the last poll, or answer again.
    warnings: Vec<String>,
}

/// Asks for the figures, and remembers what it last heard of each node.
#[derive(Debug)]
struct Poller<'a> {
    cluster: Cluster,
    config: &'a Config,
    memory: Memory,
}

/// The result of the last poll.
#[derive(Debug, Default)]
struct Memory {
    /// The nodes, each with its last figures. A node without the channel has none.
    nodes: BTreeMap<String, Option<ChannelStats>>,
    /// The addresses that did not answer.
    silent: BTreeSet<String>,
    /// True if the last poll found the channel nowhere. Its warning has been given.
    is_waiting: bool,
}

impl<'a> Poller<'a> {
    fn new(config: &'a Config) -> Poller<'a> {
        Poller {
            cluster: Cluster::new(config.flags.timeouts),
            config,
            memory: Memory::default(),
        }
    }

    /// Asks for the figures. The error is the reason for the user.
    fn poll(&mut self) -> Result<Poll, String> {
        let Flags { topic, channel, .. } = &self.config.flags;
        let found = self.cluster.nodes_of_topic(&self.config.sources, topic);
        let found = without_topic(found)
            .map_err(|error| format!("failed to get topic producers - {error}"))?;
        let mut nodes: BTreeSet<String> = found.data.iter().map(NodeInfo::http_address).collect();
        if !found.failures.is_empty() {
            nodes.extend(self.memory.nodes.keys().cloned());
        }
        let nodes: Vec<String> = nodes.into_iter().collect();
        let mut stats = Answer::default();
        if !nodes.is_empty() || found.failures.is_empty() {
            stats = self
                .cluster
                .stats(&nodes, topic, channel, false)
                .map_err(|error| format!("failed to get nsqd stats - {error}"))?;
        }
        let answered = stats.data.iter().map(|(address, stats)| {
            let channel = channel_of(stats, topic, channel);
            (address.clone(), channel.cloned())
        });
        let answered = answered.collect();
        let mut warnings = self
            .memory
            .update(&nodes, answered, &found.failures, &stats.failures);
        let mut figures = None;
        for figures_of_node in self.memory.nodes.values().flatten() {
            let figures = figures.get_or_insert_with(Figures::default);
            figures.add(figures_of_node);
        }
        let was_waiting = std::mem::replace(&mut self.memory.is_waiting, figures.is_none());
        if figures.is_none() {
            let missing =
                format!("failed to find channel({channel}) in stats metadata for topic({topic})");
            if found.failures.is_empty() && stats.failures.is_empty() {
                return Err(missing);
            }
            if !was_waiting {
                warnings.push(format!(
                    "{missing}; waiting for the addresses that do not answer"
                ));
            }
        }
        Ok(Poll { figures, warnings })
    }
}

/// Takes the nsqlookupds that do not know the topic for answers. nsqlookupd answers a question for an unknown topic with an
/// error. If none knows the topic and all have answered, this stays an error.
fn without_topic(
    found: Result<Answer<Vec<NodeInfo>>, QueryError>,
) -> Result<Answer<Vec<NodeInfo>>, QueryError> {
    let is_silent = |failure: &Failure| !failure.why.contains("TOPIC_NOT_FOUND");
    let mut found = found.or_else(|error| {
        let silent = error.failures.iter().filter(|it| is_silent(it)).count();
        if silent == 0 || silent == error.failures.len() {
            return Err(error);
        }
        Ok(Answer {
            data: Vec::new(),
            failures: error.failures,
        })
    })?;
    found.failures.retain(is_silent);
    Ok(found)
}

impl Memory {
    /// Takes what a poll has found. `nodes` are all nodes with the topic, and `answered` those that
    /// have answered. Returns the warnings.
    fn update(
        &mut self,
        nodes: &[String],
        mut answered: BTreeMap<String, Option<ChannelStats>>,
        silent_sources: &[Failure],
        silent_nodes: &[Failure],
    ) -> Vec<String> {
        let mut last = std::mem::take(&mut self.nodes);
        for node in nodes {
            let channel = match answered.remove(node) {
                Some(channel) => channel,
                None => last.remove(node).flatten(),
            };
            self.nodes.insert(node.clone(), channel);
        }
        let mut silent = BTreeMap::new();
        for Failure { address, why } in silent_sources {
            let text = format!("{address} does not answer - {why}");
            silent.insert(address.clone(), text);
        }
        for Failure { address, why } in silent_nodes {
            let text = format!("nsqd {address} does not answer, its last figures count - {why}");
            silent.insert(address.clone(), text);
        }
        let mut again = std::mem::take(&mut self.silent);
        self.silent = silent.keys().cloned().collect();
        silent.retain(|address, _| !again.remove(address));
        let again = again
            .iter()
            .map(|address| format!("{address} answers again"));
        silent.into_values().chain(again).collect()
    }
}

/// Returns the figures of the channel in the statistics of one node.
fn channel_of<'a>(stats: &'a Stats, topic: &str, channel: &str) -> Option<&'a ChannelStats> {
    let topics = stats
        .topics
        .iter()
        .filter(|known| known.topic_name == topic);
    topics
        .flat_map(|topic| &topic.channels)
        .find(|known| known.channel_name == channel)
}

/// Polls from one heading to the next. The first poll prints no line of its own.
const HEADING_POLLS: u64 = 25;

const HEADING: &str = "\
------rate------+----------------depth----------------+--------------metadata---------------
ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients
";

/// The figures of a channel, summed over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    depth: i64,
    backend_depth: i64,
    in_flight: i64,
    deferred: i64,
    requeues: i64,
    timeouts: i64,
    messages: i64,
    clients: i64,
}

/// The output so far: which poll comes next, and the figures of the last one.
#[derive(Debug)]
struct Table {
    interval: Duration,
    polls: u64,
    last: Option<Figures>,
}

impl Figures {
    /// Adds the figures of a node.
    fn add(&mut self, channel: &ChannelStats) {
        self.depth += channel.depth;
        self.backend_depth += channel.backend_depth;
        self.in_flight += channel.in_flight_count;
        self.deferred += channel.deferred_count;
        self.requeues += channel.requeue_count;
        self.timeouts += channel.timeout_count;
        self.messages += channel.message_count;
        self.clients += channel.count_clients();
    }
}

impl Table {
    fn new(interval: Duration) -> Table {
        Table {
            interval,
            polls: 0,
            last: None,
        }
    }

    /// Returns the output for the figures of the next poll. Those of the first poll are only compared with.
    fn rows(&mut self, now: Figures) -> String {
        let mut text = String::new();
        if self.polls.is_multiple_of(HEADING_POLLS) {
            text += HEADING;
        }
        self.polls += 1;
        if let Some(last) = self.last.replace(now) {
            let arrived = now.messages - last.messages;
            let left = arrived - (now.depth - last.depth);
            text += &format!(
                "{:>7} {:>7} | {:>7} {:>7} {:>7} {:>5} {:>5} | {:>7} {:>7} {:>12} {:>7}\n",
                self.rate(arrived),
                self.rate(left),
                now.depth,
                now.depth - now.backend_depth,
                now.backend_depth,
                now.in_flight,
                now.deferred,
                now.requeues,
                now.timeouts,
                now.messages,
                now.clients
            );
        }
        text
    }

    /// Returns a rate per second. Like the original, divides by the interval and not by the time that
    /// has passed, and rounds toward zero.
    fn rate(&self, count: i64) -> i64 {
        (count as f64 / self.interval.as_secs_f64()) as i64
    }
}

#[cfg(test)]
mod tests {

    use program::Exit;

    use super::*;
    use crate::flags::tests::{check_exits, words};

    fn read(args: Vec<OsString>) -> Result<Config, Exit> {
        flags::read(&NSQ_STAT, args, Config::new)
    }

    #[test]
    fn flags_become_values() {
        let args = "-topic t --channel=c --count=007 --interval 1.5s --lookupd-http-address=a:1 \
                --lookupd-http-address=b:2 --http-client-connect-timeout=1s";
        let config = read(words(args)).unwrap();
        assert_eq!((&*config.flags.topic, &*config.flags.channel), ("t", "c"));
        assert_eq!(
            (config.count, config.flags.interval),
            (Some(7), Duration::from_millis(1500))
        );
        let lookupds = ["a:1", "b:2"].map(str::to_owned).to_vec();
        assert_eq!(config.sources, Sources::Lookupds(lookupds));
        assert_eq!(config.flags.timeouts.connect, Duration::from_secs(1));
        assert_eq!(config.flags.timeouts.request, Duration::from_secs(5));
        let config = read(words("-topic=t -channel=c -nsqd-http-address=n:1")).unwrap();
        assert_eq!(
            (config.count, config.flags.interval),
            (None, Duration::from_secs(2))
        );
        assert_eq!(config.sources, Sources::Nsqds(vec!["n:1".to_owned()]));
    }

    /// The texts and codes of the original. Behind those of single flags, each command line has one more mistake removed.
    #[test]
    fn mistakes_are_found_in_the_originals_order() {
        check_exits(
            &NSQ_STAT,
            read,
            "--topic=t --channel=c",
            r#"
        -count=0x5 | 2 | invalid value "0x5" for flag -count: strconv.ParseInt: parsing "0x5": invalid syntax
        -count=1_0 | 2 | invalid value "1_0" for flag -count: strconv.ParseInt: parsing "1_0": invalid syntax
        -count= | 2 | invalid value "" for flag -count: strconv.ParseInt: parsing "": invalid syntax
        -count=2147483648 | 2 | invalid value "2147483648" for flag -count: strconv.ParseInt: parsing "2147483648": value out of range
        -interval=2 | 2 | invalid value "2" for flag -interval: parse error
        -http-client-connect-timeout=x | 2 | invalid value "x" for flag -http-client-connect-timeout: parse error
        -http-client-request-timeout=1 | 2 | invalid value "1" for flag -http-client-request-timeout: parse error
        --channel= --topic= --interval=0 --http-client-connect-timeout=0 --http-client-request-timeout=-1s --count=0 | 1 | --topic and --channel are required
        --channel=c --topic= --interval=0 --http-client-connect-timeout=0 --http-client-request-timeout=-1s --count=0 | 1 | --topic and --channel are required
        + --interval=0 --http-client-connect-timeout=0 --http-client-request-timeout=-1s --count=0 | 1 | --interval should be positive
        + --http-client-connect-timeout=0 --http-client-request-timeout=-1s --count=0 | 1 | --http-client-connect-timeout should be positive
        + --http-client-request-timeout=-1s --count=0 | 1 | --http-client-request-timeout should be positive
        + --count=0 | 1 | --count should be positive
        + | 1 | --nsqd-http-address or --lookupd-http-address required
        + --nsqd-http-address=http://a:1 --lookupd-http-address=http://a:1 | 1 | use --nsqd-http-address or --lookupd-http-address not both
        + --nsqd-http-address=http://a:1 | 1 | --nsqd-http-address error - address should not contain scheme
        + --lookupd-http-address=http://a:1 | 1 | --lookupd-http-address error - address should not contain scheme
        "#,
        );
    }

    fn failure(address: &str) -> Failure {
        Failure {
            address: address.to_owned(),
            why: "refused".to_owned(),
        }
    }

    fn with_depth(depth: i64) -> Option<ChannelStats> {
        Some(ChannelStats {
            depth,
            ..Default::default()
        })
    }

    #[test]
    fn a_silent_node_keeps_its_last_figures_and_is_named_once() {
        let (a, b) = ("a:1".to_owned(), "b:1".to_owned());
        let nodes = [a.clone(), b.clone()];
        let depths = |memory: &Memory| -> Vec<Option<i64>> {
            let channels = memory.nodes.values();
            channels
                .map(|channel| Some(channel.as_ref()?.depth))
                .collect()
        };
        let mut memory = Memory::default();
        let both = BTreeMap::from([(a.clone(), with_depth(1)), (b.clone(), with_depth(2))]);
        assert_eq!(memory.update(&nodes, both, &[], &[]), [""; 0]);
        for warnings in [
            &["nsqd b:1 does not answer, its last figures count - refused"][..],
            &[],
        ] {
            let one = BTreeMap::from([(a.clone(), with_depth(5))]);
            assert_eq!(memory.update(&nodes, one, &[], &[failure("b:1")]), warnings);
            assert_eq!(depths(&memory), [Some(5), Some(2)]);
        }
        let both = BTreeMap::from([(a.clone(), with_depth(6)), (b.clone(), None)]);
        let warnings = memory.update(&nodes, both, &[failure("l:1")], &[]);
        assert_eq!(
            warnings,
            ["l:1 does not answer - refused", "b:1 answers again"]
        );
        assert_eq!(depths(&memory), [Some(6), None]);
        // A node that has left the cluster no longer counts.
        let one = BTreeMap::from([(b.clone(), with_depth(3))]);
        assert_eq!(
            memory.update(&nodes[1..], one, &[], &[]),
            ["l:1 answers again"]
        );
        assert_eq!(depths(&memory), [Some(3)]);
    }

    fn figures(messages: i64, depth: i64) -> Figures {
        Figures {
            depth,
            messages,
            ..Default::default()
        }
    }

    /// The lines are those that the original printed for the same figures.
    #[test]
    fn lines_are_the_originals() {
        let mut table = Table::new(Duration::from_millis(500));
        let first = table.rows(figures(1, 1));
        let heading = "\
------rate------+----------------depth----------------+--------------metadata---------------
ingress  egress |   total     mem    disk inflt   def |     req     t-o         msgs clients
";
        assert_eq!(first, heading);
        assert_eq!(
            table.rows(figures(11, 6)),
            "     20      10 |       6       6       0     0     0 |       0       0           11       0\n"
        );
        // A restarted nsqd begins again at 0.
        let all = Figures {
            depth: 12_345_678,
            backend_depth: 12_000_000,
            in_flight: 100_000,
            deferred: 3,
            requeues: 4,
            timeouts: 5,
            messages: 0,
            clients: 7,
        };
        assert_eq!(
            table.rows(all),
            "    -22 -24691366 | 12345678  345678 12000000 100000     3 |       4       5            0       7\n"
        );
    }

    #[test]
    fn rates_are_rounded_toward_zero() {
        let mut table = Table::new(Duration::from_secs(3));
        table.rows(figures(10, 0));
        let line = table.rows(figures(15, 0));
        assert!(line.starts_with("      1       1 |"), "{line}");
        let line = table.rows(figures(10, 0));
        assert!(line.starts_with("     -1      -1 |"), "{line}");
    }

    #[test]
    fn the_heading_comes_with_every_25th_poll() {
        let mut table = Table::new(Duration::from_secs(1));
        let mut with_heading = Vec::new();
        for poll in 0..60 {
            if table.rows(figures(poll, 0)).starts_with(HEADING) {
                with_heading.push(poll);
            }
        }
        assert_eq!(with_heading, [0, 25, 50]);
    }
}
