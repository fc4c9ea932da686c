//! Start-up reads the checkpoints: the newest whole one wins.

use std::io;

use diskq_log::checkpoint::{
    self, CHECKPOINT_FILE, FILE_BYTES_MIN, NUMBER_MAX, PLACES, PlaceContent, Roster,
};
use diskq_log::range::normalise;
use diskq_log::{Checkpoint, Checkpoints, DamageKind, segment_number};

use super::{NO_SEQS, Opening};
use crate::error::DiskError;
use crate::files::{Entry, Files};
use crate::keeper::is_media_error;
use wire::go_error::system_text;

use wire::id::Seq;

/// The margin for a checkpoint that the device could not read: its number is less than the newest number that
/// was read plus this margin, which is 270 years of one checkpoint every two seconds.
const UNREAD_NUMBERS: u64 = 1 << 32;

/// A checkpoint that start-up has read.
struct Found {
    number: u64,
    /// True if the checkpoint was to be synced.
    sync: bool,
    next: Seq,
    roster: Roster,
}

impl<F: Files> Opening<'_, F> {
    pub(super) fn read_checkpoints(&mut self, entries: &[Entry]) -> Result<(), DiskError> {
        let mut whole = [const { None }; PLACES];
        let mut is_unread = false;
        let mut unknown_number = 0;
        let file = entries.iter().find(|entry| entry.name == CHECKPOINT_FILE);
        let file_bytes = file.map_or(0, |entry| entry.bytes);
        self.recovered.recorded_ns = file.map_or(0, |entry| entry.modified_ns);
        self.check_length(entries, file);
        for (place, whole) in whole.iter_mut().enumerate() {
            let read = self.read_place(place, file_bytes);
            let content = read.and_then(|bytes| {
                let is_longer = checkpoint::encoded_bytes(&bytes) > bytes.len() as u64;
                Ok((checkpoint::decode(&bytes)?, is_longer))
            });
            let mut kind = DamageKind::Checkpoint;
            let trouble = match content {
                Ok((PlaceContent::Empty, _)) => continue,
                Ok((PlaceContent::Checkpoint(checkpoint, sync), _)) => {
                    *whole = Some(Found {
                        number: checkpoint.number,
                        sync,
                        next: checkpoint.next,
                        roster: checkpoint.roster(),
                    });
                    self.keep_newest(*checkpoint);
                    continue;
                }
                Ok((PlaceContent::Bad, false)) => "does not agree with its CRC".to_owned(),
                Ok((PlaceContent::Bad, true)) => {
                    let why;
                    (kind, why) = why_longer(file_bytes);
                    format!("is longer than the file of {file_bytes} bytes: {why}")
                }
                Ok((PlaceContent::Inconsistent, _)) => "contradicts itself".to_owned(),
                Ok((PlaceContent::Unknown { version, number }, _)) => {
                    if number <= NUMBER_MAX {
                        unknown_number = unknown_number.max(number);
                    }
                    format!("is of unknown version {version}")
                }
                Err(error) if is_media_error(&error) => {
                    is_unread = true;
                    format!("cannot be read: {}", system_text(&error))
                }
                Err(error) => return Err(self.cannot_read(CHECKPOINT_FILE, error)),
            };
            self.any_place_is_bad = true;
            let place = char::from(b'a' + place as u8);
            let detail = format!("checkpoint in place {place} {trouble}");
            self.report(kind, CHECKPOINT_FILE, NO_SEQS, detail);
        }
        self.judge_places(&whole, unknown_number, is_unread);
        if file.is_none() {
            self.log.checkpoints.begin_new_file();
        }
        match &self.recovered.checkpoint {
            Some(newest) => {
                let mut owed = checkpoint::reserved(newest.named().count())
                    .map_err(|error| self.cannot_read(CHECKPOINT_FILE, error.into()))?;
                owed.extend(newest.named());
                normalise(&mut owed);
                self.owed = owed;
            }
            None if self.any_place_is_bad => {
                let detail = "no checkpoint is readable: everything found is delivered".to_owned();
                self.report(DamageKind::CheckpointLost, CHECKPOINT_FILE, NO_SEQS, detail);
            }
            None => {}
        }
        Ok(())
    }

    /// Reports a checkpoint file that is missing or too short, although the log has segments.
    fn check_length(&mut self, entries: &[Entry], file: Option<&Entry>) {
        let mut entries = entries.iter();
        let has_segments = entries.any(|entry| segment_number(&entry.name).is_some());
        let what = match file {
            Some(file) if file.bytes < FILE_BYTES_MIN => {
                let bytes = file.bytes;
                format!("the file has {bytes} bytes instead of {FILE_BYTES_MIN} or more")
            }
            Some(_) => return,
            None => "the file is missing".to_owned(),
        };
        if has_segments {
            self.any_place_is_bad = true;
            let why = "the copy of the data path is not complete, or the power failed when the topic was new";
            let detail = format!("{what}: {why}");
            self.report(DamageKind::CheckpointFile, CHECKPOINT_FILE, NO_SEQS, detail);
        }
    }

    /// Keeps the newest checkpoint only: each may name millions of messages.
    fn keep_newest(&mut self, checkpoint: Checkpoint) {
        let named = checkpoint.named().map(|range| range.end).max();
        let all = [Some(checkpoint.next), Some(checkpoint.synced), named];
        self.log.next = all.into_iter().flatten().fold(self.log.next, Seq::max);
        let newest = self
            .recovered
            .checkpoint
            .as_ref()
            .map_or(0, |newest| newest.number);
        if checkpoint.number > newest {
            self.recovered.checkpoint = Some(checkpoint);
        }
    }

    /// Reads the checkpoint in one place of a file of `file_bytes` bytes. Each place is read by itself, so a block that
    /// cannot be read costs no other place. The file's length bounds the read, whatever the checkpoint says.
    fn read_place(&self, place: usize, file_bytes: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (piece, at) in checkpoint::pieces(place, file_bytes) {
            let piece_bytes = piece.end - piece.start;
            if at.saturating_add(piece_bytes) > file_bytes
                || piece.start > 0 && piece.start >= checkpoint::encoded_bytes(&bytes)
            {
                break;
            }
            bytes.try_reserve_exact(piece_bytes as usize)?;
            bytes.resize(piece.end as usize, 0);
            let piece = &mut bytes[piece.start as usize..];
            self.directory.read(CHECKPOINT_FILE, at, piece)?;
        }
        Ok(bytes)
    }

    /// Notes the checkpoint number of each place, and the checkpoint that is surely durable.
    ///
    /// Checkpoints are written one after another, and each process syncs the newest checkpoint that it finds before it
    /// writes its first one. So a checkpoint with the sync flag is durable if there is a newer checkpoint. Only the newest
    /// checkpoint may have been cut off before its sync ended. A checkpoint that cannot be
    /// read now may be readable at the next start, so new checkpoints get numbers above any that it may have. They also get
    /// numbers above `unknown_number`, the highest one of an unknown version: another program reads that checkpoint.
    fn judge_places(
        &mut self,
        whole: &[Option<Found>; PLACES],
        unknown_number: u64,
        is_unread: bool,
    ) {
        let number = |found: &Found| found.number;
        let places = whole
            .each_ref()
            .map(|found| found.as_ref().map_or(0, number));
        let found = || whole.iter().flatten();
        let newest = found().max_by_key(|found| found.number);
        let newest_number = newest.map_or(0, number);
        let older = found().filter(|found| found.sync && found.number != newest_number);
        let durable = older.max_by_key(|found| found.number);
        let last_number = newest_number.max(unknown_number);
        let last_number = last_number + if is_unread { UNREAD_NUMBERS } else { 0 };
        let durable_number = durable.map_or(0, number);
        // Until another one is durable, a power failure may bring back any of them.
        let is_unsure = found().any(|found| {
            let is_different = durable.is_none_or(|durable| durable.roster != found.roster);
            found.number > durable_number && (!found.sync || is_different)
        });
        self.log.checkpoints = Checkpoints::from_found(
            places,
            durable_number,
            last_number,
            self.synced(),
            is_unsure,
        );
        if newest.is_some_and(|newest| newest.sync) {
            self.log.checkpoints.doubt_newest();
        }
        self.durable_next = durable.map_or(Seq(0), |found| found.next);
        let believed = durable.filter(|_| newest.is_some_and(|newest| newest.sync));
        self.recovered.durable_channels =
            believed.map_or_else(Roster::default, |found| found.roster.clone());
    }
}

/// Returns why a checkpoint is longer than its file.
fn why_longer(file_bytes: u64) -> (DamageKind, &'static str) {
    if file_bytes >= FILE_BYTES_MIN && !checkpoint::is_file_length(file_bytes) {
        let why = "the copy of the data path is not complete";
        return (DamageKind::CheckpointFile, why);
    }
    // Or the length is damaged. The file grows before the checkpoint is written.
    let why = "the power failed, or the checkpoint is damaged";
    (DamageKind::Checkpoint, why)
}
