//! The broker processes the messages of a channel in slices. The tests check the length of a slice,
//! and the state after a crash or an operator's command between two slices.

use crate::counting;
use crate::lists::{self, CHANNEL, PAUSE, TOPIC, TURN_ENTRIES, World, place, topic};
use diskq::{ChannelFacts, TopicFacts, open_log};
use engine_rules::stats::StatsFilter;
use engine_rules::{Act, AdminError, Broker, ClientId, Now, Outcome, Output, Pause, TaskId};
use std::path::Path;
use std::time::Duration;
use wire::encode;
use wire::name::{ChannelName, TopicName};

/// The most list entries of a turn: its budget, and the minimum shares of the topic and the
/// channel.
const SPENT_MAX: usize = TURN_ENTRIES + 2 * 16 + 16;

impl World {
    fn pass(&mut self, time: Duration) {
        self.mono += time;
        self.rest();
    }

    /// Carries out an operator's command, and repeats it while the broker returns
    /// [`Outcome::Later`]. Returns how often the command had to wait.
    fn operate(
        &mut self,
        mut command: impl FnMut(&mut Broker, Now, &mut Vec<Output>) -> Result<Outcome, AdminError>,
    ) -> usize {
        for waits in 0..1000 {
            let (now, mut out) = (self.now(), Vec::new());
            let outcome = command(&mut self.broker, now, &mut out).unwrap();
            self.perform(out);
            if outcome != Outcome::Later {
                return waits;
            }
            self.may_retry = false;
            while !self.may_retry {
                assert!(self.broker.is_turn_open(), "nothing wakes the operator");
                self.turn();
            }
        }
        panic!("the operator waits forever");
    }

    /// Returns how many messages were published to a topic. 0 if there is no such topic.
    fn published(&mut self, name: &str) -> usize {
        let now = self.now();
        let filter = StatsFilter::default();
        let stats = self.broker.distribute_and_snapshot(now, &filter);
        let topic = stats.topics.iter().find(|topic| topic.topic_name == name);
        topic.map_or(0, |topic| topic.message_count as usize)
    }

    /// Empties the topic, or its channel, with an undo.
    fn empty_for_undo(&mut self, is_channel: bool) {
        let time = Some(Duration::from_secs(3600));
        let channel = is_channel.then_some(CHANNEL);
        self.administer(channel, &Act::Empty(time));
        self.rest();
    }

    fn pause(&mut self, paused: bool) -> usize {
        self.administer(None, &Act::Pause(paused.then(Pause::default)))
    }

    /// Carries out an act on the topic, or on its channel. Returns how often the act had to wait.
    fn administer(&mut self, channel: Option<&str>, act: &Act) -> usize {
        let place = place(TOPIC, channel);
        self.operate(|broker, now, out| broker.administer(now, place, act, TaskId(1), out))
    }

    /// Sends what `write` encodes.
    fn command(&mut self, client: ClientId, write: impl FnOnce(&mut Vec<u8>)) {
        let mut input = Vec::new();
        write(&mut input);
        self.send(client, &input);
    }

    fn publish(&mut self, producer: ClientId) {
        self.command(producer, |input| {
            encode::publish(input, topic(), b"12345678")
        });
    }

    /// Publishes a batch of messages with one byte.
    fn publish_batch(&mut self, count: usize) {
        let producer = self.connect();
        let bodies = std::iter::repeat_n(b"x", count);
        self.command(producer, |input| encode::mpub(input, topic(), bodies));
    }

    /// Requeues what a consumer has received. Returns the number of messages.
    fn requeue_received(&mut self, consumer: ClientId) -> usize {
        let received = self.received(consumer);
        self.command(consumer, |input| {
            for (id, ..) in &received {
                encode::req(input, id, Duration::ZERO);
            }
        });
        received.len()
    }

    /// No turn has taken more than its share.
    fn check_spent(&self) {
        assert!(self.spent_max <= SPENT_MAX, "{}", self.spent_max);
    }

    fn publish_deferred(&mut self, producer: ClientId, defer: Duration) {
        let due = self.mono + defer;
        let body = (due.as_millis() as u64).to_le_bytes();
        self.command(producer, |input| encode::dpub(input, topic(), defer, &body));
    }
}

