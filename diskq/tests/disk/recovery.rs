use std::io;
use std::path::{Path, PathBuf};

use diskq::{Files, Keeper, log_path, open_log};
use diskq_log::checkpoint::{self, CHECKPOINT_FILE, PLACES, Roster};
use diskq_log::{
    ChannelCheckpoint, ChannelDraft, Checkpoint, CheckpointDraft, CheckpointRun, DamageKind,
    Durable, Log, Pages, Recovered, Run, STATE_FILES, SegmentNumber, SeqRange, SlotKind, Taken,
    segment, segment_file,
};
use diskq_sim::{Call, Crash, Fault, SimFiles};
use wire::id::{SEQ_MAX, Seq};

use super::{MONO, TOPIC, WALL_NS, data_path, options, serve, write_checkpoint};

fn directory() -> PathBuf {
    log_path(&data_path(), TOPIC)
}

/// The path of a segment's file.
fn file(number: u64) -> PathBuf {
    directory().join(segment_file(SegmentNumber(number)))
}

fn put(files: &SimFiles, path: &Path, bytes: &[u8]) {
    files.write_at(path, 0, bytes).unwrap();
}

/// The first bytes of a file.
fn start_of(files: &SimFiles, path: &Path, bytes: u64) -> Vec<u8> {
    let mut start = vec![0; bytes as usize];
    files.read_at(path, 0, &mut start).unwrap();
    start
}

fn kinds(recovered: &Recovered) -> Vec<DamageKind> {
    let damage = recovered.damage.iter();
    damage.map(|damage| damage.kind).collect()
}

fn channel(name: &str) -> ChannelCheckpoint {
    ChannelCheckpoint {
        name: name.into(),
        ..ChannelCheckpoint::default()
    }
}

/// Writes and syncs a checkpoint with these channels.
fn record(log: &mut Log, channels: Vec<ChannelCheckpoint>, keeper: &Keeper<SimFiles>) {
    let checkpoint = Checkpoint {
        channels,
        ..Checkpoint::default()
    };
    log.write_checkpoint(MONO, &checkpoint, Durable::Yes);
    serve(log, keeper);
}

/// A disk with an empty log.
fn new_log() -> (SimFiles, Keeper<SimFiles>, Log) {
    let files = SimFiles::new();
    let keeper = keeper(&files);
    (files, keeper, Log::new(options()))
}

/// Appends a message that one channel holds.
fn append(log: &mut Log, body: &[u8], keeper: &Keeper<SimFiles>) {
    while log.append(MONO, WALL_NS, body, 0).is_err() {
        serve(log, keeper);
    }
    log.retain(SeqRange::new(Seq(log.next_seq().0 - 1), log.next_seq()), 1);
}

/// One channel holds all messages that were found, and all messages are synced.
fn hold_and_sync(log: &mut Log, found: &[SeqRange], keeper: &Keeper<SimFiles>) {
    found.iter().for_each(|range| log.retain(*range, 1));
    log.release_unheld();
    log.sync_now();
    serve(log, keeper);
}

/// Opens the log with a bad sector among the messages of each segment. A segment that is read shows damage.
fn open_with_bad_sectors(files: &SimFiles) -> Recovered {
    let names = files.list(&directory()).unwrap().into_iter();
    let segments = names.filter(|entry| entry.name.ends_with(".segment"));
    segments.for_each(|entry| files.spoil(&directory().join(entry.name), 700, libc::EIO));
    let recovered = open(files);
    files.repair();
    recovered
}

/// A disk with `count` synced messages, named by a synced checkpoint, and the seq of the first.
fn disk_with(count: u32) -> (SimFiles, Seq) {
    let (files, keeper, mut log) = new_log();
    for index in 0..count {
        let body = index.to_le_bytes().repeat(50);
        append(&mut log, &body, &keeper);
    }
    let first = Seq(log.next_seq().0 - u64::from(count));
    log.sync_now();
    serve(&mut log, &keeper);
    for number in 0..2 {
        let all = SeqRange::new(first, first.offset(count.into()));
        let mut run = CheckpointRun::fresh(all, 0);
        run.attempts = number;
        let mut channel = channel("c");
        channel.runs = vec![run];
        record(&mut log, vec![channel], &keeper);
    }
    files.observe(&data_path(), TOPIC, &log);
    (files, first)
}

fn open(files: &SimFiles) -> Recovered {
    let wall_ns = WALL_NS + 1_000_000_000;
    open_log(files, &data_path(), TOPIC, options(), wall_ns).unwrap()
}

