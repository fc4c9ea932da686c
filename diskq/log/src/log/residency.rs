//! The reasons for which a segment stays (holders of its messages, socket writes, checkpoints), and the ways of sealed
//! segments out of memory and back into it: spill, load and peek.

use wire::id::Seq;

use crate::error::{Damage, DamageKind};
use crate::file_name::{SegmentNumber, segment_file};
use crate::memory::Memory;
use crate::policy::{self, STAYS_FOR};
use crate::range::SeqRange;
use crate::request::{Failure, Piece, Request, SyncFailure};
use crate::segment::FRAMES_AT;

use super::segments::{Residency, Segment, Which};
use super::{Log, Notice};

impl Log {
    /// Adds `holders` holders to each seq of the range. A segment lives while it has any.
    ///
    /// Seqs that lie in no segment (lost before the start) are ignored, here and in `release`. [`Log::take_run`]
    /// returns [`Taken::Damaged`](super::Taken::Damaged) for them.
    #[inline]
    pub fn retain(&mut self, range: SeqRange, holders: u64) {
        self.segments.retain(range, holders);
    }

    /// The holders of all messages.
    #[must_use]
    pub fn holders(&self) -> u64 {
        self.segments.iter().map(|segment| segment.holders).sum()
    }

    /// The segments that hold messages, in the order of their seqs, each with the bytes of its messages.
    pub fn segment_sizes(&self) -> impl Iterator<Item = (SeqRange, u64)> {
        let segments = self.segments.iter();
        segments.map(|segment| (segment.range(), segment.used() - u64::from(FRAMES_AT)))
    }

    /// The sealed segments, in the order of their seqs, each with the bytes of its file.
    pub fn sealed_files(&self) -> impl Iterator<Item = (SeqRange, u64)> {
        let sealed = self.segments.sealed.iter();
        sealed.map(|segment| (segment.range(), u64::from(segment.head.bytes)))
    }

    /// Takes one holder from `seq`.
    ///
    /// # Panics
    /// If the segment of `seq` has fewer holders than that.
    #[inline]
    pub fn release(&mut self, seq: Seq) {
        match self.segments.which(seq) {
            Some(Which::Sealed(index)) => {
                let segment = &mut self.segments.sealed[index];
                segment.release(1);
                if segment.holders == 0 {
                    self.drop_if_unneeded(index);
                }
            }
            // The tail stays, it takes the next append. An idle one goes with `Log::trim`.
            Some(Which::Tail) => self.segments.at_mut(Which::Tail).release(1),
            None => {}
        }
    }

    /// Takes one holder from each seq of the range.
    ///
    /// # Panics
    /// If a segment has fewer holders than that.
    pub fn release_range(&mut self, range: SeqRange) {
        if range.is_empty() {
            return;
        }
        let mut index = self.segments.index_at_or_after(range.start);
        while let Some(segment) = self.segments.sealed.get_mut(index) {
            if segment.head.base >= range.end {
                return;
            }
            segment.release(segment.range().intersection(&range).len());
            if !self.drop_if_unneeded(index) {
                index += 1;
            }
        }
        if let Some(tail) = &mut self.segments.tail {
            tail.release(tail.range().intersection(&range).len());
        }
    }

    /// Lets go of every segment that nobody holds. Call this once, after start-up has retained all owed messages.
    pub fn release_unheld(&mut self) {
        for segment in &mut self.segments.sealed {
            segment.is_just_recovered = false;
        }
        self.drop_unneeded();
        if self.segments.iter().any(|segment| !segment.is_held()) {
            // They go with the first checkpoint.
            self.make_checkpoint_due();
        }
    }

    /// The number of unfinished writes that point into the segments.
    #[must_use]
    pub fn pins(&self) -> usize {
        let pins = self.segments.iter().map(|segment| segment.pins as usize);
        pins.sum()
    }

    /// Keeps the segment of `seq` in memory, because an unfinished socket write points into it.
    ///
    /// # Panics
    /// If the segment is not resident: there is nothing to point into.
    pub fn pin(&mut self, seq: Seq) {
        let which = self.segments.which(seq);
        let which = which.expect("pinned what no segment holds");
        let segment = self.segments.at_mut(which);
        assert!(segment.memory().is_some(), "pinned what is not resident");
        segment.pins += 1;
    }

