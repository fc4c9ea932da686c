//! Which sealed segments are in memory.

use std::time::Duration;

use crate::error::{Damage, DamageKind};
use crate::files::Memory;
use crate::keeper::{Failure, Request, SegmentNumber};
use crate::range::{SeqRange, add_joined};

use super::segments::Residency;
use super::{Event, Log};

/// How long a loaded segment waits for its reader before it may be evicted again.
const KEEP_LOADED: Duration = Duration::from_secs(1);
/// How long after a failed load the next is tried.
const LOAD_RETRY: Duration = Duration::from_millis(250);

impl Log {
    /// Asks the keeper for a cold segment.
    pub(super) fn load(&mut self, index: usize) {
        let segment = &mut self.segments.sealed[index];
        segment.residency = Residency::Loading;
        self.requests.push_back(Request::Load {
            segment: segment.number,
            bytes: segment.head.bytes,
            generation: segment.head.generation,
            base: segment.head.base,
            count: segment.count,
        });
    }

    pub(super) fn loaded(
        &mut self,
        number: SegmentNumber,
        result: Result<(Memory, Vec<Damage>), Failure>,
        events: &mut Vec<Event>,
    ) {
        let Some(index) = self.loading_index(number) else {
            // Its last holder went while it was loading: the file is gone, or about to be.
            if let Ok((memory, _)) = result {
                self.requests.push_back(Request::Unmap {
                    segment: number,
                    memory,
                });
            }
            return;
        };
        match result {
            Ok((memory, damage)) => self.take_memory(index, memory, damage, events),
            Err(failure) => self.load_failed(index, &failure, events),
        }
        self.evict();
    }

    fn take_memory(
        &mut self,
        index: usize,
        memory: Memory,
        damage: Vec<Damage>,
        events: &mut Vec<Event>,
    ) {
        let segment = &mut self.segments.sealed[index];
        segment.residency = Residency::Resident(memory);
        segment.keep_until = self.mono + KEEP_LOADED;
        self.reads += 1;
        segment.read_at = self.reads;
        for damage in damage {
            // What start-up or an earlier load found is counted and told already.
            let added = add_joined(&mut segment.damaged, damage.seqs);
            self.damaged_count += added;
            if added > 0 || damage.seqs.is_empty() {
                events.push(Event::Damage(damage));
            }
        }
        events.push(Event::Loaded(segment.range()));
    }

    fn load_failed(&mut self, index: usize, failure: &Failure, events: &mut Vec<Event>) {
        let segment = &mut self.segments.sealed[index];
        events.push(Event::LoadFailed(
            segment.range(),
            failure.text.as_str().into(),
        ));
        if failure.kind != std::io::ErrorKind::NotFound {
            // Out of mappings, memory or descriptors: these come back.
            self.load_retries
                .push((segment.number, self.mono + LOAD_RETRY));
            return;
        }
        segment.residency = Residency::Lost;
        let known: u64 = segment.damaged.iter().map(SeqRange::len).sum();
        self.damaged_count += u64::from(segment.count) - known;
        segment.damaged = vec![segment.range()];
        events.push(Event::Damage(Damage {
            kind: DamageKind::Segment,
            file: crate::keeper::segment_file(segment.number),
            offset: 0,
            seqs: segment.range(),
            detail: failure.text.clone(),
        }));
    }

    pub(super) fn retry_loads_if_due(&mut self) {
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
            segment.number == number && matches!(segment.residency, Residency::Loading)
        })
    }

    /// Drops sealed segments from memory, least recently read first, while there is more than both
    /// bounds allow. What a socket write or a reader that is on its way needs stays.
    pub(super) fn evict(&mut self) {
        let sealed = &mut self.segments.sealed;
        let mut bytes = 0;
        let mut messages = 0;
        let mut candidates = Vec::new();
        for (index, segment) in sealed.iter().enumerate() {
            if segment.memory().is_none() {
                continue;
            }
            bytes += u64::from(segment.head.bytes);
            messages += u64::from(segment.count);
            let is_free = segment.pins == 0
                && segment.keep_until <= self.mono
                && segment.read_at != self.reads;
            if is_free {
                candidates.push((segment.read_at, index));
            }
        }
        let is_over = |bytes: u64, messages: u64| {
            bytes > self.options.resident_bytes_min && messages > self.options.resident_messages
        };
        if !is_over(bytes, messages) {
            return;
        }
        candidates.sort_unstable();
        for (_, index) in candidates {
            if !is_over(bytes, messages) {
                break;
            }
            let segment = &mut sealed[index];
            bytes -= u64::from(segment.head.bytes);
            messages -= u64::from(segment.count);
            if let Residency::Resident(memory) =
                std::mem::replace(&mut segment.residency, Residency::Cold)
            {
                self.requests.push_back(Request::Unmap {
                    segment: segment.number,
                    memory,
                });
            }
        }
    }
}