/// Holds all messages that were found, and takes each that can be read.
fn take_all(
    recovered: Recovered,
    keeper: &Keeper<SimFiles>,
    mut take: impl FnMut(&Log, Run),
) -> (Log, Vec<SeqRange>) {
    let (mut log, found) = (recovered.log, recovered.found);
    found.iter().for_each(|range| log.retain(*range, 1));
    log.release_unheld();
    log.check();
    for range in &found {
        let mut start = range.start;
        while start < range.end {
            match log.take_run(SeqRange::new(start, range.end), 100, 1 << 20) {
                Taken::Run(run) => {
                    take(&log, run);
                    start = start.offset(run.count.into());
                }
                Taken::Loading => serve(&mut log, keeper),
                Taken::Damaged(damaged) => start = damaged.end,
            }
        }
        log.check();
    }
    (log, found)
}

/// Reads all messages, and checks each that can be read. Returns their number, and the number of damaged messages.
fn read_all(recovered: Recovered, files: &SimFiles, first: Seq) -> (u64, u64) {
    let keeper = keeper(files);
    let mut read = 0;
    let (log, _) = take_all(recovered, &keeper, |log, run| {
        for (bytes, seq) in log.bytes(&run).chunks(234).zip(run.first.0..) {
            let body = ((seq - first.0) as u32).to_le_bytes().repeat(50);
            assert_eq!(bytes[34..], body, "a wrong message");
        }
        read += u64::from(run.count);
    });
    (read, log.stats().damaged_count)
}

/// What is left of a segment that was set aside.
fn damaged(number: u64) -> PathBuf {
    file(number).with_extension("segment.damaged")
}

/// A keeper on this disk.
fn keeper(files: &SimFiles) -> Keeper<SimFiles> {
    Keeper::new(files.clone(), data_path())
}

#[test]
fn a_directory_that_is_not_there_is_an_empty_log() {
    let recovered = open(&SimFiles::new());
    assert_eq!(recovered.found, []);
    assert!(recovered.checkpoint.is_none() && recovered.damage.is_empty());
    assert_eq!(recovered.log.next_timeout(), None);
}

/// T7 over whole files: in the sealed segment that start-up does not read, and in the tail.
#[test]
pub(super) fn a_flipped_bit_in_a_segment_costs_one_counted_message_at_most() {
    for segment in ["000000000001.segment", "000000000003.segment"] {
        for at in (0..8192).step_by(3) {
            let (files, first) = disk_with(80);
            files.damage(&directory().join(segment), at, 1 << (at % 8));
            let (read, damaged) = read_all(open(&files), &files, first);
            assert_eq!(read + damaged, 80, "{segment} byte {at}");
            assert!(damaged <= 1, "{segment} byte {at}");
        }
    }
}

/// T7 for each bit of the newest checkpoint: an older one stands in, nothing is lost.
#[test]
pub(super) fn a_flipped_bit_in_a_checkpoint_is_reported_and_costs_nothing() {
    let (pristine, _) = disk_with(80);
    let path = directory().join(CHECKPOINT_FILE);
    let newest = places_by_age(&pristine)[PLACES - 1];
    for bit in 0..100 * 8 {
        let (files, first) = disk_with(80);
        files.damage(&path, newest + bit / 8, 1 << (bit % 8));
        let recovered = open(&files);
        let kinds = kinds(&recovered);
        let older = recovered.checkpoint.as_ref().unwrap();
        if kinds.is_empty() {
            assert_eq!(older.number, 2, "bit {bit} lies behind the checkpoint");
        } else {
            assert_eq!((kinds, older.number), (vec![DamageKind::Checkpoint], 1));
        }
        assert_eq!(read_all(recovered, &files, first), (80, 0));
    }
}

/// Returns the offsets of the places of a checkpoint file, from the oldest checkpoint to the newest.
fn places_by_age(files: &SimFiles) -> Vec<usize> {
    let path = directory().join(CHECKPOINT_FILE);
    let offset = |place| checkpoint::pieces(place, 1).next().unwrap().1;
    let mut places: Vec<(u64, usize)> = (0..PLACES)
        .map(|place| {
            let mut number = [0; 8];
            let read = files.read_at(&path, offset(place) + 8, &mut number);
            read.unwrap();
            (u64::from_le_bytes(number), offset(place) as usize)
        })
        .collect();
    places.sort_unstable();
    places.into_iter().map(|(_, at)| at).collect()
}

/// Regression: this program's checkpoints got lower numbers than the one that a later program had left. After a return to
/// the later program, that old checkpoint was the newest.
#[test]
fn checkpoints_get_numbers_above_that_of_an_unknown_version() {
    let check = |left: u64, next: u64| {
        let (files, _) = disk_with(80);
        let path = directory().join(CHECKPOINT_FILE);
        let at = *places_by_age(&files).last().unwrap() as u64;
        let mut bytes = vec![0; 4096];
        files.read_at(&path, at, &mut bytes).unwrap();
        bytes[4..6].copy_from_slice(&99_u16.to_le_bytes());
        bytes[8..16].copy_from_slice(&left.to_le_bytes());
        let length = checkpoint::encoded_bytes(&bytes) as usize;
        checkpoint::reseal(&mut bytes[..length]);
        files.write_at(&path, at, &bytes).unwrap();
        assert_eq!(open(&files).log.next_checkpoint().0, next, "{left}");
    };
    check(1000, 1001);
    check(1, 2);
    // No log has written this number.
    check(u64::MAX, 2);
}

