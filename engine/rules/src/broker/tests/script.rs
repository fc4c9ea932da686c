//! A session as text: commands in, frames out, with a keeper that answers at once.
//!
//! ```text
//! a: SUB t ch         the client "a" sends a line; it is connected when it is first named
//! a: PUB t | x        ... with a size and a body; MPUB takes several: | x,y
//! a: FIN #x           ... the id of the message whose body is x
//! a: FIN #x; RDY 2    ... several commands that arrive together
//! a! PUB t\n\0\0      raw bytes
//! a connects          ... or earlier, and sends nothing yet
//! a eof / gone / stuck    ends its input / is disconnected / reads nothing from now on
//! a takes 10          ... but these bytes of its output; `a reads` ends it
//! a takes 10 at close ... when it is closed by the broker
//! a takes 10 at deadline  ... when its write deadline has passed
//! a< OK               what it gets; a message is its body and its attempts: x (1), y (1)
//! a: PUB t | x => OK  ... and gets `OK` at once
//! stats t => depth 0  ... and what a line shows; figures that are 0 are left out, except for the first one
//! +500ms => a< x (1)  ... and what comes of any other line
//! a consumes t ch 9   SUB, its `OK`, and RDY 9
//! a is 7f             IDENTIFY with this publisher's id, and its answer
//! a closed            the broker closed it
//! a: PUB => E_INVALID..; closed   ... behind its last answer
//! ---                 a new broker; what stands behind it is a comment
//! +500ms              time passes, timers fire one by one
//! pause t, unpause t/ch, empty t/ch, delete t, create t/ch, stats t, where t/ch, health, restart,
//! oldest t, oldest t/ch  the age of the oldest message that is not finished
//! pause t/ch for 10s note x by x  a pause with terms
//! empty t/ch for 10s  the messages are kept for an undo
//! unempty t/ch, undo t/ch  the undo is used or shown
//! pauses t, pauses t/ch  whether it is paused, and the terms of the pause
//! dead t/ch           the dead letters of a channel
//! dedup t             the messages that a topic has recognised
//! keys t              ... by their content
//! stop                a graceful stop, until everything is on the disk
//! power lost 3        ... and of what was not synced, what seed 3 says is there; no nsqd.dat
//! drain on, drain off publishes are refused, or taken again
//! errors              the repeated lines of the log since the last such line
//! owed                what a drain waits for, and the topics and channels that come (+) or go (-) at the nsqlookupds
//! channels t a,b      the channels that the topic t asked for
//! unasked t a,b       ... and not every nsqlookupd has answered
//! grant a 60s t c sp  the auth server's answer for a: topic and channel pattern, permissions
//! grant a 60s         ... that it may do nothing
//! auth fails a        ... that there is none
//! disk full, disk free, sync fails, open fails (once, before a sync), rename fails (once)
//! save dies           the process ends before the next file of saved numbers is synced; a restart must follow
//! segment fails       the next segment cannot be made, although the disk has room
//! no descriptors 10s  no sync of the only topic can open its files
//! spoil first         flips a bit of these bytes in each segment on the disk that has them
//! restart spoils first    ... before the start
//! reclaim             the kernel drops clean pages; those that it could not write are read from the disk
//! reclaim early       ... from now on before each answer of the keeper
//! ```
//!
//! [`check`] carries out what is input and writes down what comes of it: the result must be the
//! script itself.

use crate::stats::{ChannelStats, StatsFilter, TopicStats};
use crate::{
    Act, AdminError, Authorization, Broker, BrokerOptions, ClientId, GraceOptions, Grants, Now,
    Outcome, Output, RestoredKeys, SavedKeys, Sent, TaskId, TopicKey,
};
use diskq::{Files, Keeper, Logs, Recovered, Request};
use diskq_sim::{Call, Crash, SimFiles};
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{ErrorKind, IoSlice};
use std::path::Path;
use std::time::Duration;
use wire::encode::{FrameDecoded, decode_frame};
use wire::frame::{FrameType, Message};
use wire::name::{ChannelName, TopicName};

const DATA_PATH: &str = "/data";

/// More timers than this for one step of time: something spins.
const TIMERS_MAX: u32 = 10_000;

/// [`options`], and nsqlookupds that are asked for the channels of new topics. A topic's grace is 60 s.
pub(super) fn with_grace() -> BrokerOptions {
    let mut options = options();
    options.asks_for_channels = true;
    options.topic.grace = GraceOptions {
        period: Duration::from_secs(60),
        bytes_max: 1 << 20,
    };
    options
}

/// One shard with nsqd's defaults.
pub(super) fn options() -> BrokerOptions {
    BrokerOptions::default()
}

/// Changes options.
pub(super) fn changed(
    mut options: BrokerOptions,
    change: impl FnOnce(&mut BrokerOptions),
) -> BrokerOptions {
    change(&mut options);
    options
}

