//! Start-up reads the heads of all segments and the slots of those that a crash may have torn, judges what is not whole,
//! and reads when the oldest messages were published: their age is exact then, although their segments are cold.

use std::io;
use std::ops::Range;

use diskq_log::plant;
use diskq_log::range::{normalise, push_joined, within, without};
use diskq_log::segment::{
    self, Head, HeadState, Scan, Seal, TIMESTAMP_END, count_limit, read_head, seqs_at,
};
use diskq_log::{
    Checkpoint, DamageKind, FoundDeferral, Residency, Segment, SegmentNumber, SeqRange, SlotKind,
    file_number, is_partial_file, is_unfinished_file, segment_file, segment_number,
};
use wire::go_error::system_text;
use wire::id::{SEQ_MAX, Seq};

use super::{NO_SEQS, Opening};
use crate::error::DiskError;
use crate::files::{Entry, Files};
use crate::keeper::is_media_error;
use crate::mapping::Buffer;

/// The part of a segment that tells what the segment is.
const HEAD_BYTES: u32 = segment::FIRST_TIMESTAMP_END as u32;

/// A file with a readable head.
struct Found {
    number: SegmentNumber,
    head: Head,
    seal: Option<Seal>,
    /// The file is as long as its head says.
    is_long_enough: bool,
    /// The time in the frame of the first message. The frame was not checked.
    first_ns: u64,
    /// The files with the same head, from which this file was copied when the segment was spilled.
    originals: Vec<Found>,
}

impl Found {
    /// One past the highest seq that the head allows.
    fn end(&self) -> Seq {
        let count = match self.seal {
            Some(seal) => seal.count,
            None => count_limit(&self.head),
        };
        self.head.base.offset(u64::from(count))
    }

    /// Returns whether `scan` found all of its messages.
    fn is_complete(&self, scan: &Scan) -> bool {
        self.seal
            .is_some_and(|seal| scan.holes(seal.count).is_empty())
    }
}

/// A segment's bytes, and what is whole in them.
struct Image {
    bytes: Buffer,
    scan: Scan,
    /// Bytes that the device could not read: zeros in `bytes`.
    unreadable: Vec<Range<u32>>,
}

impl Image {
    /// The seqs of the whole messages.
    fn whole(&self, found: &Found) -> Vec<SeqRange> {
        let whole = self.scan.whole.iter();
        whole.map(|run| seqs_at(found.head.base, run)).collect()
    }
}

/// Returns the seqs whose messages these files may have had. A file without a seal may have had all seqs up to the next file.
/// Nobody knows how many were behind the last file.
fn had(files: &[Found]) -> Vec<SeqRange> {
    let ends = files.iter().skip(1).map(|next| Some(next.head.base));
    let ranges = files.iter().zip(ends.chain([None])).map(|(file, next)| {
        let end = match (file.seal, next) {
            (Some(_), Some(next)) => file.end().min(next),
            (None, Some(next)) => next,
            (_, None) => Seq(u64::MAX),
        };
        SeqRange::new(file.head.base, end)
    });
    let mut had: Vec<SeqRange> = ranges.collect();
    if had.is_empty() {
        had.push(SeqRange::new(Seq(0), Seq(u64::MAX)));
    }
    had
}

