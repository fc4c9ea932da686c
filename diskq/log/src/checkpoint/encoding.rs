//! The bytes of a checkpoint: what the keeper writes, and what a start reads. docs/reference/format.md draws them.

use std::borrow::Cow;
use std::collections::TryReserveError;
use std::io;

use wire::id::{SEQ_MAX, Seq};
use wire::name::ChannelName;

use super::content::{
    ChannelCheckpoint, Checkpoint, CheckpointDraft, CheckpointOf, PauseTerms, TimedRuns,
    UndoCheckpoint,
};
use super::runs::{CheckpointRun, Runs};
use crate::crc::crc32c;
use crate::range::{SeqRange, meeting};

pub(super) const MAGIC: [u8; 4] = *b"RQCP";
/// The format that this code writes and reads. Builds before the first release had the versions up to 5.
pub(super) const VERSION: u16 = 6;
pub(super) const HEAD_BYTES: usize = 24;
pub(super) const RUN_BYTES: usize = 26;

/// The highest checkpoint number that is accepted. No log comes near this number, and its successor still fits 64 bits.
pub const NUMBER_MAX: u64 = 1 << 62;

/// The CRC of a checkpoint: of the head in front of the CRC, and of the body.
fn crc(head: &[u8], body: &[u8]) -> u32 {
    crc32c(crc32c(0, head), body)
}

/// The bytes of a checkpoint on their way to the file.
struct Out(Vec<u8>);

impl Out {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Puts the number of entries of a list. A body below 4 GiB lists fewer than 2^32 things.
    fn put_count(&mut self, count: usize) {
        self.put(&(count as u32).to_le_bytes());
    }

    /// Puts the beginning of a text that fits its 16-bit length field.
    fn put_text(&mut self, text: &str) {
        let text = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
        self.put(&(text.len() as u16).to_le_bytes());
        self.put(text.as_bytes());
    }

    fn put_runs(&mut self, runs: &Runs) {
        self.put_count(runs.count());
        for run in runs.iter() {
            self.put(&run.start.0.to_le_bytes());
            self.put(&run.count.to_le_bytes());
            self.put(&run.attempts.to_le_bytes());
            self.put(&run.due_ns.to_le_bytes());
        }
    }

    /// Puts whether the topic or a channel is paused, and the terms of the pause.
    fn put_pause(&mut self, is_paused: bool, terms: &PauseTerms) {
        self.put(&[u8::from(is_paused)]);
        if is_paused {
            self.put(&terms.until_ns.to_le_bytes());
            self.put(&terms.length_ns.to_le_bytes());
            self.put_text(&terms.note);
            self.put_text(&terms.by);
        }
    }

    /// Puts whether there is a grace or an undo, and its messages.
    fn put_timed(&mut self, timed: Option<&TimedRuns<Cow<'_, Runs>>>) {
        self.put(&[u8::from(timed.is_some())]);
        if let Some(timed) = timed {
            self.put(&timed.until_ns.to_le_bytes());
            self.put_runs(&timed.runs);
        }
    }
}

impl CheckpointDraft {
    /// The bytes of a place that holds the checkpoint. `sync` says whether the checkpoint is to be durable.
    ///
    /// # Errors
    /// The checkpoint would be longer than its 32-bit length field can express.
    pub fn encode(&self, sync: bool) -> io::Result<Vec<u8>> {
        let resolved = self.with_lists(Runs::resolved);
        let too_long = |bytes: usize| {
            let text = format!(
                "the checkpoint needs {bytes} bytes, and may have {}",
                u32::MAX
            );
            io::Error::new(io::ErrorKind::FileTooLarge, text)
        };
        // The runs are nearly all of it. A checkpoint that cannot be written takes no memory.
        let runs_bytes = resolved.lists().map(|runs| runs.count() * RUN_BYTES).sum();
        if runs_bytes > u32::MAX as usize {
            return Err(too_long(runs_bytes));
        }
        let mut out = Out(Vec::with_capacity(2 * HEAD_BYTES + runs_bytes));
        out.put(&[0; HEAD_BYTES]);
        resolved.put_body(&mut out);
        let Out(mut bytes) = out;
        let body_bytes = bytes.len() - HEAD_BYTES;
        let body_bytes = u32::try_from(body_bytes).map_err(|_| too_long(body_bytes))?;
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&u16::from(sync).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&body_bytes.to_le_bytes());
        seal(&mut bytes);
        Ok(bytes)
    }
}

impl CheckpointOf<Cow<'_, Runs>> {
    fn put_body(&self, out: &mut Out) {
        out.put(&self.synced.0.to_le_bytes());
        out.put(&self.next.0.to_le_bytes());
        out.put_pause(self.paused, &self.terms);
        out.put_runs(&self.undistributed);
        out.put_timed(self.undo.as_ref());
        out.put_timed(self.grace.as_ref());
        out.put_count(self.channels.len());
        for channel in &self.channels {
            let name_bytes = u8::try_from(channel.name.len()).expect("channel names are short");
            out.put(&[name_bytes]);
            out.put(channel.name.as_bytes());
            out.put_pause(channel.paused, &channel.terms);
            out.put_runs(&channel.runs);
            out.put_timed(channel.undo.as_ref());
        }
    }
}

