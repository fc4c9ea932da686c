//! Checks for bugs that no history shows. Each check is small and deterministic.

use super::broker_checks;
use crate::retries::History;
use diskq::{
    Call, ChannelDraft, CheckpointDraft, Crash, DataPath, Durable, Files, Keeper, Log, LogOptions,
    Recovered, Request, Runs, STATE_FILES, Seq, SeqRange, SimFiles, SlotKind, Taken, open_log,
};
use engine_rules::Random;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

pub(super) const ALL: [(&str, fn()); 26] = [
    (
        "a wrong bit costs one message",
        a_wrong_bit_costs_one_message,
    ),
    (
        "a torn copy leaves its original alone",
        a_torn_copy_leaves_its_original_alone,
    ),
    (
        "a wrong bit in a checkpoint is detected",
        a_wrong_bit_in_a_checkpoint_is_seen,
    ),
    (
        "a wrong bit in a saved state is detected",
        a_wrong_bit_in_a_saved_state_is_seen,
    ),
    (
        "the last durable checkpoint survives a power failure",
        the_last_durable_checkpoint_survives,
    ),
    (
        "a checkpoint that two killed processes left is not believed",
        a_checkpoint_of_a_killed_process_is_not_believed,
    ),
    (
        "a sync counts for nothing if a copy failed that it relied on",
        a_sync_that_counted_on_a_failed_copy_proves_nothing,
    ),
    (
        "a copy that waits for its sync is not in the page cache",
        a_copy_is_kept_although_write_back_fails,
    ),
    (
        "a spill whose sync of the directory fails is final",
        a_spill_whose_sync_of_the_directory_fails_is_final,
    ),
    (
        "a failed shared sync makes no topic synced",
        a_shared_sync_that_fails_is_believed_of_nobody,
    ),
    (
        "a name that the data path lost is lost for every keeper",
        a_lost_name_is_lost_for_every_keeper,
    ),
    (
        "a socket write that is not finished keeps its segment",
        an_unfinished_write_keeps_its_segment,
    ),
    (
        "a checkpoint has messages that are requeued while it is put together",
        broker_checks::a_checkpoint_has_what_is_requeued_meanwhile,
    ),
    (
        "a start keeps deferrals",
        broker_checks::a_start_keeps_deferrals,
    ),
    (
        "an answer that leaves in the middle of a turn holds",
        broker_checks::an_answer_in_the_middle_of_a_turn_holds,
    ),
    (
        "an emptied topic comes back after a restart",
        broker_checks::an_emptied_topic_comes_back_after_a_restart,
    ),
    (
        "the use of an undo is answered after its checkpoint",
        broker_checks::the_use_of_an_undo_waits_for_its_checkpoint,
    ),
    (
        "a shard that stops takes no publishes of other shards",
        broker_checks::a_shard_that_stops_takes_no_forwards,
    ),
    (
        "a channel that is made in grace gets a deferred message when it is due",
        broker_checks::a_grace_keeps_deferrals,
    ),
    (
        "a topic in grace keeps messages beyond the bounds of unclaimed ones",
        broker_checks::a_grace_keeps_messages_beyond_the_bounds,
    ),
    (
        "a dead letter is finished after the sync of its topic",
        broker_checks::a_dead_letter_waits_for_its_sync,
    ),
    (
        "a dead letter that its topic refuses is sent again",
        broker_checks::a_refused_dead_letter_is_sent_again,
    ),
    (
        "a copy of a message is answered after the sync of the first one",
        broker_checks::a_copy_waits_for_the_sync_of_the_first_one,
    ),
    (
        "a message stays until its number is saved",
        broker_checks::a_message_stays_until_its_number_is_saved,
    ),
    (
        "a wrong bit in a segment that is read back is detected",
        a_wrong_bit_in_a_segment_that_is_read_back_is_seen,
    ),
    (
        "a message that a producer publishes again is not lost",
        a_retry_is_not_lost,
    ),
];

const DATA_PATH: &str = "/data";
const TOPIC: &str = "orders";
const WALL_NS: u64 = 1_800_000_000_000_000_000;

/// The number of messages of a [`Small`].
const COUNT: u64 = 100;
const FIRST_SEGMENT: &str = "/data/orders.log/000000000001.segment";
const CHECKPOINTS: &str = "/data/orders.log/checkpoint";

/// A log of a few segments, all of whose messages are held.
struct Small {
    files: SimFiles,
    keeper: Keeper<SimFiles>,
    log: Log,
    checkpoints: u32,
}