/// Regression: ten million deferred messages stopped the shard for seconds, because one turn recorded, moved or dropped
/// all of them.
#[test]
fn no_turn_goes_through_more_than_its_share() {
    const MESSAGES: u64 = 5_000;
    let slices = |entries: u64| entries as usize / TURN_ENTRIES;
    let mut world = World::new();
    world.subscribe(0);
    let producer = world.connect();
    for n in 0..MESSAGES {
        world.publish_deferred(producer, Duration::from_millis(60_000 + n * 7 % 1000));
        if n % 8 == 0 {
            world.turn();
        }
    }
    world.rest();
    assert_eq!(world.counts(), (0, 0, MESSAGES));

    (world.busy_turns, world.checkpoints) = (0, 0);
    world.pass(PAUSE);
    assert_eq!(world.checkpoints, 1);
    assert!(world.busy_turns >= slices(MESSAGES), "{}", world.busy_turns);

    world.busy_turns = 0;
    world.pass(Duration::from_secs(70));
    assert_eq!(world.counts(), (MESSAGES, 0, 0));
    assert!(world.busy_turns >= slices(MESSAGES));

    (world.busy_turns, world.checkpoints) = (0, 0);
    world.pass(PAUSE);
    assert_eq!(world.checkpoints, 1);
    assert!(world.busy_turns >= slices(MESSAGES));

    world.busy_turns = 0;
    let now = world.now();
    let (broker, mut out) = (&mut world.broker, Vec::new());
    let (place, act) = (place(TOPIC, Some(CHANNEL)), Act::Empty(None));
    let emptied = broker.administer(now, place, &act, TaskId(1), &mut out);
    assert_eq!((emptied, out.len()), (Ok(Outcome::Wait), 0));
    assert_eq!(world.counts(), (0, 0, 0), "at once for all who ask");
    world.rest();
    assert!(world.busy_turns >= slices(MESSAGES));
    world.check_spent();
}

/// Regression: a checkpoint took over the whole undo of a topic or channel in one turn.
#[test]
fn a_checkpoint_takes_an_undo_over_in_slices() {
    const MESSAGES: u64 = 1_000;
    for is_channel in [true, false] {
        let mut world = World::new();
        world.subscribe(0);
        world.pause(!is_channel);
        let producer = world.connect();
        for n in 0..MESSAGES {
            // Neighbours with the same due time are one entry of the undo.
            world.publish_deferred(producer, Duration::from_millis(60_000 + n % 2));
            if n % 8 == 0 {
                world.turn();
            }
        }
        world.rest();
        (world.spent_max, world.busy_turns) = (0, 0);
        world.empty_for_undo(is_channel);
        world.check_spent();
        assert!(world.busy_turns >= MESSAGES as usize / TURN_ENTRIES);
        world.restart();
        let stats = world
            .broker
            .distribute_and_snapshot(world.now(), &StatsFilter::default());
        let topic = &stats.topics[0];
        let undo = [&topic.undo, &topic.channels[0].undo][usize::from(is_channel)];
        let count = undo.as_ref().map(|undo| undo.message_count);
        assert_eq!(count, Some(MESSAGES));
    }
}

/// Regression: an undo built the whole tree of the channel's deferred messages again, so an undo of a few messages held up a
/// channel with millions for a second. A tree that is built has as many allocations as it has nodes.
#[test]
fn the_cost_of_an_undo_does_not_grow_with_the_deferred_messages_that_are_there() {
    let allocations = |is_channel: bool, deferred: u64| {
        let mut world = World::new();
        world.subscribe(0);
        world.pause(!is_channel);
        let producer = world.connect();
        for _ in 0..100 {
            world.publish_deferred(producer, Duration::from_secs(60));
        }
        world.rest();
        world.empty_for_undo(is_channel);
        world.pause(false);
        for n in 0..deferred {
            world.publish_deferred(producer, Duration::from_millis(30_000 + n * 7 % 60_000));
            if n % 8 == 0 {
                world.turn();
                // The broker reads no producer that leaves its answers.
                world.frames(producer);
            }
        }
        world.rest();
        let mut allocations = 0;
        let place = place(TOPIC, is_channel.then_some(CHANNEL));
        world.operate(|broker, now, out| {
            let (outcome, count) = counting::allocations(|| {
                broker.administer(now, place, &Act::Unempty, TaskId(1), out)
            });
            allocations = count;
            outcome
        });
        assert_eq!(world.counts(), (0, 0, deferred + 100));
        allocations
    };
    for is_channel in [true, false] {
        let [few, many] = [1_000, 20_000].map(|deferred| allocations(is_channel, deferred));
        println!("{few} and {many} allocations");
        assert!(many < 2 * few + 20, "{few} and {many} allocations");
    }
}

