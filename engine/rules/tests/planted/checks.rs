//! Checks that need a whole broker, for bugs that histories hardly ever find.

use crate::lists;
use crate::retries::History;
use diskq::LogOptions;
use diskq_sim::SimFiles;
use engine_rules::stats::{StatsFilter, StatsSnapshot};
use engine_rules::{
    Act, BrokerOptions, ClientId, DedupRule, DedupRules, Outcome, PublisherRule, ShardId, TaskId,
    UnclaimedBounds, UnclaimedRules, shard_of,
};
use std::time::Duration;
use wire::encode;
use wire::name::ChannelName;

/// The name of each check is that of its function.
macro_rules! named {
    ($($check:path,)*) => { &[$((stringify!($check), $check),)*] };
}

pub(super) const ALL: &[(&str, fn())] = named![
    a_checkpoint_has_what_is_requeued_meanwhile,
    a_start_keeps_deferrals,
    an_answer_in_the_middle_of_a_turn_holds,
    an_emptied_topic_comes_back_after_a_restart,
    the_use_of_an_undo_waits_for_its_checkpoint,
    a_shard_that_stops_takes_no_forwards,
    a_grace_keeps_deferrals,
    a_grace_keeps_messages_beyond_the_bounds,
    a_dead_letter_waits_for_its_sync,
    a_refused_dead_letter_is_sent_again,
    a_copy_waits_for_the_sync_of_the_first_one,
    a_message_stays_until_its_number_is_saved,
    a_retry_is_not_lost,
];

/// Publishes the message `x` on a new connection.
fn publish(world: &mut lists::World) -> ClientId {
    let producer = world.connect();
    let mut input = Vec::new();
    encode::publish(&mut input, lists::topic(), b"x");
    world.send(producer, &input);
    producer
}

/// A REQ moves a message from the window to the deferred messages, which the checkpoint's scan has
/// already passed. Only a crash between this checkpoint and the next one shows a missing note, so
/// histories hardly ever find it.
fn a_checkpoint_has_what_is_requeued_meanwhile() {
    const MESSAGES: usize = 200;
    let mut world = lists::World::new();
    let consumer = world.subscribe(MESSAGES as u32);
    let producer = world.connect();
    let mut input = Vec::new();
    let bodies = std::iter::repeat_n(b"x", MESSAGES);
    encode::mpub(&mut input, lists::topic(), bodies);
    world.send(producer, &input);
    world.rest();
    let messages = world.received(consumer);
    world.checkpoints = 0;
    world.mono += lists::PAUSE;
    world.turn();
    assert_eq!(world.checkpoints, 0, "the checkpoint takes more turns");
    let (last, ..) = messages.last().expect("all were delivered");
    input.clear();
    encode::req(&mut input, last, Duration::from_secs(10));
    world.send(consumer, &input);
    while world.checkpoints == 0 {
        world.turn();
    }
    world.restart();
    let (depth, in_flight, deferred) = world.counts();
    assert_eq!(depth + in_flight + deferred, MESSAGES as u64);
}

fn a_start_keeps_deferrals() {
    let mut world = lists::World::new();
    world.subscribe(1);
    let producer = world.connect();
    let mut input = Vec::new();
    encode::dpub(&mut input, lists::topic(), Duration::from_secs(10), b"x");
    world.send(producer, &input);
    world.rest();
    world.restart();
    assert_eq!(world.counts(), (0, 0, 1));
}

/// A full socket takes the answer at any time, and the process is killed before the turn ends.
fn an_answer_in_the_middle_of_a_turn_holds() {
    let mut world = lists::World::new();
    world.subscribe(0);
    let producer = publish(&mut world);
    assert_eq!(world.frames(producer).len(), 1, "the answer");
    world.restart();
    assert_eq!(world.counts(), (1, 0, 0));
}

/// The topic has no channels.
fn an_emptied_topic_comes_back_after_a_restart() {
    let mut world = lists::World::new();
    publish(&mut world);
    world.rest();
    let time = Some(Duration::from_secs(60));
    let emptied = administer(&mut world, None, &Act::Empty(time));
    assert_eq!(emptied, Outcome::Wait);
    world.rest();
    world.restart();
    let back = administer(&mut world, None, &Act::Unempty);
    assert_eq!(back, Outcome::Wait);
    world.subscribe(0);
    assert_eq!(world.counts(), (1, 0, 0));
}