/// The newest checkpoint may not have been synced before the crash: the channels of the one before it are durable.
#[test]
fn the_channels_of_the_last_but_one_checkpoint_are_durable() {
    let names = [&["gone"][..], &["kept"], &["kept", "new"]];
    let record = || {
        let (files, keeper, mut log) = new_log();
        for names in names {
            let channels = names.iter().map(|name| channel(name));
            record(&mut log, channels.collect(), &keeper);
        }
        files
    };
    let channels = ["gone", "kept", "new", "other"];
    let durable = |it: &Recovered| channels.map(|name| it.durable_channels.names(name));
    let whole = open(&record());
    assert_eq!(durable(&whole), [false, true, false, false]);
    let files = record();
    let by_age = places_by_age(&files);
    let path = directory().join(CHECKPOINT_FILE);
    files.damage(&path, by_age[2] + 40, 1);
    let newest_is_bad = open(&files);
    assert_eq!(durable(&newest_is_bad), [true, false, false, false]);
    files.damage(&path, by_age[0] + 40, 1);
    files.damage(&path, by_age[1] + 40, 1);
    let all_are_bad = open(&files);
    assert!(all_are_bad.checkpoint.is_none());
    assert_eq!(durable(&all_are_bad), [false; 4]);
}

/// A checkpoint that was written without a sync may come after a failed sync: no channel counts as durable.
#[test]
fn a_channel_is_not_durable_by_a_sync_that_failed() {
    let (files, keeper, mut log) = new_log();
    files.fail_next(Call::Sync, io::ErrorKind::Other);
    for _ in 0..2 {
        record(&mut log, vec![channel("new")], &keeper);
    }
    let recovered = open(&files);
    let newest = recovered.checkpoint.expect("both were written");
    assert_eq!((newest.number, newest.channels.len()), (2, 1));
    assert!(!recovered.durable_channels.names("new"));
}

/// Starts on the disk, writes a checkpoint with these channels, and dies in the file call `die_at` of that. Returns the
/// channels that the start took for durable.
fn live_and_die(files: &SimFiles, names: &[&str], die_at: u64) -> Roster {
    let recovered = open(files);
    let keeper = keeper(files);
    let mut log = recovered.log;
    files.die_at(die_at);
    write_channels(&mut log, names, &keeper);
    files.crash(Crash::Process);
    recovered.durable_channels
}

fn write_channels(log: &mut Log, names: &[&str], keeper: &Keeper<SimFiles>) {
    // Longer than a sector, so that a power failure may tear the checkpoint.
    let number = log.next_checkpoint().0;
    let more = (0..8).map(|at| format!("{number:030}{at:030}"));
    let names = names.iter().map(|name| (*name).to_owned()).chain(more);
    record(log, names.map(|name| channel(&name)).collect(), keeper);
}

/// Two processes were killed one after the other between a checkpoint and its sync. The third one took the first of
/// these two checkpoints for durable: it answered a SUB at once, and overwrote the only checkpoint that was durable.
#[test]
pub(super) fn a_checkpoint_of_a_killed_process_is_not_durable_because_there_is_a_newer_one() {
    const CALLS: u64 = 12;
    let mut believed = 0;
    for seed in 0..CALLS * CALLS * CALLS {
        let die_at = [seed % CALLS, seed / CALLS % CALLS, seed / CALLS / CALLS].map(|at| at + 1);
        let files = SimFiles::seeded(seed);
        let keeper = keeper(&files);
        let mut log = Log::new(options());
        for _ in 0..2 {
            write_channels(&mut log, &["a"], &keeper);
        }
        live_and_die(&files, &["a", "x"], die_at[0]);
        live_and_die(&files, &["a", "x"], die_at[1]);
        let durable = live_and_die(&files, &["a", "x", "y"], die_at[2]);
        files.crash(Crash::Power { seed });
        let found = open(&files).checkpoint.map(|found| found.roster());
        let is_there = |name| found.as_ref().is_some_and(|found| found.names(name));
        assert!(is_there("a"), "calls {die_at:?}");
        assert!(is_there("x") || !durable.names("x"), "calls {die_at:?}");
        believed += u64::from(durable.names("x"));
    }
    assert!(believed > CALLS, "{believed} starts took it for durable");
}

