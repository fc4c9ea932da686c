//! Reading: whole runs of frames, found by two looks into the slot table, and looks at single messages.

use std::time::Duration;

use wire::frame::HEADER_BYTES;
use wire::id::Seq;

use crate::error::{Damage, DamageKind};
use crate::file_name::segment_file;
use crate::range::SeqRange;
use crate::segment::{self, slot_at};

use super::segments::{Residency, Segment, Which};
use super::{ColdMessage, Log, Look, Notice, Run, Taken};

impl Log {
    /// The next frames of `range`, from its start: one contiguous piece of one segment.
    ///
    /// It ends with the segment, before a damaged message, at `count_max` messages or before
    /// `bytes_max` bytes, but holds one frame at least. [`Log::pin`] it for as long as a socket
    /// write may look at it.
    ///
    /// # Panics
    /// If `range` is empty or `count_max` is 0.
    pub fn take_run(&mut self, mut range: SeqRange, count_max: u32, bytes_max: u32) -> Taken {
        assert!(!range.is_empty() && count_max > 0, "took a run of nothing");
        let Some(which) = self.segments.which(range.start) else {
            let next = self.segments.next_contained(range.start);
            let end = next.map_or(range.end, |next| next.min(range.end));
            return Taken::Damaged(SeqRange::new(range.start, end));
        };
        if let Which::Sealed(index) = which {
            self.segments.note_read(index);
            let segment = &mut self.segments.sealed[index];
            match &mut segment.residency {
                Residency::Mapped(_) | Residency::Loaded(_) => {}
                Residency::Loading(Some(piece)) if piece.seqs.contains(range.start) => {
                    range.end = range.end.min(piece.seqs.end);
                }
                Residency::Loading(_) => return Taken::Loading,
                Residency::Spilling { is_wanted, .. } => {
                    *is_wanted = true;
                    return Taken::Loading;
                }
                Residency::Lost => return Taken::Damaged(segment.range().intersection(&range)),
                Residency::Cold => {
                    self.peek(index, range.start);
                    self.load(index);
                    return Taken::Loading;
                }
            }
            segment.keep_until = Duration::ZERO;
            self.load_ahead(index, &range);
        }
        let segment = self.segments.at_mut(which);
        match run_in(segment, range, count_max, bytes_max) {
            Some(Taken::Run(run)) if self.has_failed_sync() => self.check_run(which, run),
            Some(taken) => taken,
            None => self.lose(which, SeqRange::one(range.start)),
        }
    }

    /// The messages of the newest segments, the newest segment first, up to the first one that is not in memory. This
    /// includes messages that nobody holds any more.
    pub fn newest_in_memory(&self) -> impl Iterator<Item = SeqRange> {
        let newest = self.segments.newest_first();
        let is_in_memory = |segment: &&Segment| {
            matches!(
                segment.residency,
                Residency::Mapped(_) | Residency::Loaded(_)
            )
        };
        newest.take_while(is_in_memory).map(Segment::range)
    }