#[track_caller]
pub(super) fn check(script: &str) {
    check_with(options(), script);
}

/// Runs a script; what happens must be what it says.
#[track_caller]
pub(super) fn check_with(options: BrokerOptions, script: &str) {
    for script in format!("---\n{script}").split("\n---") {
        let (_comment, script) = script.split_once('\n').expect("a line");
        Session::new(options.clone()).check(script);
    }
}

/// The answer to an IDENTIFY with a publisher's id.
const AGREED: &str = "{\"max_rdy_count\":2500,\"version\":\"1.3.0\",\"max_msg_timeout\":900000,\"msg_timeout\":60000,\"tls_v1\":false,\"deflate\":false,\"deflate_level\":6,\"max_deflate_level\":6,\"snappy\":false,\"sample_rate\":0,\"auth_required\":false,\"output_buffer_size\":16384,\"output_buffer_timeout\":250,\"topology_region\":\"\",\"topology_zone\":\"\",\"publisher_id\":true}";

/// Writes out the short forms of a script.
fn written_out(script: &str) -> String {
    let lines = script.trim_start().lines().map(|line| {
        if let Some(line) = line.strip_suffix("; closed") {
            let before = line.split_once("< ").map_or(line, |(before, _)| before);
            let name = before
                .split([':', '!'])
                .next()
                .and_then(|it| it.split(' ').next_back());
            return written_out(line) + name.expect("split yields a part") + " closed\n";
        }
        if let Some((act, event)) = line.split_once(" => ") {
            let client = act
                .split([':', '!'])
                .next()
                .filter(|name| !name.contains(' '));
            let event = match client {
                _ if event.contains("< ") || event.ends_with(" closed") => each_message(event),
                Some(name) if name != act => each_message(&format!("{name}< {event}")),
                _ => format!("= {event}\n"),
            };
            return written_out(act) + &event;
        }
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            [name, "consumes", topic, channel, ready] => {
                format!("{name}: SUB {topic} {channel}\n{name}< OK\n{name}: RDY {ready}\n")
            }
            [name, "is", id] => format!(
                "{name}: IDENTIFY | {{\"feature_negotiation\":true,\"publisher_id\":\"{id}\"}}\n\
                 {name}< {AGREED}\n"
            ),
            _ => each_message(line),
        }
    });
    lines.collect()
}

/// Writes a line for each message that a client gets.
fn each_message(line: &str) -> String {
    let next = match line.split_once("< ") {
        Some((name, _)) => format!(")\n{name}< "),
        None => "), ".to_owned(),
    };
    line.replace("), ", &next) + "\n"
}

/// The topic, and the channel if one is named: `t/ch`.
fn parts(what: &str) -> (&str, Option<&str>) {
    match what.split_once('/') {
        Some((topic, channel)) => (topic, Some(channel)),
        None => (what, None),
    }
}

/// Writes figures. Those that are 0 are left out, except for the first one.
fn figures(all: &[(&str, u64)]) -> String {
    let first = |at: usize| at == 0;
    let shown = all
        .iter()
        .enumerate()
        .filter(|(at, (_, count))| first(*at) || *count > 0);
    let shown = shown.map(|(_, (name, count))| format!("{name} {count}"));
    shown.collect::<Vec<_>>().join(", ")
}

#[derive(Default)]
struct TestClient {
    id: Option<ClientId>,
    input: Vec<u8>,
    received: Vec<u8>,
    is_stuck: bool,
    takes_at_close: usize,
    takes_at_deadline: usize,
    is_upgrading: bool,
}

pub(super) struct Session {
    options: BrokerOptions,
    pub(super) broker: Broker,
    pub(super) files: SimFiles,
    pub(super) now: Now,
    peers: BTreeMap<String, TestClient>,
    /// Ids of messages by their bodies.
    ids: BTreeMap<String, String>,
    /// The repeated lines of the log since the last `errors`.
    errors: Vec<String>,
    /// Topics that asked for channels.
    asking: BTreeMap<String, TopicKey>,
    /// Clients for whom an auth server is to be asked.
    asked_for: BTreeMap<String, ClientId>,
    /// The kernel reclaims pages before the broker learns what the keeper did.
    reclaims_early: bool,
    /// The process ends before the next file of saved numbers is synced.
    dies_in_save: bool,
    pub(super) transcript: String,
}

impl Session {
    pub(super) fn new(options: BrokerOptions) -> Session {
        Session {
            broker: Broker::new(options.clone()),
            options,
            files: SimFiles::new(),
            now: Now {
                mono: Duration::ZERO,
                wall_ns: 1_800_000_000_000_000_000,
            },
            peers: BTreeMap::new(),
            ids: BTreeMap::new(),
            errors: Vec::new(),
            asking: BTreeMap::new(),
            asked_for: BTreeMap::new(),
            reclaims_early: false,
            dies_in_save: false,
            transcript: String::new(),
        }
    }

