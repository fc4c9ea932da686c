//! Start-up: from the files of a log to a [`Log`], and what is owed from it.
//!
//! Reads the checkpoint slots, the heads of all segments, and every slot only of those segments a
//! crash may have torn: the ones not sealed, or not wholly below the synced mark of the checkpoint.
//! The others stay cold and are checked when they are loaded. What is not whole is
//!
//! - *damage*, if the checkpoint owes it and says that it was synced: counted, reported, its bytes
//!   set aside;
//! - *torn* otherwise: never promised to anyone, or finished long ago. Dropped without a word.

use std::io;
use std::ops::Range;
use std::path::Path;

use wire::id::Seq;

use crate::checkpoint::{self, CHECKPOINT_FILE, Checkpoint, SLOTS, SlotContent};
use crate::error::{Damage, DamageKind, DiskError, system_text};
use crate::files::{Entry, Files};
use crate::keeper::{
    DELETED_INFIX, LOG_SUFFIX, LogDirectory, SegmentNumber, is_partial_file, remove_deleted,
    segment_file, segment_number, seqs_at,
};
use crate::log::{Checkpoints, FoundLog, Log, LogOptions, Residency, Segment};
use crate::range::{SeqRange, normalise, push_joined, within, without};
use crate::segment::{
    self, Head, HeadState, PAGE_BYTES, SEGMENT_BYTES_LIMIT, Scan, Seal, count_limit, read_head,
};
use crate::slot::SLOT_BYTES;

/// A log after start-up.
#[derive(Debug)]
pub struct Recovered {
    /// The log. Retain what is owed, then call [`Log::release_unheld`] once.
    pub log: Log,
    /// The newest readable checkpoint. `None`: there never was one, or see `damage`.
    pub checkpoint: Option<Checkpoint>,
    /// All seqs that exist, sorted; torn and damaged ones left out. Those at or above the
    /// checkpoint's `next` are owed to every channel; those below are owed where it names them.
    pub found: Vec<SeqRange>,
    /// Messages at or above the checkpoint's `next` that were published deferred, by seq, with the
    /// Unix time in ns at which they are due.
    pub deferred: Vec<(Seq, u64)>,
    /// What was found damaged. Counted in the log's stats already.
    pub damage: Vec<Damage>,
}

/// The topics that have a log below `data_path`, sorted. Finishes deletions a crash interrupted.
pub fn list_logs(files: &impl Files, data_path: &Path) -> io::Result<Vec<String>> {
    let mut topics = Vec::new();
    for Entry { name, is_dir, .. } in files.list(data_path)? {
        if !is_dir {
            continue;
        }
        if is_deleted(&name) {
            // It is no log any more whether or not this works; the next start tries again.
            let _ = remove_deleted(files, &data_path.join(&name));
        } else if let Some(topic) = name
            .strip_suffix(LOG_SUFFIX)
            .filter(|topic| !topic.is_empty())
        {
            topics.push(topic.to_owned());
        }
    }
    Ok(topics)
}

/// Whether a directory is what `Keeper::delete_log` renamed.
fn is_deleted(name: &str) -> bool {
    let Some((log, number)) = name.rsplit_once(DELETED_INFIX) else {
        return false;
    };
    log.ends_with(LOG_SUFFIX)
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Opens the log of `topic`; a topic without one gets an empty log. Blocks.
///
/// Appends go to a new segment, from the first seq that no file has ever named: seqs may have a gap
/// there. Fails only if the directory itself cannot be read: files that cannot are damage.
pub fn open_log(
    files: &impl Files,
    data_path: &Path,
    topic: &str,
    options: LogOptions,
    wall_ns: u64,
) -> Result<Recovered, DiskError> {
    let directory = LogDirectory::new(files, data_path, topic);
    let entries = match files.list(directory.path()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(DiskError::io("list", directory.path(), error)),
    };
    let mut opening = Opening::new(files, directory);
    opening.read_checkpoints(&entries);
    opening.read_segments(&entries);
    opening.report_missing();
    Ok(opening.finish(options, wall_ns))
}

/// What start-up knows so far.
struct Opening<'a, F> {
    files: &'a F,
    directory: LogDirectory<'a, F>,
    checkpoint: Option<Checkpoint>,
    checkpoints: Checkpoints,
    /// What the checkpoint owes, sorted.
    owed: Vec<SeqRange>,
    any_slot_is_bad: bool,
    segments: Vec<Segment>,
    /// Files with messages and a head of zeros.
    headless: Vec<String>,
    found: Vec<SeqRange>,
    deferred: Vec<(Seq, u64)>,
    damage: Vec<Damage>,
    /// One above every seq any file names.
    next: Seq,
    next_number: u64,
}