/// A topic also processes its undistributed messages in slices when it is paused and unpaused.
#[test]
fn undistributed_messages_are_processed_in_slices() {
    const MESSAGES: u64 = 3_000;
    let slices = MESSAGES as usize / TURN_ENTRIES;
    let mut world = World::new();
    world.subscribe(0);
    world.pause(true);
    let producer = world.connect();
    for n in 0..MESSAGES {
        world.publish_deferred(producer, Duration::from_secs(100));
        if n % 2 == 0 {
            world.publish(producer);
        }
    }
    (world.busy_turns, world.checkpoints) = (0, 0);
    world.pause(true);
    world.rest();
    assert_eq!(world.checkpoints, 1);
    assert!(world.busy_turns >= slices, "{}", world.busy_turns);
    world.restart();
    world.busy_turns = 0;
    world.pause(false);
    world.rest();
    assert_eq!(world.counts(), (MESSAGES / 2, 0, MESSAGES));
    assert!(world.busy_turns >= slices);
    world.check_spent();
}

/// Messages are published and requeued while the broker builds a checkpoint over many turns. After
/// a crash in any of these turns every owed message exists, and deferred messages arrive when they
/// are due.
#[test]
fn a_crash_between_two_slices_loses_neither_message_nor_deadline() {
    const MESSAGES: u64 = 200;
    let mut was_finished = false;
    for crash_after in 0.. {
        let mut world = World::new();
        let consumer = world.subscribe(50);
        let producer = world.connect();
        for n in 0..MESSAGES {
            world.publish_deferred(producer, Duration::from_millis(20_000 + n * 37 % 5000));
        }
        // Some messages are finished, so that the others in flight are not in runs.
        let mut input = Vec::new();
        encode::mpub(&mut input, topic(), std::iter::repeat_n(&[0_u8; 8], 40));
        world.send(producer, &input);
        world.rest();
        let messages = world.received(consumer);
        assert_eq!(messages.len(), 40);
        let mut finished = 0;
        for (id, ..) in messages.iter().step_by(3) {
            world.command(consumer, |input| encode::fin(input, id));
            finished += 1;
        }
        world.rest();
        world.checkpoints = 0;
        world.mono += PAUSE;
        let mut others = messages.iter().skip(1).step_by(3);
        for turn in 0..crash_after {
            world.turn();
            if let Some((id, ..)) = others.next() {
                let timeout = Duration::from_secs(turn % 3 * 10);
                world.command(consumer, |input| encode::req(input, id, timeout));
            }
            world.publish_deferred(producer, Duration::from_secs(15));
        }
        was_finished |= world.checkpoints > 0;
        world.restart();
        // A finished message may arrive again if the checkpoint was not written.
        let (depth, in_flight, deferred) = world.counts();
        let owed = MESSAGES + crash_after + 40 - finished;
        let there = depth + in_flight + deferred;
        assert!(
            (owed..=owed + finished).contains(&there),
            "{there} of {owed} owed messages exist after {crash_after} turns"
        );
        assert!(deferred >= MESSAGES + crash_after);
        let consumer = world.subscribe(2500);
        let mut seen = 0;
        for _ in 0..400 {
            for (id, body, attempts) in world.received(consumer) {
                let due = u64::from_le_bytes(body.try_into().unwrap());
                if due > 0 {
                    let now = world.mono.as_millis() as u64;
                    assert!((due..due + 110).contains(&now), "due {due}, came {now}");
                    assert_eq!(attempts, 1);
                    seen += 1;
                }
                world.command(consumer, |input| encode::fin(input, &id));
            }
            world.pass(Duration::from_millis(100));
        }
        assert_eq!(seen, MESSAGES + crash_after);
        assert_eq!(world.counts(), (0, 0, 0));
        if was_finished && crash_after > 20 {
            return;
        }
    }
}