    pub(super) fn broker(&mut self) -> (&mut Broker, Now) {
        (&mut self.broker, self.now)
    }

    /// Returns the bytes that a client has sent and the broker has not carried out, and those of the answers that have
    /// not left.
    pub(super) fn backlog(&self, name: &str) -> (usize, usize) {
        let peer = &self.peers[name];
        let client = peer.id.and_then(|id| self.broker.clients.get(id));
        (
            peer.input.len(),
            client.expect("connected").output.answer_bytes(),
        )
    }

    /// Returns what the decoder remembers of a client's unfinished command, as text.
    pub(super) fn remembered(&self, name: &str) -> String {
        let client = self.peers[name]
            .id
            .and_then(|id| self.broker.clients.get(id));
        format!("{:?}", client.expect("connected").session.decoder)
    }

    /// Returns the events so far.
    pub(super) fn transcript(&self) -> &str {
        &self.transcript
    }

    /// Carries out a script. What happens must be what the script says.
    #[track_caller]
    pub(super) fn check(&mut self, script: &str) {
        let (script, before) = (written_out(script), self.transcript.len());
        self.play(&script);
        let got = &self.transcript[before..];
        assert!(got == script, "expected\n{script}\ngot\n{got}");
    }

    /// Carries out a script, whatever happens.
    pub(super) fn play(&mut self, script: &str) {
        for line in written_out(script).lines() {
            self.act(line);
            self.broker.check();
        }
    }

