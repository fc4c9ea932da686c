//! The simulated world: shards, keepers, a disk and connections, compared with the model.
//!
//! `mod.rs` starts the world, takes the steps and checks the results. `peer.rs` has the connections,
//! `sockets.rs` their sockets and upgrades, `grants.rs` what they may do. `keepers.rs` has the jobs of
//! the keepers, `shared_sync.rs` the syncs that are done as one, `mid_turn.rs` the events in the middle
//! of a turn. `faults.rs` has the faults of disk, kernel and clock, `starved.rs` the shards without
//! turns, `stop.rs` the graceful stop, `drain.rs` the drain. `model.rs` knows the owed messages,
//! `at_risk.rs` the messages that a power failure may destroy, `promises.rs` the answers that operators
//! got, `grace.rs` the topics in grace, `unclaimed.rs` the bounds of topics without channels,
//! `dead_letters.rs` the messages that have reached their attempts, `numbers.rs` the messages that are
//! sent again, and `contents.rs` the topics that compare the contents of messages.

mod at_risk;
mod contents;
mod dead_letters;
mod drain;
mod faults;
mod grace;
mod grants;
mod keepers;
mod mid_turn;
mod model;
mod numbers;
mod peer;
mod promises;
mod shared_sync;
mod sockets;
mod starved;
mod stop;
mod unclaimed;
mod undo;

use at_risk::{AtRisk, Pass, Risk, Taken};
use dead_letters::DEAD;
use diskq::{
    DamageKind, DataPath, Keeper, LOG_SUFFIX, LogOptions, Logs, Reply, SharedSync, Tombstone,
    TopicFacts,
};
use diskq_sim::{Call, Crash, SimFiles};
use engine_rules::stats::StatsFilter;
use engine_rules::{
    Act, AdminError, Authorization, Broker, BrokerOptions, Change, Client, ClientId,
    DeadLetterRules, DedupRules, ForwardBatch, ForwardReply, GraceOptions, LatencyOptions, Now,
    Outcome, Output, Pause, Random, Refusal, Required, ShardId, TaskId, TopicKey, TopicOptions,
    Topology, UnclaimedBounds, Wakeup, shard_of,
};
use keepers::{Job, Thread, Work};
use mid_turn::{Event, MidTurn};
use model::{Model, Place};
use numbers::Numbers;
use peer::TestClient;
use promises::{Fact, Promises};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use wire::encode;
use wire::identify::ServerSettings;
use wire::limits::Limits;
use wire::name::{ChannelName, TopicName};

const DATA_PATH: &str = "/data";
/// The topics that clients publish to, then the dead-letter topic.
const TOPICS: [&str; 5] = ["orders", "b", "clicks", "tmp#ephemeral", "dead"];
const CHANNELS: [&str; 3] = ["bill", "ship", "x#ephemeral"];
const STEPS: u64 = 600;
const SHARDS_MAX: u64 = 3;
/// Number of steps between two checks of all invariants. A check is slow because it reads the whole
/// state.
const CHECK_EVERY: u64 = 8;

/// The notices that a set of histories reached. A set that never reached a notice proves nothing
/// about it.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    counts: BTreeMap<&'static str, u64>,
}

impl Reached {
    fn note(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Reached) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    pub(crate) fn assert_all_seen(&self) {
        for what in [
            "acknowledged",
            "delivered",
            "finished",
            "requeued",
            "requeued without an attempt",
            "touched",
            "timed out",
            "deferred",
            "redelivered",
            "moved",
            "forwarded",
            "killed",
            "power lost",
            "paused",
            "emptied",
            "emptied with an undo",
            "topic emptied with an undo",
            "channels got messages of an undo",
            "unemptied",
            "unemptied after a crash",
            "open topic emptied",
            "an operator has to wait",
            "channel deleted",
            "topic deleted",
            "room awaited",
            "disk full",
            "refused",
            "disconnected",
            "synced before OK",
            "end of input",
            "closed after answers",
            "close wait",
            "sampled",
            "sync failed",
            "sync delayed",
            "nsqd.dat was older",
            "reads on after a failed sync",
            "slow reader",
            "not read on",
            "ledger agreed",
            "ephemeral topic gone",
            "expired",
            "spilled",
            "spill failed",
            "killed before a spill",
            "peeked",
            "loaded",
            "loaded before earlier jobs",
            "urgent before earlier jobs",
            "done before earlier urgent jobs",
            "a job within a job",
            "started with channels",
            "dead letter",
            "dead letter delivered",
            "dead letter refused",
            "age agreed",
            "grace",
            "channel made in grace",
            "unclaimed messages dropped",
            "unclaimed messages within bounds",
            "asked again",
            "grace kept in a crash",
            "grace kept in a power failure",
            "deletion failed",
            "deletion worked at last",
            "memory of a deleted topic",
            "deletion failed for good",
            "killed before a deletion",
            "answer held",
            "answer held in a power failure",
            "channel taken by a power failure",
            "nsqd.dat was missing",
            "a log could not be opened",
            "synced together",
            "a shared sync failed",
            "written back",
            "a fault in a keeper",
            "write-back failed",
            "a failed write-back was forgotten",
            "killed in a job",
            "killed in a turn",
            "written back in a turn",
            "clock stepped back",
            "taken by a power failure",
            "kept in a power failure",
            "sent again",
            "sent again after a power failure",
            "duplicate",
            "numbers not saved",
            "duplicate content",
            "copy within a batch",
            "content sent again after a crash",
            "keys restored from their file",
            "stopped",
            "killed in a stop that hangs",
            "mail for a shard that stops",
            "mail for a shard that has stopped",
            "starved",
            "publishes wait for a starved shard",
            "a move waits for a starved shard",
            "a turn with an old clock",
            "grants asked again",
            "grants came too late",
            "not granted",
            "drain",
            "drained",
            "refused in a drain",
            "delivered to a near consumer",
            "delivered to a far consumer",
            "reset in the output",
            "reset with a SUB under way",
            "reset in a move",
            "half-closed with a SUB under way",
            "half-closed with an upgrade under way",
            "half-closed in a move",
            "upgrade behind other answers",
            "upgraded",
            "moved with sealed bytes",
        ] {
            assert!(self.counts.contains_key(what), "no history reached: {what}");
        }
    }
}

enum Mail {
    Keeper(TopicKey, Reply, Pass),
    Deleted(TaskId, Result<(), String>),
    Forwards(ForwardBatch),
    Replies(Vec<ForwardReply>),
    Connection(usize, Box<Client>),
    /// The answer of an auth server, which is drawn when it arrives.
    Grants(ClientId),
    /// The node's drain begins, or is taken back.
    Drain(bool),
    /// The channels for a topic that asked for them. Each bit stands for one of [`CHANNELS`]. The last bit is set if not
    /// every nsqlookupd has answered.
    Channels(TopicKey, usize, u64),
}

struct ShardWorld {
    broker: Broker,
    keeper: Keeper<SimFiles>,
    jobs: VecDeque<Job>,
    data_path: DataPath,
    /// The tombstones of deleted topics. Each stays until an nsqd.dat without its topic is written.
    tombstones: Vec<Tombstone>,
    shared_sync: SharedSync<SimFiles>,
    /// True if the shard's part of nsqd.dat is out of date.
    is_metadata_old: bool,
    inbox: VecDeque<Mail>,
    /// False if the shard's thread does nothing at the moment, or has ended.
    is_awake: bool,
    /// The time that the shard has read before it went to sleep, until it reads the clock again.
    old_clock: Option<Now>,
    /// The topics, and the channels with their topics, whose existence the broker has reported.
    told: BTreeSet<(Arc<str>, Option<Box<str>>)>,
}