    /// Finds a message.
    #[must_use]
    pub fn look(&self, seq: Seq) -> Look<'_> {
        let Some(segment) = self.segments.find(seq) else {
            return Look::Gone;
        };
        let is_lost = matches!(segment.residency, Residency::Lost);
        if is_lost || segment.is_damaged(seq) {
            return Look::Damaged;
        }
        let index = seq.since(segment.head.base) as u32;
        let Some(memory) = segment.memory_of(seq) else {
            return Look::Cold(ColdMessage {
                segment: segment.number,
                head: segment.head,
                index,
            });
        };
        // Pages that a sync could not write may change: see `check_run`.
        if self.has_failed_sync() && !segment::is_whole(memory, &segment.head, index) {
            return Look::Damaged;
        }
        let frame = slot_at(memory, segment.head.slots, index)
            .and_then(|slot| memory.get(slot.start as usize..slot.end as usize));
        frame.map_or(Look::Damaged, Look::Frame)
    }

    /// Returns the time of the publish of a message in Unix nanoseconds, without a read of the disk.
    ///
    /// The time is exact if the message's segment is in memory, or if the message was the oldest one of a channel at the
    /// start. Otherwise it is the time of an earlier message of the segment. That is too early by at most the time in which
    /// the segment was filled. `None`: no segment has the message, or the time is not known.
    #[must_use]
    pub fn published_ns(&self, seq: Seq) -> Option<u64> {
        let segment = self.segments.find(seq)?;
        // Pages that a sync could not write may change: see `check_run`.
        let is_doubtful =
            self.has_failed_sync() && matches!(segment.residency, Residency::Mapped(_));
        let memory = segment.memory_of(seq);
        let index = seq.since(segment.head.base) as u32;
        let exact = memory
            .filter(|_| !is_doubtful && !segment.is_damaged(seq))
            .and_then(|memory| segment::published_ns(memory, segment.head.slots, index));
        let began_ns = segment.began_ns;
        let earlier = || {
            let earlier = segment.published.partition_point(|(it, _)| *it <= seq);
            let (_, at) = segment.published[..earlier].last()?;
            // Nobody has checked the bytes of the time.
            Some((*at).max(began_ns))
        };
        exact
            .or_else(earlier)
            .or((began_ns > 0).then_some(began_ns))
    }

    /// Cuts a run before its first frame that is not whole. Sends go by [`Log::copy_run`], which checks again.
    ///
    /// Behind a failed sync the kernel counts pages as clean that it could not write. Reclaim drops such
    /// a page, and the next access reads what the device has: an earlier life of the file.
    #[cold]
    fn check_run(&mut self, which: Which, run: Run) -> Taken {
        let segment = self.segments.at_mut(which);
        let Residency::Mapped(memory) = &segment.residency else {
            // The keeper checked what it loaded.
            return Taken::Run(run);
        };
        let bytes = memory.as_ref();
        let first = run.first.since(segment.head.base) as u32;
        let is_whole = |index: &u32| segment::is_whole(bytes, &segment.head, *index);
        let indices = first..first + run.count;
        let count = indices.clone().take_while(is_whole).count() as u32;
        if count == 0 {
            let bad = indices.take_while(|index| !is_whole(index)).count() as u64;
            return self.lose(which, SeqRange::new(run.first, run.first.offset(bad)));
        }
        let last = slot_at(bytes, segment.head.slots, first + count - 1);
        let end = last.map_or(run.start, |slot| slot.end);
        Taken::Run(Run { count, end, ..run })
    }

    /// Counts a message as damaged, because [`Log::copy_run`] has found that its copy is not whole. The next
    /// [`Log::take_run`] returns [`Taken::Damaged`] for the message.
    #[cold]
    pub fn give_up(&mut self, seq: Seq) {
        if let Some(which) = self.segments.which(seq) {
            self.lose(which, SeqRange::one(seq));
        }
    }

    /// Steps over messages in memory that was whole when it was written or loaded, and no longer is.
    #[cold]
    fn lose(&mut self, which: Which, seqs: SeqRange) -> Taken {
        self.segments.add_damage(which, seqs);
        let segment = self.segments.at_mut(which);
        segment.is_unreadable = true;
        let file = segment_file(segment.number);
        let detail = "slot or frame in memory does not agree with its CRC".to_owned();
        let damage = Damage::new(DamageKind::Messages, file, seqs, detail);
        self.context.tell(Notice::Damage(damage));
        // The log reports this damage with the answer to the next checkpoint.
        self.make_checkpoint_due();
        Taken::Damaged(seqs)
    }

    /// The bytes of a run: whole frames, ready to be sent.
    ///
    /// # Panics
    /// If the segment is not resident any more: the caller neither pinned nor took it just now.
    #[inline]
    #[must_use]
    pub fn bytes(&self, run: &Run) -> &[u8] {
        let (_, memory) = self.segments.resident(run.first);
        &memory[run.start as usize..run.end as usize]
    }

    /// Appends the bytes of a run to `into`, and checks the copies: a frame that leaves is whole, whatever
    /// becomes of the page it was on. `run.start` may be inside a frame. False if one is not whole; what was
    /// appended then is to be thrown away.
    ///
    /// # Panics
    /// For a run that nobody holds, like [`Log::bytes`].
    #[cold]
    #[must_use]
    pub fn copy_run(&self, run: &Run, into: &mut Vec<u8>) -> bool {
        let (segment, memory) = self.segments.resident(run.first);
        let first = run.first.since(segment.head.base) as u32;
        let mut at = run.start;
        for index in first..first + run.count {
            let Some(slot) = slot_at(memory, segment.head.slots, index) else {
                return false;
            };
            if slot.end <= at {
                // It has left.
                continue;
            }
            let Some(frame) = memory.get(slot.start as usize..slot.end as usize) else {
                return false;
            };
            let copied = into.len();
            into.extend_from_slice(frame);
            let is_next = slot.start <= at;
            if !is_next || !segment::is_frame(&into[copied..], slot, &segment.head, index) {
                return false;
            }
            into.drain(copied..copied + (at - slot.start) as usize);
            at = slot.end;
        }
        at == run.end
    }

    /// Returns where the frame of `seq` is in its segment, if that is resident and the frame not damaged.
    #[must_use]
    pub fn frame_bounds(&self, seq: Seq) -> Option<(u32, u32)> {
        let segment = self.segments.find(seq)?;
        match run_in(segment, SeqRange::one(seq), 1, u32::MAX)? {
            Taken::Run(run) => Some((run.start, run.end)),
            Taken::Loading | Taken::Damaged(_) => None,
        }
    }

    /// Asks for the next segment when a reader that will want it is past the middle of this one.
    #[inline]
    fn load_ahead(&mut self, index: usize, range: &SeqRange) {
        let segment = &self.segments.sealed[index];
        let is_past_middle = (range.start.0 - segment.head.base.0) * 2 >= u64::from(segment.count);
        if is_past_middle
            && range.end > segment.end_seq()
            && let Some(next) = self.segments.sealed.get(index + 1)
            && matches!(next.residency, Residency::Cold)
        {
            self.load(index + 1);
        }
    }
}

