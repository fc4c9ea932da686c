//! Start-up reads the head of each segment file, and writes some of them anew.

use std::io;

use diskq_log::segment::{self, Head, HeadState, Scan, Seal, count_limit, read_head};
use diskq_log::{DamageKind, Segment, SegmentNumber, SlotKind};
use wire::go_error::system_text;
use wire::id::{SEQ_MAX, Seq};

use super::{NO_SEQS, Opening};
use crate::error::DiskError;
use crate::files::{Entry, Files};
use crate::keeper::is_media_error;

/// A file with a readable head.
pub(super) struct Found {
    pub(super) number: SegmentNumber,
    pub(super) head: Head,
    pub(super) seal: Option<Seal>,
    /// The file is as long as its head says.
    pub(super) is_long_enough: bool,
    /// The time in the frame of the first message. The frame was not checked.
    pub(super) first_ns: u64,
    /// The files with the same head, from which this file was copied when the segment was spilled.
    pub(super) originals: Vec<Found>,
}

impl Found {
    /// One past the highest seq that the head allows.
    pub(super) fn end(&self) -> Seq {
        let count = match self.seal {
            Some(seal) => seal.count,
            None => count_limit(&self.head),
        };
        self.head.base.offset(u64::from(count))
    }

    /// Returns whether `scan` found all of its messages.
    pub(super) fn is_complete(&self, scan: &Scan) -> bool {
        self.seal
            .is_some_and(|seal| scan.holes(seal.count).is_empty())
    }
}

impl<F: Files> Opening<'_, F> {
    /// Returns the head of a segment file. `None` means that the file has no head; what becomes of such a file
    /// is noted.
    pub(super) fn read_head(
        &mut self,
        number: SegmentNumber,
        entry: &Entry,
    ) -> Result<Option<Found>, DiskError> {
        if entry.is_dir {
            let detail = "is a directory: left alone".to_owned();
            self.report(DamageKind::Foreign, &entry.name, NO_SEQS, detail);
            return Ok(None);
        }
        let mut start = [0; segment::FIRST_TIMESTAMP_END];
        let readable = start.len().min(entry.bytes as usize);
        let read = self
            .directory
            .read(&entry.name, 0, &mut start[..readable])
            .and_then(|()| match read_head(&start) {
                HeadState::Unused => self.has_first_slot(entry).map(Some),
                _ => Ok(None),
            });
        let has_messages = match read {
            Ok(has_messages) => has_messages,
            Err(error) if is_media_error(&error) => {
                let why = format!("its head cannot be read ({})", system_text(&error));
                self.aside.push((entry.name.clone(), why));
                return Ok(None);
            }
            Err(error) => return Err(self.cannot_read(&entry.name, error)),
        };
        let why = match read_head(&start) {
            HeadState::Segment(head, seal) if is_possible(&head) => {
                return Ok(Some(Found {
                    number,
                    head,
                    seal: seal.filter(|seal| seal.fits(&head)),
                    is_long_enough: entry.bytes >= u64::from(head.bytes),
                    first_ns: segment::first_published_ns(&start[..readable]),
                    originals: Vec::new(),
                }));
            }
            HeadState::Newer(version) => {
                let detail = format!("unknown version {version}: left alone");
                self.report(DamageKind::Foreign, &entry.name, NO_SEQS, detail);
                return Ok(None);
            }
            HeadState::Unused if has_messages == Some(false) => {
                // Prepared, and never used.
                self.obsolete.push(entry.name.clone());
                return Ok(None);
            }
            HeadState::Unused => "has messages and no head, as after a power failure",
            HeadState::Segment(..) | HeadState::Unreadable => "no readable head",
        };
        self.aside.push((entry.name.clone(), why.to_owned()));
        Ok(None)
    }

    /// Returns whether anything was written where the first slot belongs. The file has no head, so the slot may be of
    /// any kind.
    fn has_first_slot(&self, entry: &Entry) -> io::Result<bool> {
        const BYTES: usize = SlotKind::WithOrigin.bytes();
        let mut slot = [0; BYTES];
        let Some(at) = entry.bytes.checked_sub(BYTES as u64) else {
            return Ok(false);
        };
        self.directory.read(&entry.name, at, &mut slot)?;
        Ok(slot != [0; BYTES])
    }

    /// Seals the last segment of a broker that was killed, so that later starts need not read the segment. The seal
    /// hides seqs: it says how many messages are whole, the head says how many fit. So all seqs that fit must lie below
    /// the `next` of a durable checkpoint. Then none of them is given again, even after a power failure.
    pub(super) fn seal(&self, found: &Found, segment: &Segment) {
        let seal = Seal {
            count: segment.count,
            end: segment.end,
        };
        // If this fails, the next start reads the segment again.
        let _ = self.rewrite_head(found.number, &found.head, Some(&seal));
    }

    /// Removes the seal of a segment that has torn messages. With the seal, the torn messages would look damaged as
    /// soon as they lie below a synced mark. Without the seal, every start reads the slots and tells torn from damaged.
    pub(super) fn unseal(&self, number: SegmentNumber, head: &Head) {
        // If this fails, finished messages may later be counted as damaged: no more than that.
        let _ = self.rewrite_head(number, head, None);
    }

    /// Writes both head blocks of a segment file anew, with or without a seal.
    fn rewrite_head(
        &self,
        number: SegmentNumber,
        head: &Head,
        seal: Option<&Seal>,
    ) -> io::Result<()> {
        if !self.may_change {
            return Ok(());
        }
        let mut blocks = [0; segment::FRAMES_AT as usize];
        segment::write_head(&mut blocks, head);
        if let Some(seal) = seal {
            segment::write_seal(&mut blocks, head, seal);
        }
        let path = self.directory.segment_path(number);
        self.files.write_at(&path, 0, &blocks)
    }
}

/// Joins each copy with its original. The copy is the file that is sealed and has the higher number.
pub(super) fn join_copies(sorted: Vec<Found>) -> Vec<Found> {
    let mut joined: Vec<Found> = Vec::with_capacity(sorted.len());
    for mut found in sorted {
        let is_copied = |last: &mut Found| last.head == found.head && found.seal.is_some();
        if let Some(mut original) = joined.pop_if(is_copied) {
            found.originals = std::mem::take(&mut original.originals);
            found.originals.push(original);
        }
        joined.push(found);
    }
    joined
}

/// Returns whether a log of ours can have begun a segment with this head.
fn is_possible(head: &Head) -> bool {
    let highest = head.base.0.checked_add(count_limit(head).into());
    let has_seqs = head.base > Seq(0) && highest.is_some_and(|end| end <= SEQ_MAX + 1);
    has_seqs && segment::is_size(head.bytes)
}