pub(crate) struct World {
    random: Random,
    files: SimFiles,
    shards: Vec<ShardWorld>,
    peers: Vec<TestClient>,
    /// The connections that are over, and that the broker still has.
    leaving: Vec<(usize, ClientId)>,
    mono: Duration,
    wall_ns: u64,
    group_commit: bool,
    turn_entries: usize,
    latency: Option<LatencyOptions>,
    /// True if a new topic starts with channels that other brokers know.
    asks_for_channels: bool,
    grace: GraceOptions,
    /// Two fifths of the histories have a rule for dead letters.
    dead_letters: Arc<DeadLetterRules>,
    /// In some histories, topics without channels have bounds.
    unclaimed: UnclaimedBounds,
    /// Two fifths of the histories have a rule for messages that are sent again.
    dedup: Arc<DedupRules>,
    /// The rights that auth servers grant, an entry for each topic, in some histories.
    on_offer: Option<Vec<Authorization>>,
    /// True if shards may get no turn for a while, in some histories.
    may_starve: bool,
    /// The place of the node, in some histories.
    topology: Option<Topology>,
    /// For each shard, true if it refuses publishes because of a drain.
    is_drained: Vec<bool>,
    /// The messages whose publish was carried out while it was not permitted.
    forbidden: BTreeSet<u64>,
    /// In some histories, the first topic and its first channel always exist.
    required: Arc<Required>,
    /// True if syncs that wait at the same time are done as one. A sync of all files hides a file
    /// that a single sync forgets.
    shares_syncs: bool,
    /// True if syncs may fail in this history.
    has_faults: bool,
    /// True if a sync failed in an earlier process. After that, a sync may succeed although its
    /// pages were lost.
    had_failed_sync: bool,
    /// The number of power failures so far.
    power_failures: u32,
    /// True if a power failure, or a write that failed or was cut off, may have torn a checkpoint. A torn checkpoint
    /// stays until it is overwritten.
    may_be_torn: bool,
    /// True if reads may find wrong bits.
    may_be_flipped: bool,
    /// True if clean pages were dropped from the cache.
    was_reclaimed: bool,
    /// The lost names of logs and of their files that a process believes to be stored, because a sync reported their
    /// loss before the process started (docs/explain/reliability.md, "Known limits"). A power failure may take these
    /// logs and files.
    believed_names: BTreeSet<PathBuf>,
    /// True if the process is killed again soon: what one process left to be synced, the next one finds.
    is_killed_again: bool,
    /// True if the process is killed in this step: numbers were saved just now, or an undo was made or used.
    is_killed_soon: bool,
    mid_turn: MidTurn,
    /// True when the history is over, and everything is consumed.
    is_ending: bool,
    /// Time by which the wall clock was set back.
    set_back: Duration,
    /// The number of starts of the program.
    starts: u64,
    model: Model,
    at_risk: AtRisk,
    promises: Promises,
    /// The content of nsqd.dat on the disk. Like the shell, the world writes nsqd.dat some time
    /// after a change, and nobody waits for the write.
    metadata: BTreeMap<String, TopicFacts>,
    /// The topics that operators create and that have not started.
    creating: BTreeMap<TaskId, usize>,
    tasks: u64,
    reached: Reached,
    digest: u64,
}

fn required(seed: u64) -> Arc<Required> {
    let mut required = Required::default();
    if seed.is_multiple_of(7) {
        let added = required.add(topic_name(0), Some(channel_name(0)));
        added.expect("neither is ephemeral");
    }
    required.into()
}

/// The place of the node. In a third of the histories, near consumers come first.
fn topology(seed: u64) -> Option<Topology> {
    seed.is_multiple_of(3).then(|| Topology {
        zone: "here".to_owned(),
        region: "region".to_owned(),
    })
}

fn topic_name(topic: usize) -> TopicName<'static> {
    TopicName::new(TOPICS[topic].as_bytes()).expect("a valid name")
}

fn channel_name(channel: usize) -> ChannelName<'static> {
    ChannelName::new(CHANNELS[channel].as_bytes()).expect("a valid name")
}

/// Returns the index of a topic in the list of names.
fn place_of(topic: &str) -> usize {
    let place = TOPICS.iter().position(|name| *name == topic);
    place.expect("a topic of ours")
}

/// Returns the index of the topic that a log line names.
fn topic_of(line: &str) -> usize {
    let is_named = |name: &&str| line.contains(&format!("({name})"));
    let topic = TOPICS.iter().position(is_named);
    topic.expect("the line names its topic")
}