/// A run of a segment that holds `range.start`. `None`: not resident, or the slots are nonsense.
#[inline]
fn run_in(segment: &Segment, range: SeqRange, count_max: u32, bytes_max: u32) -> Option<Taken> {
    let mut end = range.end.min(segment.end_seq());
    if let Some(damaged) = segment
        .damaged
        .iter()
        .find(|damaged| damaged.end > range.start)
    {
        if damaged.contains(range.start) {
            return Some(Taken::Damaged(damaged.intersection(&range)));
        }
        end = end.min(damaged.start);
    }
    let memory = segment.memory()?;
    let first = (range.start.0 - segment.head.base.0) as u32;
    let mut count = (end.0 - range.start.0).min(u64::from(count_max)) as u32;
    let slots = segment.head.slots;
    let start = slot_at(memory, slots, first)?.start;
    // Offsets from `start`; nonsense is caught below.
    let end_of = |count: u32| slot_at(memory, slots, first + count - 1).map(|slot| slot.end);
    if end_of(count)?.wrapping_sub(start) > bytes_max {
        count = fitting(count, |count| {
            end_of(count).is_some_and(|end| end.wrapping_sub(start) <= bytes_max)
        });
    }
    let end = end_of(count)?;
    // A redelivery reads the header of its frame.
    let bytes_min = u64::from(count) * HEADER_BYTES as u64;
    let is_sane = u64::from(start) + bytes_min <= u64::from(end) && end <= segment.end;
    is_sane.then_some(Taken::Run(Run {
        first: range.start,
        count,
        start,
        end,
    }))
}

/// The largest count below `count_max` that fits, but 1 at least.
#[cold]
fn fitting(count_max: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut fitting, mut too_many) = (1, count_max);
    while fitting + 1 < too_many {
        let middle = fitting + (too_many - fitting) / 2;
        if fits(middle) {
            fitting = middle
        } else {
            too_many = middle
        }
    }
    fitting
}
