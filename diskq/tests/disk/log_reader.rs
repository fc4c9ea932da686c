use std::path::PathBuf;

use diskq::{Files, Keeper, log_path, open_log, read_newest};
use diskq_log::range::{within, without};
use diskq_log::{Checkpoint, Durable, Log, NewestMessages, Recovered, SeqRange};
use diskq_sim::{Crash, SimFiles};
use wire::id::Seq;

use super::{MONO, TOPIC, WALL_NS, data_path, options, serve};

/// Enough messages for several segments.
const COUNT: u64 = 400;

/// Notes which messages are lost.
#[derive(Default)]
struct Lost(Vec<SeqRange>);

impl NewestMessages for Lost {
    fn begin(&mut self, _next: Seq, lost: &[SeqRange]) {
        self.0 = lost.to_vec();
    }

    fn from(&self, _segments: &[(Seq, u64, u64)]) -> Seq {
        Seq(u64::MAX)
    }

    fn add(&mut self, _seq: Seq, _published_ns: u64, _body: &[u8]) {}
}

/// Publishes messages after a checkpoint that names none, and syncs them. The first and the last one stay, and consumers have
/// finished the others. Then the process is killed. Returns the disk and the seqs of the messages.
fn killed() -> (SimFiles, SeqRange) {
    let files = SimFiles::new();
    let keeper = Keeper::new(files.clone(), data_path());
    let mut log = Log::new(options());
    log.write_checkpoint(MONO, &Checkpoint::default(), Durable::Yes);
    serve(&mut log, &keeper);
    for index in 0..COUNT {
        while log.append(MONO, WALL_NS, &[1; 200], 0).is_err() {
            serve(&mut log, &keeper);
        }
        let seq = Seq(log.next_seq().0 - 1);
        log.retain(SeqRange::one(seq), 1);
        if index > 0 && index + 1 < COUNT {
            log.release(seq);
        }
    }
    log.sync_now();
    serve(&mut log, &keeper);
    files.observe(&data_path(), TOPIC, &log);
    let seqs = SeqRange::new(Seq(log.next_seq().0 - COUNT), log.next_seq());
    files.crash(Crash::Process);
    (files, seqs)
}

/// Returns those of `seqs` that a start finds lost.
fn lost_of(files: &SimFiles, seqs: SeqRange) -> (Recovered, Vec<SeqRange>) {
    let wall_ns = WALL_NS + 1_000_000_000;
    let recovered = open_log(files, &data_path(), TOPIC, options(), wall_ns).unwrap();
    let mut taker = Lost::default();
    read_newest(files, &data_path(), TOPIC, &recovered, &mut taker).unwrap();
    let lost = within(seqs, &taker.0);
    (recovered, lost)
}

/// The first segment file, whose first message is owed.
fn first_file(files: &SimFiles) -> PathBuf {
    let directory = log_path(&data_path(), TOPIC);
    let entries = files.list(&directory).unwrap().into_iter();
    let mut names = entries.map(|entry| entry.name);
    let name = names.find(|name| name.ends_with(".segment"));
    directory.join(name.expect("the log has segments"))
}

/// These messages counted as lost, so a topic forgot their keys, and stored a message that was published again.
#[test]
fn what_was_finished_after_the_checkpoint_is_not_lost() {
    let (files, seqs) = killed();
    let (recovered, lost) = lost_of(&files, seqs);
    let gone = without(seqs, &recovered.found);
    assert!(!gone.is_empty(), "the log has used segments again");
    assert_eq!((lost, recovered.damage), (vec![], vec![]));
}

#[test]
fn a_message_that_is_not_whole_is_lost() {
    let (files, seqs) = killed();
    // Nobody was promised to find it: consumers have finished it, and no checkpoint names it.
    files.damage(&first_file(&files), 700, 1);
    let (recovered, lost) = lost_of(&files, seqs);
    assert_eq!(recovered.damage, []);
    let count: u64 = lost.iter().map(SeqRange::len).sum();
    assert_eq!(count, 1, "{lost:?}");
}

/// Nobody knows which messages the file had.
#[test]
fn everything_may_be_lost_with_a_file_that_cannot_be_judged() {
    let (files, seqs) = killed();
    files.write_at(&first_file(&files), 0, &[7; 128]).unwrap();
    let (recovered, lost) = lost_of(&files, seqs);
    assert_eq!(recovered.damage.len(), 1);
    assert_eq!(lost, without(seqs, &recovered.found));
}