/// Writes the CRC into the head of a checkpoint.
fn seal(bytes: &mut [u8]) {
    let crc = crc(&bytes[..20], &bytes[HEAD_BYTES..]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
}

/// Makes the CRC of a changed checkpoint right.
#[cfg(any(test, feature = "sim"))]
pub fn reseal(bytes: &mut [u8]) {
    seal(bytes);
}

/// The content of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceContent {
    /// Nothing was ever written.
    Empty,
    /// A whole checkpoint, and whether its writer asked for a sync.
    Checkpoint(Box<Checkpoint>, bool),
    /// A whole checkpoint of another version.
    Unknown {
        /// The version.
        version: u16,
        /// The number of the checkpoint: all versions have it at the same place.
        number: u64,
    },
    /// Torn or damaged.
    Bad,
    /// The CRC is right, but no log can have written this content.
    Inconsistent,
}

/// The length of the checkpoint that begins with these bytes; 0 if none does.
pub fn encoded_bytes(bytes: &[u8]) -> u64 {
    let body = bytes.get(16..20).and_then(|field| field.first_chunk());
    match body {
        Some(body) if bytes[..4] == MAGIC => {
            HEAD_BYTES as u64 + u64::from(u32::from_le_bytes(*body))
        }
        _ => 0,
    }
}

/// The reason why bytes could not be decoded.
enum Unread {
    /// They end too early, or were never written as they are.
    Malformed,
    NoMemory(TryReserveError),
}

impl From<TryReserveError> for Unread {
    fn from(error: TryReserveError) -> Unread {
        Unread::NoMemory(error)
    }
}

/// Reads the content of a place. Bytes behind the checkpoint are left over from earlier, longer checkpoints, and are
/// ignored.
///
/// # Errors
/// There is not enough memory for the decoded checkpoint.
pub fn decode(bytes: &[u8]) -> Result<PlaceContent, TryReserveError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return Ok(if bytes.is_empty() {
            PlaceContent::Empty
        } else {
            PlaceContent::Bad
        });
    };
    if head.iter().all(|&byte| byte == 0) {
        return Ok(PlaceContent::Empty);
    }
    let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let (version, is_synced) = (u16_at(4), u16_at(6) & 1 == 1);
    let number = u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32;
    let Some(body) = rest.get(..u32_at(16) as usize) else {
        return Ok(PlaceContent::Bad);
    };
    let is_whole = crc(&head[..20], body) == u32_at(20);
    plant!(CheckpointCrcLeftOut, let is_whole = true);
    if head[..4] != MAGIC || !is_whole {
        return Ok(PlaceContent::Bad);
    }
    if version != VERSION {
        return Ok(PlaceContent::Unknown { version, number });
    }
    match Reader(body).checkpoint(number) {
        Ok(checkpoint) if is_consistent(&checkpoint)? => {
            Ok(PlaceContent::Checkpoint(checkpoint.into(), is_synced))
        }
        Ok(_) | Err(Unread::Malformed) => Ok(PlaceContent::Inconsistent),
        Err(Unread::NoMemory(error)) => Err(error),
    }
}

