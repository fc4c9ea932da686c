//! [`LogReader`]: reads single messages of a log that nobody has open, for the export, the import and the start. It changes
//! nothing.

use std::path::Path;

use diskq_log::range::{normalise, within, without};
use diskq_log::segment::{self, Head, Scan, slot_at};
use diskq_log::{CheckpointRun, Damage, NewestMessages, Recovered, SegmentNumber, SeqRange};
use wire::frame::{DATA_AT, Message};
use wire::id::Seq;

use crate::error::{Attempt, DiskError};
use crate::files::Files;
use crate::keeper::LogDirectory;
use crate::mapping::Buffer;

/// Returns the messages that a log owes to every channel and that are in no channel's runs yet: `undistributed` of the
/// checkpoint, and all messages above the checkpoint.
#[must_use]
pub fn undistributed(recovered: &Recovered) -> Vec<CheckpointRun> {
    let checkpoint = recovered.checkpoint.as_ref();
    let next = checkpoint.map_or(Seq(0), |checkpoint| checkpoint.next);
    let known = checkpoint.map_or(&[][..], |checkpoint| &checkpoint.undistributed);
    let mut runs = existing(recovered, known);
    for range in within(SeqRange::new(next, Seq(u64::MAX)), &recovered.found) {
        let mut rest = range;
        let deferred = recovered.deferred.iter();
        for found in deferred.filter(|found| range.contains(found.seq)) {
            let before = SeqRange::new(rest.start, found.seq);
            runs.push(CheckpointRun::fresh(before, 0));
            runs.push(CheckpointRun::fresh(SeqRange::one(found.seq), found.due_ns));
            rest.start = found.seq.offset(1);
        }
        runs.push(CheckpointRun::fresh(rest, 0));
    }
    runs.retain(|run| run.count > 0);
    runs
}

/// The messages of `runs` that are there, sorted.
#[must_use]
pub fn existing(recovered: &Recovered, runs: &[CheckpointRun]) -> Vec<CheckpointRun> {
    let parts = |run: &CheckpointRun| {
        let run = *run;
        let ranges = within(run.range(), &recovered.found).into_iter();
        ranges.map(move |range| run.with_range(range))
    };
    let mut parts: Vec<CheckpointRun> = runs.iter().flat_map(parts).collect();
    parts.sort_by_key(|run| run.start);
    parts
}

/// Reads the newest messages of a log that start-up has found, and tells which messages the start has found lost. A message
/// that is damaged or gone is left out. Blocks.
///
/// # Errors
/// A segment cannot be read. The messages before were taken.
pub fn read_newest(
    files: &impl Files,
    data_path: &Path,
    topic: &str,
    recovered: &Recovered,
    taker: &mut impl NewestMessages,
) -> Result<(), DiskError> {
    taker.begin(recovered.log.next_seq(), &lost(recovered));
    let segments = recovered.log.segments();
    let segments = segments.map(|segment| {
        let bytes = u64::from(segment.head.bytes);
        (segment.head.base, u64::from(segment.count), bytes)
    });
    let from = taker.from(&segments.collect::<Vec<_>>());
    let mut reader = LogReader::new(files, data_path, topic, recovered);
    for range in within(SeqRange::new(from, Seq(u64::MAX)), &recovered.found) {
        for seq in (range.start.0..range.end.0).map(Seq) {
            if let Some(message) = reader.read(seq)? {
                taker.add(seq, message.timestamp_ns as u64, message.body);
            }
        }
    }
    Ok(())
}

/// Returns the messages that the log owes and that start-up has not found. Seqs that no message ever had may be among them.
/// Above the checkpoint, the log owes what its files had: it has used the files of the other messages again, because
/// consumers had finished these messages.
fn lost(recovered: &Recovered) -> Vec<SeqRange> {
    let checkpoint = recovered.checkpoint.as_ref();
    let next = checkpoint.map_or(Seq(0), |checkpoint| checkpoint.next);
    let above = SeqRange::new(next, recovered.log.next_seq());
    let above = within(above, &recovered.had).into_iter();
    let named = checkpoint.iter().flat_map(|checkpoint| checkpoint.named());
    let owed = named.chain(above);
    let lost = owed.flat_map(|owed| without(owed, &recovered.found));
    let mut lost: Vec<SeqRange> = lost.collect();
    normalise(&mut lost);
    lost
}

/// Reads messages by seq, best in their order: it holds one segment at a time.
pub struct LogReader<'a, F> {
    directory: LogDirectory<'a, F>,
    /// In the order of their seqs.
    segments: Vec<(SegmentNumber, Head, u32)>,
    loaded: Option<Loaded>,
    /// The damage that was found while reading.
    damage: Vec<Damage>,
}

struct Loaded {
    index: usize,
    image: Buffer,
    scan: Scan,
}

impl<'a, F: Files> LogReader<'a, F> {
    /// A reader of the log of `topic`, as start-up has found it.
    #[must_use]
    pub fn new(
        files: &'a F,
        data_path: &'a Path,
        topic: &str,
        recovered: &Recovered,
    ) -> LogReader<'a, F> {
        let segments = recovered.log.segments();
        LogReader {
            directory: LogDirectory::new(files, data_path, topic),
            segments: segments
                .map(|segment| (segment.number, segment.head, segment.count))
                .collect(),
            loaded: None,
            damage: Vec::new(),
        }
    }

    /// Returns the message `seq`. `None` means that the message is damaged, or that the log does not have it.
    ///
    /// # Errors
    /// The segment cannot be read, and the device is not the reason.
    pub fn read(&mut self, seq: Seq) -> Result<Option<Message<'_>>, DiskError> {
        let behind = self
            .segments
            .partition_point(|(_, head, _)| head.base <= seq);
        let Some(index) = behind.checked_sub(1) else {
            return Ok(None);
        };
        if self
            .loaded
            .as_ref()
            .is_none_or(|loaded| loaded.index != index)
        {
            self.load(index)?;
        }
        let Some(Loaded { image, scan, .. }) = &self.loaded else {
            return Ok(None);
        };
        let head = &self.segments[index].1;
        let at = seq.0 - head.base.0;
        let is_whole = scan
            .whole
            .iter()
            .any(|whole| (u64::from(whole.start)..u64::from(whole.end)).contains(&at));
        let slot = is_whole.then(|| slot_at(image, head.slots, at as u32));
        let slot = slot.flatten();
        let frame = slot.and_then(|slot| image.get(slot.start as usize..slot.end as usize));
        Ok(frame.and_then(|frame| Message::parse(frame.get(DATA_AT..)?)))
    }

    /// Returns the damage that was found so far.
    #[must_use]
    pub fn into_damage(self) -> Vec<Damage> {
        self.damage
    }

    fn load(&mut self, index: usize) -> Result<(), DiskError> {
        self.loaded = None;
        let (number, head, count) = self.segments[index];
        let read = self.directory.read_segment(number, head.bytes);
        let path = self.directory.segment_path(number);
        let read = read.in_attempt("read", &path)?;
        self.damage.extend(read.damage);
        let scan = segment::scan(&read.image, &head, Some(count));
        self.loaded = Some(Loaded {
            index,
            image: read.image,
            scan,
        });
        Ok(())
    }
}