    pub(super) fn act(&mut self, line: &str) {
        let happens = ["< ", " upgrades to "];
        if happens.iter().any(|what| line.contains(what))
            || line.ends_with(" closed")
            || line.starts_with("= ")
        {
            return;
        }
        self.transcript.push_str(line);
        self.transcript.push('\n');
        if let Some((name, commands)) = line.split_once(": ") {
            let commands = commands.split("; ").flat_map(|text| self.command(text));
            let commands: Vec<u8> = commands.collect();
            return self.send(name, b"  V2", &commands);
        }
        if let Some((name, raw)) = line.split_once("! ") {
            return self.send(name, b"  V2", &unescape(raw));
        }
        if let Some(step) = line.strip_prefix('+') {
            return self.pass(duration(step));
        }
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["raw", bytes] => self.send("raw", b"", bytes.as_bytes()),
            ["stats", what] => self.show_stats(what),
            ["oldest", what] => self.show_oldest(what),
            ["dead", what] => self.show_dead_letters(what),
            ["dedup", what] => self.show_numbers(what),
            ["keys", what] => self.show_keys(what),
            ["where", what] => self.show_localities(what),
            ["health"] => self.show_health(),
            ["drain", state] => self.drain(state == "on"),
            ["owed"] => self.show_owed(),
            ["errors"] => self.show_errors(),
            ["restart"] => self.restart(Crash::Process, &[]),
            ["restart", "spoils", ref bytes @ ..] => self.restart(Crash::Process, bytes),
            ["power", "lost", seed] => {
                let seed = seed.parse().expect("a number");
                self.restart(Crash::Power { seed }, &[]);
            }
            ["disk", "full"] => self.files.limit(Some(self.files.bytes())),
            ["save", "dies"] => self.dies_in_save = true,
            ["segment", "fails"] => self.files.fail_next(Call::Allocate, ErrorKind::OutOfMemory),
            ["sync", "fails"] => self.files.fail_next(Call::Sync, ErrorKind::Other),
            ["rename", "fails"] => self.files.fail_next(Call::Rename, ErrorKind::OutOfMemory),
            ["open", "fails"] => self.files.fail_next(Call::Open, ErrorKind::OutOfMemory),
            ["no", "descriptors", time] => self.lack_descriptors(duration(time)),
            ["stop"] => self.stop(),
            ["spoil", bytes] => self.spoil(bytes.as_bytes()),
            ["reclaim"] => self.reclaim(),
            ["reclaim", "early"] => self.reclaims_early = true,
            ["disk", "free"] => self.files.limit(None),
            [name, "connects"] => self.send(name, b"", b""),
            [name, "eof"] => {
                let peer = self.peers.get(name).expect("connected");
                let (id, rest) = (peer.id.expect("open"), peer.input.clone());
                let mut out = Vec::new();
                self.broker.finish_input(id, &rest, &mut out);
                self.run_until_idle(out);
            }
            [name, "gone"] => {
                let id = self
                    .peers
                    .remove(name)
                    .and_then(|peer| peer.id)
                    .expect("open");
                let mut out = Vec::new();
                self.broker.disconnect(id, &mut out);
                self.run_until_idle(out);
            }
            [name, "upgraded"] => {
                let peer = self.peers.get_mut(name).expect("connected");
                peer.is_upgrading = false;
                let id = peer.id.expect("open");
                let mut out = Vec::new();
                self.broker.upgraded(self.now, id, None, &mut out);
                self.run_until_idle(out);
            }
            ["grant", name, ttl, ref rest @ ..] => {
                let authorization = |rest: &[&str]| Authorization {
                    topic: Regex::new(rest[0]).expect("a pattern"),
                    channels: vec![Regex::new(rest[1]).expect("a pattern")],
                    may_subscribe: rest[2].contains('s'),
                    may_publish: rest[2].contains('p'),
                };
                let grants = Grants {
                    ttl: duration(ttl),
                    identity: "<me>".to_owned(),
                    identity_url: "url".to_owned(),
                    authorizations: rest.chunks(3).map(authorization).collect(),
                };
                self.authorize(name, Ok(grants));
            }
            ["auth", "fails", name] => self.authorize(name, Err("no such luck".to_owned())),
            [answer @ ("channels" | "unasked"), topic, ref channels @ ..] => {
                let channels = channels.iter().flat_map(|channels| channels.split(','));
                let channels: Vec<_> = channels.collect();
                self.answer_question(topic, &channels, answer == "channels");
            }
            [name, "takes", bytes] => self.take(name, number(bytes)),
            [name, "takes", bytes, "at", "close"] => {
                self.peers.get_mut(name).expect("connected").takes_at_close = number(bytes);
            }
            [name, "takes", bytes, "at", "deadline"] => {
                self.peers
                    .get_mut(name)
                    .expect("connected")
                    .takes_at_deadline = number(bytes);
            }
            [name, "reads"] => {
                let peer = self.peers.get_mut(name).expect("connected");
                peer.is_stuck = false;
                let id = peer.id.expect("open");
                let mut out = Vec::new();
                self.flush(id, &mut out);
                self.run_until_idle(out);
            }
            [name, "stuck"] => self.peers.get_mut(name).expect("connected").is_stuck = true,
            ["empty", what, "for", time] => self.empty_for(what, time),
            ["unempty", what] => self.unempty(what),
            ["undo", what] => self.show_undo(what),
            ["pauses", what] => self.show_pause(what),
            ["pause", what, ref terms @ ..] => self.pause(what, terms),
            ["unpause", what] => self.set_pause(what, None),
            ["clock", "back", time] => self.set_clock_back(time),
            [verb, what] => self.operate(verb, what),
            _ => panic!("not a line of a script: {line}"),
        }
    }

    /// A command's bytes.
    fn command(&self, text: &str) -> Vec<u8> {
        let (line, body) = match text.split_once(" | ") {
            Some((line, body)) => (line, Some(body)),
            None => (text, None),
        };
        let words: Vec<&str> = line
            .split(' ')
            .map(|word| match word.strip_prefix('#') {
                Some(body) => self.ids[body].as_str(),
                None => word,
            })
            .collect();
        let mut bytes = words.join(" ").into_bytes();
        bytes.push(b'\n');
        let sized = |body: &str| [&(body.len() as u32).to_be_bytes()[..], body.as_bytes()].concat();
        match body {
            Some(bodies) if line.starts_with("MPUB") => {
                let bodies: Vec<&str> = bodies.split(',').collect();
                let all: Vec<u8> = bodies.iter().flat_map(|body| sized(body)).collect();
                bytes.extend((all.len() as u32 + 4).to_be_bytes());
                bytes.extend((bodies.len() as u32).to_be_bytes());
                bytes.extend(all);
            }
            Some(body) => bytes.extend(sized(body)),
            None => {}
        }
        bytes
    }

    fn send(&mut self, name: &str, magic: &[u8], bytes: &[u8]) {
        if !self.peers.contains_key(name) {
            let id = self
                .broker
                .connect(self.now, "10.0.0.1:5".to_owned(), "10.0.0.1".to_owned());
            let peer = TestClient {
                id: Some(id),
                input: magic.to_vec(),
                ..TestClient::default()
            };
            self.peers.insert(name.to_owned(), peer);
        }
        self.peers
            .get_mut(name)
            .expect("just made")
            .input
            .extend_from_slice(bytes);
        let mut out = Vec::new();
        self.offer(name.to_owned(), &mut out);
        self.run_until_idle(out);
    }

    fn offer(&mut self, name: String, out: &mut Vec<Output>) {
        let peer = self.peers.get_mut(&name).expect("connected");
        let Some(id) = peer.id else { return };
        loop {
            let consumed = self.broker.receive(self.now, id, &peer.input, out);
            peer.input.drain(..consumed);
            if !self.broker.has_more(id, peer.input.len()) {
                return;
            }
        }
    }

    /// Flips a bit in the segments of all topics that have these bytes. A segment in memory brings its bytes back.
    fn spoil(&self, wanted: &[u8]) {
        let path = Path::new(DATA_PATH);
        let logs = Logs::list(&self.files, path).expect("the disk lists");
        let mut count = 0;
        for topic in logs.topics {
            let log = path.join(format!("{topic}.log"));
            for entry in self.files.list(&log).expect("the disk lists") {
                let file = log.join(&entry.name);
                let mut bytes = vec![0; entry.bytes as usize];
                let read = self.files.read_at(&file, 0, &mut bytes);
                read.expect("the disk reads");
                let at = bytes.windows(wanted.len()).position(|it| it == wanted);
                if let Some(at) = at.filter(|_| entry.name.ends_with(".segment")) {
                    self.files.damage(&file, at, 1);
                    count += 1;
                }
            }
        }
        assert!(count > 0, "no segment has these bytes");
    }

    /// The kernel drops clean pages under the live mappings.
    fn reclaim(&mut self) {
        for key in self.broker.by_name.values() {
            let topic = self.broker.topics.get_mut(*key).expect("listed");
            let data_path = Path::new(DATA_PATH);
            self.files
                .reclaim_under(data_path, &topic.name, &mut topic.log);
        }
    }

    /// A peer that is stuck takes some of its output, and does not look at it.
    fn take(&mut self, name: &str, bytes: usize) {
        let id = self.peers[name].id.expect("open");
        let mut out = Vec::new();
        self.broker.sent(self.now, id, bytes, &mut out);
        self.run_until_idle(out);
    }

    fn pass(&mut self, step: Duration) {
        let end = self.now.mono + step;
        for _ in 0..TIMERS_MAX {
            let next = self.broker.next_timeout().filter(|at| *at <= end);
            let at = next.unwrap_or(end).max(self.now.mono);
            self.now.wall_ns += (at - self.now.mono).as_nanos() as u64;
            self.now.mono = at;
            if next.is_none() {
                return;
            }
            let mut out = Vec::new();
            self.broker.handle_timeout(self.now, &mut out);
            self.run_until_idle(out);
        }
        panic!("a timer spins at {:?}", self.now.mono);
    }

    fn name_of(&self, id: ClientId) -> Option<String> {
        let found = self.peers.iter().find(|(_, peer)| peer.id == Some(id));
        found.map(|(name, _)| name.clone())
    }

    /// Performs outputs and turns until nothing is left to do.
    pub(super) fn run_until_idle(&mut self, mut out: Vec<Output>) {
        loop {
            self.broker.end_turn(self.now, &mut out);
            let mut to_flush = Vec::new();
            self.broker.take_clients_to_flush(&mut to_flush);
            for id in to_flush {
                self.flush(id, &mut out);
            }
            if out.is_empty() && !self.broker.is_turn_open() {
                return;
            }
            for output in std::mem::take(&mut out) {
                self.perform(output, &mut out);
            }
        }
    }

    fn perform(&mut self, output: Output, out: &mut Vec<Output>) {
        match output {
            Output::Close(id) => self.close(id, out),
            Output::Resume(id) => {
                if let Some(name) = self.name_of(id) {
                    self.offer(name, out);
                }
            }
            Output::Upgrade(id, upgrade) => {
                if let Some(name) = self.name_of(id) {
                    self.peers.get_mut(&name).expect("open").is_upgrading = true;
                    let line = format!("{name} upgrades to {upgrade}\n");
                    self.transcript.push_str(&line);
                    self.broker.upgrade_begins(self.now, id);
                }
            }
            Output::WriteExpired(id) => {
                if let Some(name) = self.name_of(id) {
                    let peer = self.peers.get_mut(&name).expect("open");
                    let takes = std::mem::take(&mut peer.takes_at_deadline);
                    self.broker.sent(self.now, id, takes, out);
                    self.broker.write_expired(self.now, id, out);
                }
            }
            Output::UpgradeExpired(id) => {
                if let Some(name) = self.name_of(id) {
                    assert!(
                        self.peers[&name].is_upgrading,
                        "no upgrade waits for {name}"
                    );
                    self.broker.upgrade_failed(id, "i/o timeout", out);
                }
            }
            Output::Expired(id) => {
                if let Some(name) = self.name_of(id) {
                    let rest = self.peers[&name].input.clone();
                    self.broker.finish_input(id, &rest, out);
                }
            }
            Output::Keeper(key, topic, request) => {
                for (name, log) in self.broker.logs() {
                    self.files.observe(Path::new(DATA_PATH), name, log);
                }
                if self.dies_in_save && matches!(request, Request::WriteState(_)) {
                    // The head, the body, and then the sync.
                    self.dies_in_save = false;
                    self.files.die_at(3);
                }
                self.files.set_clock(self.now.wall_ns);
                let reply = Keeper::new(self.files.clone(), DATA_PATH).handle(&topic, request);
                if self.reclaims_early {
                    self.reclaim();
                }
                if let Some(reply) = reply {
                    self.broker.handle_reply(self.now, key, reply, out);
                }
            }
            Output::DeleteLog(deleted) => {
                let keeper = Keeper::new(self.files.clone(), DATA_PATH);
                let deletion = keeper.delete_topic(&deleted.topic);
                let tombstone = deletion.expect("the disk renames");
                keeper.bury(&tombstone).expect("the disk removes");
            }
            Output::Free(memory) => Keeper::new(self.files.clone(), DATA_PATH).free(memory),
            Output::Move(..) => unreachable!("there is one shard"),
            Output::AskForChannels(key, topic) | Output::AskAgain(key, topic) => {
                self.asking.insert(topic.to_string(), key);
            }
            Output::Authorize(id, query) => {
                let asked = (&*query.secret, &*query.remote_ip);
                assert_eq!(asked, (&b"hush"[..], "10.0.0.1"));
                let name = self.name_of(id).expect("connected");
                self.asked_for.insert(name, id);
            }
            Output::Wake(..) | Output::MetadataChanged | Output::Changed(_) | Output::Log(..) => {}
            Output::Repeated { line, .. } => self.errors.push(line),
        }
    }

    fn close(&mut self, id: ClientId, out: &mut Vec<Output>) {
        if let Some(name) = self.name_of(id) {
            let peer = self.peers.remove(&name).expect("found");
            self.broker.sent(self.now, id, peer.takes_at_close, out);
            writeln!(self.transcript, "{name} closed").expect("a String takes all");
            self.broker.disconnect(id, out);
        }
    }

    fn flush(&mut self, id: ClientId, out: &mut Vec<Output>) {
        let Some(name) = self.name_of(id) else { return };
        let mut received = std::mem::take(&mut self.peers.get_mut(&name).expect("open").received);
        let sent = loop {
            let mut slices = [IoSlice::new(&[]); 4];
            let count = self.broker.output(id, &mut slices);
            let bytes: Vec<u8> = slices[..count]
                .iter()
                .flat_map(|slice| slice.to_vec())
                .collect();
            if self.peers[&name].is_stuck && !bytes.is_empty() {
                break self.broker.sent(self.now, id, 0, out);
            }
            received.extend_from_slice(&bytes);
            match self.broker.sent(self.now, id, bytes.len(), out) {
                Sent::More => {}
                sent => break sent,
            }
        };
        let mut at = 0;
        while let FrameDecoded::Frame {
            kind,
            data,
            consumed,
        } = decode_frame(&received[at..])
        {
            at += consumed;
            self.show_frame(&name, kind, data);
        }
        self.peers.get_mut(&name).expect("open").received = received.split_off(at);
        if sent == Sent::Over {
            self.close(id, out);
        }
    }

    fn show_frame(&mut self, name: &str, kind: FrameType, data: &[u8]) {
        let text = match kind {
            FrameType::Message => {
                let message = Message::parse(data).expect("a whole message");
                let body = String::from_utf8_lossy(message.body).into_owned();
                let text = format!("{body} ({})", message.attempts);
                self.ids.insert(body, message.id.to_string());
                text
            }
            FrameType::Response | FrameType::Error => {
                let mut text = String::from_utf8_lossy(data).into_owned();
                for (body, id) in &self.ids {
                    text = text.replace(id, &format!("#{body}"));
                }
                text
            }
        };
        writeln!(self.transcript, "{name}< {text}").expect("a String takes all");
    }

    /// Carries out an operator's act on a topic, or on a channel: `topic/channel`.
    pub(super) fn administer(&mut self, what: &str, act: &Act) -> Result<Outcome, AdminError> {
        let (topic, channel) = parts(what);
        let topic = TopicName::new(topic.as_bytes()).expect("a valid name");
        let channel = channel.map(|name| ChannelName::new(name.as_bytes()).expect("a valid name"));
        let (now, mut out) = (self.now, Vec::new());
        let place = (topic, channel);
        let done = self.broker.administer(now, place, act, TaskId(0), &mut out);
        self.run_until_idle(out);
        done
    }

    fn operate(&mut self, verb: &str, what: &str) {
        let act = match verb {
            "empty" => Act::Empty(None),
            "delete" => Act::Delete,
            "create" => {
                let (topic, _) = parts(what);
                let created = self.administer(topic, &Act::Create);
                created.expect("it can be created");
                Act::Create
            }
            _ => panic!("no such thing to do: {verb} {what}"),
        };
        self.administer(what, &act).expect("it is there");
    }

    fn answer_question(&mut self, topic: &str, channels: &[&str], is_complete: bool) {
        let key = self.asking.remove(topic).expect("it asked");
        let names = channels
            .iter()
            .map(|name| ChannelName::new(name.as_bytes()));
        let names: Vec<_> = names.map(|name| name.expect("a valid name")).collect();
        let mut out = Vec::new();
        let broker = &mut self.broker;
        broker.handle_channels(self.now, key, &names, is_complete, &mut out);
        self.run_until_idle(out);
    }

    fn authorize(&mut self, name: &str, answer: Result<Grants, String>) {
        let id = self.asked_for.remove(name).expect("it asked");
        let mut out = Vec::new();
        self.broker.handle_grants(self.now, id, answer, &mut out);
        self.run_until_idle(out);
    }

    /// Returns the figures of a topic, and those of its channel if `what` names one.
    pub(super) fn stats_of(&mut self, what: &str) -> (Option<TopicStats>, Option<ChannelStats>) {
        let (topic, channel) = parts(what);
        let filter = StatsFilter::default();
        let stats = self.broker.distribute_and_snapshot(self.now, &filter);
        let topic = stats.topics.into_iter().find(|t| t.topic_name == topic);
        let mut channels = topic.iter().flat_map(|t| &t.channels);
        let channel = channels.find(|c| Some(&*c.channel_name) == channel);
        let channel = channel.cloned();
        (topic, channel)
    }

    /// Returns the figures of a channel that is there.
    fn channel_stats(&mut self, what: &str) -> ChannelStats {
        self.stats_of(what).1.expect("it is there")
    }

    /// Writes what a line shows.
    pub(super) fn show(&mut self, text: &str) {
        writeln!(self.transcript, "= {text}").expect("a String takes all");
        self.run_until_idle(Vec::new());
    }

    fn show_stats(&mut self, what: &str) {
        let text = match self.stats_of(what) {
            (None, _) => "no such topic".to_owned(),
            (Some(_), None) if what.contains('/') => "no such channel".to_owned(),
            (Some(t), None) => figures(&[
                ("depth", t.depth),
                ("messages", t.message_count),
                ("bytes", t.message_bytes),
                ("dropped", t.unclaimed_dropped_count),
            ]),
            (Some(_), Some(c)) => figures(&[
                ("depth", c.depth),
                ("in flight", c.in_flight_count),
                ("deferred", c.deferred_count),
                ("messages", c.counters.message_count),
                ("requeued", c.counters.requeue_count),
                ("timed out", c.counters.timeout_count),
                ("clients", c.client_count),
            ]),
        };
        self.show(&text);
    }

    fn show_oldest(&mut self, what: &str) {
        let (topic, channel) = self.stats_of(what);
        let age = match channel {
            Some(channel) => channel.oldest_unfinished_ms,
            None => topic.expect("it is there").oldest_unfinished_ms,
        };
        self.show(&format!("{age} ms"));
    }

    fn show_dead_letters(&mut self, what: &str) {
        let text = match self.channel_stats(what).dead_letters {
            None => "no rule".to_owned(),
            Some(dead) => format!(
                "{} went to {}, {} wait",
                dead.count, dead.topic, dead.waiting_count
            ),
        };
        self.show(&text);
    }

    fn show_keys(&mut self, topic: &str) {
        let text = match self.stats_of(topic).0.and_then(|topic| topic.keys) {
            None => "no rule".to_owned(),
            Some(keys) => format!(
                "{} duplicates, {} of them unverified, {} without the key, {} keys",
                keys.duplicate_count, keys.unverified_count, keys.keyless_count, keys.key_count
            ),
        };
        self.show(&text);
    }

    fn show_numbers(&mut self, topic: &str) {
        let text = match self.stats_of(topic).0.and_then(|topic| topic.numbers) {
            None => "no rule".to_owned(),
            Some(numbers) => {
                let forgotten = match numbers.evicted_count {
                    0 => String::new(),
                    count => format!(", {count} forgotten"),
                };
                format!(
                    "{} duplicates, {} unchecked, {} publishers{forgotten}",
                    numbers.duplicate_count, numbers.unchecked_count, numbers.publisher_count
                )
            }
        };
        self.show(&text);
    }

    fn show_localities(&mut self, what: &str) {
        let channel = self.channel_stats(what);
        self.show(&format!(
            "zone {}, region {}, global {}",
            channel.counters.zone_local_msg_count,
            channel.counters.region_local_msg_count,
            channel.counters.global_msg_count
        ));
    }

    fn show_health(&mut self) {
        let health = self.broker.health().map(ToString::to_string);
        self.show(health.as_deref().unwrap_or("OK"));
    }

    fn drain(&mut self, is_draining: bool) {
        let mut out = Vec::new();
        self.broker.set_draining(is_draining, &mut out);
        self.show_changes(&out);
        self.run_until_idle(out);
    }

    fn show_owed(&mut self) {
        let mut out = Vec::new();
        let owed = self.broker.drain(self.now, &mut out);
        writeln!(self.transcript, "= {owed}").expect("a String takes all");
        self.show_changes(&out);
        self.run_until_idle(out);
    }

    fn show_errors(&mut self) {
        for line in std::mem::take(&mut self.errors) {
            writeln!(self.transcript, "= {line}").expect("a String takes all");
        }
    }

    fn show_changes(&mut self, out: &[Output]) {
        for output in out {
            if let Output::Changed(change) = output {
                let sign = if change.is_there { '+' } else { '-' };
                let channel = change.channel.as_deref().map(|name| format!("/{name}"));
                let (topic, channel) = (&change.topic, channel.unwrap_or_default());
                writeln!(self.transcript, "= {sign}{topic}{channel}").expect("a String takes all");
            }
        }
    }

    /// Lets each sync of this time fail, at its first try and at each further one.
    fn lack_descriptors(&mut self, time: Duration) {
        let end = self.now.mono + time;
        while self.now.mono < end {
            self.files.fail_next(Call::Open, ErrorKind::OutOfMemory);
            let delayed = self.delayed_syncs();
            while self.delayed_syncs() == delayed {
                assert!(self.now.mono < end + time, "no sync is due");
                self.pass(Duration::from_millis(50));
            }
        }
    }

    fn delayed_syncs(&self) -> u32 {
        self.broker.logs().map(|(_, log)| log.delayed_syncs()).sum()
    }

    fn stop(&mut self) {
        let (mut out, mut effects) = (Vec::new(), Vec::new());
        self.broker.begin_stop(&mut out);
        self.peers.clear();
        for output in out {
            if let Output::Close(id) = output {
                self.broker.disconnect(id, &mut effects);
            }
        }
        self.run_until_idle(effects);
        for _ in 0..TIMERS_MAX {
            let mut out = Vec::new();
            let is_unfinished = self.broker.drive_stop(self.now, &mut out);
            self.run_until_idle(out);
            if !is_unfinished {
                return;
            }
        }
        panic!("the stop does not end");
    }

    fn restored_keys(&self, name: TopicName<'_>, log: &Recovered) -> Option<RestoredKeys> {
        let (path, topic) = (Path::new(DATA_PATH), name.as_str());
        let file = diskq::read_topic_file(&self.files, path, topic).expect("the disk reads");
        let mut keys = self.broker.begin_keys(self.now, name)?;
        if let Some(file) = file {
            let saved = SavedKeys::decode(&file).expect("a file is whole");
            keys.load(&saved).expect("it is of the same rule");
        }
        let read = diskq::read_newest(&self.files, path, topic, log, &mut keys);
        read.expect("the disk reads");
        Some(keys)
    }

    /// The process is killed, or the machine, and started again. In the meantime, `spoiled` is damaged.
    fn restart(&mut self, crash: Crash, spoiled: &[&str]) {
        let path = Path::new(DATA_PATH);
        for (name, log) in self.broker.logs() {
            self.files.observe(path, name, log);
        }
        self.files.crash(crash);
        spoiled
            .iter()
            .for_each(|bytes| self.spoil(bytes.as_bytes()));
        self.peers.clear();
        self.now.wall_ns += 10_000_000;
        self.broker = Broker::new(self.options.clone());
        let logs = Logs::list(&self.files, path).expect("the disk lists");
        for topic in logs.topics {
            let name = TopicName::new(topic.as_bytes()).expect("a valid name");
            let options = self.options.topic.log_options(name);
            let log = diskq::open_log(&self.files, path, &topic, options, self.now.wall_ns);
            let log = log.expect("opens");
            let keys = self.restored_keys(name, &log);
            self.broker.restore(self.now, name, log, None);
            if let Some(keys) = keys {
                self.broker.restore_keys(name, keys);
            }
        }
        self.run_until_idle(Vec::new());
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}

pub(super) fn duration(text: &str) -> Duration {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().expect("a number");
    match &text[digits.len()..] {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "h" => Duration::from_secs(3600 * number),
        unit => panic!("no unit of time: {unit}"),
    }
}

/// `\n`, `\0` and `\xNN` as bytes.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b'n') => b'\n',
                Some(b'0') => 0,
                Some(b'x') => {
                    let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                    let digits = str::from_utf8(&digits).expect("two digits");
                    u8::from_str_radix(digits, 16).expect("two hexadecimal digits")
                }
                other => panic!("no such escape: {other:?}"),
            },
            byte => byte,
        });
    }
    bytes
}
