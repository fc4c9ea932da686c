//! Start-up reads when the oldest messages were published. Their age is exact then, although their segments are cold.

use std::io;

use diskq_log::segment::{self, TIMESTAMP_END};
use diskq_log::{Checkpoint, CheckpointRun, Segment, segment_file};
use wire::id::Seq;

use super::Opening;
use crate::error::DiskError;
use crate::files::Files;
use crate::keeper::is_media_error;

impl<F: Files> Opening<'_, F> {
    /// Reads the times of the oldest owed messages. A time that the device cannot read stays unknown: then the age of the
    /// message is that of its segment.
    pub(super) fn read_published(&mut self) -> Result<(), DiskError> {
        let mut oldest: Vec<Seq> = self.checkpoint.iter().flat_map(starts).collect();
        // Every channel is owed the messages that came after the checkpoint.
        oldest.push(self.checkpoint_next());
        oldest.sort_unstable();
        let found = oldest.iter().filter_map(|seq| self.first_found(*seq));
        let mut oldest: Vec<Seq> = found.collect();
        oldest.dedup();
        for seq in oldest {
            let place = self.segments.partition_point(|it| it.end_seq() <= seq);
            let Some(segment) = self.segments.get(place) else {
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
            self.segments[place].published.extend(known);
        }
        Ok(())
    }

    /// Returns the first message from a seq on that a segment has.
    fn first_found(&self, seq: Seq) -> Option<Seq> {
        let place = self.found.partition_point(|range| range.end <= seq);
        self.found.get(place).map(|range| range.start.max(seq))
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

/// Returns the first message that the topic owes its channels, and the first one of each channel.
fn starts(checkpoint: &Checkpoint) -> impl Iterator<Item = Seq> {
    let of_channels = checkpoint.channels.iter().map(|channel| &channel.runs);
    let lists = std::iter::once(&checkpoint.undistributed).chain(of_channels);
    lists.filter_map(|runs: &Vec<CheckpointRun>| runs.iter().map(|run| run.start).min())
}