fn is_durable((topic, channel): Place) -> bool {
    !TOPICS[topic].ends_with("#ephemeral") && !CHANNELS[channel].ends_with("#ephemeral")
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let shards = 1 + random.below(SHARDS_MAX);
        let group_commit = random.below(3) == 0;
        let has_faults = random.below(4) == 0;
        let grace = grace::options(seed);
        let asks_for_channels = random.below(2) == 0 || !grace.period.is_zero();
        // The budget of a turn ranges from one list entry to more entries than there are.
        let turn_entries = 1 << random.below(8);
        let shares_syncs = random.below(4) == 0;
        let mut world = World {
            random,
            files: SimFiles::seeded(seed),
            shards: Vec::new(),
            peers: Vec::new(),
            leaving: Vec::new(),
            mono: Duration::ZERO,
            wall_ns: 1_800_000_000_000_000_000,
            group_commit,
            turn_entries,
            // Half of the histories measure the latency.
            latency: seed.is_multiple_of(2).then(|| LatencyOptions {
                percentiles: [0.5].into(),
                window: Duration::from_secs(60),
            }),
            asks_for_channels,
            grace,
            dead_letters: dead_letters::rules(seed),
            unclaimed: unclaimed::bounds(seed),
            dedup: numbers::rules(seed),
            on_offer: grants::on_offer(seed),
            may_starve: seed % 4 == 1,
            topology: topology(seed),
            is_drained: vec![false],
            forbidden: BTreeSet::new(),
            required: required(seed),
            shares_syncs,
            has_faults,
            had_failed_sync: false,
            power_failures: 0,
            may_be_torn: false,
            may_be_flipped: false,
            was_reclaimed: false,
            believed_names: BTreeSet::new(),
            is_killed_again: false,
            is_killed_soon: false,
            mid_turn: MidTurn::default(),
            is_ending: false,
            set_back: Duration::ZERO,
            starts: 0,
            model: Model::default(),
            at_risk: AtRisk::default(),
            promises: Promises::default(),
            metadata: BTreeMap::new(),
            creating: BTreeMap::new(),
            tasks: 0,
            reached: Reached::default(),
            digest: 0,
        };
        world.model.dead_letters.attempts_max = dead_letters::attempts_max(seed);
        world.model.numbers = Numbers::new(seed);
        world.start(shards as usize);
        world
    }

    pub(crate) fn run(mut self) -> Reached {
        self.live();
        self.reached
    }

    pub(crate) fn run_digest(mut self) -> u64 {
        self.live();
        self.digest
    }

    fn live(&mut self) {
        for step in 0..STEPS {
            self.step();
            if step % CHECK_EVERY == 0 {
                self.check();
            }
        }
        self.drain();
    }

    // --- start and stop

    fn options(&self, shard: usize, shards: usize) -> BrokerOptions {
        BrokerOptions {
            shard: ShardId(shard as u32),
            shards: shards as u32,
            limits: Limits::default(),
            server: ServerSettings {
                takes_numbers: engine_rules::has_publishers(&self.dedup),
                snappy_available: true,
                auth_required: self.on_offer.is_some(),
                ..ServerSettings::default()
            },
            topic: TopicOptions {
                log: self.log_options(),
                mem_queue_size: 50,
                group_commit: self.group_commit,
                latency: self.latency.clone(),
                grace: self.grace,
                dead_letters: self.dead_letters.clone(),
                unclaimed: unclaimed::rules(self.unclaimed),
                dedup: self.dedup.clone(),
            },
            resident_bytes: 1 << 20,
            turn_entries: self.turn_entries,
            // Small enough that letters are held now and then.
            dead_letter_bytes: self.turn_entries * 256,
            channel_consumers_max: 0,
            asks_for_channels: self.asks_for_channels,
            required: self.required.clone(),
            topology: self.topology.clone(),
            seed: 5,
        }
    }

    fn log_options(&self) -> LogOptions {
        LogOptions {
            node: 7,
            segment_bytes_min: 4096,
            segment_bytes_steady: 16 * 1024,
            segment_bytes_max: 64 * 1024,
            resident_messages: 20,
            resident_bytes_min: 32 * 1024,
            sync_every: if self.group_commit { 1 } else { 30 },
            // Each process draws its own seed: data that an earlier process left must not look valid.
            process_seed: self.starts,
            ..LogOptions::default()
        }
    }

    fn start(&mut self, shards: usize) {
        let now = self.now();
        self.starts += 1;
        self.is_drained = vec![false; shards];
        let data_path = DataPath::from(DATA_PATH);
        self.shards = (0..shards)
            .map(|shard| ShardWorld {
                broker: Broker::new(self.options(shard, shards)),
                keeper: Keeper::new(self.files.clone(), data_path.clone()),
                jobs: VecDeque::new(),
                data_path: data_path.clone(),
                tombstones: Vec::new(),
                shared_sync: Keeper::new(self.files.clone(), data_path.clone())
                    .shared_sync()
                    .expect("the data path opens"),
                is_metadata_old: false,
                inbox: VecDeque::new(),
                is_awake: true,
                old_clock: None,
                told: BTreeSet::new(),
            })
            .collect();
        let path = Path::new(DATA_PATH);
        let logs = Logs::list(&self.files, path).expect("the disk lists");
        let listed: Vec<TopicFacts> = self.metadata.values().cloned().collect();
        for (topic, listed) in logs.topics(&listed) {
            let shard = shard_of(&topic, shards as u32).0 as usize;
            if topic.ends_with("#ephemeral") {
                let deleted = self.shards[shard].keeper.delete_ephemeral(&topic);
                deleted.expect("the disk renames");
            } else {
                self.restore(&topic, listed.as_ref(), shard);
            }
        }
        for (topic, tombstone) in logs.deleted {
            let shard = shard_of(&topic, shards as u32).0 as usize;
            self.shards[shard].tombstones.push(tombstone);
        }
        for shard in 0..shards {
            self.record_metadata(shard);
            let there = self.shards[shard].broker.changes_so_far();
            self.shards[shard].told = there.into_iter().map(|c| (c.topic, c.channel)).collect();
            let mut out = Vec::new();
            self.shards[shard].broker.make_all_required(now, &mut out);
            self.perform(shard, out);
            self.turn(shard);
            let stats = self.shards[shard]
                .broker
                .distribute_and_snapshot(now, &StatsFilter::default());
            for (place, owes, received) in ledgers(&stats) {
                self.model.open_ledger(place, owes, received);
            }
        }
    }

    fn restore(&mut self, topic: &str, listed: Option<&TopicFacts>, shard: usize) {
        let now = self.now();
        let path = Path::new(DATA_PATH);
        let name = TopicName::new(topic.as_bytes()).expect("a valid name");
        let options = self
            .options(shard, self.shards.len())
            .topic
            .log_options(name);
        let is_harmed = self.random.below(8) == 0;
        if is_harmed {
            self.harm_start();
        }
        let open = || diskq::open_log(&self.files, path, topic, options.clone(), now.wall_ns);
        let recovered = open().or_else(|error| {
            assert!(is_harmed, "{error}");
            // An operator starts the program again. This time the log opens.
            self.reached.note("a log could not be opened");
            open()
        });
        let recovered = recovered.expect("opens");
        self.files.disarm();
        self.say(format_args!(
            "{topic}: found {:?}, checkpoint {:?}, damage {:?}",
            recovered.found, recovered.checkpoint, recovered.damage
        ));
        // One of the three checkpoints may be torn. Synced messages may be lost only after a failed
        // sync. A saved state on a full disk may be torn at any time.
        let is_loss = |damage: &&diskq::Damage| {
            let may_be_torn = self.may_be_torn || damage.kind == DamageKind::State;
            !damage.seqs.is_empty() || !may_be_torn
        };
        let lost: Vec<_> = recovered.damage.iter().filter(is_loss).collect();
        assert!(
            lost.is_empty() || self.had_failed_sync,
            "damage after a stop: {lost:?}"
        );
        if let Some(damage) = recovered
            .damage
            .iter()
            .find(|it| it.kind == DamageKind::State)
            && recovered.state.is_none()
        {
            self.say(format_args!("{topic}: {damage}"));
            self.model.numbers.allow_doubles(place_of(topic));
        }
        let keys = self.begin_keys(shard, name, now, &recovered);
        let broker = &mut self.shards[shard].broker;
        broker.restore(now, name, recovered, listed);
        if let Some(keys) = keys {
            broker.restore_keys(name, keys);
        }
    }

    /// Returns the durable topics and channels of all shards.
    fn durable_topics(&self) -> Vec<TopicFacts> {
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| shard.broker.durable_topics())
            .collect()
    }

    /// Kills the process or cuts its power, and starts the program again.
    fn kill(&mut self) {
        if self.model.numbers.has_copies() && self.random.below(2) == 0 {
            self.send_again_at_the_end();
        }
        if self.random.below(4) == 0 {
            self.die_in_a_job();
        }
        let jobs = self.shards.iter().flat_map(|shard| &shard.jobs);
        for job in jobs.filter(|job| job.is_fence()) {
            self.reached.note(match job.work {
                Work::Log(..) => "killed before a spill",
                Work::Delete(..) => "killed before a deletion",
            });
        }
        if self.shards.iter().any(|shard| shard.is_metadata_old) {
            self.reached.note("nsqd.dat was older");
        }
        let is_power_lost = self.random.below(2) == 0;
        self.restart(is_power_lost);
    }

    /// Starts the program again after the end of its process.
    fn restart(&mut self, is_power_lost: bool) {
        self.mid_turn = MidTurn::default();
        self.observe_all();
        // Once a checkpoint may be lost, nsqd.dat may list unanswered changes that the logs do not have.
        if !self.may_be_torn && self.random.below(4) == 0 {
            // An operator moved the file aside.
            self.reached.note("nsqd.dat was missing");
            self.metadata.clear();
        }
        let had_failed_sync = self.had_failed_sync;
        let mut taken = Taken::default();
        if is_power_lost {
            self.power_failures += 1;
            self.may_be_torn = true;
            self.reached.note("power lost");
            let seed = self.random.draw();
            self.say("power is lost");
            self.forget_believed_logs();
            self.files.crash(Crash::Power { seed });
            if had_failed_sync && self.was_reclaimed {
                // After a failed sync and a restart, a disk may report lost pages as synced. No
                // program can detect that.
                self.model.forget_promises();
            }
            taken = self.at_risk.take(&mut self.model, &mut self.promises);
            if taken.messages > 0 {
                self.reached.note("taken by a power failure");
            }
            if !self.group_commit && self.model.promised_count() > 0 {
                self.reached.note("kept in a power failure");
            }
        } else {
            self.reached.note("killed");
            self.say("killed");
            if self.was_reclaimed {
                taken = self.at_risk.take(&mut self.model, &mut self.promises);
            }
            // A shared sync of the next process does not report a loss.
            let lost = self.lost_names().into_iter();
            let believed = lost.filter(|(_, is_told)| *is_told || self.shares_syncs);
            let believed: Vec<PathBuf> = believed.map(|(path, _)| path).collect();
            self.believed_names.extend(believed);
            self.files.crash(Crash::Process);
        }
        self.had_failed_sync |= self.files.failed_syncs() > 0;
        let messages = &self.model.messages;
        let is_kept = |number: u64| {
            let message = &messages[number as usize];
            message.acknowledged && !message.is_lost || !is_power_lost
        };
        let is_trusted = !self.was_reclaimed && !self.had_failed_sync;
        let numbers = &mut self.model.numbers;
        numbers.crash(is_trusted, |number| is_trusted && is_kept(number));
        self.kill_undos(is_trusted, is_power_lost, &taken.unempties);
        self.peers.clear();
        self.leaving.clear();
        self.creating.clear();
        self.model.kill();
        self.model.revoke_deletion();
        // A new process needs a moment to start. Its seqs begin at the clock, so no seq is assigned
        // twice.
        let pause = Duration::from_millis(10 + self.random.below(3000));
        self.mono += pause;
        self.wall_ns += pause.as_nanos() as u64;
        self.at_risk.kill(self.mono, self.was_reclaimed);
        let is_trusted = !(self.was_reclaimed || is_power_lost && self.had_failed_sync);
        let graces = &mut self.model.graces;
        if graces.crash(self.mono, is_power_lost, is_trusted) {
            self.reached.note(if is_power_lost {
                "grace kept in a power failure"
            } else {
                "grace kept in a crash"
            });
        }
        let shards = 1 + self.random.below(SHARDS_MAX) as usize;
        self.is_killed_again = self.random.below(2) == 0;
        self.start(shards);
        let topics = self.durable_topics();
        let is_promised = if is_power_lost {
            !had_failed_sync
        } else {
            !self.was_reclaimed
        };
        let exists = |(topic, channel): &Place| {
            let facts = topics.iter().find(|facts| facts.name == TOPICS[*topic]);
            facts.is_some_and(|f| f.channels.iter().any(|c| c.name == CHANNELS[*channel]))
        };
        let channels = self.model.channels.iter();
        let gone: Vec<Place> = channels.filter(|place| !exists(place)).copied().collect();
        if is_promised {
            let is_sure = |place: &Place| !taken.channels.contains(place);
            let missing: Vec<Place> = gone.iter().copied().filter(is_sure).collect();
            assert_eq!(missing, [], "channels whose SUB was answered");
            for _ in 0..self.promises.check(&topics, self.mono) {
                self.reached.note(if is_power_lost && !self.group_commit {
                    "answer held in a power failure"
                } else {
                    "answer held"
                });
            }
        } else {
            // Answered changes that were not synced may be gone.
            self.promises.clear();
        }
        if !gone.is_empty() {
            self.reached.note("channel taken by a power failure");
        }
        for place in gone {
            self.model.forget_channel(place);
        }
        if !is_power_lost {
            // A channel that a kill has left is still at risk until the new process has recorded it.
            taken
                .channels
                .retain(|place| self.model.channels.contains(place));
            for place in taken.channels {
                self.put_at_risk(Risk::Channel(place), place.0);
            }
        }
    }

    /// Forgets what the logs owe that a power failure takes because a process believed their lost names.
    fn forget_believed_logs(&mut self) {
        let believed = std::mem::take(&mut self.believed_names);
        let lost = self.lost_names().into_iter();
        for (path, _) in lost.filter(|(path, _)| believed.contains(path)) {
            // The topic's log, a file in this log, or a tombstone of the topic.
            let path = path.to_string_lossy();
            let is_of = |topic: &str| path.starts_with(&format!("{DATA_PATH}/{topic}{LOG_SUFFIX}"));
            let topic = TOPICS.iter().position(|topic| is_of(topic));
            let topic = topic.expect("a log has the name of a topic");
            self.model.empty_topic(topic);
            self.lose_dead_letters(topic);
            self.reached.note("a lost name was believed");
        }
    }

    /// Returns the names in the data path and in the logs whose changes are lost, each with whether a sync has reported
    /// the loss.
    fn lost_names(&self) -> Vec<(PathBuf, bool)> {
        let data_path = Path::new(DATA_PATH);
        let logs = TOPICS.map(|topic| data_path.join(format!("{topic}{LOG_SUFFIX}")));
        let directories = std::iter::once(data_path.to_owned()).chain(logs);
        let lost = directories.flat_map(|directory| {
            let (names, is_told) = self.files.lost_names(&directory);
            let paths = names.into_iter().map(move |name| directory.join(name));
            paths.map(move |path| (path, is_told))
        });
        lost.collect()
    }

    /// Copies the mapped memories to the page cache.
    fn observe_all(&self) {
        for shard in &self.shards {
            for (topic, log) in shard.broker.logs() {
                self.files.observe(Path::new(DATA_PATH), topic, log);
            }
            self.observe_jobs(&shard.jobs);
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: self.mono,
            wall_ns: self.wall_ns,
        }
    }

    fn record_metadata(&mut self, shard: usize) {
        self.shards[shard].is_metadata_old = false;
        let shards = self.shards.len() as u32;
        self.metadata
            .retain(|name, _| shard_of(name, shards).0 as usize != shard);
        for facts in self.shards[shard].broker.durable_topics() {
            self.metadata.insert(facts.name.clone(), facts);
        }
        let ShardWorld {
            keeper,
            data_path,
            tombstones,
            ..
        } = &mut self.shards[shard];
        // The write of nsqd.dat syncs the names of the data path. Without tombstones, nothing depends on that.
        if tombstones.is_empty() || data_path.sync_names(&self.files).is_err() {
            return;
        }
        // The removal of a tombstone is retried if it fails.
        tombstones.retain(|tombstone| keeper.bury(tombstone).is_err());
    }

    // --- one step

    fn step(&mut self) {
        match self.random.below(100) {
            0..=4 => self.connect(),
            5..=27 => self.publish(),
            28..=33 => self.subscribe(),
            34..=40 => self.change_ready(),
            41..=64 => self.answer(),
            65 => self.hang_up(),
            66 => self.reset(),
            67 => self.end_input(),
            68 => self.close_wait(),
            69..=78 => self.advance(),
            79..=89 => self.work_keepers(3),
            90..=94 => self.deliver_mail(3),
            95..=97 => self.administer(),
            98 => self.fill_disk(),
            _ => match self.random.below(4) {
                0 if self.random.below(3) == 0 => self.stop(),
                0 if self.random.below(2) == 0 => self.in_a_turn(Event::Kill),
                0 => self.kill(),
                1 if self.random.below(8) == 0 => self.flood(),
                2 if self.random.below(4) == 0 => self.begin_drain(true),
                _ => self.harm(),
            },
        }
        let is_killed = self.is_killed_again && self.random.below(12) == 0;
        if (std::mem::take(&mut self.is_killed_soon) || is_killed) && !self.mid_turn.is_killed {
            self.kill();
        }
        if self.random.below(40) == 0 {
            self.starve();
        }
        self.wake_shards(false);
        self.look_at_drain();
        self.read_failures();
        self.end_leaving(false);
        self.read_slowly();
        for shard in 0..self.shards.len() {
            self.turn(shard);
            let is_alive = self.shards[shard].is_awake && !self.mid_turn.is_killed;
            if is_alive && self.shards[shard].is_metadata_old && self.random.below(40) == 0 {
                self.record_metadata(shard);
            }
        }
        self.end_kill();
        self.end_passes();
    }

    fn end_passes(&mut self) {
        let jobs = self.shards.iter().flat_map(|shard| &shard.jobs);
        let mail = self.shards.iter().flat_map(|shard| &shard.inbox);
        let answers = mail.filter_map(|mail| match mail {
            Mail::Keeper(_, _, pass) => Some(*pass),
            _ => None,
        });
        let under_way = jobs.map(|job| job.pass).chain(answers);
        let is_busy = |topic: usize| {
            let shard = shard_of(TOPICS[topic], self.shards.len() as u32).0 as usize;
            self.shards[shard].broker.is_turn_open()
        };
        let are_awake = self.awake_topics();
        self.at_risk.end_passes(under_way, is_busy, are_awake);
    }

    /// Notes that a message was acknowledged or a change was answered. A power failure may destroy
    /// it until it is synced.
    fn put_at_risk(&mut self, risk: Risk, topic: usize) {
        if !self.group_commit {
            self.at_risk.add(risk, topic, self.mono);
        }
        // A peer that reads late gets an answer that was sent before the sync failed.
        if self.model.poisoned.contains_key(&topic) {
            self.at_risk.fail(topic);
        }
    }

    fn pick_peer(&mut self, wanted: impl Fn(&TestClient) -> bool) -> Option<usize> {
        let matching: Vec<usize> = (0..self.peers.len())
            .filter(|index| !self.peers[*index].closed && wanted(&self.peers[*index]))
            .collect();
        let count = matching.len() as u64;
        (count > 0).then(|| matching[self.random.below(count) as usize])
    }

    fn advance(&mut self) {
        let step = Duration::from_millis([1, 20, 300, 2100, 30_000][self.random.below(5) as usize]);
        self.advance_by(step);
    }

    /// Lets time pass in steps. A longer step would close peers that answer heartbeats.
    fn advance_by(&mut self, mut left: Duration) {
        while !left.is_zero() {
            let step = left.min(Duration::from_secs(20));
            self.advance_once(step);
            left -= step;
        }
    }

    fn advance_once(&mut self, step: Duration) {
        self.mono += step;
        self.wall_ns += step.as_nanos() as u64;
        for shard in 0..self.shards.len() {
            if self.shards[shard].is_awake {
                let now = self.now();
                let mut out = Vec::new();
                self.shards[shard].broker.handle_timeout(now, &mut out);
                self.perform(shard, out);
            }
        }
        // Peers that are not silent send a NOP. Otherwise the read deadline closes them.
        for index in 0..self.peers.len() {
            let peer = &self.peers[index];
            if !peer.closed && peer.may_send() && !peer.is_silent {
                self.send(index, model::Action::Other, encode::nop);
                self.offer_all(index);
            }
        }
        for shard in 0..self.shards.len() {
            self.turn(shard);
        }
        let are_awake = self.awake_topics();
        self.at_risk.told_time(self.mono, are_awake);
    }

    fn administer(&mut self) {
        let topic = self.random.below(DEAD as u64) as usize;
        let channel = self.random.below(CHANNELS.len() as u64) as usize;
        let action = self.random.below(19);
        let undo = self.some_undo().filter(|_| action >= 17);
        let undo = undo.unwrap_or((topic, channel));
        let topic = undo.0;
        let topic_text = TOPICS[topic];
        let shard = shard_of(topic_text, self.shards.len() as u32).0 as usize;
        if !self.shards[shard].is_awake {
            return;
        }
        let now = self.now();
        self.tasks += 1;
        let task = TaskId(self.tasks);
        let paused = self.random.below(2) == 0;
        // Half of the pauses end by themselves.
        let length = (self.random.below(2) == 0)
            .then(|| Duration::from_millis([500, 5000, 40_000][self.random.below(3) as usize]));
        let pause = Pause {
            length,
            note: length.map_or_else(String::new, |_| "repair".to_owned()),
            ..Pause::default()
        };
        let pause = Act::Pause(paused.then_some(pause));
        let until = length.filter(|_| paused).map(|length| self.mono + length);
        let mut out = Vec::new();
        let broker = &mut self.shards[shard].broker;
        let (whole, part) = (whole(topic), names((topic, channel)));
        // "There is no such topic" is also a correct answer.
        let outcome = match action {
            14 | 15 => self.empty_for(shard, (topic, channel), task),
            16 => self.empty_topic_for(shard, topic, task),
            17.. => self.unempty(shard, undo, task),
            0 | 1 => {
                let outcome = broker.administer(now, whole, &pause, task, &mut out);
                if is_done(&outcome) {
                    self.reached.note("paused");
                    let fact = Fact::TopicIsPaused(topic);
                    self.promises.command(fact, paused, task);
                    self.promises.limit(fact, until);
                }
                outcome
            }
            2 | 3 => {
                let outcome = broker.administer(now, part, &pause, task, &mut out);
                if outcome.is_ok() {
                    let fact = Fact::ChannelIsPaused((topic, channel));
                    self.promises.command(fact, paused, task);
                    self.promises.limit(fact, until);
                }
                outcome
            }
            4 => {
                let outcome = broker.administer(now, part, &Act::Empty(None), task, &mut out);
                if is_done(&outcome) {
                    self.reached.note("emptied");
                    self.model.empty((topic, channel));
                    let stats = broker.distribute_and_snapshot(now, &StatsFilter::default());
                    for (place, owes, received) in ledgers(&stats) {
                        if place == (topic, channel) {
                            assert_eq!(owes, 0, "an emptied channel is empty");
                            self.model.open_ledger(place, owes, received);
                        }
                    }
                }
                outcome
            }
            5 => {
                let outcome = broker.administer(now, whole, &Act::Empty(None), task, &mut out);
                let stats = broker.distribute_and_snapshot(now, &StatsFilter::default());
                let mut topics = stats.topics.iter();
                let found = topics.find(|stats| stats.topic_name == topic_text);
                let is_open = found.is_some_and(|it| !it.paused && !it.channels.is_empty());
                // An open topic keeps no messages. Any other topic loses the messages that it
                // keeps, and the model does not know these. A topic that asks for channels is not
                // open before it has the answer.
                if outcome.is_ok() {
                    self.model.undos.remove_whole(topic);
                }
                if outcome.is_ok() && (!is_open || self.asks_for_channels) {
                    self.model.empty_topic(topic);
                } else if outcome.is_ok() {
                    self.reached.note("open topic emptied");
                }
                outcome
            }
            6 => {
                let outcome = broker.administer(now, part, &Act::Delete, task, &mut out);
                if outcome.is_ok() {
                    self.reached.note("channel deleted");
                    self.model.delete((topic, channel));
                    let fact = Fact::ChannelExists((topic, channel));
                    self.promises.command(fact, false, task);
                }
                outcome
            }
            7 if self.random.below(3) == 0 => {
                let outcome = broker.administer(now, whole, &Act::Delete, task, &mut out);
                if outcome.is_ok() {
                    self.reached.note("topic deleted");
                    // Publishes under way are refused, or go to a new topic of this name.
                    self.model.delete_topic(topic, task);
                    self.model.numbers.forget_topic(topic);
                    for channel in 0..CHANNELS.len() {
                        self.model.delete((topic, channel));
                    }
                    self.promises.command(Fact::TopicExists(topic), false, task);
                    if self.random.below(3) == 0 {
                        let call = [Call::Rename, Call::CreateDir][self.random.below(2) as usize];
                        self.files.fail_next(call, libc::EIO);
                    }
                }
                outcome
            }
            8 | 9 => {
                self.promises.command(Fact::TopicExists(topic), true, task);
                self.creating.insert(task, topic);
                broker.administer(now, whole, &Act::Create, task, &mut out)
            }
            _ => {
                // The channel is owed messages only after an answered SUB.
                let outcome = broker.administer(now, part, &Act::Create, task, &mut out);
                if is_done(&outcome) {
                    let fact = Fact::ChannelExists((topic, channel));
                    self.promises.command(fact, true, task);
                }
                outcome
            }
        };
        self.perform(shard, out);
        match outcome {
            Ok(Outcome::Done) => self.answer_task(shard, task, Wakeup::Done(Ok(()))),
            // The operator gives up.
            Ok(Outcome::Later) => self.reached.note("an operator has to wait"),
            Ok(Outcome::Wait) | Err(_) => {}
        }
        // Few kills come between the answer to an undo and the next checkpoint, unless they are made to.
        if action >= 14 && is_done(&outcome) && self.random.below(3) == 0 {
            self.run_until_idle();
            self.is_killed_soon = true;
        }
    }

    /// Gives an operator the answer, or repeats the operator's command like the shell.
    fn answer_task(&mut self, shard: usize, task: TaskId, wakeup: Wakeup) {
        if self.mid_turn.is_killed {
            return;
        }
        let creating = self.creating.remove(&task);
        match wakeup {
            Wakeup::Done(Ok(())) => {
                for fact in self.promises.answer(task) {
                    self.put_at_risk(Risk::Answer(fact), fact.topic());
                }
                self.model.confirm_deletion(task);
                if let Some(topic) = self.model.undos.answer(task) {
                    self.put_at_risk(Risk::Unempty(task), topic);
                }
            }
            Wakeup::Done(Err(_)) => {}
            Wakeup::Retry => {
                let Some(topic) = creating else { return };
                self.creating.insert(task, topic);
                let (now, mut out) = (self.now(), Vec::new());
                let broker = &mut self.shards[shard].broker;
                let outcome = broker.administer(now, whole(topic), &Act::Create, task, &mut out);
                self.perform(shard, out);
                if outcome == Ok(Outcome::Done) {
                    self.answer_task(shard, task, Wakeup::Done(Ok(())));
                }
            }
        }
    }

    fn fill_disk(&mut self) {
        if self.random.below(3) == 0 {
            let bytes = self.files.bytes() + self.random.below(40_000);
            self.files.limit(Some(bytes));
            self.reached.note("disk full");
        } else {
            self.files.limit(None);
        }
    }

    // --- what the broker asks for

    /// Carries out an operator's act.
    fn do_act(
        &mut self,
        shard: usize,
        place: (TopicName<'_>, Option<ChannelName<'_>>),
        act: &Act,
        task: TaskId,
    ) -> Result<Outcome, AdminError> {
        let (now, mut out) = (self.now(), Vec::new());
        let broker = &mut self.shards[shard].broker;
        let outcome = broker.administer(now, place, act, task, &mut out);
        self.perform(shard, out);
        outcome
    }

    fn perform(&mut self, shard: usize, outputs: Vec<Output>) {
        for output in outputs {
            if self.is_killed_here() {
                return;
            }
            match output {
                Output::Close(id) => {
                    if let Some(index) = self.peer_of(shard, id) {
                        self.end_later(index);
                    }
                }
                Output::Expired(id) => {
                    if let Some(index) = self.peer_of(shard, id) {
                        self.reached.note("expired");
                        self.expire(index);
                    }
                }
                Output::Move(id, to) => {
                    if let Some(index) = self.peer_of(shard, id) {
                        self.record_move(index);
                        let client = self.shards[shard].broker.detach(id).expect("it is there");
                        self.peers[index].at = None;
                        let inbox = &mut self.shards[to.0 as usize].inbox;
                        inbox.push_back(Mail::Connection(index, Box::new(client)));
                    }
                }
                Output::WriteExpired(id) => {
                    let mut out = Vec::new();
                    self.flush_into(shard, id, &mut out);
                    let now = self.now();
                    let broker = &mut self.shards[shard].broker;
                    broker.write_expired(now, id, &mut out);
                    self.perform(shard, out);
                }
                Output::Upgrade(id, _) => {
                    let mut out = Vec::new();
                    self.add_layer(shard, id, &mut out);
                    self.perform(shard, out);
                }
                Output::UpgradeExpired(_) => unreachable!("no upgrade waits for the peer"),
                Output::Resume(id) => {
                    if let Some(index) = self.peer_of(shard, id) {
                        self.reached.note("room awaited");
                        self.offer_all(index);
                    }
                }
                Output::Keeper(key, topic, request) => {
                    let jobs = &mut self.shards[shard].jobs;
                    let thread = Thread::of(&topic, &request, jobs);
                    let pass = self.at_risk.pass(place_of(&topic));
                    jobs.push_back(Job {
                        topic,
                        work: Work::Log(key, request),
                        thread,
                        pass,
                    });
                }
                Output::DeleteLog(log) => {
                    if log.is_ephemeral {
                        self.reached.note("ephemeral topic gone");
                    }
                    let index = place_of(&log.topic);
                    self.model.poisoned.remove(&index);
                    self.model.graces.end(index);
                    self.forget_answers(shard, index);
                    self.shards[shard].jobs.push_back(Job {
                        topic: log.topic.clone(),
                        work: Work::Delete(log, 0),
                        thread: Thread::Keeper,
                        pass: self.at_risk.pass(index),
                    });
                }
                Output::Free(memory) => {
                    self.reached.note("memory of a deleted topic");
                    self.shards[shard].keeper.free(memory);
                }
                Output::MetadataChanged => self.shards[shard].is_metadata_old = true,
                Output::Log(_, line) | Output::Repeated { line, .. } => self.read_log(&line),
                Output::Changed(change) => {
                    self.promises.note(&change);
                    let told = &mut self.shards[shard].told;
                    let what = (change.topic, change.channel);
                    let is_new = if change.is_there {
                        told.insert(what)
                    } else {
                        told.remove(&what)
                    };
                    // A drain may have withdrawn what goes now.
                    assert!(is_new || !change.is_there, "told twice");
                }
                Output::AskForChannels(key, topic) => {
                    let topic = place_of(&topic);
                    self.model.graces.asked(topic, key);
                    self.tell_channels(shard, key, topic);
                }
                Output::AskAgain(key, topic) => {
                    self.reached.note("asked again");
                    self.tell_channels(shard, key, place_of(&topic));
                }
                Output::Authorize(id, query) => self.authorize(shard, id, &query),
                Output::Wake(task, wakeup) => self.answer_task(shard, task, wakeup),
            }
        }
    }

    /// Has nsqlookupds answer the question of a topic.
    fn tell_channels(&mut self, shard: usize, key: TopicKey, topic: usize) {
        let has_grace = !self.grace.period.is_zero();
        let bits = CHANNELS.len() + usize::from(has_grace);
        let answer = Mail::Channels(key, topic, self.random.below(1 << bits));
        self.shards[shard].inbox.push_back(answer);
    }

    /// Notes that a topic is gone, so the answers to its jobs are dropped.
    fn forget_answers(&mut self, shard: usize, topic: usize) {
        let ShardWorld { jobs, inbox, .. } = &mut self.shards[shard];
        let answers = inbox.iter_mut().filter_map(|mail| match mail {
            Mail::Keeper(_, _, pass) => Some(pass),
            _ => None,
        });
        for pass in jobs.iter_mut().map(|job| &mut job.pass).chain(answers) {
            pass.is_deleted |= pass.topic == topic;
        }
    }

    /// Prints the notice for a reader of the history.
    fn say(&self, line: impl Display) {
        if std::env::var_os("RINGQ_SIM_LOG").is_some() {
            eprintln!("{:?} {line}", self.mono);
        }
    }

    fn read_log(&mut self, line: &str) {
        if let Some((topic, channel)) = line.split_once("): new channel(") {
            // No other notice tells that a channel comes back while a drain has its topic withdrawn.
            self.promises.note(&Change {
                topic: topic.trim_start_matches("TOPIC(").into(),
                channel: Some(channel.trim_end_matches(')').into()),
                is_there: true,
            });
        }
        self.model.undos.read_log(line);
        self.say(line);
        if line.contains("damaged on disk") {
            // Pages that a failed sync has left count as clean but are not on the device.
            let had_failed_sync = self.had_failed_sync || self.files.failed_syncs() > 0;
            let may_be_damaged = had_failed_sync || self.may_be_flipped;
            if may_be_damaged {
                self.reached.note("damage reported");
                self.model.allow_damage(topic_of(line));
                self.lose_dead_letters(topic_of(line));
            }
            // Messages that the first power failure took before their sync may count as damaged after a second one. Nobody is
            // owed them, so everything that is owed must still arrive.
            let may_be_told = may_be_damaged || self.power_failures > 1;
            assert!(may_be_told, "nothing is damaged here: {line}");
        }
        if line.contains("no dead letter can be stored") {
            self.reached.note("dead letter refused");
        }
        if line.contains("attempts and went to topic dead") {
            self.reached.note("dead letter");
        }
        if line.contains("a backlog stays in memory") {
            self.reached.note("spill failed");
        }
        if line.contains("cannot save the numbers of messages") {
            self.reached.note("numbers not saved");
            self.model.numbers.allow_doubles(topic_of(line));
        }
        if line.contains("sync waits, is tried again") {
            self.reached.note("sync delayed");
        }
        if line.contains("sync failed, no more messages are taken") {
            self.reached.note("sync failed");
            self.tasks += 1;
            self.model.poisoned.insert(topic_of(line), self.tasks);
        }
    }

    fn turn(&mut self, shard: usize) {
        while self.shards[shard].is_awake {
            let now = self.clock(shard);
            let mut out = Vec::new();
            self.shards[shard].broker.end_turn(now, &mut out);
            if self.is_killed_here() {
                return;
            }
            self.perform(shard, out);
            let mut to_flush = Vec::new();
            self.shards[shard]
                .broker
                .take_clients_to_flush(&mut to_flush);
            for id in to_flush {
                self.flush(shard, id);
            }
            if self.is_killed_here() {
                return;
            }
            for to in 0..self.shards.len() {
                let to_id = ShardId(to as u32);
                if let Some(batch) = self.shards[shard].broker.take_forwards(to_id) {
                    self.reached.note("forwarded");
                    self.shards[to].inbox.push_back(Mail::Forwards(batch));
                }
                if let Some(replies) = self.shards[shard].broker.take_forward_replies(to_id) {
                    self.shards[to].inbox.push_back(Mail::Replies(replies));
                }
            }
            // Other notices may come before the next turn, even if this turn left work.
            if !self.shards[shard].broker.is_turn_open() || self.random.below(3) == 0 {
                return;
            }
        }
    }

    // --- mail

    fn deliver_mail(&mut self, count_max: u64) {
        for shard in 0..self.shards.len() {
            for _ in 0..self.random.below(count_max + 1) {
                self.deliver_one(shard);
            }
        }
    }

    fn deliver_one(&mut self, shard: usize) {
        if self.mid_turn.is_killed {
            return;
        }
        let ShardWorld {
            broker,
            inbox,
            is_awake,
            ..
        } = &mut self.shards[shard];
        if !*is_awake {
            return;
        }
        let Some(mail) = inbox.pop_front() else {
            return;
        };
        if broker.is_stopping() && matches!(mail, Mail::Forwards(_) | Mail::Connection(..)) {
            self.reached.note("mail for a shard that stops");
        }
        self.disturb_saves(&mail);
        let now = self.now();
        let mut out = Vec::new();
        let mut poisons = None;
        if let Mail::Keeper(_, reply, pass) = &mail {
            let is_failed = self.record_syncs(reply, pass.topic);
            poisons = (is_failed && !pass.is_deleted).then_some(pass.topic);
        }
        let broker = &mut self.shards[shard].broker;
        match mail {
            Mail::Keeper(key, reply, _) => broker.handle_reply(now, key, reply, &mut out),
            Mail::Deleted(task, result) => {
                let result = result.map_err(|why| Refusal::Disk(why.into()));
                return self.answer_task(shard, task, Wakeup::Done(result));
            }
            Mail::Forwards(batch) => broker.handle_forwards(now, &batch, &mut out),
            Mail::Replies(replies) => broker.handle_forward_replies(now, replies, &mut out),
            Mail::Connection(index, client) => {
                if broker.is_stopping() {
                    // The shell drops the connection.
                    self.peers[index].closed = true;
                }
                if self.peers[index].closed {
                    return;
                }
                let id = broker.attach(now, *client);
                self.peers[index].at = Some((shard, id));
                self.offer_all(index);
            }
            Mail::Grants(id) => return self.answer_with_grants(shard, id),
            Mail::Drain(is_draining) => return self.drain_shard(shard, is_draining),
            Mail::Channels(key, topic, bits) => {
                let known = (0..CHANNELS.len()).filter(|index| bits & (1 << index) != 0);
                let names = known.map(channel_name).filter(|name| !name.is_ephemeral());
                let names: Vec<_> = names.collect();
                if !names.is_empty() {
                    self.reached.note("started with channels");
                }
                let is_complete = bits & (1 << CHANNELS.len()) == 0;
                broker.handle_channels(now, key, &names, is_complete, &mut out);
                self.start_topic(topic, key, is_complete);
            }
        }
        self.perform(shard, out);
        if let Some(topic) = poisons.filter(|_| !self.mid_turn.is_killed) {
            let is_poisoned = self.model.poisoned.contains_key(&topic);
            assert!(is_poisoned, "a failed sync is final");
        }
    }

    // --- what must hold

    fn check(&mut self) {
        let now = self.now();
        if *self.required != Required::default() {
            let topics = self.durable_topics();
            let topic = topics.iter().find(|facts| facts.name == TOPICS[0]);
            let channels = topic.map_or(&[][..], |facts| &facts.channels);
            let mut names = channels.iter().map(|facts| &*facts.name);
            assert!(names.any(|name| name == CHANNELS[0]), "a required channel");
        }
        for shard in self.shards.iter_mut().filter(|shard| shard.is_awake) {
            shard.broker.check();
            let there = shard.broker.changes_so_far().into_iter();
            assert!(
                there
                    .map(|c| (c.topic, c.channel))
                    .eq(shard.told.iter().cloned())
            );
            let stats = shard
                .broker
                .distribute_and_snapshot(now, &StatsFilter::default());
            let graces = &self.model.graces;
            let has_graces = !self.grace.period.is_zero();
            unclaimed::check(
                self.unclaimed,
                graces,
                has_graces,
                &stats,
                &mut self.reached,
            );
            let numbers = stats
                .topics
                .iter()
                .filter_map(|topic| topic.numbers.as_ref());
            for _ in numbers.filter(|numbers| numbers.duplicate_count > 0) {
                self.reached.note("duplicate");
            }
            let keys = stats.topics.iter().filter_map(|topic| topic.keys.as_ref());
            for _ in keys.filter(|keys| keys.duplicate_count > 0) {
                self.reached.note("duplicate content");
            }
            for (place, owes, received) in ledgers(&stats) {
                if is_durable(place) && self.model.check_ledger(place, owes, received) {
                    self.reached.note("ledger agreed");
                }
            }
            // After a step of the wall clock, ages mean nothing.
            if self.set_back.is_zero() {
                let has_rule = !self.dead_letters.is_empty();
                if self.model.check_ages(&stats, now.wall_ns, has_rule) {
                    self.reached.note("age agreed");
                }
            }
        }
    }

    /// Ends all faults and consumes everything. Asserts that every acknowledged message has reached
    /// every channel that it is owed to.
    fn drain(&mut self) {
        self.is_ending = true;
        self.mid_turn = MidTurn::default();
        self.files.limit(None);
        self.files.disarm();
        if self.is_drained.contains(&true) {
            self.begin_drain(false);
        }
        self.run_until_idle();
        self.check();
        for index in 0..self.peers.len() {
            if !self.peers[index].closed {
                self.close_peer(index);
            }
        }
        self.run_until_idle();
        for (topic, name) in TOPICS.iter().enumerate() {
            let shard = shard_of(name, self.shards.len() as u32).0 as usize;
            let (now, mut out) = (self.now(), Vec::new());
            let broker = &mut self.shards[shard].broker;
            let channels = (0..CHANNELS.len()).map(|channel| names((topic, channel)));
            // A topic or channel that does not exist needs no unpausing.
            for place in [whole(topic)].into_iter().chain(channels) {
                let _ = broker.administer(now, place, &Act::Pause(None), TaskId(0), &mut out);
            }
            self.perform(shard, out);
        }
        self.unempty_all();
        for (topic, channel) in self.model.channels.clone() {
            let is_drained = self.drain_channel(topic, channel);
            assert!(is_drained, "a channel that was promised takes consumers");
        }
        let left = self.drain_dead_letters();
        self.model.check_drained(left);
        self.check();
    }

    /// Consumes the messages of a channel. Returns false if a sync has failed in the meantime, and the channel, which was not
    /// recorded before, takes no consumer.
    fn drain_channel(&mut self, topic: usize, channel: usize) -> bool {
        let shard = shard_of(TOPICS[topic], self.shards.len() as u32).0 as usize;
        let mut was_poisoned = self.model.poisoned.contains_key(&topic);
        let mut index = self.connect_to(shard, false);
        self.subscribe_to(index, (topic, channel), 50, None);
        let (mut quiet, mut has_subscribed) = (0, false);
        while quiet < 4 {
            self.offer_all(index);
            self.run_until_idle();
            if self.peers[index].closed {
                // The SUB may wait for the first sync that fails. The next SUB waits for none, if the channel is recorded.
                let is_poisoned = self.model.poisoned.contains_key(&topic);
                assert!(is_poisoned && !has_subscribed, "the last consumer stays");
                if was_poisoned {
                    return false;
                }
                was_poisoned = true;
                self.reached.note("the last consumer comes again");
                index = self.connect_to(shard, false);
                self.subscribe_to(index, (topic, channel), 50, None);
                continue;
            }
            has_subscribed = true;
            let holds = std::mem::take(&mut self.peers[index].holds);
            if holds.is_empty() {
                // The other messages are in flight at other clients, or deferred. They arrive after
                // some time.
                self.advance_by(Duration::from_secs(61) + self.set_back / 4);
                quiet += 1;
                continue;
            }
            quiet = 0;
            if self.model.poisoned.contains_key(&topic) {
                self.reached.note("reads on after a failed sync");
            }
            for (id, number) in holds {
                let action = model::Action::Finish(id, number);
                self.send(index, action, |out| encode::fin(out, &id));
            }
        }
        self.close_peer(index);
        self.run_until_idle();
        true
    }

    fn run_until_idle(&mut self) {
        self.wake_shards(true);
        for _ in 0..1000 {
            let mut busy = !self.leaving.is_empty();
            self.end_leaving(true);
            for shard in 0..self.shards.len() {
                let is_idle = |it: &ShardWorld| it.jobs.is_empty() && it.inbox.is_empty();
                while !is_idle(&self.shards[shard]) && !self.mid_turn.is_killed {
                    busy = true;
                    self.work_keeper(shard);
                    self.deliver_one(shard);
                }
                self.turn(shard);
                busy |= !is_idle(&self.shards[shard]);
            }
            if !busy || self.mid_turn.is_killed {
                return;
            }
        }
        panic!("the world does not settle");
    }
}

