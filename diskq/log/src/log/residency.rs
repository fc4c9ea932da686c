//! The ways of sealed segments out of memory and back into it: spill, load and peek.

use std::time::Duration;

use wire::id::Seq;

use crate::error::{Damage, DamageKind};
use crate::file_name::SegmentNumber;
use crate::memory::Memory;
use crate::policy::{self, BUFFERS_MAX, IDLE_AFTER, RETRY_AFTER, STAYS_FOR};
use crate::range::{SeqRange, add_joined};
use crate::request::{Failure, Piece, Request, SyncFailure};

use super::segments::{Residency, Segment};
use super::{Log, Notice};

impl Log {
    /// Asks the keeper for some messages from `seq` on, for which a reader waits: to load the whole segment takes
    /// longer.
    pub(super) fn peek(&mut self, index: usize, seq: Seq) {
        let segment = &self.segments.sealed[index];
        let first = seq.since(segment.head.base) as u32;
        let end = first + policy::peek_count(segment.count);
        self.requests.push_back(Request::Peek {
            segment: segment.number,
            head: segment.head,
            indices: first..end.min(segment.count),
            bytes_max: u32::MAX,
        });
    }

    pub(super) fn peeked(
        &mut self,
        number: SegmentNumber,
        piece: Option<Piece>,
        notices: &mut Vec<Notice>,
    ) {
        let Some(index) = self.loading_index(number) else {
            // The segment lost its last holder meanwhile.
            return self.free_piece(piece);
        };
        notices.extend(piece.as_ref().map(|piece| Notice::Loaded(piece.seqs)));
        self.segments.sealed[index].residency = Residency::Loading(piece);
    }

    /// Gives back the memory of a piece.
    pub(super) fn free_piece(&mut self, piece: Option<Piece>) {
        let memory = piece.map(|piece| piece.memory);
        self.requests.extend(memory.map(Request::Free));
    }