/// A paused topic is unpaused while the broker builds its checkpoint. The channel then gets
/// messages that are older than the checkpoint, although a part of the channel was recorded before.
#[test]
fn messages_given_to_a_channel_during_its_checkpoint_are_not_lost() {
    const MESSAGES: u64 = 300;
    for goes_on_after in 0..20 {
        let mut world = World::new();
        world.subscribe(0);
        let producer = world.connect();
        for _ in 0..MESSAGES {
            world.publish_deferred(producer, Duration::from_secs(100));
        }
        world.rest();
        world.pause(true);
        world.rest();
        for n in 0..100 {
            if n % 3 == 0 {
                world.publish_deferred(producer, Duration::from_secs(100));
            } else {
                world.publish(producer);
            }
        }
        world.rest();
        world.checkpoints = 0;
        world.pause(true);
        for _ in 0..goes_on_after {
            world.turn();
        }
        world.pause(false);
        while world.checkpoints == 0 {
            world.turn();
        }
        world.restart();
        world.pause(false);
        world.rest();
        assert_eq!(world.counts(), (66, 0, MESSAGES + 34), "{goes_on_after}");
    }
}

/// A consumer requeues more messages per turn than a slice has entries. The broker still finishes
/// the checkpoint, and makes no more notes of moved messages than the channel has messages.
#[test]
fn a_checkpoint_comes_although_messages_are_requeued_all_the_time() {
    const MESSAGES: usize = 1_000;
    for per_turn in [64, 200] {
        let mut world = World::new();
        let consumer = world.subscribe(MESSAGES as u32);
        world.publish_batch(MESSAGES);
        world.rest();
        let messages = world.received(consumer);
        assert_eq!(messages.len(), MESSAGES);
        let mut input = Vec::new();
        encode::rdy(&mut input, per_turn);
        for (id, ..) in messages {
            encode::req(&mut input, &id, Duration::ZERO);
        }
        world.send(consumer, &input);
        world.rest();
        let mut requeued = 0;
        world.checkpoints = 0;
        world.mono += PAUSE;
        for _ in 0..10 * MESSAGES / TURN_ENTRIES {
            world.turn();
            requeued += world.requeue_received(consumer);
            if world.checkpoints > 0 {
                break;
            }
        }
        assert_eq!(
            world.checkpoints, 1,
            "{requeued} messages were requeued during the checkpoint"
        );
        assert!(requeued > MESSAGES / 4, "{requeued}");
        let runs_max = 2 * MESSAGES + 2 * per_turn as usize;
        assert!(world.runs <= runs_max, "{} runs", world.runs);
        world.restart();
        assert_eq!(world.counts(), (MESSAGES as u64, 0, 0));
    }
}

/// Regression: all messages in flight that timed out at the same time came back in one turn.
#[test]
fn messages_that_time_out_together_come_back_in_slices() {
    const MESSAGES: usize = 2_400;
    let mut world = World::new();
    let consumer = world.subscribe(MESSAGES as u32);
    world.publish_batch(MESSAGES);
    world.rest();
    let messages = world.received(consumer);
    assert_eq!(messages.len(), MESSAGES);
    let mut input = Vec::new();
    encode::rdy(&mut input, 0);
    // A third of the messages are finished, and one has another deadline.
    encode::touch(&mut input, &messages[1].0);
    for (id, ..) in messages.iter().step_by(3) {
        encode::fin(&mut input, id);
    }
    world.send(consumer, &input);
    world.rest();
    let owed = (MESSAGES - MESSAGES.div_ceil(3)) as u64;
    assert_eq!(world.counts(), (0, owed, 0));
    (world.spent_max, world.busy_turns) = (0, 0);
    world.pass(Duration::from_secs(70));
    assert_eq!(world.counts(), (owed, 0, 0));
    let turns = world.busy_turns;
    assert!(turns >= MESSAGES / TURN_ENTRIES, "{turns}");
    world.check_spent();
}