#[test]
fn unreadable_checkpoints_are_not_absent() {
    let (files, first) = disk_with(80);
    for place in 0..PLACES {
        let (_, at) = checkpoint::pieces(place, 1).next().unwrap();
        files.damage(&directory().join(CHECKPOINT_FILE), at as usize + 30, 1);
        files.damage(&directory().join(CHECKPOINT_FILE), at as usize, 1);
    }
    let recovered = open(&files);
    assert!(recovered.checkpoint.is_none());
    assert!(kinds(&recovered).contains(&DamageKind::CheckpointLost));
    assert_eq!(read_all(recovered, &files, first), (80, 0));
}

/// A copy of the data path may lack checkpoints or their ends. Then messages come again, and channels may be missing.
#[test]
fn a_checkpoint_file_that_is_missing_or_cut_is_reported() {
    let path = directory().join(CHECKPOINT_FILE);
    let whole_bytes = disk_with(80).0.length(&path).unwrap();
    for left in [None, Some(0), Some(4096), Some(8192), Some(whole_bytes - 1)] {
        let (files, first) = disk_with(80);
        let bytes = start_of(&files, &path, left.unwrap_or(0));
        files.remove(&path).unwrap();
        if left.is_some() {
            put(&files, &path, &bytes);
        }
        let recovered = open(&files);
        let damage = &recovered.damage[0];
        assert_eq!(damage.kind, DamageKind::CheckpointFile, "{left:?}");
        let expected = match left {
            None => "the file is missing".to_owned(),
            Some(left) => format!("the file has {left} bytes instead of {whole_bytes} or more"),
        };
        assert!(damage.detail.starts_with(&expected), "{damage}");
        let is_lost = kinds(&recovered).contains(&DamageKind::CheckpointLost);
        assert_eq!(is_lost, recovered.checkpoint.is_none(), "{left:?}");
        assert_eq!(read_all(recovered, &files, first), (80, 0), "{left:?}");
    }
}

/// The end of a file that had grown was cut off. The start told only that a checkpoint was bad, and did not make the
/// channels of nsqd.dat that this checkpoint may have had.
#[test]
fn a_checkpoint_whose_end_is_cut_off_is_told_from_a_bad_one() {
    let path = directory().join(CHECKPOINT_FILE);
    let check = |left: u64, expected: DamageKind, text: &str| {
        let (files, first) = disk_with(80);
        let newest = open(&files).checkpoint.expect("there is one");
        // Every second message, again and again: more runs than a file of the least length has room for.
        let owed = (0..1000).map(|index| SeqRange::one(first.offset(2 * index)));
        let runs = owed.map(|seqs| CheckpointRun::fresh(seqs, 0));
        let long = ChannelDraft {
            name: "long".to_owned(),
            runs: runs.collect::<Vec<_>>().iter().collect(),
            ..ChannelDraft::default()
        };
        let mut draft = CheckpointDraft::new(false, vec![long]);
        draft.number = newest.number + 1;
        draft.next = Seq(first.0 + 2000);
        keeper(&files).handle(TOPIC, write_checkpoint(2, &draft, false));
        let bytes = start_of(&files, &path, left);
        files.remove(&path).unwrap();
        put(&files, &path, &bytes);
        let recovered = open(&files);
        let [damage] = &recovered.damage[..] else {
            panic!("{:?}", recovered.damage);
        };
        assert_eq!(damage.kind, expected, "{left}: {damage}");
        assert!(damage.detail.contains(text), "{left}: {damage}");
        let is_cut = expected == DamageKind::CheckpointFile;
        assert_eq!(recovered.lacks_checkpoints(), is_cut, "{left}");
        let found = recovered.checkpoint.expect("an older one");
        assert_eq!(found.number, newest.number);
    };
    let cut = "in place c is longer than the file of 40000 bytes: the copy of the data path is not complete";
    check(40_000, DamageKind::CheckpointFile, cut);
    check(24_577, DamageKind::CheckpointFile, "not complete");
    // The file is as long as before it grew.
    let torn = "in place c is longer than the file of 24576 bytes: the power failed, or";
    check(24_576, DamageKind::Checkpoint, torn);
}

/// A power failure had left a log without its checkpoint file. The names of the log were synced before a job made the file
/// again, so the next power failure took the checkpoints, although they were synced.
#[test]
fn a_checkpoint_file_that_is_made_again_gets_a_durable_name() {
    let path = directory().join(CHECKPOINT_FILE);
    for seed in 0..8 {
        for makes_segment in [false, true] {
            let (files, _) = disk_with(80);
            files.remove(&path).unwrap();
            let recovered = open(&files);
            let keeper = keeper(&files);
            let mut log = recovered.log;
            hold_and_sync(&mut log, &recovered.found, &keeper);
            if makes_segment {
                append(&mut log, b"new", &keeper);
            }
            for _ in 0..2 {
                record(&mut log, Vec::new(), &keeper);
            }
            files.crash(Crash::Power { seed });
            assert!(files.length(&path).is_ok(), "seed {seed}, {makes_segment}");
        }
    }
}