/// Returns the names of a topic and a channel.
fn names(place: Place) -> (TopicName<'static>, Option<ChannelName<'static>>) {
    (topic_name(place.0), Some(channel_name(place.1)))
}

/// The place of an operator's act on a topic itself.
fn whole(topic: usize) -> (TopicName<'static>, Option<ChannelName<'static>>) {
    (topic_name(topic), None)
}

/// Returns true if an operator's command has made its change, recorded or not.
fn is_done(outcome: &Result<Outcome, AdminError>) -> bool {
    matches!(outcome, Ok(Outcome::Done | Outcome::Wait))
}

/// Returns for each channel the number of messages that it owes and the number that it received and that did not go to
/// the dead-letter topic.
fn ledgers(stats: &engine_rules::stats::StatsSnapshot) -> Vec<(Place, u64, u64)> {
    let mut all = Vec::new();
    for topic in &stats.topics {
        let index = TOPICS
            .iter()
            .position(|name| *name == topic.topic_name)
            .expect("a topic of ours");
        for channel in &topic.channels {
            let at = CHANNELS
                .iter()
                .position(|name| *name == channel.channel_name);
            let owes = channel.depth + channel.in_flight_count + channel.deferred_count;
            // A message that went to the dead-letter topic is as if the channel had never received it.
            let dead = channel.dead_letters.as_ref().map_or(0, |dead| dead.count);
            all.push((
                (index, at.expect("a channel of ours")),
                owes,
                channel.counters.message_count.wrapping_sub(dead),
            ));
        }
    }
    all
}
