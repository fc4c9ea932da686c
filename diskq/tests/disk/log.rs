//! The log with its keeper over a simulated disk, compared with a model.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use diskq::{Files, Keeper, log_path, open_log};
use diskq_log::policy::{LARGE_FROM, SPILLING_ENOUGH};
use diskq_log::range::{normalise, within};
use diskq_log::segment::{slot_at, slot_offset};
use diskq_log::slot::{SLOT_BYTES, SlotKind};
use diskq_log::{
    AppendError, ChannelCheckpoint, Checkpoint, CheckpointJob, CheckpointNumber, CheckpointRun,
    Damage, DamageKind, Durable, Failure, Log, LogOptions, LogStats, Notice, Pages, Recovered,
    Reply, Request, Residency, Run, Segment, SegmentNumber, Seq, SeqRange, SyncFailure, SyncJob,
    Taken, TopicFile, segment_file,
};
use diskq_sim::{Call, Crash, SimFiles};
use proptest::prelude::*;
use wire::frame::HEADER_BYTES;

use super::{TOPIC, WALL_NS, data_path};

fn small_options() -> LogOptions {
    LogOptions {
        node: 3,
        segment_bytes_min: 4096,
        segment_bytes_steady: 8192,
        segment_bytes_max: 16_384,
        resident_messages: 10,
        resident_bytes_min: 16_384,
        sync_every: 20,
        sync_timeout: Duration::from_secs(2),
        pool_segments_min: 2,
        process_seed: 1,
        slots: SlotKind::Plain,
    }
}

/// Sealed segments leave memory early.
fn cold_options() -> LogOptions {
    LogOptions {
        resident_messages: 0,
        ..small_options()
    }
}

/// The contents of a topic's file. No test reads them.
#[derive(Debug)]
struct NoKeys;

impl TopicFile for NoKeys {
    fn write(&self, out: &mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        out(b"none")
    }
}

/// A log with its keeper, its simulated disk, and what ought to be true of them.
struct World {
    files: SimFiles,
    keeper: Keeper<SimFiles>,
    log: Log,
    options: LogOptions,
    mono: Duration,
    notices: Vec<Notice>,
    /// Every message ever appended; also proves that no seq is used twice.
    bodies: BTreeMap<Seq, Vec<u8>>,
    /// The messages that are not finished, with the number of their holders.
    owed: BTreeMap<Seq, u64>,
    pinned: Vec<Run>,
    synced: Seq,
    lost_power: bool,
}

impl World {
    fn new(options: LogOptions) -> World {
        World::on(SimFiles::new(), options)
    }

    /// A log with small segments, and other options that the test wants.
    fn with(change: impl FnOnce(&mut LogOptions)) -> World {
        let mut options = small_options();
        change(&mut options);
        World::new(options)
    }

    /// A log with small segments and so many messages of this size.
    fn filled(count: usize, bytes: usize) -> World {
        let mut world = World::new(small_options());
        world.fill(count, bytes);
        world
    }

    fn on(files: SimFiles, options: LogOptions) -> World {
        World {
            keeper: Keeper::new(files.clone(), data_path()),
            files,
            log: Log::new(options.clone()),
            options,
            mono: Duration::from_secs(1),
            notices: Vec::new(),
            bodies: BTreeMap::new(),
            owed: BTreeMap::new(),
            pinned: Vec::new(),
            synced: Seq(0),
            lost_power: false,
        }
    }

    fn wall_ns(&self) -> u64 {
        WALL_NS + self.mono.as_nanos() as u64
    }

    /// Has the keeper do up to `count` jobs.
    fn pump(&mut self, count: usize) {
        for _ in 0..count {
            let Some(request) = self.log.next_request() else {
                break;
            };
            self.answer(request);
        }
        for notice in &self.notices {
            if let Notice::Synced(seq) = notice {
                self.synced = self.synced.max(*seq);
            }
        }
    }

    fn answer(&mut self, request: Request) {
        self.files.observe(&data_path(), TOPIC, &self.log);
        if let Some(reply) = self.keeper.handle(TOPIC, request) {
            self.log.handle_reply(self.mono, reply, &mut self.notices);
            self.log.check();
        }
    }

    fn body(&self, bytes: usize) -> Vec<u8> {
        let salt = self.bodies.len() as u8;
        (0..bytes)
            .map(|at| (at as u8).wrapping_mul(31) ^ salt)
            .collect()
    }

    fn appended(&mut self, seq: Seq, body: Vec<u8>, holders: u64) {
        let was = self.bodies.insert(seq, body);
        assert!(was.is_none(), "seq {} is used twice", seq.0);
        if holders > 0 {
            self.log.retain(SeqRange::one(seq), holders);
            self.owed.insert(seq, holders);
        }
        self.log.make_checkpoint_due();
        self.log.check();
    }

    fn append(&mut self, bytes: usize, defer_ms: u32) -> Result<Seq, AppendError> {
        let body = self.body(bytes);
        let wall_ns = self.wall_ns();
        let seq = self.log.append(self.mono, wall_ns, &body, defer_ms)?;
        self.appended(seq, body, 1);
        Ok(seq)
    }

