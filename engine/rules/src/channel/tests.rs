use super::scan::Scan;
use super::*;
use crate::ids::client_id;
use crate::window::Entry;
use crate::{DeadLetterRules, Random};
use std::collections::{BTreeMap, BTreeSet};

const MINUTE: Duration = Duration::from_secs(60);

fn owner() -> ClientId {
    client_id(1)
}

fn seqs(start: u64, end: u64) -> SeqRange {
    SeqRange::new(Seq(start), Seq(end))
}

fn channel() -> Channel {
    Channel::new("channel", false, None)
}

/// A message whose deferral has ended waits without an attempt so far, and an older record has it behind
/// messages of higher seqs. That stopped the process at each start (`ranges arrive in order`).
#[test]
fn what_an_older_record_has_out_of_order_is_taken_back() {
    let mut channel = channel();
    for (start, end) in [(5, 9), (2, 3), (9, 10), (0, 1)] {
        channel.restore(seqs(start, end), 0);
    }
    assert_eq!(channel.depth(), 7);
    channel.check(&Clients::default());
}

/// A channel whose messages are moved about at random while it is scanned.
struct World {
    random: Random,
    channel: Channel,
    now: Duration,
    finished: BTreeSet<Seq>,
    /// The states that the messages that stay have had since the scan began. The scan must find one of them.
    states: BTreeMap<Seq, Vec<(u16, Option<Duration>)>>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let mut channel = channel();
        if seed.is_multiple_of(2) {
            let mut rules = DeadLetterRules::default();
            rules.add("t", "channel", 2, "dead").expect("a rule");
            channel.set_dead_letters(rules.of("t", "channel"));
        }
        let mut next = 0;
        for _ in 0..random.below(60) {
            next += random.below(3);
            let end = next + 1 + random.below(4);
            channel.waiting.push(seqs(next, end));
            next = end;
        }
        World {
            random,
            channel,
            now: Duration::ZERO,
            finished: BTreeSet::new(),
            states: BTreeMap::new(),
        }
    }

    fn note(&mut self, seq: Seq, attempts: u16, due: Option<Duration>) {
        self.states.entry(seq).or_default().push((attempts, due));
    }

    /// A message in flight, any of them.
    fn any_in_flight(&mut self) -> Option<(Seq, u16)> {
        let count = self.channel.window.count();
        let nth = self.random.below(count.max(1));
        let (seq, entry) = self.channel.window.iter().nth(nth as usize)?;
        Some((seq, entry.attempts))
    }

    fn move_something(&mut self) {
        match self.random.below(8) {
            0 | 1 => {
                let Some(front) = self.channel.waiting.front() else {
                    return;
                };
                let count = 1 + self.random.below(front.len());
                let range = self.channel.waiting.take_front(count);
                let window = &mut self.channel.window;
                window.insert(range, owner(), 1, self.now, MINUTE);
                for seq in range.start.0..range.end.0 {
                    self.note(Seq(seq), 1, None);
                }
            }
            2 => {
                let Some(SingleMessage { seq, attempts }) = self.channel.requeued.pop_front()
                else {
                    return;
                };
                if self.random.below(4) == 0 {
                    self.channel
                        .requeued
                        .push_front(SingleMessage { seq, attempts });
                    return;
                }
                let (one, attempts) = (SeqRange::one(seq), attempts + 1);
                let window = &mut self.channel.window;
                window.insert(one, owner(), attempts, self.now, MINUTE);
                self.note(seq, attempts, None);
            }
            3 => {
                let Some((seq, attempts)) = self.any_in_flight() else {
                    return;
                };
                let wait = MINUTE * self.random.below(3) as u32;
                let is_counted = self.random.below(4) != 0;
                let how = Requeue {
                    timeout: wait,
                    is_counted,
                };
                let attempts = how.attempts_left(attempts);
                let requeued = self.channel.requeue(seq, owner(), self.now, how);
                requeued.expect("it is in flight");
                self.note(seq, attempts, (!wait.is_zero()).then(|| self.now + wait));
            }
            4 => {
                let Some((seq, _)) = self.any_in_flight() else {
                    return;
                };
                let taken = self.channel.window.take(seq, owner());
                taken.expect("it is in flight");
                self.finished.insert(seq);
            }
            5 => {
                let Some(dead) = &mut self.channel.dead_letters else {
                    return;
                };
                // A message leaves for the dead-letter topic.
                if let Some(message) = dead.pop() {
                    dead.send(message, b"body".to_vec());
                }
            }
            6 => {
                let Some(dead) = &mut self.channel.dead_letters else {
                    return;
                };
                let Some((seq, _)) = dead.sent_from(Seq(0)).next() else {
                    return;
                };
                if self.random.below(2) == 0 {
                    self.channel.return_dead_letter(self.now, seq);
                } else {
                    assert!(dead.finish(self.now, seq, seq));
                    self.finished.insert(seq);
                }
            }
            _ => {
                self.now += MINUTE / 4;
                let in_flight: Vec<(Seq, Entry)> = self.channel.window.iter().collect();
                let deferred: Vec<DeferredEntry> =
                    self.channel.deferred.iter_behind(None).collect();
                let mut clients = Clients::default();
                let mut work = Work::new(self.random.below(5) as usize);
                self.channel
                    .handle_timeout(self.now, &mut clients, &mut work);
                for (seq, entry) in in_flight {
                    self.note(seq, entry.attempts, None);
                }
                for entry in deferred {
                    self.note(entry.seq, entry.attempts, None);
                }
            }
        }
    }
}