    /// Ends a pin, because its socket write is finished.
    ///
    /// # Panics
    /// If there was no pin.
    pub fn unpin(&mut self, seq: Seq) {
        let which = self.segments.which(seq).expect("what is pinned stays");
        let pins = &mut self.segments.at_mut(which).pins;
        *pins = pins
            .checked_sub(1)
            .expect("unpinned more often than pinned");
        if let Which::Sealed(index) = which {
            self.drop_if_unneeded(index);
        }
    }

    /// Lets go of the sealed segment `index` if nobody needs it any more. Returns whether it is gone.
    pub(super) fn drop_if_unneeded(&mut self, index: usize) -> bool {
        let segment = &self.segments.sealed[index];
        if segment.is_held() {
            return false;
        }
        if segment.is_just_recovered || self.checkpoints.may_name(segment.named_by) {
            // No consumer needs its copy in memory.
            if matches!(segment.residency, Residency::Loaded(_)) {
                self.make_cold(index);
            }
            return false;
        }
        let segment = self.segments.remove(index);
        let number = segment.number;
        let memory = match segment.residency {
            // A file with damage in it is not trusted with new messages.
            Residency::Mapped(memory) if segment.damaged.is_empty() => {
                self.supply.recycle(&mut self.context, number, memory);
                return true;
            }
            Residency::Mapped(memory) => Some(memory),
            // The keeper's reply brings the memory back, and finds no segment: see `spilled`.
            Residency::Spilling { .. } => return true,
            Residency::Loaded(memory) => {
                self.loads.keep_buffer(&mut self.context, memory);
                None
            }
            // The keeper's reply brings the loaded memory, and finds no segment: see `loaded`.
            Residency::Loading(piece) => {
                self.context.free(piece.map(|piece| piece.memory));
                None
            }
            Residency::Cold | Residency::Lost => None,
        };
        if segment.is_unreadable {
            if let Some(memory) = memory {
                let segment = number;
                self.context.ask(Request::Unmap { segment, memory });
            }
            self.context.ask(Request::SetAside(number));
        } else {
            self.context.discard(number, memory);
        }
        true
    }

    /// Does [`Log::drop_if_unneeded`] for all sealed segments.
    pub(super) fn drop_unneeded(&mut self) {
        let mut index = 0;
        while index < self.segments.sealed.len() {
            if !self.drop_if_unneeded(index) {
                index += 1;
            }
        }
    }

    /// Asks the keeper for some messages from `seq` on, for which a reader waits: to load the whole segment takes
    /// longer.
    pub(super) fn peek(&mut self, index: usize, seq: Seq) {
        let segment = &self.segments.sealed[index];
        let first = seq.since(segment.head.base) as u32;
        let end = first + policy::peek_count(segment.count);
        self.context.ask(Request::Peek {
            segment: segment.number,
            head: segment.head,
            indices: first..end.min(segment.count),
        });
    }

    pub(super) fn peeked(&mut self, number: SegmentNumber, piece: Option<Piece>) {
        let Some(index) = self.segments.loading(number) else {
            // The segment lost its last holder meanwhile.
            return self.context.free(piece.map(|piece| piece.memory));
        };
        if let Some(piece) = &piece {
            self.context.tell(Notice::Loaded(piece.seqs));
        }
        self.segments.sealed[index].residency = Residency::Loading(piece);
    }

    /// Asks the keeper for a cold segment.
    pub(super) fn load(&mut self, index: usize) {
        let segment = &mut self.segments.sealed[index];
        self.loads.last = self.context.mono;
        let cached = segment.is_doubtful && segment.end_seq() > self.sync.synced;
        let reuse = self.loads.buffers.pop();
        if matches!(segment.residency, Residency::Cold) {
            segment.residency = Residency::Loading(None);
        }
        self.context.ask(Request::Load {
            segment: segment.number,
            head: segment.head,
            count: segment.count,
            cached,
            reuse,
        });
    }