/// Takes the numbers and lists of a body off the front. Bytes that end too early are malformed.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn checkpoint(mut self, number: u64) -> Result<Checkpoint, Unread> {
        let (synced, next) = (Seq(self.u64()?), Seq(self.u64()?));
        let (paused, terms) = self.pause()?;
        let mut checkpoint = Checkpoint {
            number,
            synced,
            next,
            paused,
            terms,
            undistributed: self.runs()?,
            undo: self.timed()?,
            grace: self.timed()?,
            channels: Vec::new(),
        };
        for _ in 0..self.u32()? {
            let name_bytes = usize::from(self.u8()?);
            let name = self.text(name_bytes)?;
            let (paused, terms) = self.pause()?;
            checkpoint.channels.push(ChannelCheckpoint {
                name,
                paused,
                terms,
                runs: self.runs()?,
                undo: self.timed()?,
            });
        }
        match self.0 {
            [] => Ok(checkpoint),
            [..] => Err(Unread::Malformed),
        }
    }

    /// Reads whether the topic or a channel is paused, and the terms of the pause.
    fn pause(&mut self) -> Result<(bool, PauseTerms), Unread> {
        let mut terms = PauseTerms::default();
        let is_paused = self.bool()?;
        if is_paused {
            terms.until_ns = self.u64()?;
            terms.length_ns = self.u64()?;
            let note_bytes = usize::from(self.u16()?);
            terms.note = self.text(note_bytes)?;
            let by_bytes = usize::from(self.u16()?);
            terms.by = self.text(by_bytes)?;
        }
        Ok((is_paused, terms))
    }

    /// Reads a grace or an undo, if there is one.
    fn timed(&mut self) -> Result<Option<TimedRuns<Vec<CheckpointRun>>>, Unread> {
        if !self.bool()? {
            return Ok(None);
        }
        Ok(Some(TimedRuns {
            until_ns: self.u64()?,
            runs: self.runs()?,
        }))
    }

    /// Reads a list of runs. Memory for the list is reserved only if that many runs follow: the count may be wrong.
    fn runs(&mut self) -> Result<Vec<CheckpointRun>, Unread> {
        let count = self.u32()? as usize;
        if count > self.0.len() / RUN_BYTES {
            return Err(Unread::Malformed);
        }
        let mut runs = reserved(count)?;
        for _ in 0..count {
            runs.push(CheckpointRun {
                start: Seq(self.u64()?),
                count: self.u64()?,
                attempts: self.u16()?,
                due_ns: self.u64()?,
            });
        }
        Ok(runs)
    }

    fn text(&mut self, bytes: usize) -> Result<String, Unread> {
        let text = str::from_utf8(self.take(bytes)?).map_err(|_| Unread::Malformed)?;
        Ok(text.to_owned())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Unread> {
        let split = self.0.split_at_checked(count);
        let (taken, rest) = split.ok_or(Unread::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unread> {
        let taken = self.take(N)?.first_chunk();
        taken.copied().ok_or(Unread::Malformed)
    }

    fn bool(&mut self) -> Result<bool, Unread> {
        match self.u8()? {
            bit @ 0..=1 => Ok(bit == 1),
            _ => Err(Unread::Malformed),
        }
    }

    fn u8(&mut self) -> Result<u8, Unread> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Result<u16, Unread> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Unread> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Unread> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Returns an empty list with room for `count` entries. A checkpoint may be gigabytes long: without enough memory for a
/// list, the caller gets an error instead of an abort.
pub fn reserved<T>(count: usize) -> Result<Vec<T>, TryReserveError> {
    let mut list = Vec::new();
    list.try_reserve_exact(count)?;
    Ok(list)
}

/// Returns the ranges of a list of runs.
fn ranges(runs: &[CheckpointRun]) -> Result<Vec<SeqRange>, TryReserveError> {
    let mut ranges = reserved(runs.len())?;
    ranges.extend(runs.iter().map(CheckpointRun::range));
    Ok(ranges)
}

/// Returns whether a log of ours can have written this checkpoint. Its readers rely on that.
///
/// All seqs are below `next`, a channel owes each of them once, and the topic has given its channels
/// everything below what it has not distributed. The messages of its grace are among those that it has distributed. The
/// messages that a channel was emptied of lie below all messages that it has got since. The messages that the topic was
/// emptied of lie below all that it has not distributed, and no channel has them.
fn is_consistent(checkpoint: &Checkpoint) -> Result<bool, TryReserveError> {
    let undone =
        |undo: &Option<UndoCheckpoint>| ranges(undo.as_ref().map_or(&[][..], |undo| &undo.runs));
    let end = |ranges: &[SeqRange]| ranges.last().map_or(Seq(0), |last| last.end);
    let dropped = undone(&checkpoint.undo)?;
    let mut given = Seq(0);
    let channels = checkpoint.channels.iter();
    let lists = channels.map(|channel| (&channel.runs, &channel.undo));
    for (list, undo) in lists.chain(checkpoint.grace.iter().map(|grace| (&grace.runs, &None))) {
        let mut runs = undone(undo)?;
        if !are_apart(&runs) {
            return Ok(false);
        }
        let emptied = runs.len();
        runs.try_reserve_exact(list.len())?;
        runs.extend(list.iter().map(CheckpointRun::range));
        runs[emptied..].sort_unstable();
        if !are_apart(&runs)
            || dropped
                .iter()
                .any(|range| meeting(*range, &runs).next().is_some())
        {
            return Ok(false);
        }
        given = given.max(end(&runs));
    }
    let mut names: Vec<&str> = Vec::new();
    names.extend(checkpoint.channels.iter().map(|channel| &*channel.name));
    names.sort_unstable();
    let is_name = |name: &&str| ChannelName::new(name.as_bytes()).is_some();
    let kept = ranges(&checkpoint.undistributed)?;
    let below = given.max(end(&dropped));
    let next = checkpoint.next;
    Ok((1..=NUMBER_MAX).contains(&checkpoint.number)
        && checkpoint.synced <= next
        && next.0 <= SEQ_MAX + 1
        && names.iter().all(is_name)
        && names.windows(2).all(|pair| pair[0] != pair[1])
        && are_apart(&kept)
        && are_apart(&dropped)
        && kept.first().is_none_or(|first| below <= first.start)
        && below.max(end(&kept)) <= next)
}

/// Returns whether each range ends before the next one starts.
fn are_apart(ranges: &[SeqRange]) -> bool {
    ranges.windows(2).all(|pair| pair[0].end <= pair[1].start)
}
