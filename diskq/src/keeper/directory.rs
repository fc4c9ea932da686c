//! One log's directory, and what the keeper does in it.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use diskq_log::checkpoint::{self, CHECKPOINT_FILE, CheckpointDraft};
use diskq_log::planted::{Bug, is_planted};
use diskq_log::segment::{self, FRAMES_AT, Head, PAGE_BYTES, seqs_at};
use diskq_log::slot::SLOT_BYTES;
use diskq_log::{
    CheckpointFailure, Damage, DamageKind, Failure, Memory, Pages, SegmentNumber, SeqRange,
    SyncFailure, partial_file, segment_file,
};
use wire::go_error::system_text;
use wire::id::Seq;

use super::failure::{checkpoint_write_failure, sync_failure};
use super::names::log_path;
use crate::data_path::DataPath;
use crate::files::{Files, SyncError};
use crate::mapping::Buffer;
use crate::platform;

/// One log's directory and what is done in it.
pub(crate) struct LogDirectory<'a, F> {
    pub(super) files: &'a F,
    path: PathBuf,
}

impl<'a, F: Files> LogDirectory<'a, F> {
    pub(crate) fn new(files: &'a F, data_path: &Path, topic: &str) -> LogDirectory<'a, F> {
        LogDirectory {
            files,
            path: log_path(data_path, topic),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn segment_path(&self, segment: SegmentNumber) -> PathBuf {
        self.path.join(segment_file(segment))
    }

    pub(super) fn prepare(
        &self,
        segment: SegmentNumber,
        bytes: u32,
        pages: Pages,
    ) -> Result<Memory, Failure> {
        let path = self.segment_path(segment);
        self.with_directory(|| self.files.allocate(&path, u64::from(bytes)))
            .map_err(|error| Failure::of("allocate", &path, &error))?;
        self.files.map(&path, bytes, pages).map_err(|error| {
            // The mapping's error is the one to report; an unused file goes at the next start.
            let _ = self.files.remove(&path);
            Failure::of("map", &path, &error)
        })
    }

    /// Runs `job`. If the log's directory is missing, makes the directory, reserves room for checkpoints, and runs
    /// `job` again. So a topic for which nothing was ever written has no files.
    fn with_directory<T>(&self, job: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match job() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        self.files.create_dir(&self.path)?;
        // For the first checkpoint and one twice as long.
        let room = checkpoint::file_bytes(checkpoint::slot_room(0) * 2);
        let reserved = self.files.allocate(&self.checkpoint_path(), room);
        if let Err(error) = reserved {
            // Otherwise the next job would find a directory without room for checkpoints. The error of the reservation
            // is the one to report. A directory that has files is not removed.
            let _ = self.files.remove_dir(&self.path);
            return Err(error);
        }
        job()
    }

    pub(crate) fn checkpoint_path(&self) -> PathBuf {
        self.path.join(CHECKPOINT_FILE)
    }

    /// Writes a copy of a segment. The copy gets its name when it is whole, and synced if `sync` asks for that. So
    /// after a crash of the process, no segment file is half a segment.
    pub(super) fn spill(
        &self,
        segment: SegmentNumber,
        memory: &Memory,
        copy: SegmentNumber,
        sync: bool,
    ) -> Result<(), Failure> {
        let path = self.segment_path(copy);
        let partial = self.path.join(partial_file(copy));
        let sync = sync && !is_planted(Bug::SpillNotSynced);
        let from = self.segment_path(segment);
        let attempt = || {
            self.files.copy(&from, memory, &partial)?;
            if sync {
                self.files.sync(&partial).map_err(SyncError::into_inner)?;
            }
            self.files.rename(&partial, &path)?;
            if sync {
                let synced = self.files.sync_dir(&self.path);
                synced.map_err(SyncError::into_inner)?;
            }
            Ok(())
        };
        attempt().map_err(|error| {
            // The attempt's error is the one to report; what is left goes at the next start.
            let _ = self.files.remove(&partial);
            let _ = self.files.remove(&path);
            Failure::of("write", &path, &error)
        })
    }

    pub(super) fn load(
        &self,
        segment: SegmentNumber,
        wanted: &Head,
        count: u32,
        cached: bool,
        reuse: Option<Memory>,
    ) -> Result<(Memory, Vec<Damage>), Failure> {
        let path = self.segment_path(segment);
        let read = |read: io::Result<ReadSegment>| {
            let ReadSegment { image, damage, .. } = read?;
            Ok((self.files.lend(image), damage))
        };
        let loaded = if cached {
            reuse.into_iter().for_each(|memory| self.files.free(memory));
            read(self.read_segment(segment, wanted.bytes))
        } else {
            match self.files.load(&path, wanted.bytes, reuse) {
                Err(error) if is_media_error(&error) => read(self.rescue(segment, wanted.bytes)),
                loaded => loaded.map(|memory| (memory, Vec::new())),
            }
        };
        let (memory, mut damage) = loaded.map_err(|error| Failure::of("load", &path, &error))?;
        // Messages that have never left memory need no check. These messages come from the disk, so each one is
        // checked.
        let mut holes = segment::scan(memory.as_ref(), wanted, Some(count)).holes(count);
        holes.retain(|_| !is_planted(Bug::LoadNotChecked));
        damage.extend(self.message_damage(segment, memory.as_ref(), wanted.base, &holes));
        Ok((memory, damage))
    }

    /// Reads from one of the files. What the device cannot read is read a second time: an error that
    /// does not come again costs nothing.
    pub(crate) fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let path = self.path.join(name);
        match self.files.read_at(&path, offset, out) {
            Err(error) if is_media_error(&error) => self.files.read_at(&path, offset, out),
            result => result,
        }
    }

    /// Reads a segment through the page cache, which has the last appends. If the device cannot read all of the
    /// segment, returns the part that it can read.
    pub(crate) fn read_segment(
        &self,
        segment: SegmentNumber,
        bytes: u32,
    ) -> io::Result<ReadSegment> {
        let mut image = Buffer::zeroed(bytes)?;
        let path = self.segment_path(segment);
        match self.files.read_at(&path, 0, &mut image) {
            Ok(()) => Ok(ReadSegment::whole(image)),
            Err(error) if is_media_error(&error) => self.rescue(segment, bytes),
            Err(error) => Err(error),
        }
    }

    /// Reads a segment page by page. A page that the device cannot read becomes zeros: its messages fail their CRC, and
    /// all other messages are saved. The missing end of a file that is too short counts as unreadable. Any other
    /// failure is returned, because it says nothing about the page.
    fn rescue(&self, segment: SegmentNumber, bytes: u32) -> io::Result<ReadSegment> {
        let path = self.segment_path(segment);
        let length = self.files.length(&path)?.min(u64::from(bytes)) as u32;
        let mut image = Buffer::zeroed(bytes)?;
        let mut unreadable: Vec<(Range<u32>, String)> = Vec::new();
        for start in (0..length).step_by(PAGE_BYTES as usize) {
            let end = length.min(start + PAGE_BYTES);
            let page = &mut image[start as usize..end as usize];
            let Err(error) = self.files.read_at(&path, u64::from(start), page) else {
                continue;
            };
            if !is_media_error(&error) {
                return Err(error);
            }
            page.fill(0);
            match unreadable.last_mut() {
                Some((run, _)) if run.end == start => run.end = end,
                _ => unreadable.push((start..end, system_text(&error))),
            }
        }
        if length < bytes {
            let text = format!("the file has {length} bytes, {bytes} are expected");
            unreadable.push((length..bytes, text));
        }
        let damage = unreadable.iter().map(|(run, text)| Damage {
            kind: DamageKind::Foreign,
            file: self.shown(&segment_file(segment)),
            offset: u64::from(run.start),
            seqs: SeqRange::new(Seq(0), Seq(0)),
            detail: format!("unreadable: {text}"),
        });
        Ok(ReadSegment {
            damage: damage.collect(),
            unreadable: unreadable.into_iter().map(|(run, _)| run).collect(),
            image,
        })
    }

    /// Reports the messages `bad` of a segment and sets their bytes aside.
    pub(crate) fn message_damage(
        &self,
        segment: SegmentNumber,
        bytes: &[u8],
        base: Seq,
        bad: &[Range<u32>],
    ) -> Vec<Damage> {
        if bad.is_empty() {
            return Vec::new();
        }
        let aside = format!("{:012}.damaged", segment.0);
        let kept = match self.set_aside(&aside, bytes, bad) {
            Ok(()) => format!("its bytes are kept in {aside}"),
            Err(error) => format!(
                "its bytes could not be kept in {aside}: {}",
                system_text(&error)
            ),
        };
        let to_damage = |indices: &Range<u32>| Damage {
            kind: DamageKind::Messages,
            file: self.shown(&segment_file(segment)),
            offset: segment::slot_offset(bytes.len(), indices.start).unwrap_or(0) as u64,
            seqs: seqs_at(base, indices),
            detail: format!("slot or frame does not agree with its CRC; {kept}"),
        };
        bad.iter().map(to_damage).collect()
    }

    /// Keeps the slots and frames of `bad` in a file for an operator. For each run of bad messages, the file has a line
    /// of text, the slots, and the bytes between the frames of the two whole neighbours.
    fn set_aside(&self, name: &str, bytes: &[u8], bad: &[Range<u32>]) -> io::Result<()> {
        let mut out = Vec::new();
        for indices in bad {
            let slots_at = segment::slot_offset(bytes.len(), indices.end - 1).unwrap_or(0);
            let slots_end = slots_at + (indices.end - indices.start) as usize * SLOT_BYTES;
            let before = indices
                .start
                .checked_sub(1)
                .and_then(|i| segment::slot_at(bytes, i));
            let after = segment::slot_at(bytes, indices.end);
            let start = before.map_or(FRAMES_AT, |slot| slot.end) as usize;
            let end = after.map_or(0, |slot| slot.start) as usize;
            let slots = bytes.get(slots_at..slots_end).unwrap_or_default();
            let frames = bytes.get(start..end).unwrap_or_default();
            let head = format!(
                "\nslots {}..{}: {} bytes from {slots_at}, frames: {} bytes from {start}\n",
                indices.start,
                indices.end,
                slots.len(),
                frames.len()
            );
            for part in [head.as_bytes(), slots, frames] {
                let room = SET_ASIDE_BYTES_MAX.saturating_sub(out.len());
                out.extend_from_slice(&part[..part.len().min(room)]);
            }
        }
        self.files.write_at(&self.path.join(name), 0, &out)
    }

    /// A file of this log as reports name it: below the data path.
    pub(crate) fn shown(&self, name: &str) -> String {
        let directory = self.path.file_name().unwrap_or_default().to_string_lossy();
        format!("{directory}/{name}")
    }

    pub(super) fn sync(
        &self,
        segments: &[SegmentNumber],
        copies: &[SegmentNumber],
        names: Option<&DataPath>,
    ) -> Result<(), SyncFailure> {
        for &segment in segments {
            let path = self.segment_path(segment);
            let synced = self.files.sync(&path);
            synced.map_err(|error| sync_failure(&path, &error))?;
        }
        for &copy in copies {
            let path = self.segment_path(copy);
            match self.files.sync(&path) {
                // The spill failed. The log knows that, and does not take this sync as proof that the copy is
                // durable.
                Err(SyncError::Sync(error)) if error.kind() == io::ErrorKind::NotFound => {}
                result => result.map_err(|error| sync_failure(&path, &error))?,
            }
        }
        names.map_or(Ok(()), |data_path| self.sync_names(data_path))
    }

    /// Does what comes before a sync of files and names.
    pub(super) fn prepare_sync(
        &self,
        again: &[(SegmentNumber, [Range<u32>; 2])],
        gone: &[SegmentNumber],
    ) -> Result<(), SyncFailure> {
        self.write_again(again)?;
        self.remove(gone)
    }

    /// Writes pieces of segments again, as the page cache has them, so that a sync writes them.
    fn write_again(&self, pieces: &[(SegmentNumber, [Range<u32>; 2])]) -> Result<(), SyncFailure> {
        for (segment, pieces) in pieces {
            let path = self.segment_path(*segment);
            let failed = |error: io::Error| {
                let error = match error.kind() {
                    // The file system does not write in place.
                    io::ErrorKind::StorageFull => SyncError::Open(error),
                    _ => SyncError::of_open(error),
                };
                sync_failure(&path, &error)
            };
            for piece in pieces {
                let piece = piece.start / PAGE_BYTES * PAGE_BYTES..piece.end;
                let written = self.write_piece_again(&path, piece, AGAIN_BYTES);
                written.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Reads and writes a piece, `at_once` bytes at a time. Where the device cannot read some of these bytes, goes page
    /// by page. A page that the device cannot read is damage already, and is left as it is.
    fn write_piece_again(&self, path: &Path, piece: Range<u32>, at_once: u32) -> io::Result<()> {
        let mut bytes = vec![0; piece.len().min(at_once as usize)];
        for start in piece.clone().step_by(at_once as usize) {
            let end = piece.end.min(start + at_once);
            let part = &mut bytes[..(end - start) as usize];
            match self.files.read_at(path, start.into(), part) {
                Ok(()) => self.files.write_at(path, start.into(), part)?,
                Err(error) if !is_media_error(&error) => return Err(error),
                Err(_) if at_once == PAGE_BYTES => {}
                Err(_) => self.write_piece_again(path, start..end, PAGE_BYTES)?,
            }
        }
        Ok(())
    }

    /// Removes segments before a sync of the names makes that durable.
    fn remove(&self, segments: &[SegmentNumber]) -> Result<(), SyncFailure> {
        for &segment in segments {
            let path = self.segment_path(segment);
            match self.files.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(sync_failure(&path, &SyncError::of_open(error)));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Makes the names durable: of the log's files, and of the log.
    fn sync_names(&self, data_path: &DataPath) -> Result<(), SyncFailure> {
        if is_planted(Bug::NamesNotSynced) {
            return Ok(());
        }
        let synced = self.files.sync_dir(&self.path);
        synced.map_err(|error| sync_failure(&self.path, &error))?;
        if is_planted(Bug::LogNameNotSynced) {
            return Ok(());
        }
        let synced = data_path.sync_names(self.files);
        synced.map_err(|error| sync_failure(data_path, &error))
    }

    pub(super) fn write_checkpoint(
        &self,
        slot: u8,
        draft: &CheckpointDraft,
        sync: bool,
        names: Option<&DataPath>,
    ) -> Result<(), CheckpointFailure> {
        let bytes = draft.encode().map_err(|too_long| {
            let path = self.checkpoint_path();
            CheckpointFailure::Write(Failure::too_long(&path, &too_long))
        })?;
        self.write_slot(slot, &bytes, sync, names)
    }

    pub(super) fn write_slot(
        &self,
        slot: u8,
        bytes: &[u8],
        sync: bool,
        names: Option<&DataPath>,
    ) -> Result<(), CheckpointFailure> {
        let path = self.checkpoint_path();
        let room = checkpoint::slot_room(bytes.len());
        let write = || {
            let length = self.with_directory(|| self.files.length(&path))?;
            if length < checkpoint::file_bytes(room) {
                self.files.allocate(&path, checkpoint::file_bytes(room))?;
            }
            for (piece, at) in checkpoint::pieces(usize::from(slot), bytes.len() as u64) {
                let piece = &bytes[piece.start as usize..piece.end as usize];
                self.files.write_at(&path, at, piece)?;
            }
            Ok(length)
        };
        let length = write().map_err(|error| checkpoint_write_failure(&path, &error))?;
        if sync {
            let synced = self.files.sync(&path);
            synced.map_err(|error| sync_failure(&path, &error))?;
        }
        if let Some(data_path) = names {
            self.sync_names(data_path)?;
        }
        // Room for the checkpoints that follow, while there is room: finishing must not need any.
        if length < checkpoint::file_bytes(room * 2) {
            // Not having it is no failure of this checkpoint. The next one tries again.
            let _ = self.files.allocate(&path, checkpoint::file_bytes(room * 2));
        }
        Ok(())
    }

    /// Keeps a file under another name, which it returns.
    pub(crate) fn rename_aside(&self, name: &str) -> (String, io::Result<()>) {
        let aside = format!("{name}.damaged");
        let (from, to) = (self.path.join(name), self.path.join(&aside));
        (aside, self.files.rename(&from, &to))
    }

    pub(super) fn discard(&self, segment: SegmentNumber, memory: Option<Memory>) {
        let path = self.segment_path(segment);
        if let Some(memory) = memory {
            self.files.unmap(&path, memory);
        }
        // A file that stays costs room until the next start, which finds that no one holds it.
        let _ = self.files.remove(&path);
    }
}

/// A segment as it was read.
pub(crate) struct ReadSegment {
    pub(crate) image: Buffer,
    /// The parts of the file that could not be read.
    pub(crate) damage: Vec<Damage>,
    /// The ranges that could not be read; `image` holds zeros there.
    pub(crate) unreadable: Vec<Range<u32>>,
}

impl ReadSegment {
    fn whole(image: Buffer) -> ReadSegment {
        ReadSegment {
            image,
            damage: Vec::new(),
            unreadable: Vec::new(),
        }
    }
}

/// Returns whether the error is that of the file's device or of the file's length, and not of a limit of this process.
#[must_use]
pub fn is_media_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
        || error
            .raw_os_error()
            .is_some_and(|code| platform::MEDIA_ERRORS.contains(&code))
}

/// The number of bytes that are written again at a time.
const AGAIN_BYTES: u32 = 1 << 20;
/// How much of a segment's damaged bytes is kept.
const SET_ASIDE_BYTES_MAX: usize = 4 << 20;
