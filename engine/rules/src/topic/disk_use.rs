//! [`DiskUse`]: the part of a topic's log that a channel keeps on disk, and who else keeps it.
//!
//! A segment stays on disk as long as anybody owes one of its messages. So the emptying of a channel frees nothing while
//! another channel owes the same messages.

use super::Topic;
use crate::channel::Channel;
use crate::stats::DiskUse;
use crate::undo::Undo;
use diskq_log::SeqRange;

/// Most questions "does this channel owe a message of that segment?" for one figure: some milliseconds of the shard. 16 TiB
/// in segments of the largest size and 64 channels are less.
const QUESTIONS_MAX: usize = 1 << 18;

/// Most names of other channels.
const NAMES_MAX: usize = 20;

impl Topic {
    /// Returns what a channel keeps on disk. `None`: the topic is too large to say that in a turn. The segment that
    /// takes new messages does not count, because nothing frees it.
    pub(crate) fn disk_use(&self, channel: &Channel) -> Option<DiskUse> {
        let segments: Vec<(SeqRange, u64)> = self.log.sealed_files().collect();
        let others = self.channels().map(|(_, other)| other);
        let others: Vec<&Channel> = others.filter(|other| other.name != channel.name).collect();
        if segments.len() * (others.len() + 1) > QUESTIONS_MAX {
            return None;
        }
        let mut found = DiskUse::default();
        let mut is_with = vec![false; others.len()];
        for (range, bytes) in segments {
            if !channel.owes_any(range) {
                continue;
            }
            let is_with_topic = self.keeps_any(range, channel);
            let mut is_alone = !is_with_topic;
            for (other, is_with) in others.iter().zip(&mut is_with) {
                if other.owes_any(range) {
                    *is_with = true;
                    is_alone = false;
                }
            }
            found.bytes += bytes;
            found.alone_bytes += if is_alone { bytes } else { 0 };
            found.is_shared_with_topic |= is_with_topic;
        }
        let with = others.iter().zip(is_with).filter(|(_, is_with)| *is_with);
        found.shared_count = with.clone().count() as u64;
        let names = with.map(|(other, _)| other.name.to_string());
        found.shared_with = names.take(NAMES_MAX).collect();
        Some(found)
    }

    /// Returns whether the topic itself keeps a message of the range: it has no channel yet, it is in the grace, or it
    /// can be brought back, but not to this channel.
    fn keeps_any(&self, range: SeqRange, channel: &Channel) -> bool {
        let others = self.channels().map(|(_, other)| other);
        let others = others.filter(|other| other.name != channel.name);
        let undos = others.filter_map(|other| other.undo.as_deref());
        let mut undos = undos.chain(self.undo.as_deref());
        let grace = self.grace.as_deref();
        self.undistributed.overlaps(range)
            || grace.is_some_and(|grace| grace.messages.overlaps(range))
            || undos.any(|undo: &Undo| undo.overlaps(range))
    }
}