impl<F: Files> Opening<'_, F> {
    pub(super) fn read_segments(&mut self, entries: &[Entry]) -> Result<(), DiskError> {
        // Starts all reads before the first is needed. The writes of spilled segments went around the page cache, and a
        // read from the disk takes some 50 us.
        for entry in entries {
            if segment_number(&entry.name).is_some() {
                self.directory.read_ahead(&entry.name, HEAD_BYTES);
            }
        }
        let mut found = Vec::new();
        for entry in entries {
            if let Some(number) = file_number(&entry.name) {
                let next = SegmentNumber(number + 1);
                self.log.next_number = self.log.next_number.max(next);
            }
            if is_partial_file(&entry.name) || is_unfinished_file(&entry.name) {
                // The file from which this one was copied, or which it was to replace, is there.
                self.obsolete.push(entry.name.clone());
            } else if let Some(number) = segment_number(&entry.name) {
                found.extend(self.read_head(number, entry)?);
            }
        }
        found.sort_by_key(|found| (found.head.base, found.number));
        let found = join_copies(found);
        let bases: Vec<Seq> = found.iter().map(|found| found.head.base).collect();
        self.recovered.had = had(&found);
        for (index, found) in found.into_iter().enumerate() {
            // A segment ends where the next one starts, even if its seal was torn off.
            let limit = bases.get(index + 1).copied().unwrap_or(Seq(u64::MAX));
            self.read_segment(found, limit)?;
        }
        self.drop_overlapping();
        Ok(())
    }

    fn read_segment(&mut self, found: Found, limit: Seq) -> Result<(), DiskError> {
        // A torn tail may have named any seq that fits: none of them is given again.
        self.log.next = self.log.next.max(found.end());
        let next = self.checkpoint_next();
        // A copy below the marks is whole, or it would be gone: see `Sync::voided`.
        let is_below_marks = found.is_long_enough && found.end() <= self.synced().min(next);
        let has_wanted_origins = self.wants_origins
            && found.head.slots == SlotKind::WithOrigin
            && found.end() > self.origins_from;
        let mut segment = match found.seal {
            Some(seal) if is_below_marks && !has_wanted_origins => {
                let mut segment = Segment::new(found.number, found.head, Residency::Cold);
                segment.count = seal.count;
                segment.end = seal.end;
                segment.began_ns = found.first_ns;
                let originals = found.originals.iter();
                let names = originals.map(|original| segment_file(original.number));
                self.obsolete.extend(names);
                segment
            }
            _ => {
                let image = self.read_image(&found)?;
                let (found, image) = self.choose(found, image, limit)?;
                let name = segment_file(found.number);
                let is_unread = !image.unreadable.is_empty();
                let segment = self.judge(&found, image, limit);
                let is_whole =
                    segment.count > 0 && segment.damaged.is_empty() && !segment.is_unreadable;
                let is_final = is_below_marks && found.end() <= self.durable_next;
                if found.seal.is_none() && is_final && is_whole {
                    self.seal(&found, &segment);
                }
                if segment.count == 0 {
                    // Nothing in it was ever whole, as far as it could be read.
                    if is_unread {
                        let why = "none of its messages can be read".to_owned();
                        self.aside.push((name, why));
                    } else {
                        self.obsolete.push(name);
                    }
                    return Ok(());
                }
                segment
            }
        };
        segment.is_just_recovered = true;
        // This applies even if the newest checkpoint does not name the file: see `Checkpoints::found_number`.
        segment.named_by = self.log.checkpoints.last_number();
        self.log.segments.push(segment);
        Ok(())
    }

    fn read_image(&mut self, found: &Found) -> Result<Image, DiskError> {
        let read = self
            .directory
            .read_segment(found.number, found.head.bytes)
            .map_err(|error| self.cannot_read(&segment_file(found.number), error))?;
        self.recovered.damage.extend(read.damage);
        let count = found.seal.map(|seal| seal.count);
        let scan = segment::scan(&read.image, &found.head, count);
        Ok(Image {
            bytes: read.image,
            scan,
            unreadable: read.unreadable,
        })
    }

    /// Chooses between a copy and its original: the file with more whole messages stays, or the copy if both
    /// have equally many. The original may hold pages of a recycled segment whose head is not written yet. The
    /// copy may be torn if the power failed before the copy was synced.
    fn choose(
        &mut self,
        mut found: Found,
        mut image: Image,
        limit: Seq,
    ) -> Result<(Found, Image), DiskError> {
        for mut other in std::mem::take(&mut found.originals) {
            let mut only_there = false;
            let is_complete = found.is_complete(&image.scan);
            plant!(CopyRemovesOriginal, let is_complete = true);
            if !is_complete {
                let mut other_image = self.read_image(&other)?;
                if other_image.scan.count() > image.scan.count() {
                    std::mem::swap(&mut found, &mut other);
                    std::mem::swap(&mut image, &mut other_image);
                }
                let must_hold = self.owed_and_synced(&found.head, limit);
                let kept = image.whole(&found);
                let whole = other_image.whole(&other).into_iter();
                only_there = whole
                    .flat_map(|range| without(range, &kept))
                    .any(|range| !within(range, &must_hold).is_empty());
            }
            let name = segment_file(other.number);
            if only_there {
                let why = "holds messages that are damaged in its copy".to_owned();
                self.aside.push((name, why));
            } else {
                self.obsolete.push(name);
            }
            if other.number > found.number {
                self.log.voided.push(other.number);
            }
        }
        Ok((found, image))
    }

    /// Makes a segment of the bytes that were read, and reports the messages that are lost.
    fn judge(&mut self, found: &Found, image: Image, limit: Seq) -> Segment {
        let Found {
            number, head, seal, ..
        } = *found;
        let Image {
            bytes,
            scan,
            unreadable,
        } = image;
        let mut segment = Segment::new(number, head, Residency::Cold);
        let mut must_hold = self.owed_and_synced(&head, limit);
        let whole_end = scan.whole.last().map_or(0, |whole| whole.end);
        let must_end = must_hold
            .last()
            .map_or(0, |last| last.end.since(head.base) as u32);
        segment.count = seal.map_or(whole_end.max(must_end), |seal| seal.count);
        segment.end = seal.map_or(scan.end, |seal| seal.end);
        let first_whole = scan.whole.first();
        let first_ns =
            first_whole.and_then(|whole| segment::published_ns(&bytes, head.slots, whole.start));
        segment.began_ns = first_ns.unwrap_or(0);
        segment.is_doubtful = true;
        segment.is_unreadable = !unreadable.is_empty();
        let holes = scan.holes(segment.count);
        segment.damaged = holes.iter().map(|hole| seqs_at(head.base, hole)).collect();
        // Bytes that the device cannot read are damage, not a torn tail: they were written, synced or not.
        let unread = segment::unread(&bytes, head.slots, &holes, &unreadable);
        must_hold.extend(unread.iter().map(|indices| seqs_at(head.base, indices)));
        normalise(&mut must_hold);
        let bad: Vec<Range<u32>> = segment
            .damaged
            .iter()
            .flat_map(|hole| within(*hole, &must_hold))
            .map(|lost| lost.start.since(head.base) as u32..lost.end.since(head.base) as u32)
            .collect();
        segment.is_unreadable |= !bad.is_empty();
        let damage = self.directory.message_damage(number, &head, &bad);
        self.recovered.damage.extend(damage);
        self.add_deferred(&head, &scan);
        self.add_origins(&head, &scan, &bytes);
        if seal.is_some() && !holes.is_empty() {
            self.unseal(number, &head);
        }
        segment
    }

    /// The messages that a segment must hold: the checkpoint owes them, and they were synced.
    fn owed_and_synced(&self, head: &Head, limit: Seq) -> Vec<SeqRange> {
        let most = head.base.offset(u64::from(count_limit(head)));
        within(
            SeqRange::new(head.base, most.min(limit).min(self.synced())),
            &self.owed,
        )
    }

    fn add_deferred(&mut self, head: &Head, scan: &Scan) {
        let next = self.checkpoint_next();
        for &(index, published_ns, defer_ms) in &scan.deferred {
            let seq = head.base.offset(u64::from(index));
            if seq >= next {
                let due_ns = published_ns.saturating_add(u64::from(defer_ms) * 1_000_000);
                self.recovered.deferred.push(FoundDeferral {
                    seq,
                    due_ns,
                    defer_ms,
                });
            }
        }
    }

    fn add_origins(&mut self, head: &Head, scan: &Scan, bytes: &[u8]) {
        if !self.wants_origins || head.slots != SlotKind::WithOrigin {
            return;
        }
        for index in scan.whole.iter().cloned().flatten() {
            let slot = segment::slot_at(bytes, head.slots, index);
            if let Some(origin) = slot.and_then(|slot| slot.message_origin()) {
                let seq = head.base.offset(u64::from(index));
                self.recovered.origins.push((seq, origin));
            }
        }
    }

    /// Reports a segment that holds a seq of another segment, and leaves its file alone: no two segments of one log may
    /// share a seq. Then collects the whole messages of all other segments.
    fn drop_overlapping(&mut self) {
        let mut kept: Vec<Segment> = Vec::with_capacity(self.log.segments.len());
        for segment in std::mem::take(&mut self.log.segments) {
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
        self.log.segments = kept;
        for segment in &self.log.segments {
            for whole in without(segment.range(), &segment.damaged) {
                push_joined(&mut self.recovered.found, whole);
            }
        }
    }

    /// Returns the head of a segment file. `None` means that the file has no head; what becomes of such a file
    /// is noted.
    fn read_head(
        &mut self,
        number: SegmentNumber,
        entry: &Entry,
    ) -> Result<Option<Found>, DiskError> {
        if entry.is_dir {
            let detail = "is a directory: left alone".to_owned();
            self.report(DamageKind::Foreign, &entry.name, NO_SEQS, detail);
            return Ok(None);
        }
        let mut start = [0; segment::FIRST_TIMESTAMP_END];
        let readable = start.len().min(entry.bytes as usize);
        let read = self
            .directory
            .read(&entry.name, 0, &mut start[..readable])
            .and_then(|()| match read_head(&start) {
                HeadState::Unused => self.has_first_slot(entry).map(Some),
                _ => Ok(None),
            });
        let has_messages = match read {
            Ok(has_messages) => has_messages,
            Err(error) if is_media_error(&error) => {
                let why = format!("its head cannot be read ({})", system_text(&error));
                self.aside.push((entry.name.clone(), why));
                return Ok(None);
            }
            Err(error) => return Err(self.cannot_read(&entry.name, error)),
        };
        let why = match read_head(&start) {
            HeadState::Segment(head, seal) if is_possible(&head) => {
                return Ok(Some(Found {
                    number,
                    head,
                    seal: seal.filter(|seal| seal.fits(&head)),
                    is_long_enough: entry.bytes >= u64::from(head.bytes),
                    first_ns: segment::first_published_ns(&start[..readable]),
                    originals: Vec::new(),
                }));
            }
            HeadState::Newer(version) => {
                let detail = format!("unknown version {version}: left alone");
                self.report(DamageKind::Foreign, &entry.name, NO_SEQS, detail);
                return Ok(None);
            }
            HeadState::Unused if has_messages == Some(false) => {
                // Prepared, and never used.
                self.obsolete.push(entry.name.clone());
                return Ok(None);
            }
            HeadState::Unused => "has messages and no head, as after a power failure",
            HeadState::Segment(..) | HeadState::Unreadable => "no readable head",
        };
        self.aside.push((entry.name.clone(), why.to_owned()));
        Ok(None)
    }

    /// Returns whether anything was written where the first slot belongs. The file has no head, so the slot may be of
    /// any kind.
    fn has_first_slot(&self, entry: &Entry) -> io::Result<bool> {
        const BYTES: usize = SlotKind::WithOrigin.bytes();
        let mut slot = [0; BYTES];
        let Some(at) = entry.bytes.checked_sub(BYTES as u64) else {
            return Ok(false);
        };
        self.directory.read(&entry.name, at, &mut slot)?;
        Ok(slot != [0; BYTES])
    }

    /// Seals the last segment of a broker that was killed, so that later starts need not read the segment. The seal
    /// hides seqs: it says how many messages are whole, the head says how many fit. So all seqs that fit must lie below
    /// the `next` of a durable checkpoint. Then none of them is given again, even after a power failure.
    fn seal(&self, found: &Found, segment: &Segment) {
        let seal = Seal {
            count: segment.count,
            end: segment.end,
        };
        // If this fails, the next start reads the segment again.
        let _ = self.rewrite_head(found.number, &found.head, Some(&seal));
    }

    /// Removes the seal of a segment that has torn messages. With the seal, the torn messages would look damaged as
    /// soon as they lie below a synced mark. Without the seal, every start reads the slots and tells torn from damaged.
    fn unseal(&self, number: SegmentNumber, head: &Head) {
        // If this fails, finished messages may later be counted as damaged: no more than that.
        let _ = self.rewrite_head(number, head, None);
    }

    /// Writes both head blocks of a segment file anew, with or without a seal.
    fn rewrite_head(
        &self,
        number: SegmentNumber,
        head: &Head,
        seal: Option<&Seal>,
    ) -> io::Result<()> {
        if !self.may_change {
            return Ok(());
        }
        let mut blocks = [0; segment::FRAMES_AT as usize];
        segment::write_head(&mut blocks, head);
        if let Some(seal) = seal {
            segment::write_seal(&mut blocks, head, seal);
        }
        let path = self.directory.segment_path(number);
        self.files.write_at(&path, 0, &blocks)
    }

    /// Reads the times of the oldest owed messages. A time that the device cannot read stays unknown: then the age of the
    /// message is that of its segment.
    pub(super) fn read_published(&mut self) -> Result<(), DiskError> {
        let mut oldest: Vec<Seq> = self.recovered.checkpoint.iter().flat_map(starts).collect();
        // Every channel is owed the messages that came after the checkpoint.
        oldest.push(self.checkpoint_next());
        oldest.sort_unstable();
        let found = oldest.iter().filter_map(|seq| self.first_found(*seq));
        let mut oldest: Vec<Seq> = found.collect();
        oldest.dedup();
        for seq in oldest {
            let place = self.log.segments.partition_point(|it| it.end_seq() <= seq);
            let Some(segment) = self.log.segments.get(place) else {
                continue;
            };
            let read = self.published_ns(segment, seq);
            let published_ns = match read {
                Err(error) if is_media_error(&error) => None,
                read => {
                    read.map_err(|error| self.cannot_read(&segment_file(segment.number), error))?
                }
            };
            let known = published_ns.map(|at| (seq, at));
            self.log.segments[place].published.extend(known);
        }
        Ok(())
    }

    /// Returns the first message from a seq on that a segment has.
    fn first_found(&self, seq: Seq) -> Option<Seq> {
        let place = self
            .recovered
            .found
            .partition_point(|range| range.end <= seq);
        self.recovered
            .found
            .get(place)
            .map(|range| range.start.max(seq))
    }

    /// Reads the time of a message: its slot, and then its frame.
    fn published_ns(&self, segment: &Segment, seq: Seq) -> io::Result<Option<u64>> {
        let (name, head) = (segment_file(segment.number), &segment.head);
        let index = seq.since(head.base) as u32;
        let mut slot = vec![0; head.slots.bytes()];
        let Some(at) = segment::slot_offset(head.bytes as usize, head.slots, index) else {
            return Ok(None);
        };
        self.directory.read(&name, at as u64, &mut slot)?;
        let mut frame = [0; TIMESTAMP_END];
        // A damaged slot may name any place.
        let slot = segment::slot_at(&slot, head.slots, 0);
        let Some(slot) = slot.filter(|slot| slot.start <= head.bytes - TIMESTAMP_END as u32) else {
            return Ok(None);
        };
        self.directory.read(&name, slot.start.into(), &mut frame)?;
        Ok(segment::timestamp_at(&frame))
    }
}