const KEPT: u64 = 600;

/// Returns a topic that has just been unpaused. Some of the messages that it kept are still on
/// their way to its channel, because they pass in slices. One more message was published after the
/// pause. With some values of `turns`, the broker is also building a long checkpoint.
fn unpaused(turns: usize) -> World {
    let mut world = World::new();
    world.subscribe(0);
    world.pause(true);
    let producer = world.connect();
    for n in 0..KEPT {
        world.publish_deferred(producer, Duration::from_secs(100));
        if n % 8 == 0 {
            world.turn();
        }
    }
    world.pass(PAUSE);
    world.pause(true);
    for _ in 0..turns {
        world.turn();
    }
    world.spent_max = 0;
    world.pause(false);
    world.turn();
    world.publish(producer);
    world
}

/// Regression: an operator or a client changed a topic while messages were on their way to the
/// channels. The broker then dropped these messages, kept them back, or gave them to a channel that
/// was created later.
#[test]
fn messages_on_their_way_to_the_channels_arrive_whatever_operators_do() {
    let (all, none) = ((1, 0, KEPT), (0, 0, 0));
    let mut waits = 0;
    for turns in 0..2 * KEPT as usize / TURN_ENTRIES {
        let mut world = unpaused(turns);
        world.administer(None, &Act::Empty(None));
        world.rest();
        assert_eq!(world.counts(), all, "the topic was emptied, {turns}");

        let mut world = unpaused(turns);
        waits += world.pause(true);
        let producer = world.connect();
        world.publish(producer);
        world.rest();
        assert_eq!(world.counts(), all, "the topic was paused, {turns}");

        let mut world = unpaused(turns);
        let other = ChannelName::new(b"billing").unwrap();
        waits += world.administer(Some(other.as_str()), &Act::Create);
        world.rest();
        assert_eq!(world.counts(), all, "a channel was made, {turns}");
        assert_eq!(world.counts_of("billing"), none, "{turns}");

        let mut world = unpaused(turns);
        world.subscribe_to(other, 0);
        world.rest();
        assert_eq!(world.counts(), all, "a consumer made a channel, {turns}");
        assert_eq!(world.counts_of("billing"), none, "{turns}");
        world.check_spent();

        let mut world = unpaused(turns);
        waits += world.administer(Some(CHANNEL), &Act::Empty(None));
        world.rest();
        assert_eq!(world.counts(), none, "the channel was emptied, {turns}");

        let mut world = unpaused(turns);
        world.administer(Some(CHANNEL), &Act::Delete);
        world.rest();
        world.subscribe(0);
        assert_eq!(world.counts(), none, "the channel was deleted, {turns}");

        let mut world = unpaused(turns);
        let mut out = Vec::new();
        world.broker.begin_stop(&mut out);
        for output in out {
            if let Output::Close(id) = output {
                world.broker.disconnect(id, &mut Vec::new());
            }
        }
        let stops = (0..1000).any(|_| {
            let now = world.now();
            let is_unfinished = world.broker.drive_stop(now, &mut Vec::new());
            world.turn();
            !is_unfinished
        });
        assert!(stops, "the broker stops, {turns}");
        world.restart();
        assert_eq!(world.counts(), all, "the broker was stopped, {turns}");
    }
    assert!(waits > 0, "no operator had to wait");
}

/// Regression: when producers published more deferred messages per turn than a slice has entries,
/// the number of messages that waited for the channel grew with each turn.
#[test]
fn a_flood_of_deferred_messages_passes_to_the_channel_as_it_comes() {
    const PER_TURN: u64 = 5 * TURN_ENTRIES as u64;
    let mut world = World::new();
    world.subscribe(0);
    let producer = world.connect();
    for turn in 1..=50 {
        for _ in 0..PER_TURN {
            world.publish_deferred(producer, Duration::from_secs(100));
        }
        world.turn();
        world.received(producer);
        assert_eq!(world.counts(), (0, 0, turn * PER_TURN));
    }
}