/// A topic for which nothing was written has no files.
#[test]
fn a_log_without_files_has_no_damage() {
    let files = SimFiles::new();
    assert_eq!(open(&files).damage, []);
    files.create_dir(&directory()).unwrap();
    assert_eq!(open(&files).damage, []);
}

#[test]
fn a_missing_segment_is_counted_and_the_rest_is_delivered() {
    let (files, first) = disk_with(80);
    files.remove(&file(2)).unwrap();
    let recovered = open(&files);
    let missing = recovered.damage.iter().map(|it| it.seqs.len()).sum();
    assert!(missing > 20, "{:?}", recovered.damage);
    assert_eq!(read_all(recovered, &files, first), (80 - missing, missing));
}

#[test]
fn foreign_files_are_left_alone_and_reported_if_they_look_like_ours() {
    let (files, first) = disk_with(80);
    let foreign = file(9);
    put(&files, &foreign, &[7; 5000]);
    put(&files, &directory().join("notes.txt"), b"hello");
    let mut copy = start_of(&files, &file(1), 8192);
    // Without the seal it is none of our own copies, and may be of any age.
    copy[64..128].fill(0);
    put(&files, &file(10), &copy);
    let recovered = open(&files);
    assert_eq!(kinds(&recovered), [DamageKind::Foreign, DamageKind::Header]);
    assert_eq!(read_all(recovered, &files, first), (80, 0));
    assert!(files.length(&damaged(9)).is_ok());
}

#[test]
fn a_copy_stands_in_for_what_it_was_made_of() {
    let (files, first) = disk_with(80);
    let original = file(1);
    let image = start_of(&files, &original, files.length(&original).unwrap());
    let copy = file(40);
    put(&files, &copy, &image);
    // The next life of the original: its pages are on disk, its head is not.
    files.write_at(&original, 128, &[9; 700]).unwrap();
    let partial = directory().join("000000000041.segment.partial");
    put(&files, &partial, &image[..3000]);
    let recovered = open(&files);
    assert_eq!(recovered.damage, []);
    assert_eq!(read_all(recovered, &files, first), (80, 0));
    assert!(files.length(&original).is_err() && files.length(&partial).is_err());
    assert!(files.length(&copy).is_ok());
}

/// A power failure may tear a copy that was not synced.
#[test]
pub(super) fn a_torn_copy_leaves_its_original_alone() {
    let (files, keeper, mut log) = new_log();
    for _ in 0..80 {
        append(&mut log, &[7; 200], &keeper);
    }
    serve(&mut log, &keeper);
    files.observe(&data_path(), TOPIC, &log);
    let mut image = start_of(&files, &file(1), 8192);
    image[3000..3512].fill(0);
    put(&files, &file(40), &image);
    let found = open(&files).found;
    assert_eq!(found.iter().map(SeqRange::len).sum::<u64>(), 80);
}

#[test]
fn a_segment_with_damage_is_set_aside_when_nobody_needs_it() {
    // A load finds the damage of the first segment, and the start that of the third one.
    for (number, at_start) in [(1, vec![]), (3, vec![DamageKind::Messages])] {
        let (files, _) = disk_with(80);
        files.damage(&file(number), 200, 1);
        let keeper = keeper(&files);
        let recovered = open(&files);
        assert_eq!(kinds(&recovered), at_start);
        let (mut log, found) = take_all(recovered, &keeper, |_, _| {});
        assert_eq!(log.stats().damaged_count, 1);
        found.iter().for_each(|range| log.release_range(*range));
        record(&mut log, Vec::new(), &keeper);
        let is_kept = files.length(&damaged(number)).is_ok();
        assert!(is_kept && files.length(&file(number)).is_err());
    }
}