/// Joins each copy with its original. The copy is the file that is sealed and has the higher number.
fn join_copies(sorted: Vec<Found>) -> Vec<Found> {
    let mut joined: Vec<Found> = Vec::with_capacity(sorted.len());
    for mut found in sorted {
        let is_copied = |last: &mut Found| last.head == found.head && found.seal.is_some();
        if let Some(mut original) = joined.pop_if(is_copied) {
            found.originals = std::mem::take(&mut original.originals);
            found.originals.push(original);
        }
        joined.push(found);
    }
    joined
}

/// Returns whether a log of ours can have begun a segment with this head.
fn is_possible(head: &Head) -> bool {
    let highest = head.base.0.checked_add(count_limit(head).into());
    let has_seqs = head.base > Seq(0) && highest.is_some_and(|end| end <= SEQ_MAX + 1);
    has_seqs && segment::is_size(head.bytes)
}

/// Returns the first message that the topic owes its channels, and the first one of each channel.
fn starts(checkpoint: &Checkpoint) -> impl Iterator<Item = Seq> {
    let of_channels = checkpoint.channels.iter().map(|channel| &channel.runs);
    let lists = std::iter::once(&checkpoint.undistributed).chain(of_channels);
    lists.filter_map(|runs| runs.iter().map(|run| run.start).min())
}
