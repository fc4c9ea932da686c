//! Reads segments, whole or in part, even if the device cannot read all of them, and the topic's file: for the keeper, for
//! start-up, and for the export.

use std::io;
use std::ops::Range;
use std::path::Path;

use diskq_log::plant;
use diskq_log::segment::{self, Head, PAGE_BYTES, seqs_at};
use diskq_log::{
    Damage, DamageKind, Failure, Memory, Piece, SegmentNumber, SeqRange, TOPIC_FILE, segment_file,
};
use wire::go_error::system_text;
use wire::id::Seq;

use super::directory::LogDirectory;
use crate::error::{Attempt, DiskError};
use crate::files::Files;
use crate::mapping::Buffer;
use crate::platform;

/// The bytes of a topic's file that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

impl<F: Files> LogDirectory<'_, F> {
    /// Reads the messages `indices` through the page cache, up to the first message that is not whole. A failure or damage is
    /// not reported here: the load that follows finds and reports it.
    pub(super) fn peek(
        &self,
        segment: SegmentNumber,
        wanted: &Head,
        indices: Range<u32>,
    ) -> Option<Piece> {
        let image = self.read_messages(segment, wanted, &indices).ok()?;
        let is_whole = |index: &u32| segment::is_whole(&image, wanted, *index);
        let count = indices.clone().take_while(is_whole).count() as u32;
        let seqs = seqs_at(wanted.base, &(indices.start..indices.start + count));
        (!seqs.is_empty()).then(|| Piece {
            memory: self.files.lend(image),
            seqs,
        })
    }

    /// Reads the slots of `indices`, and the bytes between the start of the first slot's frame and the end of the last
    /// slot's frame.
    fn read_messages(
        &self,
        segment: SegmentNumber,
        wanted: &Head,
        indices: &Range<u32>,
    ) -> io::Result<Buffer> {
        let path = self.segment_path(segment);
        let mut image = Buffer::zeroed(wanted.bytes)?;
        let (bytes, kind) = (wanted.bytes as usize, wanted.slots);
        let slots_end = bytes - indices.start as usize * kind.bytes();
        let slots_at = bytes - indices.end as usize * kind.bytes();
        let slots = &mut image[slots_at..slots_end];
        self.files.read_at(&path, slots_at as u64, slots)?;
        let mut slots = indices
            .clone()
            .map_while(|index| segment::slot_at(&image, kind, index));
        if let Some(first) = slots.next() {
            let end = slots.last().unwrap_or(first).end;
            let frames = first.start as usize..(end as usize).min(slots_at);
            // A damaged slot may have any bounds. Bounds out of range leave the frames unread, and frames
            // that were not read are not whole.
            if let Some(frames) = image.get_mut(frames) {
                self.files.read_at(&path, first.start.into(), frames)?;
            }
        }
        Ok(image)
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
        plant!(LoadNotChecked, return Ok((memory, damage)));
        // Messages that have never left memory need no check. These messages come from the disk, so each one is
        // checked.
        let holes = segment::scan(memory.as_ref(), wanted, Some(count)).holes(count);
        damage.extend(self.message_damage(segment, wanted, &holes));
        Ok((memory, damage))
    }

    /// [`Files::read_ahead`] for one of the files.
    pub(crate) fn read_ahead(&self, name: &str, bytes: u32) {
        self.files.read_ahead(&self.path.join(name), bytes);
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
            Ok(()) => Ok(ReadSegment {
                image,
                damage: Vec::new(),
                unreadable: Vec::new(),
            }),
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

    /// Reports the messages `bad` of a segment.
    pub(crate) fn message_damage(
        &self,
        segment: SegmentNumber,
        head: &Head,
        bad: &[Range<u32>],
    ) -> Vec<Damage> {
        let at = |index| segment::slot_offset(head.bytes as usize, head.slots, index).unwrap_or(0);
        let to_damage = |indices: &Range<u32>| Damage {
            kind: DamageKind::Messages,
            file: self.shown(&segment_file(segment)),
            offset: at(indices.start) as u64,
            seqs: seqs_at(head.base, indices),
            detail: "slot or frame does not agree with its CRC".to_owned(),
        };
        bad.iter().map(to_damage).collect()
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

/// Returns whether the error is that of the file's device or of the file's length, and not of a limit of this process.
#[must_use]
pub fn is_media_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
        || error
            .raw_os_error()
            .is_some_and(|code| platform::MEDIA_ERRORS.contains(&code))
}

/// Reads the file of a topic. `None`: there is none. Blocks.
///
/// # Errors
/// The file cannot be read.
pub fn read_topic_file(
    files: &impl Files,
    data_path: &Path,
    topic: &str,
) -> Result<Option<Vec<u8>>, DiskError> {
    let directory = LogDirectory::new(files, data_path, topic);
    let path = directory.path.join(TOPIC_FILE);
    let length = match files.length(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        length => length.in_attempt("read", &path)?,
    };
    let read = || {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length as usize)?;
        bytes.resize(length as usize, 0);
        let offsets = (0..).step_by(PIECE_BYTES);
        for (at, piece) in offsets.zip(bytes.chunks_mut(PIECE_BYTES)) {
            files.read_at(&path, at, piece)?;
        }
        Ok::<_, io::Error>(bytes)
    };
    read().in_attempt("read", &path).map(Some)
}

/// The name that a damaged file has got, and whether it has.
pub type SetAsideFile = (String, io::Result<()>);

/// Keeps a topic's file under another name, because it is damaged.
pub fn set_topic_file_aside(files: &impl Files, data_path: &Path, topic: &str) -> SetAsideFile {
    LogDirectory::new(files, data_path, topic).rename_aside(TOPIC_FILE)
}
