//! Appending: the part of the log that runs once per message.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use wire::id::{MessageId, Seq};
use wire::origin::Origin;

use crate::error::AppendError;
use crate::policy;
use crate::range::SeqRange;
use crate::segment::{
    FRAMES_AT, Head, NewFrame, SEGMENT_BYTES_LIMIT, Seal, bytes_needed, write_frame, write_head,
    write_numbered, write_seal,
};
use crate::slot::SlotKind;

use super::Log;
use super::segments::{Residency, Segment};
use super::supply::Stocked;

impl Log {
    /// Appends one message, deferred by `defer_ms` milliseconds (0: not).
    ///
    /// The message is not held yet: [`Log::retain`] it before the next call. On an error nothing
    /// was appended.
    #[inline]
    pub fn append(
        &mut self,
        mono: Duration,
        wall_ns: u64,
        body: &[u8],
        defer_ms: u32,
    ) -> Result<Seq, AppendError> {
        let body_bytes = body.len() as u64;
        if self.options.slots == SlotKind::WithOrigin {
            let message = iter::once((body, None));
            let range = self.append_numbered(mono, wall_ns, message, 1, body_bytes, defer_ms)?;
            return Ok(range.start);
        }
        self.make_room(mono, wall_ns, bytes_needed(SlotKind::Plain, 1, body_bytes))?;
        let seq = self.next;
        self.write(wall_ns, body, defer_ms);
        self.appended(mono);
        Ok(seq)
    }

