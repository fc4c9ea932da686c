//! Start-up reads the checkpoint slots: the newest whole one wins.

use std::io;

use super::{NO_SEQS, Opening};
use crate::checkpoint::{self, CHECKPOINT_FILE, Checkpoint, SLOTS, SlotContent};
use crate::error::{DamageKind, DiskError, system_text};
use crate::files::{Entry, Files};
use crate::keeper::is_media_error;
use crate::log::Checkpoints;
use crate::range::normalise;

use wire::id::Seq;

/// The margin for a checkpoint that the device could not read: its number is less than the newest number that
/// was read plus this margin, which is 270 years of one checkpoint every two seconds.
const UNREAD_NUMBERS: u64 = 1 << 32;

impl<F: Files> Opening<'_, F> {
    pub(super) fn read_checkpoints(&mut self, entries: &[Entry]) -> Result<(), DiskError> {
        let mut whole = [None; SLOTS];
        let mut is_unread = false;
        let file = entries.iter().find(|entry| entry.name == CHECKPOINT_FILE);
        let file_bytes = file.map_or(0, |entry| entry.bytes);
        for (slot, whole) in whole.iter_mut().enumerate() {
            let read = self.read_slot(slot, file_bytes);
            let trouble = match read.map(|bytes| checkpoint::decode(&bytes)) {
                Ok(SlotContent::Empty) => continue,
                Ok(SlotContent::Whole(checkpoint, sync)) => {
                    *whole = Some((checkpoint.number, sync));
                    self.note_whole(checkpoint);
                    continue;
                }
                Ok(SlotContent::Bad) => "does not agree with its CRC".to_owned(),
                Ok(SlotContent::Inconsistent) => "contradicts itself".to_owned(),
                Ok(SlotContent::Newer(version)) => format!("is of unknown version {version}"),
                Err(error) if is_media_error(&error) => {
                    is_unread = true;
                    format!("cannot be read: {}", system_text(&error))
                }
                Err(error) => return Err(self.cannot_read(CHECKPOINT_FILE, error)),
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
        self.checkpoints = checkpoints_of(whole, is_unread);
        match &self.checkpoint {
            Some(newest) => {
                self.owed = newest.named().collect();
                normalise(&mut self.owed);
            }
            None if self.any_slot_is_bad => {
                let detail = "no checkpoint is readable: everything found is delivered".to_owned();
                self.report(DamageKind::CheckpointLost, CHECKPOINT_FILE, NO_SEQS, detail);
            }
            None => {}
        }
        Ok(())
    }

    /// Keeps the newest checkpoint only: each may name millions of messages.
    fn note_whole(&mut self, checkpoint: Checkpoint) {
        let named = checkpoint.named().map(|range| range.end).max();
        let all = [Some(checkpoint.next), Some(checkpoint.synced), named];
        self.next = all.into_iter().flatten().fold(self.next, Seq::max);
        let newest = self.checkpoint.as_ref().map_or(0, |newest| newest.number);
        if checkpoint.number > newest {
            self.checkpoint = Some(checkpoint);
        }
    }

    /// Reads a slot's checkpoint from a file of `file_bytes` bytes, slot by slot: a block that cannot
    /// be read costs no other slot. The file's length bounds what is read, whatever the slot says.
    fn read_slot(&self, slot: usize, file_bytes: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (piece, at) in checkpoint::pieces(slot, file_bytes) {
            let piece_bytes = piece.end - piece.start;
            if at.saturating_add(piece_bytes) > file_bytes
                || piece.start > 0 && piece.start >= checkpoint::encoded_bytes(&bytes)
            {
                break;
            }
            let reserved = bytes.try_reserve_exact(piece_bytes as usize);
            reserved.map_err(|_| io::ErrorKind::OutOfMemory)?;
            bytes.resize(piece.end as usize, 0);
            let piece = &mut bytes[piece.start as usize..];
            self.directory.read(CHECKPOINT_FILE, at, piece)?;
        }
        Ok(bytes)
    }
}

/// Returns the checkpoint number of each slot, and the checkpoint that is surely durable.
///
/// Checkpoints are written one after another. So a checkpoint with the durable flag is durable if a newer one
/// was written after it; only the newest may have been cut off before its sync ended. An unreadable checkpoint
/// may be readable at the next start, so new checkpoints get higher numbers.
fn checkpoints_of(whole: [Option<(u64, bool)>; SLOTS], is_unread: bool) -> Checkpoints {
    let slots = whole.map(|slot| slot.map_or(0, |(number, _)| number));
    let newest = slots.iter().copied().max().unwrap_or(0);
    let was_to_be_durable = whole.into_iter().flatten().filter(|(_, sync)| *sync);
    let older = was_to_be_durable
        .map(|(number, _)| number)
        .filter(|&n| n != newest);
    let last_number = newest + if is_unread { UNREAD_NUMBERS } else { 0 };
    Checkpoints::from_found(slots, older.max().unwrap_or(0), last_number)
}