    pub(super) fn loaded(
        &mut self,
        number: SegmentNumber,
        result: Result<(Memory, Vec<Damage>), Failure>,
    ) {
        let Some(index) = self.segments.loading(number) else {
            // Its last holder went while it was loading: the file is gone, or about to be.
            if let Ok((memory, _)) = result {
                self.loads.keep_buffer(&mut self.context, memory);
            }
            return;
        };
        let segment = &self.segments.sealed[index];
        match result {
            // A socket write points into the piece, which is whole. The loaded segment has damage in the piece's messages,
            // so it cannot replace the piece. The next load may succeed, or the write has ended.
            Ok((memory, damage)) if segment.pins > 0 && damages_piece(segment, &damage) => {
                self.loads.keep_buffer(&mut self.context, memory);
                self.loads.retry_later(&self.context, number);
            }
            Ok((memory, damage)) => self.take_memory(index, memory, damage),
            Err(failure) => self.load_failed(index, failure),
        }
        self.evict();
    }

    fn take_memory(&mut self, index: usize, memory: Memory, damage: Vec<Damage>) {
        self.end_loading(index, Residency::Loaded(memory));
        self.segments.note_read(index);
        for damage in damage {
            // Damage that the start or an earlier load found is counted and told already. A torn message that the start
            // found is promised to nobody, and is no reason to keep the file.
            let added = self.segments.add_damage(Which::Sealed(index), damage.seqs);
            if added > 0 || damage.seqs.is_empty() {
                self.segments.sealed[index].is_unreadable = true;
                self.context.tell(Notice::Damage(damage));
            }
        }
        let segment = &mut self.segments.sealed[index];
        segment.keep_until = self.context.mono + STAYS_FOR;
        self.context.tell(Notice::Loaded(segment.range()));
    }

    fn load_failed(&mut self, index: usize, failure: Failure) {
        let segment = &self.segments.sealed[index];
        let (range, number) = (segment.range(), segment.number);
        let text = failure.text.as_str().into();
        self.context.tell(Notice::LoadFailed(range, text));
        if failure.kind != std::io::ErrorKind::NotFound || segment.pins > 0 {
            // Mappings, memory or descriptors were short, which may pass; or a socket write points into the piece.
            return self.loads.retry_later(&self.context, number);
        }
        self.end_loading(index, Residency::Lost);
        self.segments.add_damage(Which::Sealed(index), range);
        let (kind, file) = (DamageKind::Segment, segment_file(number));
        let damage = Damage::new(kind, file, range, failure.text);
        self.context.tell(Notice::Damage(damage));
    }

    /// Ends the load of a segment, and frees its piece. Runs stay valid: they have the same offsets in the piece and in
    /// the loaded segment.
    fn end_loading(&mut self, index: usize, residency: Residency) {
        let segment = &mut self.segments.sealed[index];
        if let Residency::Loading(piece) = std::mem::replace(&mut segment.residency, residency) {
            self.context.free(piece.map(|piece| piece.memory));
        }
    }

    pub(super) fn retry_loads(&mut self) {
        let mono = self.context.mono;
        let due = self.loads.retries.extract_if(.., |(_, at)| *at <= mono);
        for (number, _) in due.collect::<Vec<_>>() {
            if let Some(index) = self.segments.loading(number) {
                self.load(index);
            }
        }
    }

    /// Drops sealed segments from memory, least recently read first, while there is more than both
    /// bounds allow. What a socket write or a reader that is on its way needs stays.
    pub(super) fn evict(&mut self) {
        let sealed = &self.segments.sealed;
        let mut bytes = 0;
        let mut messages = 0;
        let mut candidates = Vec::new();
        for (index, segment) in sealed.iter().enumerate() {
            let (Residency::Mapped(_) | Residency::Loaded(_)) = segment.residency else {
                continue;
            };
            bytes += u64::from(segment.head.bytes);
            messages += u64::from(segment.count);
            let is_free = segment.pins == 0
                && segment.keep_until <= self.context.mono
                && segment.read_at != self.segments.reads;
            if is_free {
                candidates.push((segment.read_at, index));
            }
        }
        let options = &self.context.options;
        let (least, most) = (options.resident_bytes_min, options.resident_messages);
        let is_over = |bytes, messages| policy::is_too_much(bytes, least, messages, most);
        if !is_over(bytes, messages) {
            return;
        }
        candidates.sort_unstable();
        for (_, index) in candidates {
            if !is_over(bytes, messages) {
                break;
            }
            let segment = &self.segments.sealed[index];
            bytes -= u64::from(segment.head.bytes);
            messages -= u64::from(segment.count);
            self.make_cold(index);
        }
    }