/// Each message that is owed from the beginning of a scan to its end is found, in a state that it had
/// meanwhile; and no slice is longer than it may be.
#[test]
fn a_scan_misses_no_message_that_moves() {
    let mut slices = 0;
    for seed in 0..3_000 {
        let mut world = World::new(seed);
        for _ in 0..world.random.below(80) {
            world.move_something();
        }
        let owed = world.channel.owed();
        world.finished.clear();
        world.states.clear();
        for range in world.channel.waiting.iter().collect::<Vec<_>>() {
            for seq in range.start.0..range.end.0 {
                world.note(Seq(seq), 0, None);
            }
        }
        for entry in world.channel.deferred.iter_behind(None).collect::<Vec<_>>() {
            world.note(entry.seq, entry.attempts, Some(entry.due));
        }
        for entry in world.channel.requeued.iter().copied().collect::<Vec<_>>() {
            world.note(entry.seq, entry.attempts, None);
        }
        for (seq, entry) in world.channel.window.iter().collect::<Vec<_>>() {
            world.note(seq, entry.attempts, None);
        }
        if let Some(dead) = &world.channel.dead_letters {
            let waiting = dead
                .waiting()
                .iter()
                .map(|entry| (entry.seq, entry.attempts));
            let sent = dead
                .sent_from(Seq(0))
                .map(|(seq, sent)| (seq, sent.attempts));
            for (seq, attempts) in waiting.chain(sent).collect::<Vec<_>>() {
                world.note(seq, attempts, None);
            }
        }
        let mut scan = Scan::Begin;
        let mut found = BTreeMap::new();
        loop {
            let slice = 1 + world.random.below(30) as usize;
            let noted = world.channel.moved.as_ref().map_or(0, Vec::len);
            let mut work = Work::new(slice);
            let is_done = world.channel.scan(
                &mut scan,
                &mut work,
                |due| due.as_nanos() as u64,
                |run| {
                    for seq in run.start.0..run.start.0 + run.count {
                        found.insert(Seq(seq), (run.attempts, run.due_ns));
                    }
                },
            );
            assert!(work.spent() <= slice + noted, "seed {seed}");
            slices += 1;
            if is_done {
                break;
            }
            for _ in 0..world.random.below(20) {
                world.move_something();
            }
        }
        assert!(world.channel.moved.is_none());
        for seq in owed {
            if world.finished.contains(&seq) {
                continue;
            }
            let Some((attempts, due_ns)) = found.get(&seq) else {
                panic!("seed {seed}: {seq:?} is missed");
            };
            let due = (*due_ns > 0).then(|| Duration::from_nanos(*due_ns));
            let states = &world.states[&seq];
            assert!(
                states.contains(&(*attempts, due)),
                "seed {seed}: {seq:?} was never {attempts} {due:?} but {states:?}"
            );
        }
        world.channel.waiting.check();
        world.channel.window.check();
    }
    assert!(slices > 6_000, "{slices} slices: nothing moved meanwhile");
}