/// The file of a torn message stayed for ever as `*.damaged`, although the message was promised to nobody.
#[test]
fn a_segment_with_a_torn_message_is_removed_when_nobody_needs_it() {
    let (files, keeper, mut log) = new_log();
    for body in [[1; 200], [2; 200], [3; 200]] {
        append(&mut log, &body, &keeper);
    }
    serve(&mut log, &keeper);
    files.observe(&data_path(), TOPIC, &log);
    files.damage(&file(1), segment::FRAMES_AT as usize + 300, 1);
    let recovered = open(&files);
    assert_eq!(kinds(&recovered), []);
    let (mut log, found) = take_all(recovered, &keeper, |_, _| {});
    found.iter().for_each(|range| log.release_range(*range));
    for _ in 0..2 {
        record(&mut log, Vec::new(), &keeper);
    }
    let names = files.list(&directory()).unwrap().into_iter();
    let kept = names.filter(|entry| entry.name.contains(".segment"));
    assert_eq!(kept.map(|entry| entry.name).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_next_seq_is_above_everything_ever_named_even_if_the_clock_went_back() {
    let (files, first) = disk_with(80);
    let recovered = open_log(&files, &data_path(), TOPIC, options(), 0).unwrap();
    assert!(recovered.log.next_seq().0 >= first.0 + 80);
}

/// Everything of `disk_with(80)` is there.
fn is_complete(files: &SimFiles, first: Seq) {
    let recovered = open(files);
    assert_eq!(recovered.damage, []);
    assert_eq!(read_all(recovered, files, first), (80, 0));
}

/// A segment that could not be opened a second time was removed, as one without messages.
#[test]
fn a_read_that_fails_at_start_removes_nothing() {
    let codes = [libc::ENFILE, libc::ENOMEM, libc::ESTALE, libc::EACCES];
    let media: Fault = libc::EIO.into();
    let faults = codes.map(Fault::from).into_iter();
    let faults = faults.chain([io::ErrorKind::Other.into(), media]);
    for (fault, has_checkpoint) in faults.flat_map(|f| [(f, true), (f, false)]) {
        let mut nth = 1;
        loop {
            let (files, first) = disk_with(80);
            put(&files, &file(40), &[0; 8192]);
            if !has_checkpoint {
                // Nothing is known to be synced: each segment is read.
                let path = directory().join(CHECKPOINT_FILE);
                files.remove(&path).unwrap();
                files
                    .allocate(&path, checkpoint::FILE_BYTES_MIN, Pages::Small)
                    .unwrap();
            }
            files.fail_nth_of(Call::Read, nth, fault);
            let opened = open_log(&files, &data_path(), TOPIC, options(), WALL_NS);
            let is_hit = files.fail_count() == 1;
            files.disarm();
            match opened {
                // A second attempt reads it: nothing was lost.
                Ok(recovered) => {
                    assert!(!is_hit || fault == media, "{fault:?} at read {nth}");
                    assert_eq!(read_all(recovered, &files, first), (80, 0));
                }
                Err(error) => {
                    assert!(is_hit && fault != media, "{fault:?} at read {nth}: {error}");
                }
            }
            is_complete(&files, first);
            if !is_hit {
                break;
            }
            nth += 1;
        }
        assert!(nth > 5, "only {nth} reads");
    }
}

/// A bad sector costs the messages it touches, and their bytes are kept: after a repair everything
/// is there, or set aside.
#[test]
fn a_bad_sector_costs_what_it_touches() {
    for has_checkpoint in [true, false] {
        let (pristine, _) = disk_with(80);
        let names = pristine.list(&directory()).unwrap();
        for entry in names {
            let path = directory().join(&entry.name);
            let image = start_of(&pristine, &path, entry.bytes);
            let is_unused = image.iter().all(|&byte| byte == 0);
            for at in (0..entry.bytes as usize).step_by(512) {
                let (files, first) = disk_with(80);
                if !has_checkpoint {
                    files.remove(&directory().join(CHECKPOINT_FILE)).unwrap();
                    if entry.name == CHECKPOINT_FILE {
                        continue;
                    }
                }
                files.spoil(&path, at, libc::EIO);
                let recovered = open(&files);
                let is_told = !recovered.damage.is_empty();
                let place = format!("{} byte {at}", entry.name);
                let kept = directory().join(format!("{}.damaged", entry.name));
                let has_no_head = files.length(&kept).is_ok();
                let (read, damaged) = read_all(recovered, &files, first);
                if has_no_head {
                    assert!(is_told && read > 40, "{place}: {read} left");
                } else {
                    assert_eq!(read + damaged, 80, "{place}");
                    assert!(damaged == 0 || at >= 512, "{place}");
                }
                files.repair();
                let is_kept = |path| files.length(path).is_ok_and(|bytes| bytes == entry.bytes);
                if is_kept(&path) {
                    assert_eq!(read_all(open(&files), &files, first), (80, 0), "{place}");
                } else {
                    assert!(is_unused || is_kept(&kept), "{place}");
                }
            }
        }
    }
}

/// A file with messages and a head of zeros was removed in silence if nothing else was missing.
#[test]
fn a_file_without_a_head_is_kept() {
    let (files, first) = disk_with(80);
    let headless = file(40);
    let mut image = start_of(&files, &file(1), 8192);
    image[..128].fill(0);
    put(&files, &headless, &image);
    let recovered = open(&files);
    assert_eq!(kinds(&recovered), [DamageKind::Header]);
    assert_eq!(read_all(recovered, &files, first), (80, 0));
    assert_eq!(files.length(&damaged(40)).unwrap(), 8192);
    // Its number is not given again: the next one that is set aside would replace it.
    let next = open(&files).log.next_numbers().0;
    assert!(next > SegmentNumber(40), "{next:?}");
}

/// Whatever the log finds, it can be used: read, appended to, recorded, and opened again.
fn is_usable(files: &SimFiles, place: &str) {
    for _ in 0..2 {
        let keeper = keeper(files);
        let (mut log, found) = take_all(open(files), &keeper, |log, run| {
            assert!(!log.bytes(&run).is_empty(), "{place}");
        });
        found.into_iter().for_each(|range| log.release_range(range));
        while log.append(MONO, WALL_NS, b"new", 0).is_err() {
            serve(&mut log, &keeper);
        }
        record(&mut log, Vec::new(), &keeper);
        log.check();
        files.observe(&data_path(), TOPIC, &log);
    }
}

/// Heads and seals with a right CRC and any content; a count of messages or a size that the file does
/// not have ended the process, or cost a gigabyte.
#[test]
fn no_head_with_a_right_crc_is_believed_blindly() {
    let (pristine, first) = disk_with(80);
    let path = file(2);
    let image = start_of(&pristine, &path, 8192);
    let segment::HeadState::Segment(good, Some(seal)) = segment::read_head(&image) else {
        panic!("a sealed segment");
    };
    let (mib, gib) = (1 << 20, 1 << 30);
    let numbers = [0, 1, 5, 128, 4096, 8191, 8192, 8193, mib, gib, u32::MAX];
    let seals = numbers.into_iter().flat_map(|count| {
        let end = move |end| segment::Seal { count, end };
        numbers.into_iter().map(end)
    });
    let seals = seals.map(|seal| (good, Some(seal)));
    let sizes = numbers.into_iter().flat_map(|bytes| {
        let head = segment::Head { bytes, ..good };
        [(head, None), (head, Some(seal))]
    });
    let near = [0, 1, first.0 - 1, first.0 + 1, 1 << 53];
    let far = [SEQ_MAX - 200, SEQ_MAX - 5, SEQ_MAX];
    let far = far.into_iter().chain([u64::MAX - 10, u64::MAX]);
    let bases = near.into_iter().chain(far).flat_map(|base| {
        let base = Seq(base);
        let head = segment::Head { base, ..good };
        [(head, None), (head, Some(seal))]
    });
    for (head, seal) in seals.chain(sizes).chain(bases) {
        for name in ["000000000002.segment", "000000000050.segment"] {
            let (files, _) = disk_with(80);
            let mut image = image.clone();
            segment::write_head(&mut image, &head);
            if let Some(seal) = &seal {
                segment::write_seal(&mut image, &head, seal);
            }
            put(&files, &directory().join(name), &image);
            is_usable(&files, &format!("{name}: {head:?} {seal:?}"));
        }
    }
}

/// Each byte of the newest checkpoint takes other values, and its CRC is right.
#[test]
fn no_checkpoint_with_a_right_crc_is_believed_blindly() {
    let (pristine, _) = disk_with(80);
    let path = directory().join(CHECKPOINT_FILE);
    let at = places_by_age(&pristine)[PLACES - 1] as u64;
    let mut bytes = vec![0; 4096];
    pristine.read_at(&path, at, &mut bytes).unwrap();
    let length = checkpoint::encoded_bytes(&bytes) as usize;
    for byte in 4..length {
        for value in [0, 1, 0x7F, 0x80, 0xFF, bytes[byte].wrapping_add(1)] {
            let mut bytes = bytes.clone();
            bytes[byte] = value;
            checkpoint::reseal(&mut bytes[..length]);
            let (files, _) = disk_with(80);
            files.write_at(&path, at, &bytes).unwrap();
            is_usable(&files, &format!("checkpoint byte {byte} is {value}"));
        }
    }
}

/// A clean stop left the last segment open, and each start read all of it: up to 16 MiB for each topic.
#[test]
fn a_log_that_was_sealed_is_not_read_at_start() {
    let (files, first) = disk_with(80);
    let keeper = keeper(&files);
    let is_read = |files: &SimFiles| {
        let recovered = open_with_bad_sectors(files);
        (!recovered.damage.is_empty(), recovered)
    };
    // The log is left like after kill -9.
    let (is_tail_read, recovered) = is_read(&files);
    assert!(is_tail_read);
    let mut log = recovered.log;
    for _ in 0..20 {
        append(&mut log, b"one more", &keeper);
    }
    hold_and_sync(&mut log, &recovered.found, &keeper);
    log.seal();
    record(&mut log, recovered.checkpoint.unwrap().channels, &keeper);
    files.observe(&data_path(), TOPIC, &log);
    // Found again, and the new ones: each segment that start-up reads would show a bad sector.
    files.remove(&file(3)).unwrap();
    let (is_any_read, recovered) = is_read(&files);
    assert!(is_any_read);
    assert_eq!(kinds(&recovered), [DamageKind::Segment]);
    let last = recovered.found.last().expect("the new ones");
    assert!(last.start.0 >= first.0 + 80);
}

/// A broker that is killed leaves its last segment unsealed. Each later start read all of them, however many there
/// were.
#[test]
fn the_segments_that_kills_left_are_not_read_for_ever() {
    let (files, _) = disk_with(80);
    let keeper = keeper(&files);
    let count_read = || {
        let damage = open_with_bad_sectors(&files).damage.into_iter();
        let unreadable = damage.filter(|it| it.detail.starts_with("unreadable"));
        unreadable.count()
    };
    let mut found_before = Vec::new();
    for life in 0..8 {
        // The segment of the last life, and those before it whose seqs no durable checkpoint had left behind.
        let read = count_read();
        assert!((1..=3).contains(&read), "life {life}: {read} segments read");
        let recovered = open(&files);
        assert_eq!(recovered.damage, []);
        assert!(recovered.found.len() > life);
        let is_found = |seqs| recovered.found.contains(seqs);
        assert!(found_before.iter().all(is_found));
        let mut log = recovered.log;
        for _ in 0..20 {
            append(&mut log, &[7; 200], &keeper);
        }
        hold_and_sync(&mut log, &recovered.found, &keeper);
        record(&mut log, recovered.checkpoint.unwrap().channels, &keeper);
        found_before = recovered.found;
    }
}

/// A seal tells how many messages are whole, and the head how many fit. A checkpoint that a power failure can take back
/// is no reason to forget the difference.
#[test]
fn a_seal_needs_a_durable_checkpoint() {
    let (files, _) = disk_with(80);
    let keeper = keeper(&files);
    let is_sealed = |number: u64| {
        let start = start_of(&files, &file(number), segment::FRAMES_AT.into());
        let head = segment::read_head(&start);
        matches!(head, segment::HeadState::Segment(_, Some(_)))
    };
    let open_and_write_checkpoint = || {
        let recovered = open(&files);
        let mut log = recovered.log;
        hold_and_sync(&mut log, &recovered.found, &keeper);
        log.write_checkpoint(MONO, &recovered.checkpoint.unwrap(), Durable::Yes);
        serve(&mut log, &keeper);
    };
    assert!(is_sealed(2) && !is_sealed(3));
    // The start leaves the seqs of segment 3 behind. The checkpoint that says so is the newest, and a kill may have
    // come before its sync.
    open_and_write_checkpoint();
    drop(open(&files));
    assert!(!is_sealed(3));
    // A checkpoint is durable when another one follows.
    open_and_write_checkpoint();
    assert!(!is_sealed(3));
    drop(open(&files));
    assert!(is_sealed(3));
}

/// A file that was cut keeps what is left of it; what is gone is counted.
#[test]
fn a_segment_that_is_too_short_costs_what_it_lost() {
    for bytes in [0, 5, 128, 200, 4096, 5000, 8000, 8180] {
        let (files, first) = disk_with(80);
        let path = file(2);
        let image = start_of(&files, &path, bytes);
        files.remove(&path).unwrap();
        put(&files, &path, &image);
        let (read, damaged) = read_all(open(&files), &files, first);
        assert_eq!(read + damaged, 80, "{bytes} bytes");
        assert!(damaged > 0 && read >= 48, "{bytes} bytes: {damaged} lost");
    }
}

#[test]
pub(super) fn the_older_of_two_states_counts_if_the_newer_one_is_wrong() {
    let (files, keeper, mut log) = new_log();
    for body in [b"old", b"new"] {
        log.save_state(log.next_seq(), body.to_vec());
        serve(&mut log, &keeper);
    }
    let newer = directory().join(STATE_FILES[0]);
    let bytes = files.length(&newer).unwrap();
    files.damage(&newer, bytes as usize - 1, 1);
    let mut options = options();
    options.slots = SlotKind::WithOrigin;
    let recovered = open_log(&files, &data_path(), TOPIC, options, WALL_NS).unwrap();
    assert_eq!(recovered.state.expect("one is whole").body, b"old");
}

/// Regression: the clock was set back, and no message was left of those that a state covered. So new messages got seqs
/// below the boundary of the state, and the next start did not read their numbers.
#[test]
fn new_messages_are_behind_the_saved_state() {
    let files = SimFiles::new();
    let keeper = keeper(&files);
    let mut options = options();
    options.slots = SlotKind::WithOrigin;
    let mut log = Log::new(options.clone());
    let boundary = Seq::from_clock(2 * WALL_NS);
    log.save_state(boundary, b"numbers".to_vec());
    serve(&mut log, &keeper);
    let recovered = open_log(&files, &data_path(), TOPIC, options, WALL_NS).unwrap();
    assert!(recovered.state.is_some());
    assert_eq!(recovered.log.next_seq(), boundary);
}