    fn must_append(&mut self, bytes: usize) -> Seq {
        loop {
            match self.append(bytes, 0) {
                Ok(seq) => return seq,
                Err(AppendError::WouldBlock) => self.pump(1),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn append_batch(&mut self, count: usize, bytes: usize) {
        let bodies: Vec<Vec<u8>> = (0..count).map(|i| self.body(bytes + i)).collect();
        let total = bodies.iter().map(|body| body.len() as u64).sum();
        let slices = bodies.iter().map(Vec::as_slice);
        let before = self.log.next_seq();
        let (mono, wall_ns, count_u32) = (self.mono, self.wall_ns(), count as u32);
        let log = &mut self.log;
        match log.append_batch(mono, wall_ns, slices, count_u32, total) {
            Ok(range) => {
                assert_eq!(range.len(), count as u64);
                self.log.retain(range, 2);
                for (body, seq) in bodies.into_iter().zip(range.start.0..) {
                    self.appended(Seq(seq), body, 0);
                    self.owed.insert(Seq(seq), 2);
                }
            }
            Err(_) => assert_eq!(self.log.next_seq(), before, "half a batch"),
        }
    }

    /// Appends messages of this size. The keeper does its jobs meanwhile.
    fn fill(&mut self, count: usize, bytes: usize) {
        for _ in 0..count {
            self.must_append(bytes);
            self.pump(10);
        }
    }

    /// Has everything appended synced.
    fn sync(&mut self) {
        self.log.sync_now();
        self.pump(10);
    }

    /// The keeper tells the log that a sync has ended well.
    fn end_sync(&mut self, upto: Seq) {
        let result = Ok(());
        self.reply(Reply::Synced { upto, result });
    }

    fn reply(&mut self, reply: Reply) {
        self.log.handle_reply(self.mono, reply, &mut self.notices);
    }

    /// Takes the front of a range: at most ten messages.
    fn take_ten(&mut self, range: SeqRange) -> Taken {
        self.log.take_run(range, 10, u32::MAX)
    }

    fn is_poisoned(&mut self) -> bool {
        matches!(self.append(100, 0), Err(AppendError::Poisoned(_)))
    }

    /// A sync has failed, and the log takes no more messages.
    fn has_failed_for_good(&mut self) -> bool {
        let is_told = self.told(|notice| matches!(notice, Notice::SyncFailed(_)));
        is_told && self.log.health().is_some() && self.is_poisoned()
    }

    /// Appends a message, if there is room. If that has to wait, the keeper does its jobs.
    fn try_append(&mut self, bytes: usize) -> Result<Seq, AppendError> {
        let result = self.append(bytes, 0);
        match result {
            Ok(_) | Err(AppendError::WouldBlock) => self.pump(10),
            Err(AppendError::Full(_)) => {}
            Err(ref error) => panic!("{error}"),
        }
        result
    }

    /// Appends messages until the disk has no room.
    fn fill_disk(&mut self, bytes: usize) {
        while !matches!(self.try_append(bytes), Err(AppendError::Full(_))) {}
    }

    fn finish(&mut self, seq: Seq) {
        let holders = self.owed.remove(&seq).unwrap();
        for _ in 0..holders {
            self.log.release(seq);
            self.log.check();
        }
        self.log.make_checkpoint_due();
    }

    fn finish_range(&mut self, range: SeqRange) {
        (range.start.0..range.end.0).for_each(|seq| self.finish(Seq(seq)));
    }

    /// Messages of this size come, and each is finished before the next one comes.
    fn flow(&mut self, count: usize, bytes: usize) {
        for _ in 0..count {
            let seq = self.must_append(bytes);
            self.finish(seq);
            self.pump(10);
        }
    }

    fn finish_all(&mut self) {
        while let Some((&seq, _)) = self.owed.first_key_value() {
            self.finish(seq);
        }
    }

    /// The next job, which is a sync.
    fn next_sync(&mut self) -> SyncJob {
        match self.log.next_request() {
            Some(Request::Sync(job)) => job,
            other => panic!("{other:?}"),
        }
    }

    fn frames_are_right(&self, run: &Run) {
        let bytes = self.log.bytes(run);
        let mut at = 0;
        for index in 0..u64::from(run.count) {
            let size = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
            let body = &bytes[at + 34..at + 4 + size];
            let expected = &self.bodies[&run.first.offset(index)];
            assert_eq!(body, expected, "a wrong message");
            at += 4 + size;
        }
        assert_eq!(at, bytes.len());
    }

    /// Takes from `seq` what comes, and compares it. Loads as needed if `patient`.
    fn take(&mut self, range: SeqRange, count_max: u32, bytes_max: u32) -> Option<Run> {
        match self.log.take_run(range, count_max, bytes_max) {
            Taken::Run(run) => {
                assert!(run.first == range.start && (1..=count_max).contains(&run.count));
                assert!(run.count == 1 || run.end - run.start <= bytes_max);
                assert!(u64::from(run.count) <= range.len());
                self.frames_are_right(&run);
                Some(run)
            }
            Taken::Loading => None,
            Taken::Damaged(range) => panic!("damage where there is none: {range:?}"),
        }
    }

    /// The first run of consecutive seqs that is owed at or after the `nth` owed seq.
    fn owed_run(&self, nth: usize) -> Option<SeqRange> {
        let &start = self.owed.keys().cycle().nth(nth % self.owed.len().max(1))?;
        let mut end = start;
        while self.owed.contains_key(&end) {
            end = Seq(end.0 + 1);
        }
        Some(SeqRange::new(start, end))
    }

    fn checkpoint(&self) -> Checkpoint {
        let mut ranges: Vec<SeqRange> = self.owed.keys().map(|&seq| SeqRange::one(seq)).collect();
        normalise(&mut ranges);
        let runs = ranges.iter().map(|range| CheckpointRun {
            start: range.start,
            count: range.len(),
            attempts: 1,
            due_ns: 0,
        });
        let channel = ChannelCheckpoint {
            name: "channel".into(),
            paused: false,
            runs: runs.collect(),
            ..ChannelCheckpoint::default()
        };
        Checkpoint {
            channels: vec![channel],
            ..Checkpoint::default()
        }
    }

    fn write_checkpoint(&mut self, durable: Durable) -> CheckpointNumber {
        while self.log.is_checkpoint_under_way() {
            self.pump(1);
        }
        let checkpoint = self.checkpoint();
        let number = self.log.write_checkpoint(self.mono, &checkpoint, durable);
        self.log.check();
        number
    }

    /// Writes a checkpoint. The keeper does its jobs.
    fn record(&mut self, durable: Durable) -> CheckpointNumber {
        let number = self.write_checkpoint(durable);
        self.pump(10);
        number
    }

    fn is_due_in(&self, seconds: u64) -> bool {
        let at = self.mono + Duration::from_secs(seconds);
        self.log.checkpoint_due(at)
    }

    /// Stops and starts; what must be there is there, and nothing that never was.
    fn crash(&mut self, crash: Crash) -> Recovered {
        self.files.observe(&data_path(), TOPIC, &self.log);
        self.files.crash(crash);
        self.mono += Duration::from_secs(1);
        self.notices.clear();
        self.pinned.clear();
        let wall_ns = self.wall_ns();
        self.options.process_seed += 1;
        let options = self.options.clone();
        let recovered = open_log(&self.files, &data_path(), TOPIC, options, wall_ns).unwrap();
        // A power failure leaves checkpoints and heads behind that were being written, and takes the checkpoint file of a
        // new log.
        let has_lost_power = self.lost_power || crash != Crash::Process;
        let harmless = |damage: &Damage| match damage.kind {
            DamageKind::Checkpoint | DamageKind::CheckpointFile => true,
            DamageKind::Header => crash != Crash::Process,
            DamageKind::CheckpointLost => has_lost_power,
            _ => false,
        };
        let damage = &recovered.damage;
        assert!(damage.iter().all(harmless), "{damage:?}");
        recovered
    }

    fn reopen(&mut self, crash: Crash) {
        let Recovered {
            log,
            checkpoint,
            found,
            damage,
            ..
        } = self.crash(crash);
        // A checkpoint torn by a power failure or a failed write is seen until it is written again.
        self.lost_power |= crash != Crash::Process;
        let may_be_torn = self.lost_power || self.files.fail_count() > 0;
        assert!(may_be_torn || damage.is_empty(), "{damage:?}");
        self.log = log;
        let next = checkpoint
            .as_ref()
            .map_or(Seq(0), |checkpoint| checkpoint.next);
        let mut found_owed: Vec<SeqRange> = checkpoint.iter().flat_map(|c| c.named()).collect();
        found_owed.push(SeqRange::new(next, Seq(u64::MAX)));
        normalise(&mut found_owed);
        let mut back = BTreeSet::new();
        for range in &found {
            for owed in within(*range, &found_owed) {
                self.log.retain(owed, 1);
                back.extend((owed.start.0..owed.end.0).map(Seq));
            }
        }
        for &seq in self.owed.keys() {
            let must_be_back = crash == Crash::Process || seq < self.synced;
            let is_lost = must_be_back && !back.contains(&seq);
            assert!(!is_lost, "message {} is lost", seq.0);
        }
        let is_known = |seq| self.bodies.contains_key(seq);
        assert!(back.iter().all(is_known), "an invented message");
        let last = self.bodies.keys().next_back();
        assert!(Some(&self.log.next_seq()) > last, "a seq comes again");
        self.owed = back.into_iter().map(|seq| (seq, 1)).collect();
        self.log.release_unheld();
        self.log.check();
        self.synced = self.log.synced();
    }

    /// Everything owed can be read, in the end.
    fn drain(&mut self) {
        self.files.limit(None);
        while let Some(range) = self.owed_run(0) {
            match self.take(range, 100, u32::MAX) {
                Some(run) => {
                    for seq in run.first.0..run.first.0 + u64::from(run.count) {
                        self.finish(Seq(seq));
                    }
                }
                None => {
                    // A socket write ends at some time.
                    self.unpin();
                    self.step_time(300);
                }
            }
        }
    }

    /// Ends a socket write.
    fn unpin(&mut self) {
        if let Some(run) = self.pinned.pop() {
            self.frames_are_right(&run);
            self.log.unpin(run.first);
        }
    }

    /// Time passes, in which the keeper does nothing.
    fn tick(&mut self, time: Duration) {
        self.mono += time;
        self.log.handle_timeout(self.mono);
    }

    fn step_time(&mut self, ms: u64) {
        self.tick(Duration::from_millis(ms));
        self.log.check();
        self.pump(usize::MAX);
    }

    fn told(&mut self, wanted: impl Fn(&Notice) -> bool) -> bool {
        let is_told = self.notices.iter().any(wanted);
        self.notices.clear();
        is_told
    }
}

/// A durable checkpoint was written.
fn is_synced(notice: &Notice) -> bool {
    matches!(notice, Notice::Checkpointed { synced: true, .. })
}

/// The path of a segment's file.
fn file(number: SegmentNumber) -> PathBuf {
    log_path(&data_path(), TOPIC).join(segment_file(number))
}

#[derive(Clone, Debug)]
enum Op {
    Append(usize, u32),
    Batch(usize, usize),
    Finish(usize),
    FinishRun(usize),
    Take(usize, u32, u32),
    Unpin,
    Pump(usize),
    Time(u64),
    SyncNow,
    WantSync,
    Checkpoint(Durable),
    Limit(Option<u64>),
    Reopen(Crash),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (1usize..900, 0u32..3).prop_map(|(bytes, defer)| Op::Append(bytes, defer)),
        3 => (1usize..20, 1usize..300).prop_map(|(count, bytes)| Op::Batch(count, bytes)),
        1 => Just(Op::Append(20_000, 0)),
        6 => (0usize..1000).prop_map(Op::Finish),
        4 => (0usize..1000).prop_map(Op::FinishRun),
        8 => (0usize..1000, 1u32..50, 1u32..5000).prop_map(|(n, c, b)| Op::Take(n, c, b)),
        4 => Just(Op::Unpin),
        12 => (1usize..5).prop_map(Op::Pump),
        5 => (1u64..3000).prop_map(Op::Time),
        2 => Just(Op::SyncNow),
        2 => Just(Op::WantSync),
        4 => prop::sample::select(vec![Durable::No, Durable::IfNeeded, Durable::Yes])
            .prop_map(Op::Checkpoint),
        1 => prop::option::of(20_000u64..60_000).prop_map(Op::Limit),
        1 => Just(Op::Reopen(Crash::Process)),
        1 => any::<u64>().prop_map(|seed| Op::Reopen(Crash::Power { seed })),
    ]
}

fn run(world: &mut World, op: Op) {
    match op {
        Op::Append(bytes, defer_ms) => {
            let _ = world.append(bytes, defer_ms);
        }
        Op::Batch(count, bytes) => world.append_batch(count, bytes),
        Op::Finish(nth) => {
            if let Some(range) = world.owed_run(nth) {
                world.finish(range.start);
            }
        }
        Op::FinishRun(nth) => {
            if let Some(range) = world.owed_run(nth) {
                // All holders of each, by whole ranges.
                for _ in 0..2 {
                    let left: Vec<SeqRange> = (range.start.0..range.end.0)
                        .map(|seq| SeqRange::one(Seq(seq)))
                        .filter(|one| world.owed.get(&one.start).is_some_and(|&count| count > 0))
                        .collect();
                    for one in left {
                        world.log.release_range(one);
                        *world.owed.get_mut(&one.start).unwrap() -= 1;
                    }
                }
                world.owed.retain(|_, holders| *holders > 0);
                world.log.check();
            }
        }
        Op::Take(nth, count_max, bytes_max) => {
            if let Some(range) = world.owed_run(nth)
                && let Some(run) = world.take(range, count_max, bytes_max)
            {
                world.log.pin(run.first);
                world.pinned.push(run);
            }
        }
        Op::Unpin => world.unpin(),
        Op::Pump(count) => world.pump(count),
        Op::Time(ms) => {
            world.tick(Duration::from_millis(ms));
            if world.log.checkpoint_due(world.mono) {
                world.write_checkpoint(Durable::IfNeeded);
            }
        }
        Op::SyncNow => world.log.sync_now(),
        Op::WantSync => world.log.want_sync(),
        Op::Checkpoint(durable) => {
            world.write_checkpoint(durable);
        }
        Op::Limit(bytes) => world
            .files
            .limit(bytes.map(|more| world.files.bytes() + more)),
        Op::Reopen(crash) => world.reopen(crash),
    }
    world.log.check();
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_log_keeps_what_it_took(ops in prop::collection::vec(op(), 1..400)) {
        let mut world = World::new(small_options());
        for op in ops {
            run(&mut world, op);
        }
        world.drain();
        world.reopen(Crash::Process);
        world.drain();
    }
}

#[test]
fn a_new_log_costs_nothing() {
    let mut log = Log::new(small_options());
    assert!(log.next_request().is_none());
    assert_eq!(log.next_timeout(), None);
    assert_eq!(log.stats(), LogStats::default());
    assert!(log.is_synced());
    assert!(log.close().is_empty());
}

#[test]
fn segments_double_with_the_flow_and_grow_with_the_backlog() {
    let mut world = World::with(|it| {
        it.segment_bytes_max = 65_536;
        it.resident_bytes_min = 65_536;
    });
    world.fill(3000, 300);
    let sizes: Vec<u32> = world
        .log
        .segments()
        .map(|segment| segment.head.bytes)
        .collect();
    // The second was on its way.
    assert_eq!(sizes[..4], [4096, 4096, 8192, 8192]);
    assert_eq!(sizes.last(), Some(&65_536));
    assert!(sizes.is_sorted(), "{sizes:?}");
    world.drain();
    for _ in 0..800 {
        let seq = world.must_append(300);
        world.finish(seq);
        world.pump(1);
    }
    let tail = world.log.tail().unwrap();
    assert_eq!(tail.head.bytes, 4096, "and shrink with it");
    let bytes = world.log.stats().disk_bytes;
    assert!(bytes < 65_536, "{bytes} bytes of tail, spare and pool");
}

#[test]
fn a_topic_whose_consumers_keep_up_stays_within_a_part_of_one_segment() {
    let mut world = World::new(small_options());
    world.flow(1000, 300);
    assert_eq!(world.log.prepared_upto(), SegmentNumber(1));
    // The log goes on behind the messages that a durable checkpoint names.
    let seq = world.must_append(1500);
    world.record(Durable::Yes);
    world.finish(seq);
    let base = |world: &World| world.log.tail().map(|tail| tail.head.base);
    let before = base(&world);
    let later = world.must_append(10);
    assert_eq!(base(&world), before, "it is named");
    world.finish(later);
    world.record(Durable::Yes);
    let later = world.must_append(10);
    assert_eq!(base(&world), Some(later), "it is named no more");
}

#[test]
fn what_nobody_holds_is_not_synced() {
    let mut world = World::new(small_options());
    let seq = world.must_append(300);
    world.write_checkpoint(Durable::Yes);
    world.finish(seq);
    world.pump(100);
    let syncs = |world: &mut World| {
        let mut count = 0;
        for _ in 0..3 {
            let seq = world.must_append(300);
            world.finish(seq);
            world.tick(Duration::from_secs(3));
            world.write_checkpoint(Durable::IfNeeded);
            while let Some(request) = world.log.next_request() {
                count += usize::from(request.is_sync());
                world.answer(request);
            }
        }
        count
    };
    // The first checkpoint behind one that owes.
    assert_eq!(syncs(&mut world), 1);
    assert_eq!(syncs(&mut world), 0, "nothing is owed, and nothing was");
    let seq = world.must_append(300);
    world.write_checkpoint(Durable::No);
    world.finish(seq);
    // What a checkpoint names that is not durable waits, too.
    assert_eq!(syncs(&mut world), 1);
    assert_eq!(syncs(&mut world), 0);
    let held = world.must_append(300);
    assert_eq!(syncs(&mut world), 6, "messages and checkpoints");
    world.finish(held);
    // A checkpoint that owes nothing any more.
    assert_eq!(syncs(&mut world), 1);
    assert_eq!(syncs(&mut world), 0);
}

#[test]
fn a_slow_flow_stays_in_the_same_small_segments() {
    let mut world = World::new(small_options());
    for _ in 0..1000 {
        let seq = world.must_append(300);
        world.finish(seq);
        world.step_time(100);
        if world.log.checkpoint_due(world.mono) {
            world.write_checkpoint(Durable::No);
        }
        world.pump(10);
    }
    let tail = world.log.tail();
    assert_eq!(tail.map(|tail| tail.head.bytes), Some(4096));
    let made = world.log.prepared_upto().0;
    assert!(made <= 4, "{made} files");
}

fn spilling_options() -> LogOptions {
    LogOptions {
        resident_messages: 0,
        resident_bytes_min: 0,
        segment_bytes_max: 8192,
        ..small_options()
    }
}

/// A log whose sealed segments leave memory at once, and what it holds.
fn spilling_world() -> World {
    let mut world = World::new(spilling_options());
    world.fill(60, 500);
    world
}

/// The publish time of a message that is not in memory is that of the first message of its segment, also after a start
/// that has not read the segment.
#[test]
fn the_publish_time_is_known_without_a_read() {
    let mut world = World::new(spilling_options());
    let mut published = BTreeMap::new();
    for _ in 0..60 {
        let seq = world.must_append(500);
        published.insert(seq, world.wall_ns());
        world.tick(Duration::from_millis(7));
        world.pump(10);
    }
    let check = |log: &Log| {
        let mut cold_count = 0;
        for segment in log.segments() {
            let first = published[&segment.head.base];
            for seq in (segment.head.base.0..segment.end_seq().0).map(Seq) {
                let exact = published[&seq];
                let is_cold = !segment.is_in_memory();
                cold_count += u64::from(is_cold && first != exact);
                let expected = if is_cold { first } else { exact };
                assert_eq!(log.published_ns(seq), Some(expected), "{seq:?}");
            }
        }
        assert_eq!(log.published_ns(Seq(1)), None, "no segment has it");
        cold_count
    };
    assert!(check(&world.log) > 20);
    world.sync();
    world.log.seal();
    world.record(Durable::Yes);
    let recovered = world.crash(Crash::Process);
    assert!(check(&recovered.log) > 40);
}

/// After a start, the oldest message had the time of the first message of its segment: on a quiet topic, hours before.
#[test]
fn the_oldest_message_has_its_own_time_after_a_start() {
    for is_sealed in [false, true] {
        let mut world = World::new(small_options());
        let mut published = Vec::new();
        for _ in 0..20 {
            let seq = world.must_append(50);
            published.push((seq, world.wall_ns()));
            world.tick(Duration::from_millis(7));
            world.pump(10);
        }
        for (seq, _) in &published[..15] {
            world.finish(*seq);
        }
        world.sync();
        if is_sealed {
            world.log.seal();
        }
        world.record(Durable::Yes);
        let log = world.crash(Crash::Process).log;
        let (oldest, oldest_ns) = published[15];
        let segment = log.segments().find(|it| it.range().contains(oldest));
        let segment = segment.expect("it is there");
        assert!(!segment.is_in_memory() && segment.head.base < oldest);
        assert_eq!(log.published_ns(oldest), Some(oldest_ns));
        // A later message is too old rather than too young.
        let (later, later_ns) = published[18];
        let shown = log.published_ns(later).expect("it is known");
        assert!((oldest_ns..=later_ns).contains(&shown));
    }
}

#[test]
fn a_backlog_goes_through_a_few_files_in_memory() {
    let mut world = spilling_world();
    let mut prepared = 0;
    for _ in 0..1000 {
        while world.append(500, 0).is_err() {
            let request = world.log.next_request().expect("a job to wait for");
            prepared += usize::from(matches!(request, Request::Prepare { .. }));
            world.files.observe(&data_path(), TOPIC, &world.log);
            if let Some(reply) = world.keeper.handle(TOPIC, request) {
                world.reply(reply);
            }
        }
    }
    let stats = world.log.stats();
    assert!(stats.segment_count > 60, "{stats:?}");
    assert!(
        prepared < 16 && stats.mappings < 16,
        "{prepared}, {stats:?}"
    );
    world.drain();
}

#[test]
fn a_flow_that_fills_its_segments_quicker_than_it_is_synced_has_large_pages() {
    let mut options = small_options();
    // All of them stay in memory: each segment is a new one.
    options.resident_messages = 1000;
    let pages_of_next = |options: &LogOptions, ms_each: u64| {
        let mut world = World::new(options.clone());
        let mut pages = Vec::new();
        for _ in 0..60 {
            world.must_append((LARGE_FROM / 8) as usize);
            world.tick(Duration::from_millis(ms_each));
            while let Some(request) = world.log.next_request() {
                if let Request::Prepare { pages: of_it, .. } = &request {
                    pages.push(*of_it);
                }
                world.answer(request);
            }
        }
        pages
    };
    // The first one is made by must_append. A sync is due after 2 s.
    let mut check = |segment_bytes: u32, ms_each: u64, expected: Pages| {
        options.segment_bytes_min = segment_bytes;
        options.segment_bytes_steady = segment_bytes;
        let pages = pages_of_next(&options, ms_each);
        assert!(pages.len() > 3, "{pages:?}");
        assert!(pages.iter().all(|pages| *pages == expected), "{pages:?}");
    };
    check(LARGE_FROM, 1, Pages::Large);
    check(LARGE_FROM, 2000, Pages::Small);
    check(LARGE_FROM / 2, 1, Pages::Small);
}

/// The copy of a segment that stays where it is was removed, but not for good: a power loss brought it
/// back, torn, and start-up removed the original for it.
#[test]
fn a_reader_that_comes_while_a_segment_is_spilled_is_served() {
    let crashes = (0..200).map(|seed| Crash::Power { seed });
    for crash in crashes.chain([Crash::Process]) {
        let mut world = spilling_world();
        world.fill(100, 500);
        world.sync();
        let is_spilling = |segment: &&Segment| {
            let residency = &segment.residency;
            matches!(residency, Residency::Spilling { is_synced, .. } if !is_synced)
        };
        // The names of the files that are mapped are durable, and the copy's is not.
        let (number, range) = loop {
            world.must_append(500);
            let spilling = world.log.segments().find(is_spilling);
            if let Some(segment) = spilling {
                break (segment.number, segment.range());
            }
            world.pump(10);
        };
        assert_eq!(world.take_ten(range), Taken::Loading);
        world.pump(10);
        assert!(world.told(|notice| *notice == Notice::Loaded(range)));
        assert!(world.take(range, 10, u32::MAX).is_some());
        let is_where_it_was = |segment: &Segment| segment.number == number;
        assert!(world.log.segments().any(is_where_it_was));
        world.sync();
        assert!(world.log.is_synced());
        // Start-up does not read what the checkpoint names below its mark.
        if matches!(crash, Crash::Power { seed } if seed % 2 == 0) {
            world.record(Durable::Yes);
        }
        world.reopen(crash);
        world.drain();
    }
}

#[test]
fn what_is_finished_while_it_is_spilled_leaves_no_file() {
    let mut world = spilling_world();
    while !world.log.segments().any(is_being_spilled) {
        world.must_append(500);
    }
    world.finish_all();
    world.record(Durable::Yes);
    world.log.check();
    let stats = world.log.stats();
    let segments = world.files.list(&log_path(&data_path(), TOPIC)).unwrap();
    let files: u64 = segments
        .iter()
        .filter(|entry| entry.name.ends_with(".segment"))
        .map(|entry| entry.bytes)
        .sum();
    assert_eq!(files, stats.disk_bytes, "{segments:?}");
}

/// The spill fails at each of its steps but the last: what it held is served, synced where it was, and spilled
/// later. A sync that counted on the copy proves nothing.
#[test]
pub(super) fn a_spill_that_fails_loses_nothing() {
    for (call, is_synced) in [
        (Call::Copy, false),
        (Call::Rename, false),
        (Call::Copy, true),
        (Call::Open, true),
        (Call::Sync, true),
        (Call::Rename, true),
    ] {
        let mut world = world_before_a_spill(spilling_world(), is_synced);
        world.files.fail_next(call, ErrorKind::StorageFull);
        world.log.sync_now();
        world.pump(1);
        assert_eq!(world.files.fail_count(), 1, "{call:?}");
        assert!(world.told(|notice| matches!(notice, Notice::SpillFailed(_))));
        assert!(!world.log.segments().any(is_being_spilled));
        assert_eq!(world.log.health(), None);
        world.pump(100);
        assert!(world.told(|notice| matches!(notice, Notice::Synced(_))));
        assert!(world.log.is_synced());
        world.reopen(Crash::Power { seed: 8 });
        world.drain();
    }
}

fn is_being_spilled(segment: &Segment) -> bool {
    matches!(segment.residency, Residency::Spilling { .. })
}

/// A log that has just asked for a spill, of a segment that was synced before or not.
fn world_before_a_spill(mut world: World, is_synced: bool) -> World {
    loop {
        world.must_append(500);
        if world.log.segments().any(is_being_spilled) {
            return world;
        }
        if is_synced {
            world.log.sync_now();
        }
        world.pump(10);
    }
}

/// A spill only said that its sync of the directory had failed. The kernel may have dropped the names of other new files
/// then, and the next sync of the directory succeeded.
#[test]
pub(super) fn a_spill_whose_sync_of_the_directory_fails_is_final() {
    for seed in 0..20 {
        // The files of a new log have new names.
        let world = World::on(SimFiles::seeded(seed), spilling_options());
        let mut world = world_before_a_spill(world, true);
        world.files.fail_next(Call::SyncDir, libc::EIO);
        world.pump(1);
        assert_eq!(world.files.fail_count(), 1);
        assert!(!world.log.segments().any(is_being_spilled));
        world.sync();
        // Checks that everything below the last sync is back.
        world.reopen(Crash::Power { seed });
        world.drain();
    }
    let mut world = world_before_a_spill(spilling_world(), true);
    world.files.fail_next(Call::SyncDir, libc::EIO);
    world.pump(1);
    assert!(world.told(|notice| matches!(notice, Notice::SyncFailed(_))));
    world.drain();
}

/// The kernel fails to write back what it has of a copy, and forgets the error together with the file.
#[test]
pub(super) fn a_copy_is_kept_although_write_back_fails() {
    let mut world = spilling_world();
    for _ in 0..60 {
        let _ = world.append(500, 0);
        while let Some(request) = world.log.next_request() {
            let copy = match &request {
                Request::Spill { copy, .. } => Some(file(*copy)),
                _ => None,
            };
            world.answer(request);
            if let Some(copy) = copy {
                world.files.fail_write_back_of(&copy, 1);
                world.files.evict_one(&copy);
            }
        }
    }
    world.sync();
    assert!(world.log.is_synced());
    world.reopen(Crash::Power { seed: 1 });
}

#[test]
pub(super) fn an_unfinished_write_keeps_its_segment() {
    let mut world = World::new(growing_options());
    let first = world.must_append(500);
    world.fill(40, 500);
    world.log.pin(first);
    world.finish_all();
    world.pump(100);
    world.log.check();
    world.log.unpin(first);
}

/// A segment that was not synced when it was spilled is synced with the others, and a synced one stays synced.
#[test]
fn a_spill_keeps_what_is_synced_and_leaves_the_rest_to_the_next_sync() {
    for seed in 0..20 {
        let mut world = spilling_world();
        for round in 0..20 {
            world.fill(30, 500);
            let cold = |segment: &&Segment| matches!(segment.residency, Residency::Cold);
            let sealed = world.log.sealed();
            let mut cold = sealed.iter().filter(cold);
            assert!(cold.any(|it| !it.is_durable()), "copies wait for a sync");
            if round < seed {
                world.sync();
                assert!(world.log.is_synced());
            }
        }
        // Checks that everything below the last sync is back.
        world.reopen(Crash::Power { seed });
        world.drain();
    }
}

#[test]
fn segments_of_a_backlog_are_no_larger_than_its_part_of_memory() {
    for part in [16_384, 65_536] {
        let mut world = World::with(|it| {
            it.resident_messages = 0;
            it.resident_bytes_min = part;
            it.segment_bytes_max = 1 << 20;
        });
        for _ in 0..4000 {
            world.must_append(500);
        }
        let sizes = world.log.segments().map(|segment| segment.head.bytes);
        assert_eq!(sizes.max().map(u64::from), Some(part));
    }
}

/// Appends until nothing but spills can make room, and returns them, not done.
fn append_until_all_is_spilling(world: &mut World) -> VecDeque<Request> {
    let mut spills = VecDeque::new();
    loop {
        while world.append(500, 0).is_ok() {}
        match world.log.next_request() {
            Some(spill @ Request::Spill { .. }) => spills.push_back(spill),
            Some(_) if spills.len() > 100 => panic!("more and more is made"),
            Some(other) => world.answer(other),
            None => return spills,
        }
    }
}

#[test]
fn nothing_new_is_made_while_enough_is_being_spilled() {
    let mut world = spilling_world();
    let mut spills = append_until_all_is_spilling(&mut world);
    assert_eq!(spills.len(), SPILLING_ENOUGH as usize);
    for _ in 0..100 {
        world.notices.clear();
        world.answer(spills.pop_front().expect("they are enough"));
        assert!(world.told(|notice| *notice == Notice::Room));
        let more = append_until_all_is_spilling(&mut world);
        assert_eq!(more.len(), 1, "what came back is used, and nothing else");
        spills.extend(more);
    }
    let mappings = world.log.stats().mappings;
    assert!(
        mappings <= u64::from(SPILLING_ENOUGH) + 6,
        "{mappings} mappings"
    );
    spills.into_iter().for_each(|spill| world.answer(spill));
    world.drain();
}

#[test]
fn what_fails_to_be_spilled_and_what_comes_back_too_small_is_no_supply() {
    let mut world = spilling_world();
    let spills = append_until_all_is_spilling(&mut world);
    for spill in spills {
        world.files.fail_next(Call::Copy, ErrorKind::StorageFull);
        world.answer(spill);
    }
    world.notices.clear();
    world.pump(1);
    assert!(world.told(|notice| *notice == Notice::Room), "a new one");
    world.must_append(500);

    let mut world = spilling_world();
    let spills = append_until_all_is_spilling(&mut world);
    let too_large = 3 * world.options.segment_bytes_max as usize;
    assert!(world.append(too_large, 0).is_err());
    spills.into_iter().for_each(|spill| world.answer(spill));
    world.must_append(too_large);
    world.drain();
}

/// An MPUB of five megabytes of one-byte messages: a batch is in one segment, but those that follow were
/// as large as two of its kind.
#[test]
fn a_batch_of_tiny_messages_does_not_enlarge_what_follows() {
    let mut world = World::new(LogOptions {
        segment_bytes_max: 64 << 20,
        ..LogOptions::default()
    });
    let count = (5 << 20) / 5 - 1;
    let bodies = vec![b'x'; count as usize];
    let range = loop {
        let (mono, wall_ns) = (world.mono, world.wall_ns());
        let log = &mut world.log;
        match log.append_batch(mono, wall_ns, bodies.chunks(1), count, u64::from(count)) {
            Ok(range) => break range,
            Err(AppendError::WouldBlock) => world.pump(1),
            Err(error) => panic!("{error}"),
        }
    };
    world.log.retain(range, 1);
    world.pump(100);
    let bytes = world.log.stats().disk_bytes;
    assert!(
        bytes < 70 << 20,
        "{bytes} bytes for 51 MiB and a spare segment"
    );
}

#[test]
fn what_is_finished_at_once_is_recycled_without_the_keeper() {
    let mut world = World::new(small_options());
    let mut jobs = 0;
    for _ in 0..2000 {
        let seq = world.must_append(200);
        world.finish(seq);
        jobs += world.log.pending().len();
        world.pump(10);
    }
    let files = world.keeper.files().bytes();
    assert!(files < 10 * 8192, "{files} bytes on disk");
    assert!(jobs < 20, "{jobs} jobs for the keeper");
}

/// The files of before the start go with the first durable checkpoint. On a full disk, this checkpoint comes at once.
#[test]
fn after_a_crash_on_a_full_disk_finishing_makes_room() {
    let mut world = World::new(small_options());
    world.must_append(200);
    world.record(Durable::Yes);
    while world.log.stats().segment_count < 6 {
        world.must_append(200);
    }
    world.reopen(Crash::Process);
    world.files.limit(Some(world.files.bytes()));
    assert!(!world.owed.is_empty());
    world.finish_all();
    for _ in 0..2 {
        assert!(world.append(200, 0).is_err());
        world.pump(10);
    }
    let mut ms = 0;
    while world.append(200, 0).is_err() {
        ms += 50;
        assert!(ms <= 1000, "still full");
        world.step_time(50);
        if world.log.checkpoint_due(world.mono) {
            world.write_checkpoint(Durable::Yes);
        }
    }
}

#[test]
fn a_backlog_of_a_few_segments_that_comes_and_goes_makes_no_files() {
    let mut world = World::with(|it| {
        it.resident_messages = 1000;
        it.resident_bytes_min = 10 * 8192;
    });
    let mut made = Vec::new();
    for _ in 0..20 {
        let before = world.log.prepared_upto();
        let backlog: Vec<Seq> = (0..200).map(|_| world.must_append(200)).collect();
        for seq in backlog {
            world.finish(seq);
        }
        world.pump(100);
        made.push(world.log.prepared_upto().0 - before.0);
    }
    assert!(made[0] >= 7, "{made:?}");
    assert!(made[1..3].iter().all(|&count| count <= 1), "{made:?}");
    assert!(made[3..].iter().all(|&count| count == 0), "{made:?}");
    world.log.check();
}

#[test]
fn a_backlog_that_swings_makes_no_files() {
    let mut world = World::with(|it| {
        it.segment_bytes_max = 16 * 8192;
        it.resident_messages = 1 << 20;
        it.resident_bytes_min = 1 << 20;
    });
    let mut backlog = std::collections::VecDeque::new();
    let mut until = |world: &mut World, messages: usize| {
        while backlog.len() < messages {
            backlog.push_back(world.must_append(200));
        }
        while backlog.len() > messages {
            world.finish(backlog.pop_front().unwrap());
        }
        world.pump(100);
    };
    let mut made = Vec::new();
    for _ in 0..10 {
        let before = world.log.prepared_upto();
        // Segments of 16 KiB are right for the one, of 8 KiB for the other.
        until(&mut world, 900);
        until(&mut world, 20);
        made.push(world.log.prepared_upto().0 - before.0);
    }
    assert!(made[0] >= 10, "{made:?}");
    assert!(made[2..].iter().all(|&count| count <= 1), "{made:?}");
    // The segments of a far larger backlog are no pool for a small one: they would be cold.
    until(&mut world, 8000);
    until(&mut world, 20);
    for _ in 0..500 {
        until(&mut world, 60);
        until(&mut world, 20);
    }
    let largest = world.log.stock_bytes().max();
    assert!(largest <= Some(4 * 8192), "{largest:?}");
}

#[test]
fn what_a_checkpoint_names_stays_until_a_synced_one_does_not() {
    let mut world = World::new(small_options());
    world.must_append(500);
    world.record(Durable::Yes);
    while world.log.stats().segment_count < 2 {
        world.must_append(500);
    }
    let sealed = world.log.sealed()[0].range();
    world.finish_range(sealed);
    let count = |world: &World| world.log.stats().segment_count;
    assert_eq!(count(&world), 2, "the synced checkpoint still names it");
    world.record(Durable::No);
    assert_eq!(count(&world), 2, "one that may be lost frees nothing");
    world.record(Durable::Yes);
    assert_eq!(count(&world), 1);
}

#[test]
fn a_full_disk_refuses_at_once_and_room_comes_back() {
    let mut world = World::filled(1, 100);
    world.files.limit(Some(world.files.bytes()));
    world.fill_disk(500);
    assert!(world.told(|notice| matches!(notice, Notice::RoomRefused { .. })));
    assert!(world.log.health().is_some());
    // Again at once, consumers go on, and checkpoints need no room.
    assert!(matches!(world.append(500, 0), Err(AppendError::Full(_))));
    let first = world.owed_run(0).unwrap().start;
    world.finish(first);
    world.write_checkpoint(Durable::Yes);
    world.step_time(300);
    assert!(world.told(is_synced));
    world.files.limit(None);
    world.step_time(300);
    assert!(world.told(|notice| matches!(notice, Notice::Room)));
    world.append(500, 0).unwrap();
    assert_eq!(world.log.health(), None);
    world.reopen(Crash::Process);
    world.drain();
}

/// Segments that grow to 64 KiB, and none that leaves memory.
fn growing_options() -> LogOptions {
    LogOptions {
        segment_bytes_steady: 65_536,
        segment_bytes_max: 65_536,
        resident_messages: 1_000_000,
        ..small_options()
    }
}

/// A log whose segments have grown to 64 KiB, on a disk with room for so many more bytes.
fn grown_world(room: u64) -> World {
    let mut world = World::new(growing_options());
    let is_grown = |tail: &Segment| tail.head.bytes == 65_536;
    while !world.log.tail().is_some_and(is_grown) {
        world.fill(1, 100);
    }
    world.files.limit(Some(world.files.bytes() + room));
    world
}

/// A segment that was asked for ahead found no room. Publishes were refused, and the undos of all topics dropped, although
/// there was room for a smaller segment.
#[test]
fn a_disk_is_full_only_if_the_smallest_segment_finds_no_room() {
    let mut world = grown_world(4096);
    let is_small = |tail: &Segment| tail.head.bytes == 4096;
    while !world.log.tail().is_some_and(is_small) {
        world.fill(1, 100);
        let is_told = world.told(|notice| matches!(notice, Notice::RoomRefused { .. }));
        assert!(!is_told && world.log.health().is_none() && !world.log.is_disk_full());
    }
    world.fill_disk(100);
    assert!(world.log.is_disk_full());
}

/// The attempt at a large segment may take the room that other topics need for a moment.
#[test]
fn a_disk_without_room_for_a_large_segment_is_asked_for_small_ones_for_a_while() {
    let mut world = grown_world(5 * 4096);
    let mut asked = Vec::new();
    while !world.log.is_disk_full() {
        let appended = world.append(100, 0);
        assert!(matches!(appended, Ok(_) | Err(AppendError::WouldBlock)));
        while let Some(request) = world.log.next_request() {
            if let Request::Prepare { bytes, .. } = &request {
                asked.push(*bytes);
            }
            world.answer(request);
        }
    }
    assert_eq!(asked, [65_536, 4096, 4096, 4096, 4096, 4096, 4096]);
}

/// A batch for which the disk has no room was asked for again and again, so that no smaller message was taken, either.
#[test]
fn a_batch_without_room_keeps_out_no_smaller_message() {
    let mut world = World::filled(1, 1000);
    world.files.limit(Some(world.files.bytes() + 20_000));
    assert_eq!(world.append(60_000, 0), Err(AppendError::WouldBlock));
    world.pump(10);
    assert!(matches!(world.append(60_000, 0), Err(AppendError::Full(_))));
    assert!(world.log.is_disk_full());
    world.step_time(300);
    for _ in 0..4 {
        world.must_append(1000);
    }
    assert!(world.log.stats().segment_count > 1);
    assert!(matches!(world.append(60_000, 0), Err(AppendError::Full(_))));
}

/// The log was well again as soon as the smallest segment found room, until the next try of the batch: /ping was OK most of
/// the time, and the log said "takes messages again" for each refused batch.
#[test]
fn a_shortage_is_one_until_the_refused_size_fits() {
    let mut world = World::filled(1, 1000);
    world.files.limit(Some(world.files.bytes() + 20_000));
    let is_new = |notice: &Notice| matches!(notice, Notice::RoomRefused { is_new: true, .. });
    let is_told = |notice: &Notice| matches!(notice, Notice::RoomRefused { .. });
    let mut told = Vec::new();
    let mut batches = 0;
    for round in 0..50 {
        let batch = world.try_append(60_000);
        batches += usize::from(batch.expect_err("no room") != AppendError::WouldBlock);
        // A smaller batch and small messages of other producers come between, and some of them find room.
        let _ = world.try_append([100, 9000][round % 2]);
        world.pump(10);
        world.step_time(100);
        told.append(&mut world.notices);
        assert!(world.log.is_disk_full(), "{round}");
        assert!(world.log.health().is_some(), "{round}");
    }
    assert!(batches >= 45, "{batches} refused at once");
    assert_eq!(told.iter().filter(|notice| is_new(notice)).count(), 1);
    assert!(told.iter().any(is_told));
    // Less room than the batch needs changes nothing, and enough room ends the shortage without another try of the batch.
    world.files.limit(Some(world.files.bytes() + 40_000));
    world.step_time(300);
    world.step_time(300);
    assert!(world.log.is_disk_full());
    world.files.limit(Some(world.files.bytes() + 70_000));
    world.step_time(300);
    world.step_time(300);
    assert_eq!(world.log.health(), None);
    world.append(60_000, 0).expect("the segment is there");
}

/// One batch that is too large kept out smaller ones for as long as it had no room itself.
#[test]
fn a_refused_size_that_fits_again_is_taken_before_the_largest_one_fits() {
    let mut world = World::filled(1, 1000);
    world.files.limit(Some(world.files.bytes() + 4096));
    for bytes in [60_000, 10_000] {
        for _ in 0..3 {
            world.try_append(bytes).expect_err("there is no room");
            world.pump(10);
        }
    }
    assert!(world.log.is_disk_full());
    world.files.limit(Some(world.files.bytes() + 40_000));
    let is_taken = (0..10).any(|_| {
        let result = world.append(10_000, 0);
        world.pump(10);
        world.step_time(100);
        result.is_ok()
    });
    assert!(is_taken, "there is room for it");
    assert!(world.log.is_disk_full(), "the larger one has no room");
}

/// A file that another program writes may leave no room for years. The log is well if its own segments suffice.
#[test]
fn a_shortage_ends_with_a_free_segment_of_its_own() {
    let mut world = World::new(small_options());
    while world.log.stats().segment_count < 3 {
        world.fill(1, 500);
    }
    world.files.limit(Some(world.files.bytes()));
    world.fill_disk(500);
    world.step_time(300);
    assert!(world.log.is_disk_full());
    world.finish_all();
    world.write_checkpoint(Durable::Yes);
    world.step_time(300);
    world.step_time(300);
    assert_eq!(world.log.health(), None);
    assert!(world.append(500, 0).is_ok());
}

/// A retry gave back the spare.
#[test]
fn a_retry_keeps_what_is_in_stock() {
    let mut world = grown_world(0);
    world.files.limit(None);
    let has_spare = |log: &Log| log.stats().mappings > log.stats().segment_count;
    while !has_spare(&world.log) {
        world.fill(1, 100);
    }
    let before = world.log.stats();
    world.files.limit(Some(world.files.bytes() + 4096));
    assert_eq!(world.append(200_000, 0), Err(AppendError::WouldBlock));
    world.pump(10);
    assert!(world.log.is_disk_full());
    world.step_time(300);
    assert_eq!(world.log.stats().disk_bytes, before.disk_bytes);
}

#[test]
fn a_failed_sync_is_final() {
    let mut world = World::new(small_options());
    world.must_append(100);
    world.files.fail_next(Call::Sync, ErrorKind::Other);
    world.sync();
    assert_eq!(world.files.fail_count(), 1);
    assert!(world.has_failed_for_good() && !world.log.is_synced());
    world.log.sync_now();
    world.step_time(10_000);
    assert!(!world.told(|notice| matches!(notice, Notice::Synced(_) | Notice::SyncFailed(_))));
    world.record(Durable::Yes);
    assert!(world.told(|notice| matches!(notice, Notice::Checkpointed { synced: false, .. })));
    let range = world.owed_run(0).unwrap();
    assert!(world.take(range, 1, 1).is_some(), "reads go on");
}

#[test]
fn a_failed_directory_sync_and_a_failed_checkpoint_sync_are_final_too() {
    for call in [Call::SyncDir, Call::Sync] {
        let mut world = World::new(small_options());
        world.must_append(100);
        world.files.fail_next(call, ErrorKind::Other);
        world.record(Durable::Yes);
        assert!(world.has_failed_for_good());
    }
}

/// Running out of descriptors poisoned the log for good, though nothing was synced and nothing lost.
#[test]
fn a_sync_that_cannot_open_its_files_is_tried_again() {
    let mut world = World::filled(1, 100);
    world.files.fail_next(Call::Open, libc::EMFILE);
    world.sync();
    assert_eq!(world.files.fail_count(), 1);
    let text = "cannot open /data/orders.log/000000000001.segment: too many open files";
    assert_eq!(world.notices.pop(), Some(Notice::SyncDelayed(text.into())));
    // Not before its time, whoever asks, and silently if it fails again.
    world.files.fail_next(Call::Open, libc::EMFILE);
    world.log.sync_now();
    world.append(100, 0).unwrap();
    world.log.sync_now();
    world.step_time(249);
    assert_eq!(world.files.fail_count(), 1);
    world.step_time(1);
    assert_eq!(world.files.fail_count(), 2);
    assert_eq!(world.log.delayed_syncs(), 2);
    assert!(!world.told(|notice| matches!(notice, Notice::SyncDelayed(_) | Notice::Synced(_))));
    world.step_time(250);
    assert!(world.told(|notice| matches!(notice, Notice::Synced(_))));
    assert!(world.log.is_synced());
    let (health, delayed) = (world.log.health().cloned(), world.log.delayed_syncs());
    assert_eq!((health, delayed), (None, 0));
    world.reopen(Crash::Power { seed: 3 });
    assert_eq!(world.owed.len(), 2);
}

/// A page that the kernel evicts under a mapping comes back as the device has it. A slot that made a frame
/// shorter than its header ended the process when that frame was sent again.
#[test]
fn a_slot_that_rots_in_memory_costs_its_message_and_nothing_else() {
    let mut world = World::new(small_options());
    let (first, second) = (world.must_append(100), world.must_append(100));
    for frame_bytes in (0..HEADER_BYTES as u32).rev() {
        let bytes = world.log.mapped_bytes_mut(first);
        let mut slot = slot_at(bytes, SlotKind::Plain, 0).expect("the first message");
        slot.end = slot.start + frame_bytes;
        let at = slot_offset(bytes.len(), SlotKind::Plain, 0).expect("the first message");
        bytes[at..at + SLOT_BYTES].copy_from_slice(&slot.encode());
        assert_eq!(world.log.frame_bounds(first), None, "{frame_bytes}");
    }
    let lost = world.log.take_run(SeqRange::one(first), 1, u32::MAX);
    assert_eq!(lost, Taken::Damaged(SeqRange::one(first)));
    assert!(world.take(SeqRange::one(second), 1, u32::MAX).is_some());
}

/// A file system that was shut down or is read-only was taken for one without descriptors: publishes stayed OK, and
/// who waited for a sync waited for ever.
#[test]
fn a_sync_that_may_not_open_its_files_is_final() {
    let refusals = [libc::EROFS, libc::EIO, libc::ENOENT, libc::EACCES];
    // The segment, the directory of the log, the data path.
    for (code, nth) in refusals
        .iter()
        .flat_map(|code| [1, 2, 3].map(|nth| (*code, nth)))
    {
        let mut world = World::new(small_options());
        world.must_append(100);
        world.files.fail_nth_of(Call::Open, nth, code);
        world.sync();
        assert_eq!(world.files.fail_count(), 1);
        assert!(world.has_failed_for_good(), "{code} {nth}");
    }
}

/// The file of the checkpoints is there, with room: what does not let itself be written will not be durable.
#[test]
fn a_checkpoint_that_may_not_be_written_is_final() {
    for (code, is_final) in [
        (libc::EROFS, true),
        (libc::EIO, true),
        (libc::ENOSPC, false),
        (libc::EMFILE, false),
    ] {
        let mut world = World::filled(1, 100);
        world.files.fail_next(Call::Write, code);
        world.record(Durable::No);
        assert_eq!(world.files.fail_count(), 1);
        assert!(world.told(|notice| matches!(notice, Notice::CheckpointFailed { .. })));
        assert_eq!(world.append(100, 0).is_err(), is_final, "{code}");
        assert_eq!(world.log.health().is_some(), is_final, "{code}");
    }
}

/// After a checkpoint that need not be durable, a durable one follows within --sync-timeout, whatever happens
/// meanwhile.
#[test]
fn a_change_is_durable_within_the_sync_timeout() {
    for count in [1, 4] {
        let mut world = World::new(small_options());
        world.step_time(100_000);
        // The first change is synced in time, however many others come.
        for _ in 0..count {
            assert!(!world.log.checkpoint_due(world.mono));
            world.record(Durable::No);
            world.step_time(2000 / count);
        }
        assert!(!world.told(is_synced));
        assert_eq!(world.log.next_timeout(), Some(world.mono));
        // A change that comes when the sync is due does not put it off.
        let durable = [Durable::No, Durable::IfNeeded][usize::from(count == 1)];
        world.record(durable);
        assert!(world.told(is_synced), "{count} changes");
        assert!(!world.is_due_in(3600));
    }
}

/// The checkpoint came first: the sync that ends after it makes another one due.
#[test]
fn a_backlog_that_was_synced_after_the_last_change_gets_into_a_checkpoint() {
    let mut world = World::new(small_options());
    for _ in 0..15 {
        world.must_append(1000);
    }
    world.record(Durable::Yes);
    assert!(!world.log.is_synced());
    assert_eq!(world.log.checkpoint_due_at(), None);
    world.sync();
    assert!(world.log.is_synced());
    // Once in --sync-timeout at most.
    assert!(!world.log.checkpoint_due(world.mono));
    assert!(world.is_due_in(2));
}

/// A process that is killed again and again soon after its start, each time with some more messages.
#[test]
fn a_crash_loop_reads_what_was_synced_once() {
    let options = LogOptions {
        sync_every: 0,
        ..small_options()
    };
    let mut world = World::new(options);
    for round in 0..5 {
        let before = world.log.sealed().back().map(Segment::end_seq);
        world.pump(usize::MAX);
        if round > 0 {
            assert!(world.log.checkpoint_due(world.mono), "{round}");
            world.record(Durable::IfNeeded);
        }
        for _ in 0..200 {
            world.must_append(100);
        }
        world.pump(usize::MAX);
        let found = world.crash(Crash::Process);
        let synced = found.checkpoint.map(|checkpoint| checkpoint.synced);
        assert!(synced >= before, "{round}: {synced:?} {before:?}");
        world.reopen(Crash::Process);
        // The clock of a process begins when the process does.
        world.mono = Duration::from_millis(300);
    }
}

/// A checkpoint that says what the last durable one says costs no sync.
#[test]
fn a_change_that_changes_nothing_costs_no_sync() {
    let mut world = World::new(small_options());
    world.record(Durable::Yes);
    assert!(world.told(is_synced));
    world.record(Durable::No);
    world.step_time(2000);
    assert!(world.log.checkpoint_due(world.mono));
    world.record(Durable::IfNeeded);
    assert!(!world.told(is_synced));
    assert!(!world.is_due_in(3600));
}

/// A change and its reversal leave two records behind. The kernel may have written only the first one when the power
/// fails.
#[test]
fn a_change_that_was_undone_becomes_durable() {
    let mut world = World::new(small_options());
    let mut write = |paused, durable| write_pause(&mut world, paused, durable);
    assert!(write(false, Durable::Yes));
    assert!(!write(true, Durable::No));
    assert!(!write(false, Durable::No));
    assert!(write(false, Durable::IfNeeded));
    assert!(!write(false, Durable::IfNeeded), "once is enough");
}

/// Writes a checkpoint of a topic that is paused or not. Returns whether the checkpoint was synced.
fn write_pause(world: &mut World, paused: bool, durable: Durable) -> bool {
    let mut checkpoint = world.checkpoint();
    checkpoint.paused = paused;
    world.log.write_checkpoint(world.mono, &checkpoint, durable);
    world.pump(10);
    world.told(is_synced)
}

/// The same for a process that was killed during the last sync: its next start cannot know that the sync ended.
#[test]
fn a_start_makes_a_change_durable_that_was_undone() {
    let mut world = World::new(small_options());
    write_pause(&mut world, false, Durable::Yes);
    write_pause(&mut world, true, Durable::No);
    write_pause(&mut world, false, Durable::Yes);
    let recovered = world.crash(Crash::Process);
    assert!(recovered.log.checkpoint_due(Duration::from_secs(3600)));
}

/// A killed process may leave the record of a change unsynced. Then a checkpoint is due in the next process, too.
#[test]
fn a_start_makes_the_found_changes_durable() {
    let deadline = Duration::from_secs(3600);
    for (durable, is_due) in [(Durable::No, true), (Durable::Yes, false)] {
        let mut world = World::new(small_options());
        world.record(Durable::Yes);
        world.record(durable);
        let recovered = world.crash(Crash::Process);
        assert_eq!(recovered.log.checkpoint_due(deadline), is_due);
    }
}

/// Each of these was due again at once, again and again: a whole core, and an error in the log each time.
#[test]
fn what_failed_waits_before_it_is_tried_again() {
    for (timeout, is_urgent) in [(0, false), (2000, false), (2000, true)] {
        let mut options = small_options();
        options.sync_timeout = Duration::from_millis(timeout);
        let wait = if is_urgent {
            // Room may be wanted that comes with the checkpoint.
            250
        } else {
            timeout.max(250)
        };
        let mut world = World::new(options);
        world.step_time(100_000);
        world.fill(1, 100);
        world.files.fail_next(Call::Write, ErrorKind::StorageFull);
        if is_urgent {
            world.log.make_checkpoint_due_at_once();
        }
        world.write_checkpoint(Durable::No);
        // Progress was noted long before the attempt that fails.
        world.log.make_checkpoint_due();
        world.step_time(10_000);
        assert!(world.told(|notice| matches!(notice, Notice::CheckpointFailed { .. })));
        let due_at = world.log.next_timeout().expect("to be tried again");
        assert_eq!(due_at, world.mono + Duration::from_millis(wait));
        world.step_time(wait);
        assert!(world.log.checkpoint_due(world.mono));
    }
}

/// The retries of a refused log stopped when it was poisoned, and their timer did not.
#[test]
fn a_log_that_is_refused_and_poisoned_has_nothing_to_try_again() {
    let mut world = World::new(small_options());
    world.step_time(100_000);
    world.fill(1, 100);
    world.files.limit(Some(0));
    while world.append(1000, 0).is_ok() {}
    world.pump(10);
    assert!(world.told(|notice| matches!(notice, Notice::RoomRefused { .. })));
    world.files.fail_next(Call::Sync, ErrorKind::Other);
    world.sync();
    assert!(world.told(|notice| matches!(notice, Notice::SyncFailed(_))));
    world.write_checkpoint(Durable::No);
    for _ in 0..10 {
        world.step_time(1000);
        let next = world.log.next_timeout();
        let mono = world.mono;
        assert!(next.is_none_or(|at| at > mono), "{next:?} at {mono:?}");
    }
}

#[test]
fn a_checkpoint_that_cannot_be_opened_is_due_again() {
    // The file of the checkpoint, the directory of the log, the data path.
    for nth in [1, 2, 3] {
        let mut world = World::filled(1, 100);
        let number = world.write_checkpoint(Durable::Yes);
        world.files.fail_nth_of(Call::Open, nth, libc::EMFILE);
        world.pump(10);
        assert_eq!(world.files.fail_count(), 1);
        let failed = |notice: &Notice| matches!(notice, Notice::CheckpointFailed { number: failed, .. } if *failed == number);
        assert!(world.told(failed), "{nth}");
        assert_eq!(world.log.health(), None);
        assert!(!world.log.checkpoint_due(world.mono));
        assert!(world.is_due_in(2));
        world.record(Durable::Yes);
        assert!(world.told(is_synced));
        world.append(100, 0).unwrap();
    }
}

#[test]
fn a_directory_that_is_gone_is_a_failed_sync() {
    let mut world = World::filled(1, 100);
    let path = log_path(&data_path(), TOPIC);
    world
        .files
        .rename(&path, &data_path().join("elsewhere"))
        .unwrap();
    world.sync();
    assert!(world.told(|notice| matches!(notice, Notice::SyncFailed(_))));
}

/// A segment that may not be read for a moment was taken for one that its device had lost.
#[test]
fn a_rescue_without_descriptors_is_tried_again() {
    let (mut world, range) = world_with_a_cold_segment();
    assert_eq!(world.take_ten(range), Taken::Loading);
    // The peek.
    world.pump(1);
    world.files.fail_next(Call::Load, ErrorKind::UnexpectedEof);
    world.files.fail_nth(2, ErrorKind::Other);
    world.pump(10);
    assert_eq!(world.files.fail_count(), 2);
    assert!(world.told(|notice| matches!(notice, Notice::LoadFailed(..))));
    world.step_time(300);
    assert!(world.told(|notice| matches!(notice, Notice::Loaded(_))));
    assert_eq!(world.log.stats().damaged_count, 0);
    assert!(world.take(range, 10, u32::MAX).is_some());
}

/// The kernel drops pages that it could not write, and reads back an earlier life of the file: such
/// bytes left as messages.
#[test]
fn a_poisoned_log_checks_what_it_serves() {
    let mut world = World::filled(12, 500);
    world.files.fail_next(Call::Sync, ErrorKind::Other);
    world.sync();
    assert!(world.told(|notice| matches!(notice, Notice::SyncFailed(_))));
    let range = world.owed_run(0).unwrap();
    let has_some_of_it = |segment: &Segment| !segment.range().intersection(&range).is_empty();
    assert!(has_some_of_it(&world.log.sealed()[0]) && world.log.tail().is_some_and(has_some_of_it));
    // The second message of the first segment, and the last of all.
    let lost = [Seq(range.start.0 + 1), Seq(range.end.0 - 1)];
    for seq in lost {
        let (start, _) = world.log.frame_bounds(seq).unwrap();
        world.log.mapped_bytes_mut(seq)[start as usize + 100] ^= 1;
    }
    let mut damaged = Vec::new();
    let mut start = range.start;
    while start < range.end {
        match world
            .log
            .take_run(SeqRange::new(start, range.end), 100, u32::MAX)
        {
            Taken::Run(run) => {
                world.frames_are_right(&run);
                start = start.offset(run.count.into());
            }
            Taken::Damaged(seqs) => {
                damaged.push(seqs);
                start = seqs.end;
            }
            Taken::Loading => world.pump(10),
        }
    }
    assert_eq!(damaged, lost.map(SeqRange::one));
    assert_eq!(world.log.stats().damaged_count, 2);
    world.record(Durable::No);
    let reports = world.notices.iter();
    let reports = reports.filter(|notice| matches!(notice, Notice::Damage(_)));
    assert_eq!(reports.count(), 2);
}

/// A socket took a part of a run, and the rest is copied.
#[test]
fn a_copy_of_a_run_begins_where_the_socket_stopped_and_is_checked() {
    let mut world = World::filled(3, 50);
    let range = world.owed_run(0).unwrap();
    let run = world.take(range, 3, u32::MAX).unwrap();
    assert_eq!(run.count, 3);
    let (_, second_at) = world.log.frame_bounds(run.first).unwrap();
    let whole = world.log.bytes(&run).to_vec();
    let rest = |left: u32| Run {
        start: run.start + left,
        ..run
    };
    for left in 0..whole.len() {
        let mut copy = b"before".to_vec();
        assert!(world.log.copy_run(&rest(left as u32), &mut copy));
        assert_eq!(copy, [b"before", &whole[left..]].concat(), "from {left}");
    }
    // The first message changes: whoever has sent all of it does not mind.
    world.log.mapped_bytes_mut(run.first)[run.start as usize + 40] ^= 1;
    for left in 0..whole.len() as u32 {
        let is_whole = world.log.copy_run(&rest(left), &mut Vec::new());
        assert_eq!(is_whole, run.start + left >= second_at, "from {left}");
    }
}

/// A sync fails and the process is killed. The page cache still has every message; a sync of the next
/// process found the pages clean, succeeded, and the synced mark moved over what the disk did not have.
#[test]
fn what_a_failed_sync_left_in_the_cache_is_written_again() {
    for seed in 0..100 {
        let mut world =
            World::with(|it| it.resident_messages = if seed % 2 == 0 { 0 } else { 1000 });
        world.fill(10, 500);
        world.sync();
        world.record(Durable::Yes);
        world.fill(20, 500);
        world.files.fail_write_back(seed);
        world.files.fail_next(Call::Sync, ErrorKind::Other);
        world.sync();
        assert!(world.log.health().is_some());
        world.reopen(Crash::Process);
        if seed % 3 == 0 {
            // A reader that comes before the sync gets what the cache has.
            let range = world.owed_run(25).unwrap();
            while world.take(range, 5, u32::MAX).is_none() {
                let request = world.log.pending().pop_front().unwrap();
                world.answer(request);
            }
        }
        world.sync();
        if world.log.is_synced() {
            world.record(Durable::Yes);
        }
        world.reopen(Crash::Power { seed });
        world.drain();
    }
}

/// Direct I/O names the block layer's errors, and none of them was taken for the device's: the load was
/// tried again for ever, and the channel stood still.
#[test]
fn a_bad_sector_of_a_cold_segment_costs_one_message() {
    // A changed byte, and sectors that the device cannot read.
    let causes = [
        0,
        libc::EIO,
        libc::ENODATA,
        libc::EREMOTEIO,
        libc::EILSEQ,
        libc::ETIMEDOUT,
    ];
    for code in causes {
        let mut world = World::new(LogOptions {
            segment_bytes_min: 32 << 10,
            segment_bytes_steady: 32 << 10,
            segment_bytes_max: 32 << 10,
            ..cold_options()
        });
        world.fill(20, 9000);
        let segment = &world.log.sealed()[1];
        assert!(!segment.is_in_memory());
        let (range, path) = (segment.range(), file(segment.number));
        // In the middle of the second message.
        match code {
            0 => world.files.damage(&path, 14_000, 1),
            code => world.files.spoil(&path, 14_000, code),
        }
        assert_eq!(world.take_ten(range), Taken::Loading);
        world.pump(10);
        assert!(world.notices.contains(&Notice::Loaded(range)), "{code}");
        assert!(world.told(|notice| matches!(notice, Notice::Damage(_))));
        assert_eq!(world.log.stats().damaged_count, 1);
        let run = world.take(range, 10, u32::MAX).unwrap();
        assert_eq!(run.count, 1, "up to the damaged one");
        let rest = SeqRange::new(range.start.offset(1), range.end);
        let lost = SeqRange::one(rest.start);
        assert_eq!(world.take_ten(rest), Taken::Damaged(lost));
        let rest = SeqRange::new(lost.end, range.end);
        assert!(world.take(rest, 10, u32::MAX).is_some());
    }
}

#[test]
fn syncs_are_grouped() {
    let mut world = World::filled(1, 10);
    world.log.sync_now();
    let job = world.next_sync();
    assert!(job.names && job.segments.len() == 1);
    world.append(10, 0).unwrap();
    world.append(10, 0).unwrap();
    world.log.sync_now();
    world.log.sync_now();
    assert!(world.log.next_request().is_none(), "one at a time");
    world.end_sync(job.upto);
    let job = world.next_sync();
    assert!(!job.names && job.upto == world.log.next_seq());
    world.end_sync(job.upto);
    assert!(world.log.is_synced());
    assert!(world.log.next_request().is_none());
}

/// After a sync that could not open its files, no sync made the name of the file durable.
#[test]
fn the_name_of_a_file_becomes_durable_although_the_first_attempt_is_delayed() {
    let failed = || {
        let text = "cannot open x: too many open files".to_owned();
        let kind = ErrorKind::Other;
        Err(SyncFailure::Retryable(Failure { kind, text }))
    };
    for is_checkpoint in [false, true] {
        let mut world = World::filled(1, 10);
        world.log.sync_now();
        world.record(Durable::Yes);
        world.log.write_topic_file(Box::new(NoKeys));
        world.pump(10);
        assert!(world.told(|it| matches!(it, Notice::TopicFileWritten(Ok(())))));
        for attempt in 0..3 {
            world.mono += Duration::from_secs(10);
            if is_checkpoint {
                world.log.make_checkpoint_due();
                world.write_checkpoint(Durable::Yes);
            } else if attempt == 0 {
                world.append(10, 0).unwrap();
                world.log.sync_now();
            } else {
                world.log.handle_timeout(world.mono);
            }
            // The sync that the file has made due may come along with a checkpoint.
            let mut has_names = false;
            while let Some(request) = world.log.next_request() {
                let result = if attempt == 0 { failed() } else { Ok(()) };
                let (names, reply) = match request {
                    Request::Sync(SyncJob { names, upto, .. }) => {
                        (names, Reply::Synced { upto, result })
                    }
                    Request::WriteCheckpoint(CheckpointJob { names, number, .. }) => {
                        (names, Reply::CheckpointWritten { number, result })
                    }
                    other => panic!("{other:?}"),
                };
                has_names |= names;
                world.reply(reply);
            }
            assert_eq!(has_names, attempt < 2, "attempt {attempt}");
            if attempt == 1 && !is_checkpoint {
                world.append(10, 0).unwrap();
                world.log.sync_now();
            }
        }
    }
}

#[test]
fn what_is_published_together_is_synced_together() {
    let mut world = World::with(|it| it.segment_bytes_min = 65_536);
    world.fill(1, 10);
    let publish = |world: &mut World, count: u32| {
        for _ in 0..count {
            world.append(10, 0).unwrap();
            world.log.want_sync();
        }
    };
    let started = |world: &mut World| match world.log.next_request() {
        Some(Request::Sync(SyncJob { upto, .. })) => Some(upto),
        None => None,
        other => panic!("{other:?}"),
    };
    publish(&mut world, 5);
    let upto = started(&mut world).expect("at once");
    assert_eq!(upto, world.log.next_seq(), "all five");
    publish(&mut world, 2);
    world.mono += Duration::from_micros(400);
    world.end_sync(upto);
    assert_eq!(started(&mut world), None, "as many may come again");
    publish(&mut world, 4);
    let upto = started(&mut world).expect("they have");
    assert_eq!(upto, world.log.next_seq());
    world.mono += Duration::from_micros(400);
    world.end_sync(upto);

    publish(&mut world, 1);
    assert_eq!(started(&mut world), None);
    let last = world.log.next_timeout();
    assert_eq!(last, Some(world.mono + Duration::from_micros(400)));
    world.tick(Duration::from_micros(400));
    let upto = started(&mut world).expect("no longer than the last one took");
    world.end_sync(upto);
    publish(&mut world, 1);
    assert!(started(&mut world).is_some(), "one is as many as before");
}

#[test]
fn a_sync_starts_by_count_and_by_time() {
    let mut world = World::with(|it| it.segment_bytes_min = 65_536);
    world.fill(1, 10);
    let due = Some(world.mono + Duration::from_secs(2));
    assert_eq!(world.log.next_timeout(), due);
    for _ in 0..19 {
        world.append(10, 0).unwrap();
    }
    // By count.
    let upto = world.next_sync().upto;
    world.end_sync(upto);
    for _ in 0..20 {
        world.append(10, 0).unwrap();
    }
    assert!(world.log.next_request().is_none(), "not within 200 ms");
    world.tick(Duration::from_millis(200));
    world.next_sync();
}

#[test]
fn an_idle_topic_gives_its_memory_back() {
    let mut world = World::new(small_options());
    world.flow(200, 200);
    assert!(world.log.stats().memory_bytes > 0);
    world.write_checkpoint(Durable::Yes);
    let used = |world: &World| {
        let stats = world.log.stats();
        (stats.memory_bytes, stats.disk_bytes, stats.segment_count)
    };
    for _ in 0..10 {
        world.step_time(1000);
    }
    let tail = (4096, 4096, 1);
    assert_eq!(used(&world), tail, "it may have a message soon");
    for _ in 0..60 {
        world.step_time(1000);
    }
    assert_eq!(used(&world), (0, 0, 0));
    let next = world.log.next_timeout();
    assert!(next.is_none_or(|at| at > world.mono), "it would spin");
    world.must_append(10);
    world.reopen(Crash::Process);
    assert_eq!(world.owed.len(), 1);
}

#[test]
fn a_file_that_is_gone_is_damage_and_a_failing_load_is_tried_again() {
    let (mut world, range) = world_with_a_cold_segment();
    world.files.fail_next(Call::Load, ErrorKind::OutOfMemory);
    assert_eq!(world.take_ten(range), Taken::Loading);
    world.pump(10);
    assert!(world.told(|notice| matches!(notice, Notice::LoadFailed(..))));
    // The peek has read the first message already.
    let rest = SeqRange::new(range.start.offset(1), range.end);
    assert_eq!(world.take_ten(rest), Taken::Loading);
    world.step_time(300);
    assert!(world.told(|notice| *notice == Notice::Loaded(range)));
    assert!(world.take(rest, 10, u32::MAX).is_some());
    let range = world.log.sealed()[3].range();
    world.files.fail_next(Call::Load, ErrorKind::NotFound);
    assert_eq!(world.take_ten(range), Taken::Loading);
    world.pump(10);
    assert_eq!(world.take_ten(range), Taken::Damaged(range));
    assert_eq!(world.log.stats().damaged_count, range.len());
    world.log.release_range(range);
    world.log.check();
}

/// A world whose second segment is cold, and the seqs of that segment.
fn world_with_a_cold_segment() -> (World, SeqRange) {
    world_with_a_cold_segment_of(small_options())
}

fn world_with_a_cold_segment_of(mut options: LogOptions) -> (World, SeqRange) {
    options.resident_messages = 0;
    let mut world = World::new(options);
    world.fill(100, 500);
    let segment = &world.log.sealed()[1];
    assert!(!segment.is_in_memory() && segment.count > 2);
    let range = segment.range();
    (world, range)
}

/// Takes the first messages of a cold segment, which come before the others are loaded.
fn peek(world: &mut World, range: SeqRange) -> Run {
    assert_eq!(world.take(range, 10, u32::MAX), None);
    world.pump(1);
    world.take(range, 10, u32::MAX).unwrap()
}

#[test]
fn a_reader_gets_the_message_that_it_waits_for_before_the_segment_is_loaded() {
    let (mut world, range) = world_with_a_cold_segment();
    let wanted = SeqRange::new(range.start.offset(1), range.end);
    assert_eq!(world.take(wanted, 10, u32::MAX), None);
    world.pump(1);
    let first = SeqRange::one(wanted.start);
    assert!(world.told(|notice| *notice == Notice::Loaded(first)));
    let run = world.take(wanted, 10, u32::MAX).unwrap();
    assert_eq!(run.count, 1, "a 64th of the segment");
    let rest = SeqRange::new(first.end, range.end);
    assert_eq!(world.take(rest, 10, u32::MAX), None);
    // A socket write may read the message in the piece while the loaded segment replaces the piece.
    world.log.pin(run.first);
    world.pump(10);
    assert!(world.told(|notice| *notice == Notice::Loaded(range)));
    world.frames_are_right(&run);
    world.log.unpin(run.first);
    assert!(world.take(rest, 10, u32::MAX).is_some());
    let before = world.take(range, 10, u32::MAX);
    assert!(before.is_some(), "what came before it");
}

#[test]
fn what_a_socket_write_points_into_stays_when_the_load_finds_less() {
    for is_gone in [false, true] {
        let (mut world, range) = world_with_a_cold_segment();
        let run = peek(&mut world, range);
        world.log.pin(run.first);
        let path = file(world.log.segment_of(range.start).unwrap().number);
        if is_gone {
            world.files.remove(&path).unwrap();
        } else {
            world.files.damage(&path, run.start as usize + 40, 1);
        }
        world.pump(10);
        world.step_time(300);
        world.frames_are_right(&run);
        world.log.unpin(run.first);
        world.step_time(300);
        let lost = [SeqRange::one(range.start), range][usize::from(is_gone)];
        assert_eq!(world.take_ten(range), Taken::Damaged(lost));
        assert_eq!(world.log.stats().damaged_count, lost.len());
    }
}

/// Every load was repeated as long as the socket write went on, also if the messages of the piece were whole.
#[test]
fn a_load_that_finds_damage_behind_the_piece_ends_while_a_socket_write_points_into_it() {
    for is_unreadable in [false, true] {
        let mut options = small_options();
        options.segment_bytes_min = options.segment_bytes_max;
        let middle = options.segment_bytes_max as usize / 2;
        let (mut world, range) = world_with_a_cold_segment_of(options);
        let run = peek(&mut world, range);
        assert_eq!(run.count, 1, "a 64th of the segment");
        world.log.pin(run.first);
        let path = file(world.log.segment_of(range.start).unwrap().number);
        // The piece is in the first page, and the slots are in the last one.
        if is_unreadable {
            world.files.spoil(&path, middle, libc::EIO);
        } else {
            world.files.damage(&path, middle, 1);
        }
        world.pump(10);
        let second = SeqRange::one(range.start.offset(1));
        assert!(matches!(world.take_ten(second), Taken::Run(_)));
        world.frames_are_right(&run);
        assert!(world.log.stats().damaged_count > 0, "{is_unreadable}");
        world.log.unpin(run.first);
    }
}

#[test]
pub(super) fn a_message_that_is_not_whole_waits_for_the_load() {
    let (mut world, range) = world_with_a_cold_segment();
    let path = file(world.log.segment_of(range.start).unwrap().number);
    world.files.damage(&path, 200, 1);
    assert_eq!(world.take(range, 10, u32::MAX), None);
    world.pump(1);
    assert_eq!(world.take(range, 10, u32::MAX), None);
    world.pump(10);
    let lost = SeqRange::one(range.start);
    assert_eq!(world.take_ten(range), Taken::Damaged(lost));
}

#[test]
fn a_piece_of_a_segment_that_nobody_holds_is_given_back() {
    let (mut world, range) = world_with_a_cold_segment();
    peek(&mut world, range);
    world.finish_range(range);
    world.pump(100);
    assert!(world.log.segment_of(range.start).is_none());
}

/// T8: every call fails once, in turn; what was promised holds after a start.
#[test]
fn any_file_call_may_fail_once() {
    let mut nth = 1;
    loop {
        let mut world = World::new(small_options());
        world.files.fail_nth(nth, ErrorKind::Other);
        for step in 0..60 {
            let _ = world.append(400, 0);
            if step % 3 == 0
                && let Some(range) = world.owed_run(step)
            {
                world.finish(range.start);
            }
            if step % 7 == 0 {
                world.write_checkpoint([Durable::Yes, Durable::No][step % 2]);
            }
            if let Some(range) = world.owed_run(step / 2) {
                world.take(range, 10, 1000);
            }
            world.step_time(150);
        }
        let is_hit = world.files.fail_count() == 1;
        world.reopen(Crash::Process);
        world.drain();
        if !is_hit {
            break;
        }
        nth += 1;
    }
    assert!(nth > 50, "only {nth} calls");
}

#[test]
fn messages_nobody_deferred_are_not_and_deadlines_survive() {
    let mut world = World::new(small_options());
    world.must_append(10);
    let seq = world.append(10, 90_000).unwrap();
    let due_ns = world.wall_ns() + 90_000_000_000;
    let recovered = world.crash(Crash::Process);
    let found = recovered.deferred.iter();
    assert!(found.map(|it| (it.seq, it.due_ns)).eq([(seq, due_ns)]));
}

#[test]
pub(super) fn a_new_message_is_never_lost_between_two_checkpoints_that_are_not_synced() {
    let mut world = World::new(small_options());
    world.must_append(10);
    world.record(Durable::Yes);
    let mut places = BTreeSet::new();
    for _ in 0..6 {
        world.must_append(10);
        world.write_checkpoint(Durable::No);
        let request = world.log.next_request().unwrap();
        if let Request::WriteCheckpoint(CheckpointJob { place, .. }) = &request {
            places.insert(*place);
        }
        let reply = world.keeper.handle(TOPIC, request).unwrap();
        world.reply(reply);
    }
    assert_eq!(places.len(), 2, "the synced one is never overwritten");
    let recovered = world.crash(Crash::Process);
    assert_eq!(recovered.checkpoint.unwrap().number, 7);
}