/// More dead letters than may be on their way at a time: the others follow as soon as these are synced.
#[test]
fn a_flood_of_dead_letters_moves_part_by_part() {
    const MESSAGES: usize = 3000;
    let mut world = World::with_dead_letters();
    let consumer = world.subscribe(2500);
    world.publish_batch(MESSAGES);
    let mut requeued = 0;
    while requeued < MESSAGES {
        world.rest();
        let mut input = Vec::new();
        for (id, _, attempts) in world.received(consumer) {
            assert_eq!(attempts, 1, "the next delivery would be the second");
            encode::req(&mut input, &id, Duration::ZERO);
            requeued += 1;
        }
        assert!(!input.is_empty(), "{requeued} of {MESSAGES} came");
        world.send(consumer, &input);
    }
    world.rest();
    let (left, in_flight, _) = world.counts();
    assert!(in_flight == 0 && left < 1024, "{left} wait for the sync");
    world.mono += PAUSE;
    world.rest();
    assert_eq!(world.counts(), (0, 0, 0));
}

/// Regression: each channel sent up to 64 dead letters in a turn, however many channels there were. So the letters of
/// thousands of channels were copied in one turn, and no client of the shard was served meanwhile.
#[test]
fn the_dead_letters_of_many_channels_take_many_turns() {
    const CHANNELS: usize = 40;
    const MESSAGES: usize = 70;
    let mut world = World::with_dead_letters();
    let names: Vec<String> = (0..CHANNELS).map(|n| format!("ch{n}")).collect();
    let names = names.iter().map(|name| ChannelName::new(name.as_bytes()));
    let consumers: Vec<ClientId> = names
        .map(|name| world.subscribe_to(name.unwrap(), 2500))
        .collect();
    world.publish_batch(MESSAGES);
    world.rest();
    for consumer in &consumers {
        let mut input = Vec::new();
        for (id, ..) in world.received(*consumer) {
            encode::req(&mut input, &id, Duration::ZERO);
        }
        let (now, mut out) = (world.now(), Vec::new());
        let taken = world.broker.receive(now, *consumer, &input, &mut out);
        assert_eq!(taken, input.len());
        world.perform(out);
    }
    let (mut turns, mut moved) = (0, 0);
    while moved < CHANNELS * MESSAGES {
        turns += 1;
        assert!(turns < 1000, "{moved} moved");
        world.turn();
        let before = moved;
        moved = world.published("rejected");
        // The letters of two turns: the first ones wait until the dead-letter topic has room.
        assert!(moved - before <= 512, "{} in one turn", moved - before);
    }
    world.mono += PAUSE;
    world.rest();
    for n in 0..CHANNELS {
        assert_eq!(world.counts_of(&format!("ch{n}")), (0, 0, 0));
    }
}

/// Regression: the log of an ephemeral topic that nsqd.dat lists was synced. A sync made a checkpoint due, an ephemeral topic
/// never writes one, and so its shard never slept again.
#[test]
fn an_ephemeral_topic_that_is_listed_lets_its_shard_sleep() {
    let mut world = World::new();
    let name = TopicName::new(b"tmp#ephemeral").unwrap();
    let options = lists::options().topic.log_options(name);
    let (path, now) = (Path::new("/data"), world.now());
    let recovered = open_log(&world.files, path, name.as_str(), options, now.wall_ns).unwrap();
    let listed = TopicFacts {
        name: name.as_str().to_owned(),
        paused: false,
        channels: vec![ChannelFacts {
            name: CHANNEL.to_owned(),
            paused: false,
        }],
    };
    world.broker.restore(now, name, recovered, Some(&listed));
    world.rest();
    let producer = world.connect();
    // More than a segment.
    world.command(producer, |input| {
        (0..100).for_each(|_| encode::publish(input, name, &[b'x'; 4096]));
    });
    for _ in 0..3 {
        world.pass(PAUSE);
    }
    assert_eq!(world.published(name.as_str()), 100);
    let next = world.broker.next_timeout();
    assert!(next.is_none_or(|at| at > world.mono));
}