/// The name of a channel in the checkpoint with this number.
fn salted(salt: u32, at: u32) -> String {
    format!("channel{salt:020}{at:020}")
}

impl Small {
    fn new(seed: u64) -> Small {
        Small::with(seed, LogOptions::default())
    }

    fn with(seed: u64, options: LogOptions) -> Small {
        let files = SimFiles::seeded(seed);
        let mut small = Small {
            keeper: Keeper::new(files.clone(), DATA_PATH),
            files,
            log: Log::new(options),
            checkpoints: 0,
        };
        for at in 0..COUNT {
            while small
                .log
                .append(Duration::ZERO, WALL_NS, &[at as u8; 600], 0)
                .is_err()
            {
                small.serve();
            }
            let seq = Seq(small.log.next_seq().0 - 1);
            small.log.retain(SeqRange::one(seq), 1);
        }
        small.serve();
        small
    }

    /// Makes the keeper do the log's requests.
    fn serve(&mut self) {
        while let Some(request) = self.log.next_request() {
            self.answer(request);
        }
        self.files.observe(Path::new(DATA_PATH), TOPIC, &self.log);
    }

    fn answer(&mut self, request: Request) {
        self.files.observe(Path::new(DATA_PATH), TOPIC, &self.log);
        if let Some(reply) = self.keeper.handle(TOPIC, request) {
            self.log
                .handle_reply(Duration::ZERO, reply, &mut Vec::new());
        }
    }

    fn write_checkpoint(&mut self, durable: Durable) -> u64 {
        // A power failure may tear this checkpoint: it is longer than a sector, and all its sectors
        // differ from those of the previous checkpoint.
        self.checkpoints += 1;
        let salt = self.checkpoints;
        let channel = |at: u32| ChannelDraft {
            name: salted(salt, at),
            paused: false,
            runs: Runs::default(),
            ..ChannelDraft::default()
        };
        let draft = CheckpointDraft::new(false, (0..40).map(channel).collect());
        let number = self.log.next_checkpoint();
        self.log.begin_checkpoint(Duration::ZERO, durable);
        self.log.finish_checkpoint(draft);
        self.serve();
        number.0
    }

    fn open(&self) -> Recovered {
        let options = LogOptions::default();
        let opened = open_log(&self.files, Path::new(DATA_PATH), TOPIC, options, WALL_NS);
        opened.expect("opens")
    }
}

/// The options of a log that keeps hardly any sealed segment in memory.
fn with_cold_segments() -> LogOptions {
    LogOptions {
        segment_bytes_min: 4096,
        segment_bytes_steady: 4096,
        resident_messages: 1,
        resident_bytes_min: 8192,
        sync_every: 0,
        ..LogOptions::default()
    }
}

fn count(recovered: &Recovered) -> u64 {
    recovered.found.iter().map(SeqRange::len).sum()
}

/// Start-up continues to read after a damaged message (promise P5).
fn a_wrong_bit_costs_one_message() {
    let small = Small::new(1);
    small.files.damage(Path::new(FIRST_SEGMENT), 10_000, 1);
    assert_eq!(count(&small.open()), COUNT - 1);
}

/// A power failure may tear a copy that was not synced. Its original is undamaged.
fn a_torn_copy_leaves_its_original_alone() {
    let small = Small::new(1);
    let (original, copy) = (
        Path::new(FIRST_SEGMENT),
        "/data/orders.log/000000000009.segment",
    );
    let bytes = small.files.length(original).expect("it is there");
    let mut image = vec![0; bytes as usize];
    small
        .files
        .read_at(original, 0, &mut image)
        .expect("it is readable");
    image[10_000..10_512].fill(0);
    small
        .files
        .write_at(Path::new(copy), 0, &image)
        .expect("there is room");
    assert_eq!(count(&small.open()), COUNT);
}

fn a_wrong_bit_in_a_checkpoint_is_seen() {
    let mut small = Small::new(1);
    let first = small.write_checkpoint(Durable::Yes);
    let second = small.write_checkpoint(Durable::Yes);
    let path = Path::new(CHECKPOINTS);
    let bytes = small.files.length(path).expect("it is there");
    let mut image = vec![0; bytes as usize];
    small
        .files
        .read_at(path, 0, &mut image)
        .expect("it is readable");
    let is_name = |at: &usize| image[*at..].starts_with(b"channel");
    let at = (0..image.len()).rfind(is_name);
    let at = at.expect("two checkpoints name channels");
    small.files.damage(path, at, 1);
    let found = small.open().checkpoint.expect("one is whole");
    assert_eq!((found.number, second), (first, first + 1));
}