    /// Appends the `count` messages of `bodies`, `body_bytes` bytes in all, or none of them.
    ///
    /// A batch goes into one segment: after a crash it is there in one piece, or torn at one place.
    /// As with [`Log::append`], retain before the next call.
    ///
    /// # Panics
    /// If `bodies` is not what `count` and `body_bytes` say: the caller's bug.
    pub fn append_batch<'b>(
        &mut self,
        mono: Duration,
        wall_ns: u64,
        bodies: impl Iterator<Item = &'b [u8]>,
        count: u32,
        body_bytes: u64,
    ) -> Result<SeqRange, AppendError> {
        if self.options.slots == SlotKind::WithOrigin {
            let messages = bodies.map(|body| (body, None));
            return self.append_numbered(mono, wall_ns, messages, count, body_bytes, 0);
        }
        if count == 0 {
            return Ok(SeqRange::new(self.next, self.next));
        }
        let needed = bytes_needed(SlotKind::Plain, u64::from(count), body_bytes);
        self.make_room(mono, wall_ns, needed)?;
        let start = self.next;
        for body in bodies {
            self.write(wall_ns, body, 0);
        }
        Ok(self.appended_batch(mono, start, count))
    }

    /// Appends messages with their origins, as [`Log::append_batch`] does. All are deferred by `defer_ms` milliseconds
    /// (0: not). A log whose [`LogOptions::slots`](super::LogOptions::slots) are plain does not keep the origins.
    ///
    /// # Panics
    /// If `messages` is not what `count` and `body_bytes` say: the caller's bug.
    #[inline(never)]
    pub fn append_numbered<'b>(
        &mut self,
        mono: Duration,
        wall_ns: u64,
        messages: impl Iterator<Item = (&'b [u8], Option<Origin>)>,
        count: u32,
        body_bytes: u64,
        defer_ms: u32,
    ) -> Result<SeqRange, AppendError> {
        if count == 0 {
            return Ok(SeqRange::new(self.next, self.next));
        }
        let needed = bytes_needed(self.options.slots, u64::from(count), body_bytes);
        self.make_room(mono, wall_ns, needed)?;
        let start = self.next;
        for (body, origin) in messages {
            self.write_with(wall_ns, body, defer_ms, |bytes, head, index, start, new| {
                write_numbered(bytes, head, index, start, new, origin)
            });
        }
        Ok(self.appended_batch(mono, start, count))
    }

    /// Makes room for a batch of `count` messages with `body_bytes` bytes in all, and appends nothing. An append of the
    /// batch or of a part of it that follows at once is not refused.
    ///
    /// # Errors
    /// The errors are those of an append.
    #[cold]
    pub fn reserve(
        &mut self,
        mono: Duration,
        wall_ns: u64,
        count: u32,
        body_bytes: u64,
    ) -> Result<(), AppendError> {
        let needed = bytes_needed(self.options.slots, u64::from(count), body_bytes);
        self.make_room(mono, wall_ns, needed)
    }

    /// Ends the append of a batch that began at `start`. Returns its messages.
    #[inline(always)]
    fn appended_batch(&mut self, mono: Duration, start: Seq, count: u32) -> SeqRange {
        let range = SeqRange::new(start, self.next);
        assert_eq!(
            range.len(),
            u64::from(count),
            "a batch of another count than announced"
        );
        self.appended(mono);
        range
    }

    #[inline]
    fn make_room(&mut self, mono: Duration, wall_ns: u64, needed: u64) -> Result<(), AppendError> {
        let poisoned = self.sync.poisoned.as_ref();
        plant!(PoisonIgnored, let poisoned = None);
        if let Some(text) = poisoned {
            return Err(AppendError::Poisoned(Arc::clone(text)));
        }
        match &self.segments.tail {
            Some(tail) if needed <= tail.room() && !self.is_spent(tail) => Ok(()),
            _ => self.roll(mono, wall_ns, needed),
        }
    }

    /// Returns whether nobody needs any message of a tail, and the tail is full enough to be begun anew.
    #[inline]
    fn is_spent(&self, tail: &Segment) -> bool {
        !tail.is_held()
            && policy::is_begun_anew(tail.end, tail.head.bytes)
            && !self.checkpoints.may_name(tail.named_by)
    }

    /// Writes a message to a tail with plain slots. Not inlined: two copies of this function would cost more than its
    /// calls.
    #[inline(never)]
    fn write(&mut self, wall_ns: u64, body: &[u8], defer_ms: u32) {
        self.write_with(wall_ns, body, defer_ms, |bytes, head, index, start, new| {
            write_frame(bytes, head, index, start, new)
        });
    }

    #[inline(always)]
    fn write_with(
        &mut self,
        wall_ns: u64,
        body: &[u8],
        defer_ms: u32,
        write: impl FnOnce(&mut [u8], &Head, u32, u32, &NewFrame<'_>) -> u32,
    ) {
        let tail = self
            .segments
            .tail
            .as_mut()
            .expect("room was made in the tail");
        let Residency::Mapped(memory) = &mut tail.residency else {
            unreachable!("the tail is mapped")
        };
        let id = MessageId::new(self.next, self.options.node);
        let new = NewFrame {
            timestamp_ns: wall_ns as i64,
            id,
            defer_ms,
            body,
        };
        tail.end = write(memory.as_mut(), &tail.head, tail.count, tail.end, &new);
        tail.count += 1;
        self.next = Seq(self.next.0 + 1);
    }

    #[inline]
    fn appended(&mut self, mono: Duration) {
        self.mono = self.mono.max(mono);
        self.last_append = self.mono;
        if self.sync.wants_to_know(self.next) {
            self.schedule_sync();
        }
        let is_half_full = |tail: &Segment| tail.used() * 2 >= u64::from(tail.head.bytes);
        if self.segments.tail.as_ref().is_some_and(is_half_full) && !self.supply.has_next() {
            self.prepare_ahead();
        }
    }

    /// Makes room when the tail is spent, too full, or missing. A spent tail is begun anew at its start. Otherwise
    /// appends continue in the next segment, if it is ready.
    #[cold]
    fn roll(&mut self, mono: Duration, wall_ns: u64, needed: u64) -> Result<(), AppendError> {
        self.mono = self.mono.max(mono);
        self.last_append = self.mono;
        let bytes = u64::from(FRAMES_AT) + needed;
        let Some(bytes) = u32::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes <= SEGMENT_BYTES_LIMIT)
        else {
            return Err(AppendError::Io(
                format!("{bytes} bytes never fit a segment").into(),
            ));
        };
        if self.begin_anew(bytes, wall_ns) {
            return Ok(());
        }
        let Some(stocked) = self.supply.take(bytes) else {
            return Err(self.ask_for(bytes));
        };
        let behind_full = self.segments.tail.is_some();
        self.supply
            .follow_flow(&self.options, self.mono, behind_full);
        self.seal();
        self.start_tail(stocked, wall_ns);
        self.follow_backlog();
        self.evict();
        Ok(())
    }

    /// Begins a spent tail anew, if it has room for `bytes` bytes. Returns whether it did. A large tail that an earlier
    /// backlog has left is not begun anew if the supply has another segment.
    fn begin_anew(&mut self, bytes: u32, wall_ns: u64) -> bool {
        let tail = self.segments.tail.as_ref();
        let Some(tail) = tail.filter(|tail| tail.head.bytes >= bytes && self.is_spent(tail)) else {
            return false;
        };
        let size = tail.head.bytes;
        self.follow_backlog();
        if policy::is_oversized(size, self.supply.steady) {
            if self.supply.can_give(bytes) {
                return false;
            }
            if !self.supply.has_next() {
                self.prepare_ahead();
            }
        }
        let spent = self
            .segments
            .tail
            .take()
            .map(|tail| (tail.number, tail.residency));
        let Some((number, Residency::Mapped(memory))) = spent else {
            unreachable!("the tail is mapped")
        };
        self.start_tail(Stocked { number, memory }, wall_ns);
        true
    }

    /// Ends the last segment: writes its seal. The segment becomes the last of the sealed ones, or goes at once. A later
    /// append begins a new one. Call this before a stop: a start does not read a sealed segment whose messages are
    /// synced.
    pub fn seal(&mut self) {
        let Some(mut tail) = self.segments.tail.take() else {
            return;
        };
        if let Residency::Mapped(memory) = &mut tail.residency {
            let seal = Seal {
                count: tail.count,
                end: tail.end,
            };
            write_seal(memory.as_mut(), &tail.head, &seal);
        }
        self.reads += 1;
        tail.read_at = self.reads;
        self.segments.sealed.push_back(tail);
        self.drop_if_unneeded(self.segments.sealed.len() - 1);
    }

    fn start_tail(&mut self, stocked: Stocked, wall_ns: u64) {
        if self.next == Seq(0) {
            // The clock keeps a topic that is deleted and made again from repeating an id.
            self.next = Seq::from_clock(wall_ns);
            self.sync.synced = self.next;
        }
        let Stocked { number, mut memory } = stocked;
        let head = Head {
            generation: self.supply.next_generation(),
            base: self.next,
            bytes: memory.as_ref().len() as u32,
            node: self.options.node,
            slots: self.options.slots,
        };
        write_head(memory.as_mut(), &head);
        plant!(HeadAtTurnEnd, memory.as_mut()[..FRAMES_AT as usize].fill(0));
        let mut tail = Segment::new(number, head, Residency::Mapped(memory));
        // The append that begins the segment follows at once.
        tail.began_ns = wall_ns;
        self.segments.tail = Some(tail);
    }
}