/// Carries out an operator's act on the topic, or on a channel.
fn administer(world: &mut lists::World, channel: Option<&str>, act: &Act) -> Outcome {
    let (now, mut out) = (world.now(), Vec::new());
    let place = lists::place(lists::TOPIC, channel);
    let done = world
        .broker
        .administer(now, place, act, TaskId(1), &mut out);
    world.perform(out);
    done.expect("it is there")
}

/// The process is killed as soon as the operator has the answer.
fn the_use_of_an_undo_waits_for_its_checkpoint() {
    let mut world = lists::World::new();
    world.subscribe(0);
    publish(&mut world);
    let time = Some(Duration::from_secs(60));
    let emptied = administer(&mut world, Some(lists::CHANNEL), &Act::Empty(time));
    assert_eq!(emptied, Outcome::Wait);
    world.rest();
    let used = administer(&mut world, Some(lists::CHANNEL), &Act::Unempty);
    if used == Outcome::Wait {
        world.rest();
    }
    world.restart();
    assert_eq!(world.counts(), (1, 0, 0));
}

/// The publish would get OK after the last sync.
fn a_shard_that_stops_takes_no_forwards() {
    let ours = shard_of(lists::TOPIC, 2);
    let of_shard = |shard| BrokerOptions {
        shard,
        shards: 2,
        ..lists::options()
    };
    let mut world = lists::World::with(of_shard(ours));
    let theirs = ShardId(1 - ours.0);
    let mut other = lists::World::with(of_shard(theirs));
    let mut forward = |world: &mut lists::World| {
        publish(&mut other);
        let batch = other.broker.take_forwards(ours).expect("the publish");
        let (now, mut out) = (world.now(), Vec::new());
        world.broker.handle_forwards(now, &batch, &mut out);
        world.perform(out);
        world.rest();
        world.broker.take_forward_replies(theirs).is_some()
    };
    assert!(forward(&mut world), "the publish is stored");
    world.broker.begin_stop(&mut Vec::new());
    assert!(!forward(&mut world), "no answer");
}

/// Before a restart, and after it.
fn a_grace_keeps_deferrals() {
    let mut world = lists::World::new();
    world.broker.set_asks_for_channels(true);
    let producer = world.connect();
    let mut input = Vec::new();
    encode::dpub(&mut input, lists::topic(), Duration::from_secs(10), b"x");
    world.send(producer, &input);
    world.subscribe(1);
    let make = |world: &mut lists::World, name: &str| {
        let channel = ChannelName::new(name.as_bytes()).expect("a valid name");
        world.subscribe_to(channel, 1);
        world.counts_of(name)
    };
    assert_eq!(make(&mut world, "late"), (0, 0, 1));
    world.restart();
    assert_eq!(make(&mut world, "later"), (0, 0, 1));
}

fn a_grace_keeps_messages_beyond_the_bounds() {
    let mut rules = UnclaimedRules::default();
    rules.add("*", UnclaimedBounds::DROP);
    let mut options = lists::options();
    options.topic.unclaimed = rules.into();
    let mut world = lists::World::with(options);
    world.broker.set_asks_for_channels(true);
    publish(&mut world);
    world.rest();
    world.subscribe(1);
    assert_eq!(world.counts(), (0, 1, 0));
}

/// A world whose only message has had all its attempts. `before` changes the disk before the last one fails.
fn with_a_dead_letter(before: impl FnOnce(&SimFiles)) -> lists::World {
    let mut world = lists::World::with_dead_letters();
    let consumer = world.subscribe(1);
    publish(&mut world);
    world.rest();
    let [(id, _, 1)] = world.received(consumer)[..] else {
        panic!("one message");
    };
    before(&world.files);
    let mut input = Vec::new();
    encode::req(&mut input, &id, Duration::ZERO);
    world.send(consumer, &input);
    world.rest();
    assert_eq!(world.counts(), (1, 0, 0), "the message is still owed");
    world
}

fn a_dead_letter_waits_for_its_sync() {
    let mut world = with_a_dead_letter(|_| {});
    world.mono += lists::PAUSE;
    world.rest();
    assert_eq!(world.counts(), (0, 0, 0));
}