/// The older of two states counts if the newer one is wrong.
fn a_wrong_bit_in_a_saved_state_is_seen() {
    let mut small = Small::new(1);
    for body in [b"old", b"new"] {
        let boundary = small.log.next_seq();
        small.log.save_state(boundary, body.to_vec());
        small.serve();
    }
    let path = Path::new(DATA_PATH).join("orders.log").join(STATE_FILES[0]);
    let bytes = small.files.length(&path).expect("it is there");
    small.files.damage(&path, bytes as usize - 1, 1);
    let options = LogOptions {
        slots: SlotKind::WithOrigin,
        ..LogOptions::default()
    };
    let opened = open_log(&small.files, Path::new(DATA_PATH), TOPIC, options, WALL_NS);
    let state = opened.expect("opens").state.expect("one is whole");
    assert_eq!(state.body, b"old");
}

/// Checkpoints that need not be durable do not overwrite the last durable one.
fn the_last_durable_checkpoint_survives() {
    for seed in 0..50 {
        let mut small = Small::new(seed);
        let durable = small.write_checkpoint(Durable::Yes);
        for _ in 0..6 {
            small.write_checkpoint(Durable::No);
        }
        small.files.crash(Crash::Power { seed });
        let found = small.open().checkpoint.expect("one is durable");
        assert!(found.number >= durable);
    }
}

/// Three processes in a row are killed, each in a random file call of its first checkpoint. What one of them took for
/// durable survives a power failure.
fn a_checkpoint_of_a_killed_process_is_not_believed() {
    let mut believed_count = 0;
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut small = Small::new(seed);
        small.write_checkpoint(Durable::Yes);
        small.write_checkpoint(Durable::Yes);
        let mut believed = 0;
        for _ in 0..3 {
            let recovered = small.open();
            let is_durable = |salt: &u32| recovered.durable_channels.names(&salted(*salt, 0));
            believed = (1..=small.checkpoints)
                .rfind(is_durable)
                .unwrap_or(0)
                .max(believed);
            small.log = recovered.log;
            small.files.die_at(1 + random.below(12));
            small.write_checkpoint(Durable::Yes);
            small.files.crash(Crash::Process);
        }
        small.files.crash(Crash::Power { seed });
        let found = small.open().checkpoint.expect("one is durable");
        let is_kept =
            (believed..=small.checkpoints).any(|salt| found.channels[0].name == salted(salt, 0));
        assert!(is_kept, "seed {seed}: {believed} was durable");
        believed_count += u32::from(believed > 2);
    }
    assert!(believed_count > 2, "only {believed_count} starts believed");
}

fn a_sync_that_counted_on_a_failed_copy_proves_nothing() {
    let files = SimFiles::new();
    let keeper = Keeper::new(files.clone(), DATA_PATH);
    let mut log = Log::new(with_cold_segments());
    let answer = |log: &mut Log, request| {
        files.observe(Path::new(DATA_PATH), TOPIC, log);
        if let Some(reply) = keeper.handle(TOPIC, request) {
            log.handle_reply(Duration::ZERO, reply, &mut Vec::new());
        }
    };
    let wait_for = |log: &mut Log, wanted: fn(&Request) -> bool| {
        loop {
            match log.next_request() {
                Some(request) if wanted(&request) => return request,
                Some(request) => answer(log, request),
                None if log.append(Duration::ZERO, WALL_NS, &[1; 600], 0).is_ok() => {
                    log.retain(SeqRange::one(Seq(log.next_seq().0 - 1)), 1);
                }
                None => {}
            }
        }
    };
    let spill = wait_for(&mut log, |request| matches!(request, Request::Spill { .. }));
    log.sync_now();
    let sync = wait_for(&mut log, |request| matches!(request, Request::Sync(_)));
    files.fail_next(Call::Copy, ErrorKind::Other);
    answer(&mut log, spill);
    answer(&mut log, sync);
    assert!(!log.is_synced(), "the copy is not there");
}

