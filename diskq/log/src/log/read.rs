//! Reading: whole runs of frames, found by two looks into the slot table.

use wire::frame::HEADER_BYTES;
use wire::id::Seq;

use crate::error::{Damage, DamageKind};
use crate::file_name::segment_file;
use crate::range::{SeqRange, add_joined};
use crate::segment::{self, slot_at};

use super::segments::{Place, Residency, Segment};
use super::{Log, Run, Taken};

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
        let Some(place) = self.segments.place(range.start) else {
            let end = self
                .segments
                .next_contained(range.start)
                .unwrap_or(range.end);
            return Taken::Damaged(SeqRange::new(range.start, end.min(range.end)));
        };
        if let Place::Sealed(index) = place {
            self.reads += 1;
            let segment = &mut self.segments.sealed[index];
            segment.read_at = self.reads;
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
            segment.keep_until = std::time::Duration::ZERO;
            self.load_ahead(index, &range);
        }
        let segment = self.segments.at_mut(place);
        match run_in(segment, range, count_max, bytes_max) {
            Some(Taken::Run(run)) if self.has_failed_sync() => self.check_run(place, run),
            Some(taken) => taken,
            None => self.lose(place, SeqRange::one(range.start)),
        }
    }

    /// Returns the time of the publish of a message in Unix nanoseconds, without a read of the disk.
    ///
    /// The time is exact if the message's segment is in memory, or if the message was the oldest one of a channel at the
    /// start. Otherwise it is the time of an earlier message of the segment. That is too early by at most the time in which
    /// the segment was filled. `None`: no segment has the message, or the time is not known.
    #[must_use]
    pub fn published_ns(&self, seq: Seq) -> Option<u64> {
        let segment = self.segments.find(seq)?;
        let is_readable = match &segment.residency {
            // Pages that a sync could not write may change: see `check_run`.
            Residency::Mapped(_) => !self.has_failed_sync(),
            Residency::Loading(Some(piece)) => piece.seqs.contains(seq),
            _ => true,
        };
        let memory = segment.memory().filter(|_| is_readable);
        let is_damaged = segment.damaged.iter().any(|lost| lost.contains(seq));
        let index = seq.since(segment.head.base) as u32;
        let exact = memory
            .filter(|_| !is_damaged)
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
    fn check_run(&mut self, place: Place, run: Run) -> Taken {
        let segment = self.segments.at_mut(place);
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
            return self.lose(place, SeqRange::new(run.first, run.first.offset(bad)));
        }
        let last = slot_at(bytes, segment.head.slots, first + count - 1);
        let end = last.map_or(run.start, |slot| slot.end);
        Taken::Run(Run { count, end, ..run })
    }

    /// Counts a message as damaged, because [`Log::copy_run`] has found that its copy is not whole. The next
    /// [`Log::take_run`] returns [`Taken::Damaged`] for the message.
    #[cold]
    pub fn give_up(&mut self, seq: Seq) {
        if let Some(place) = self.segments.place(seq) {
            self.lose(place, SeqRange::one(seq));
        }
    }

    /// Steps over messages in memory that was whole when it was written or loaded, and no longer is.
    #[cold]
    fn lose(&mut self, place: Place, seqs: SeqRange) -> Taken {
        let segment = self.segments.at_mut(place);
        self.damaged_count += add_joined(&mut segment.damaged, seqs);
        segment.is_unreadable = true;
        self.damage.push(Damage {
            kind: DamageKind::Messages,
            file: segment_file(segment.number),
            offset: 0,
            seqs,
            detail: "slot or frame in memory does not agree with its CRC".to_owned(),
        });
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
        let segment = self.segments.find(run.first).expect("a run nobody holds");
        let memory = segment
            .memory()
            .expect("a run in a segment that is not resident");
        &memory[run.start as usize..run.end as usize]
    }

    /// Returns whether a sync has failed. From then on mapped bytes may change under a run: see [`Log::copy_run`].
    #[inline]
    #[must_use]
    pub fn has_failed_sync(&self) -> bool {
        self.sync.poisoned.is_some()
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
        let segment = self.segments.find(run.first).expect("a run nobody holds");
        let memory = segment
            .memory()
            .expect("a run in a segment that is not resident");
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