/// The disk is full, so the dead-letter topic cannot be made.
fn a_refused_dead_letter_is_sent_again() {
    let mut world = with_a_dead_letter(|files| files.limit(Some(files.bytes())));
    world.files.limit(None);
    for _ in 0..10 {
        world.mono += lists::PAUSE;
        world.rest();
    }
    assert_eq!(world.counts(), (0, 0, 0));
    let [_, dead] = &snapshot(&mut world).topics[..] else {
        panic!("two topics");
    };
    assert_eq!(dead.depth, 1);
}

fn snapshot(world: &mut lists::World) -> StatsSnapshot {
    let now = world.now();
    let broker = &mut world.broker;
    broker.distribute_and_snapshot(now, &StatsFilter::default())
}

/// The options of a broker whose topics recognise messages by their numbers.
fn with_numbers() -> BrokerOptions {
    let mut rules = DedupRules::default();
    let rule = PublisherRule {
        window: PublisherRule::WINDOW_DEFAULT,
        memory_bytes: PublisherRule::MEMORY_DEFAULT,
    };
    rules.add("*", DedupRule::Publisher(rule));
    let mut options = lists::options();
    options.server.takes_numbers = true;
    options.topic.dedup = rules.into();
    options
}

impl lists::World {
    /// Connects as a producer that numbers its messages.
    fn numbering(&mut self, id: &str) -> ClientId {
        let client = self.connect();
        let mut input = Vec::new();
        let body = format!(r#"{{"feature_negotiation":true,"publisher_id":"{id}"}}"#);
        encode::identify(&mut input, body.as_bytes());
        self.send(client, &input);
        self.rest();
        self.frames(client);
        client
    }

    fn publish_numbered(&mut self, producer: ClientId, number: u64) {
        let mut input = Vec::new();
        encode::publish_numbered(&mut input, lists::topic(), number, &[b'x'; 600]);
        self.send(producer, &input);
        self.rest();
    }
}

fn a_copy_waits_for_the_sync_of_the_first_one() {
    let mut options = with_numbers();
    options.topic.group_commit = true;
    options.topic.log.sync_every = 1;
    let mut world = lists::World::with(options);
    let producers = [world.numbering("7f"), world.numbering("7f")];
    world.publish_numbered(producers[0], 1);
    assert_eq!(world.frames(producers[0]).len(), 1, "the topic is there");
    world.holds_syncs = true;
    for producer in producers {
        world.publish_numbered(producer, 2);
        assert_eq!(world.frames(producer), [], "nothing is synced");
    }
    world.holds_syncs = false;
    let held = std::mem::take(&mut world.held);
    world.perform(held);
    world.rest();
    for producer in producers {
        assert_eq!(world.frames(producer).len(), 1);
    }
}

/// The first producer's message lies in a segment that nobody else needs. Without the message, a start does not know its
/// number.
fn a_message_stays_until_its_number_is_saved() {
    let mut options = with_numbers();
    options.topic.log = LogOptions {
        segment_bytes_min: 4096,
        segment_bytes_steady: 4096,
        ..options.topic.log
    };
    let mut world = lists::World::with(options);
    let consumer = world.subscribe(100);
    let (first, second) = (world.numbering("7f"), world.numbering("80"));
    world.publish_numbered(first, 1);
    for number in 1..100 {
        world.publish_numbered(second, number);
        let mut input = Vec::new();
        for (id, ..) in world.received(consumer) {
            encode::fin(&mut input, &id);
        }
        world.send(consumer, &input);
        world.rest();
        if number == 30 {
            // A checkpoint without the first messages, so that their segments may be used again.
            let created = administer(&mut world, Some("other"), &Act::Create);
            assert_eq!(created, Outcome::Wait);
            world.rest();
        }
    }
    world.restart();
    let first = world.numbering("7f");
    world.publish_numbered(first, 1);
    let [topic] = &snapshot(&mut world).topics[..] else {
        panic!("one topic");
    };
    let duplicates = topic
        .numbers
        .as_ref()
        .map(|numbers| numbers.duplicate_count);
    assert_eq!(duplicates, Some(1), "the message was stored before");
}

fn a_retry_is_not_lost() {
    for seed in 1..=40 {
        History::run(seed);
    }
}