/// The kernel fails to write back what it has of a copy, and forgets the error together with the file.
fn a_copy_is_kept_although_write_back_fails() {
    let mut small = Small::with(1, with_cold_segments());
    let mut appended = COUNT;
    while appended < 2 * COUNT {
        let result = small.log.append(Duration::ZERO, WALL_NS, &[1; 600], 0);
        if result.is_ok() {
            let seq = Seq(small.log.next_seq().0 - 1);
            small.log.retain(SeqRange::one(seq), 1);
            appended += 1;
        }
        while let Some(request) = small.log.next_request() {
            let copy = match &request {
                Request::Spill { copy, .. } => Some(*copy),
                _ => None,
            };
            small.answer(request);
            if let Some(copy) = copy {
                let path = format!("/data/orders.log/{:012}.segment", copy.0);
                small.files.fail_write_back_of(Path::new(&path), 1);
                small.files.evict_one(Path::new(&path));
            }
        }
    }
    small.log.sync_now();
    small.serve();
    assert!(small.log.is_synced());
    small.files.crash(Crash::Power { seed: 1 });
    assert_eq!(count(&small.open()), 2 * COUNT);
}

fn a_spill_whose_sync_of_the_directory_fails_is_final() {
    let mut small = Small::with(1, with_cold_segments());
    loop {
        small.log.sync_now();
        small.serve();
        let appended = small.log.append(Duration::ZERO, WALL_NS, &[1; 600], 0);
        if appended.is_ok() {
            let seq = Seq(small.log.next_seq().0 - 1);
            small.log.retain(SeqRange::one(seq), 1);
        }
        match small.log.next_request() {
            Some(spill @ Request::Spill { sync: true, .. }) => {
                small.files.fail_next(Call::SyncDir, ErrorKind::Other);
                let reply = small
                    .keeper
                    .handle(TOPIC, spill)
                    .expect("a spill is answered");
                let log = &mut small.log;
                log.handle_reply(Duration::ZERO, reply, &mut Vec::new());
                assert!(log.poisoned().is_some(), "names may be lost");
                return;
            }
            Some(request) => small.answer(request),
            None => {}
        }
    }
}

/// The messages of a segment that never left memory need no check, and the bytes that the disk gives do.
fn a_wrong_bit_in_a_segment_that_is_read_back_is_seen() {
    let mut small = Small::with(1, with_cold_segments());
    let directory = Path::new(DATA_PATH).join("orders.log");
    for entry in small.files.list(&directory).expect("it is there") {
        if entry.name.ends_with(".segment") {
            small.files.damage(&directory.join(entry.name), 200, 1);
        }
    }
    let first = Seq(small.log.next_seq().0 - COUNT);
    loop {
        match small.log.take_run(SeqRange::one(first), 1, u32::MAX) {
            Taken::Loading => small.serve(),
            Taken::Damaged(_) => return,
            Taken::Run(run) => panic!("{run:?} has a wrong bit"),
        }
    }
}

fn a_shared_sync_that_fails_is_believed_of_nobody() {
    let mut small = Small::new(1);
    let mut shared = small.keeper.shared_sync().expect("the data path opens");
    small.log.sync_now();
    let sync = small.log.next_request().expect("nothing was synced so far");
    small.files.fail_next(Call::Sync, ErrorKind::Other);
    let replies = small
        .keeper
        .handle_together(&mut shared, vec![(TOPIC, sync)]);
    for reply in replies.into_iter().flatten() {
        small
            .log
            .handle_reply(Duration::ZERO, reply, &mut Vec::new());
    }
    assert!(!small.log.is_synced(), "pages were lost");
}

/// The disk reports a lost name to only one sync, here that of the first deletion. The second
/// deletion must fail too.
fn a_lost_name_is_lost_for_every_keeper() {
    let files = SimFiles::new();
    let data_path = DataPath::from(DATA_PATH);
    let made = files.create_dir(Path::new("/data/lost.log"));
    made.expect("there is room");
    files.fail_write_back_of(&data_path, 1);
    for topic in ["one", "other"] {
        let keeper = Keeper::new(files.clone(), data_path.clone());
        let deleted = keeper.delete_topic(topic);
        deleted.expect_err("no later sync of the data path is trusted");
    }
}

fn an_unfinished_write_keeps_its_segment() {
    let mut small = Small::new(1);
    let first = Seq(small.log.next_seq().0 - COUNT);
    small.log.pin(first);
    small
        .log
        .release_range(SeqRange::new(first, Seq(first.0 + COUNT)));
    small.serve();
    small.log.check();
    small.log.unpin(first);
}

fn a_retry_is_not_lost() {
    for seed in 1..=40 {
        History::run(seed);
    }
}