    /// Asks the keeper for a cold segment.
    pub(super) fn load(&mut self, index: usize) {
        let segment = &mut self.segments.sealed[index];
        self.last_load = self.mono;
        let cached = segment.is_doubtful && segment.end_seq() > self.sync.synced;
        let reuse = self.buffers.pop();
        if matches!(segment.residency, Residency::Cold) {
            segment.residency = Residency::Loading(None);
        }
        self.requests.push_back(Request::Load {
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
        notices: &mut Vec<Notice>,
    ) {
        let Some(index) = self.loading_index(number) else {
            // Its last holder went while it was loading: the file is gone, or about to be.
            if let Ok((memory, _)) = result {
                self.keep_buffer(memory);
            }
            return;
        };
        let segment = &self.segments.sealed[index];
        match result {
            // A socket write points into the piece, which is whole. The loaded segment has damage in the piece's messages,
            // so it cannot replace the piece. The next load may succeed, or the write has ended.
            Ok((memory, damage)) if segment.pins > 0 && damages_piece(segment, &damage) => {
                self.keep_buffer(memory);
                self.load_retries.push((number, self.mono + RETRY_AFTER));
            }
            Ok((memory, damage)) => self.take_memory(index, memory, damage, notices),
            Err(failure) => self.load_failed(index, &failure, notices),
        }
        self.evict();
    }

    fn take_memory(
        &mut self,
        index: usize,
        memory: Memory,
        damage: Vec<Damage>,
        notices: &mut Vec<Notice>,
    ) {
        self.end_loading(index, Residency::Loaded(memory));
        let segment = &mut self.segments.sealed[index];
        segment.keep_until = self.mono + STAYS_FOR;
        self.reads += 1;
        segment.read_at = self.reads;
        for damage in damage {
            segment.is_unreadable |= damage.kind == DamageKind::Foreign;
            // Damage that the start or an earlier load found is counted and told already.
            let added = add_joined(&mut segment.damaged, damage.seqs);
            self.damaged_count += added;
            if added > 0 || damage.seqs.is_empty() {
                notices.push(Notice::Damage(damage));
            }
        }
        notices.push(Notice::Loaded(segment.range()));
    }

    fn load_failed(&mut self, index: usize, failure: &Failure, notices: &mut Vec<Notice>) {
        let segment = &mut self.segments.sealed[index];
        notices.push(Notice::LoadFailed(
            segment.range(),
            failure.text.as_str().into(),
        ));
        if failure.kind != std::io::ErrorKind::NotFound || segment.pins > 0 {
            // Mappings, memory or descriptors were short, which may pass; or a socket write points into the piece.
            self.load_retries
                .push((segment.number, self.mono + RETRY_AFTER));
            return;
        }
        self.end_loading(index, Residency::Lost);
        let segment = &mut self.segments.sealed[index];
        let known: u64 = segment.damaged.iter().map(SeqRange::len).sum();
        self.damaged_count += u64::from(segment.count) - known;
        segment.damaged = vec![segment.range()];
        notices.push(Notice::Damage(Damage {
            kind: DamageKind::Segment,
            file: crate::file_name::segment_file(segment.number),
            offset: 0,
            seqs: segment.range(),
            detail: failure.text.clone(),
        }));
    }

    /// Ends the load of a segment, and frees its piece. Runs stay valid: they have the same offsets in the piece and in
    /// the loaded segment.
    fn end_loading(&mut self, index: usize, residency: Residency) {
        let segment = &mut self.segments.sealed[index];
        if let Residency::Loading(piece) = std::mem::replace(&mut segment.residency, residency) {
            self.free_piece(piece);
        }
    }

    pub(super) fn retry_loads(&mut self) {
        let is_due = |&(_, at): &(SegmentNumber, Duration)| at <= self.mono;
        let due: Vec<_> = self
            .load_retries
            .extract_if(.., |retry| is_due(retry))
            .collect();
        for (number, _) in due {
            if let Some(index) = self.loading_index(number) {
                self.load(index);
            }
        }
    }

    fn loading_index(&self, number: SegmentNumber) -> Option<usize> {
        self.segments.sealed.iter().position(|segment| {
            segment.number == number && matches!(segment.residency, Residency::Loading(_))
        })
    }

    /// Changes how many bytes may stay resident whatever [`LogOptions::resident_messages`] says.
    ///
    /// [`LogOptions::resident_messages`]: super::LogOptions::resident_messages
    #[inline]
    pub fn limit_resident(&mut self, bytes: u64) {
        self.options.resident_bytes_min = bytes;
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
                && segment.keep_until <= self.mono
                && segment.read_at != self.reads;
            if is_free {
                candidates.push((segment.read_at, index));
            }
        }
        let (bytes_min, messages_max) = (
            self.options.resident_bytes_min,
            self.options.resident_messages,
        );
        let is_over = |bytes: u64, messages: u64| {
            policy::is_too_much(bytes, bytes_min, messages, messages_max)
        };
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

    /// Gives up the copy in memory of a segment that no consumer needs any more.
    pub(super) fn free_buffer(&mut self, index: usize) {
        if matches!(self.segments.sealed[index].residency, Residency::Loaded(_)) {
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
                self.requests.push_back(Request::Spill {
                    segment: segment.number,
                    memory,
                    copy,
                    sync: is_synced,
                });
            }
            Residency::Loaded(memory) => self.keep_buffer(memory),
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
        notices: &mut Vec<Notice>,
    ) {
        let failed = result.as_ref().err();
        plant!(SpillFailureNotFinal, let failed = None);
        if let Some(SyncFailure::Final(failure)) = failed {
            self.poison(failure.text.as_str().into(), notices);
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
                self.discard(copy, None);
            }
            return self.recycle(number, memory);
        };
        match result {
            Ok(()) if !is_wanted => {
                segment.residency = Residency::Cold;
                segment.number = copy;
                segment.is_durable = is_synced;
                self.recycle(number, memory);
            }
            // A reader has come for the segment. The segment stays mapped, and the copy is not used.
            Ok(()) => {
                segment.residency = Residency::Mapped(memory);
                segment.keep_until = self.mono + STAYS_FOR;
                notices.push(Notice::Loaded(segment.range()));
                if is_synced {
                    self.discard(copy, None);
                } else {
                    self.sync.voided.push(copy);
                }
                self.sync.spill_is_void();
            }
            // Nothing is lost: it is where it was.
            Err(SyncFailure::Retryable(failure) | SyncFailure::Final(failure)) => {
                segment.residency = Residency::Mapped(memory);
                segment.keep_until = self.mono + STAYS_FOR;
                if is_wanted {
                    notices.push(Notice::Loaded(segment.range()));
                }
                notices.push(Notice::SpillFailed(failure.text.into()));
                self.sync.spill_is_void();
            }
        }
    }

    /// Returns when the unused buffers are given back.
    pub(super) fn trim_buffers_at(&self) -> Option<Duration> {
        (!self.buffers.is_empty()).then_some(self.last_load + IDLE_AFTER)
    }

    pub(super) fn trim_buffers(&mut self) {
        self.requests
            .extend(self.buffers.drain(..).map(Request::Free));
    }

    /// Keeps a buffer for the next load, or gives it back.
    pub(super) fn keep_buffer(&mut self, memory: Memory) {
        if self.buffers.len() < BUFFERS_MAX {
            self.buffers.push(memory);
        } else {
            let oldest = std::mem::replace(&mut self.buffers[0], memory);
            self.buffers.rotate_left(1);
            self.requests.push_back(Request::Free(oldest));
        }
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