impl<'a, F: Files> Opening<'a, F> {
    fn new(files: &'a F, directory: LogDirectory<'a, F>) -> Opening<'a, F> {
        Opening {
            files,
            directory,
            checkpoint: None,
            checkpoints: Checkpoints::default(),
            owed: Vec::new(),
            any_slot_is_bad: false,
            segments: Vec::new(),
            headless: Vec::new(),
            found: Vec::new(),
            deferred: Vec::new(),
            damage: Vec::new(),
            next: Seq(0),
            next_number: 1,
        }
    }

    /// Everything below is synced.
    fn synced(&self) -> Seq {
        self.checkpoint
            .as_ref()
            .map_or(Seq(0), |checkpoint| checkpoint.synced)
    }

    fn report(&mut self, kind: DamageKind, file: &str, seqs: SeqRange, detail: String) {
        let file = self.directory.shown(file);
        self.damage.push(Damage {
            kind,
            file,
            offset: 0,
            seqs,
            detail,
        });
    }

    fn read_checkpoints(&mut self, entries: &[Entry]) {
        let mut whole = [const { None }; SLOTS];
        let file = entries.iter().find(|entry| entry.name == CHECKPOINT_FILE);
        let file_bytes = file.map_or(0, |entry| entry.bytes);
        for (slot, whole) in whole.iter_mut().enumerate() {
            let read = self.read_slot(slot, file_bytes);
            let trouble = match read.map(|bytes| checkpoint::decode(&bytes)) {
                Ok(SlotContent::Empty) => continue,
                Ok(SlotContent::Whole(checkpoint, sync)) => {
                    *whole = Some((checkpoint, sync));
                    continue;
                }
                Ok(SlotContent::Bad) => "does not agree with its CRC".to_owned(),
                Ok(SlotContent::Newer(version)) => format!("is of unknown version {version}"),
                Err(error) => format!("cannot be read: {}", system_text(&error)),
            };
            self.any_slot_is_bad = true;
            let slot = char::from(b'a' + slot as u8);
            self.report(
                DamageKind::Checkpoint,
                CHECKPOINT_FILE,
                NO_SEQS,
                format!("checkpoint in slot {slot} {trouble}"),
            );
        }
        for (checkpoint, _) in whole.iter().flatten() {
            let named = checkpoint.named().map(|range| range.end).max();
            let all = [Some(checkpoint.next), Some(checkpoint.synced), named];
            self.next = all.into_iter().flatten().fold(self.next, Seq::max);
        }
        self.checkpoints = checkpoints_of(&whole);
        let newest = whole
            .into_iter()
            .flatten()
            .max_by_key(|(checkpoint, _)| checkpoint.number);
        if newest.is_none() && self.any_slot_is_bad {
            let detail = "no checkpoint is readable: everything found is delivered".to_owned();
            self.report(DamageKind::CheckpointLost, CHECKPOINT_FILE, NO_SEQS, detail);
        }
        if let Some((checkpoint, _)) = newest {
            self.owed = checkpoint.named().collect();
            normalise(&mut self.owed);
            self.checkpoint = Some(checkpoint);
        }
    }

    /// What a file of `file_bytes` bytes has of a slot. Slot by slot, so that a block that cannot be
    /// read costs no other slot.
    fn read_slot(&self, slot: usize, file_bytes: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (piece, at) in checkpoint::pieces(slot, file_bytes) {
            let piece_bytes = piece.end - piece.start;
            if at.saturating_add(piece_bytes) > file_bytes {
                break;
            }
            bytes.resize(piece.end as usize, 0);
            let path = self.directory.checkpoint_path();
            self.files
                .read_at(&path, at, &mut bytes[piece.start as usize..])?;
        }
        Ok(bytes)
    }

    fn read_segments(&mut self, entries: &[Entry]) {
        let mut heads = Vec::new();
        for entry in entries {
            let Some(number) = segment_number(&entry.name) else {
                if is_partial_file(&entry.name) {
                    // What it was copied from is there. If it stays it costs room.
                    let _ = self.files.remove(&self.directory.path().join(&entry.name));
                }
                continue;
            };
            self.next_number = self.next_number.max(number.0 + 1);
            match self.read_head(entry) {
                Ok(Some((head, seal))) => heads.push((number, head, seal)),
                Ok(None) => {}
                Err((kind, detail)) => self.report(kind, &entry.name, NO_SEQS, detail),
            }
        }
        heads.sort_by_key(|(number, head, _)| (head.base, *number));
        self.drop_copied(&mut heads);
        let bases: Vec<Seq> = heads.iter().map(|(_, head, _)| head.base).collect();
        for (index, (number, head, seal)) in heads.into_iter().enumerate() {
            // Where the next segment starts this one ends, also if its seal was torn off.
            let limit = bases.get(index + 1).copied().unwrap_or(Seq(u64::MAX));
            self.read_segment(number, head, seal, limit);
        }
        self.drop_overlapping();
    }

    /// Of a segment that was spilled and its copy, the copy stays: it is sealed, and has its name
    /// because it is whole and durable. The pages of the other may be those of a new life whose head
    /// is not there yet.
    fn drop_copied(&self, heads: &mut Vec<(SegmentNumber, Head, Option<Seal>)>) {
        heads.dedup_by(|(number, head, seal), (copied, other, other_seal)| {
            let is_copy = head == other && seal.is_some();
            if is_copy {
                // If it stays it is found again.
                let _ = self.files.remove(&self.directory.segment_path(*copied));
                (*copied, *other_seal) = (*number, *seal);
            }
            is_copy
        });
    }

    /// The head of a segment file; `None` for one that was prepared and never used.
    fn read_head(&mut self, entry: &Entry) -> Result<Option<FoundHead>, (DamageKind, String)> {
        let path = self.directory.path().join(&entry.name);
        let cannot_read = |error: io::Error| {
            (
                DamageKind::Foreign,
                format!("cannot read: {}", system_text(&error)),
            )
        };
        let mut start = [0; segment::FRAMES_AT as usize];
        let readable = start.len().min(entry.bytes as usize);
        self.files
            .read_at(&path, 0, &mut start[..readable])
            .map_err(cannot_read)?;
        match read_head(&start) {
            HeadState::Segment(head, seal) => {
                let sizes = PAGE_BYTES..=SEGMENT_BYTES_LIMIT;
                let fits = seal.is_none_or(|seal| seal.count <= count_limit(head.bytes));
                if sizes.contains(&head.bytes) && fits {
                    return Ok(Some((head, seal)));
                }
            }
            HeadState::Newer(version) => {
                return Err((DamageKind::Foreign, format!("unknown version {version}")));
            }
            HeadState::Unused => {
                if self
                    .has_first_slot(&path, entry.bytes)
                    .map_err(cannot_read)?
                {
                    self.headless.push(entry.name.clone());
                } else {
                    // If it stays it costs room until the next start.
                    let _ = self.files.remove(&path);
                }
                return Ok(None);
            }
            HeadState::Unreadable => {}
        }
        Err((DamageKind::Header, self.set_file_aside(&entry.name)))
    }

    /// Keeps a segment file without a readable head for whoever wants to have a look.
    fn set_file_aside(&self, name: &str) -> String {
        let path = self.directory.path();
        let aside = format!("{name}.damaged");
        match self.files.rename(&path.join(name), &path.join(&aside)) {
            Ok(()) => format!("no readable head, kept as {aside}"),
            Err(error) => format!(
                "no readable head, cannot be kept as {aside}: {}",
                system_text(&error)
            ),
        }
    }

    /// Whether anything was written where the first slot belongs.
    fn has_first_slot(&self, path: &Path, file_bytes: u64) -> io::Result<bool> {
        let mut slot = [0; SLOT_BYTES];
        let Some(at) = file_bytes.checked_sub(SLOT_BYTES as u64) else {
            return Ok(false);
        };
        self.files.read_at(path, at, &mut slot)?;
        Ok(slot != [0; SLOT_BYTES])
    }

    fn read_segment(&mut self, number: SegmentNumber, head: Head, seal: Option<Seal>, limit: Seq) {
        // A torn tail may have named any seq that fits: none of them is given again.
        let named = seal.map_or(count_limit(head.bytes), |seal| seal.count);
        let end = Seq(head.base.0.saturating_add(u64::from(named)));
        self.next = self.next.max(end);
        let next = self
            .checkpoint
            .as_ref()
            .map_or(Seq(0), |checkpoint| checkpoint.next);
        let mut segment = Segment::new(number, head, Residency::Cold);
        segment.is_fresh_find = true;
        match seal {
            Some(seal) if end <= self.synced() && end <= next => {
                segment.count = seal.count;
                segment.end = seal.end;
            }
            _ => self.scan_segment(&mut segment, seal, limit),
        }
        if segment.count == 0 {
            // Nothing in it was ever whole. If it stays it is found again.
            let _ = self.files.remove(&self.directory.segment_path(number));
            return;
        }
        // Whether or not the newest checkpoint names it: see `Checkpoints::found_number`.
        segment.named_by = self.checkpoints.last_number();
        self.segments.push(segment);
    }

    fn scan_segment(&mut self, segment: &mut Segment, seal: Option<Seal>, limit: Seq) {
        let (number, head) = (segment.number, segment.head);
        let (memory, damage) = match self.directory.read_segment(number, head.bytes) {
            Ok(read) => read,
            Err(error) => {
                let detail = format!("cannot be read: {}", system_text(&error));
                return self.report(DamageKind::Foreign, &segment_file(number), NO_SEQS, detail);
            }
        };
        self.damage.extend(damage);
        let bytes = memory.as_ref();
        let scan = segment::scan(bytes, &head, seal.map(|seal| seal.count));
        let must_hold = self.owed_and_synced(&head, limit);
        let whole_end = scan.whole.last().map_or(0, |whole| whole.end);
        let must_end = must_hold
            .last()
            .map_or(0, |last| (last.end.0 - head.base.0) as u32);
        segment.count = seal.map_or(whole_end.max(must_end), |seal| seal.count);
        segment.end = seal.map_or(scan.end, |seal| seal.end);
        let holes = scan.holes(segment.count);
        segment.damaged = holes.iter().map(|hole| seqs_at(head.base, hole)).collect();
        let bad: Vec<Range<u32>> = segment
            .damaged
            .iter()
            .flat_map(|hole| within(*hole, &must_hold))
            .map(|lost| (lost.start.0 - head.base.0) as u32..(lost.end.0 - head.base.0) as u32)
            .collect();
        let damage = self
            .directory
            .message_damage(number, bytes, head.base, &bad);
        self.damage.extend(damage);
        self.note_deferred(&head, &scan);
        if seal.is_some() && !holes.is_empty() {
            self.unseal(number, &head);
        }
    }

    /// What a segment must hold: owed by the checkpoint, and synced.
    fn owed_and_synced(&self, head: &Head, limit: Seq) -> Vec<SeqRange> {
        let most = Seq(head
            .base
            .0
            .saturating_add(u64::from(count_limit(head.bytes))));
        within(
            SeqRange::new(head.base, most.min(limit).min(self.synced())),
            &self.owed,
        )
    }

    /// A sealed segment with torn messages, once below a synced mark, would look damaged: without
    /// the seal every start reads its slots, and knows torn from damaged.
    fn unseal(&self, number: SegmentNumber, head: &Head) {
        let mut blocks = [0; segment::FRAMES_AT as usize];
        segment::write_head(&mut blocks, head);
        // If this fails, finished messages may later be counted as damaged: no more than that.
        let _ = self
            .files
            .write_at(&self.directory.segment_path(number), 0, &blocks);
    }

    fn note_deferred(&mut self, head: &Head, scan: &Scan) {
        let next = self
            .checkpoint
            .as_ref()
            .map_or(Seq(0), |checkpoint| checkpoint.next);
        for &(index, timestamp_ns, defer_ms) in &scan.deferred {
            let seq = Seq(head.base.0 + u64::from(index));
            if seq >= next {
                let published_ns = u64::try_from(timestamp_ns).unwrap_or(0);
                let due_ns = published_ns.saturating_add(u64::from(defer_ms) * 1_000_000);
                self.deferred.push((seq, due_ns));
            }
        }
    }

    /// No two segments of one log hold the same seq; a file that does is a copy of another.
    fn drop_overlapping(&mut self) {
        let mut kept: Vec<Segment> = Vec::with_capacity(self.segments.len());
        for segment in std::mem::take(&mut self.segments) {
            if kept
                .last()
                .is_some_and(|last| segment.head.base < last.end_seq())
            {
                let name = segment_file(segment.number);
                let detail = "holds seqs another segment holds: left alone".to_owned();
                self.report(DamageKind::Foreign, &name, NO_SEQS, detail);
            } else {
                kept.push(segment);
            }
        }
        self.segments = kept;
        for segment in &self.segments {
            for whole in without(segment.range(), &segment.damaged) {
                push_joined(&mut self.found, whole);
            }
        }
    }

    /// Messages that are owed and were synced, in no segment at all. If there are any, files whose
    /// head was never written are suspect; if not, they are what a power loss leaves of a segment
    /// whose first sync had not come yet.
    fn report_missing(&mut self) {
        let held: Vec<SeqRange> = self.segments.iter().map(Segment::range).collect();
        let synced = within(SeqRange::new(Seq(0), self.synced()), &self.owed);
        let missing: Vec<_> = synced
            .iter()
            .flat_map(|owed| without(*owed, &held))
            .collect();
        for name in std::mem::take(&mut self.headless) {
            if missing.is_empty() {
                let _ = self.files.remove(&self.directory.path().join(&name));
            } else {
                let detail = self.set_file_aside(&name);
                self.report(DamageKind::Header, &name, NO_SEQS, detail);
            }
        }
        // An older checkpoint may name what was finished and recycled since it was written.
        if !self.any_slot_is_bad {
            for seqs in missing {
                let detail = "no segment file holds what the checkpoint names".to_owned();
                self.report(DamageKind::Segment, "", seqs, detail);
            }
        }
    }

    fn finish(mut self, options: LogOptions, wall_ns: u64) -> Recovered {
        self.deferred.sort_unstable();
        let found = FoundLog {
            next: self.next.max(Seq::from_clock(wall_ns)),
            synced: self.synced(),
            next_number: SegmentNumber(self.next_number),
            checkpoints: self.checkpoints,
            damaged_count: self.damage.iter().map(|damage| damage.seqs.len()).sum(),
            segments: self.segments,
        };
        Recovered {
            log: Log::from_found(options, found),
            checkpoint: self.checkpoint,
            found: self.found,
            deferred: self.deferred,
            damage: self.damage,
        }
    }
}

/// Which checkpoint each slot holds, and which is surely durable.
///
/// They are written one after the other. So one that was to be durable is, if a newer one was
/// written after it; only the very newest may have been cut off before its sync ended.
fn checkpoints_of(whole: &[Option<(Checkpoint, bool)>; SLOTS]) -> Checkpoints {
    let slots = whole
        .each_ref()
        .map(|slot| slot.as_ref().map_or(0, |(found, _)| found.number));
    let newest = slots.iter().copied().max().unwrap_or(0);
    let was_to_be_durable = whole.iter().flatten().filter(|(_, sync)| *sync);
    let older = was_to_be_durable
        .map(|(found, _)| found.number)
        .filter(|&n| n != newest);
    Checkpoints::from_found(slots, older.max().unwrap_or(0))
}

/// A readable head, and the seal if there is one.
type FoundHead = (Head, Option<Seal>);

/// No messages are concerned, or it is not known which.
const NO_SEQS: SeqRange = SeqRange {
    start: Seq(0),
    end: Seq(0),
};

#[cfg(test)]
mod tests;