    /// Removes a segment from memory. A mapped segment is spilled, and the memory of a loaded one is kept as a buffer.
    fn make_cold(&mut self, index: usize) {
        let segment = &mut self.segments.sealed[index];
        match std::mem::replace(&mut segment.residency, Residency::Cold) {
            Residency::Mapped(memory) => {
                let copy = self.supply.next_number();
                // The copy of a synced segment is synced with the spill. Other copies wait for the next sync, because
                // one sync of many copies costs a fraction of one sync for each.
                let is_synced = segment.head.base < self.sync.covered();
                self.sync.raise_on_disk(segment.end_seq());
                self.supply.spilling += 1;
                segment.residency = Residency::Spilling {
                    copy,
                    is_synced,
                    is_wanted: false,
                };
                self.context.ask(Request::Spill {
                    segment: segment.number,
                    memory,
                    copy,
                    sync: is_synced,
                });
            }
            Residency::Loaded(memory) => self.loads.keep_buffer(&mut self.context, memory),
            other => segment.residency = other,
        }
    }

    /// Takes the memory of a spilled segment back from the keeper. The memory is free for new messages.
    pub(super) fn spilled(
        &mut self,
        number: SegmentNumber,
        memory: Memory,
        copy: SegmentNumber,
        result: Result<(), SyncFailure>,
    ) {
        let failed = result.as_ref().err();
        plant!(SpillFailureNotFinal, let failed = None);
        if let Some(SyncFailure::Final(failure)) = failed {
            let text = failure.text.as_str().into();
            self.sync.poison(&mut self.context, text);
        }
        let state = |segment: &Segment| match segment.residency {
            Residency::Spilling {
                copy: to,
                is_synced,
                is_wanted,
            } if to == copy => Some((is_synced, is_wanted)),
            _ => None,
        };
        let mut sealed = self.segments.sealed.iter_mut();
        let Some((segment, (is_synced, is_wanted))) =
            sealed.find_map(|segment| state(segment).map(|state| (segment, state)))
        else {
            // Its last holder went while it was copied.
            if result.is_ok() {
                self.context.discard(copy, None);
            }
            return self.supply.recycle(&mut self.context, number, memory);
        };
        if result.is_ok() && !is_wanted {
            segment.residency = Residency::Cold;
            segment.number = copy;
            segment.is_durable = is_synced;
            return self.supply.recycle(&mut self.context, number, memory);
        }
        // The spill has failed, or a reader has come for the segment: it stays where it was, and the copy is not used.
        segment.residency = Residency::Mapped(memory);
        segment.keep_until = self.context.mono + STAYS_FOR;
        if is_wanted {
            self.context.tell(Notice::Loaded(segment.range()));
        }
        match result {
            Ok(()) if is_synced => self.context.discard(copy, None),
            Ok(()) => self.sync.voided.push(copy),
            Err(SyncFailure::Retryable(failure) | SyncFailure::Final(failure)) => {
                self.context.tell(Notice::SpillFailed(failure.text.into()));
            }
        }
        self.sync.make_void();
    }
}

/// Returns true if a message of the segment's piece is damaged in the loaded segment.
fn damages_piece(segment: &Segment, damage: &[Damage]) -> bool {
    let Residency::Loading(Some(piece)) = &segment.residency else {
        return false;
    };
    // What the device could not read is damage without seqs. The messages that it hits are damage with seqs, too.
    let is_hit = |damage: &Damage| !damage.seqs.intersection(&piece.seqs).is_empty();
    damage.iter().any(is_hit)
}
