//! [`QueueReader`]: reads the unread records of one queue in order, and notes the unreadable parts.
//!
//! The reader follows nsqd's behaviour on the same files, with four exceptions that keep readable
//! messages. Without usable positions, nsqd reads nothing and overwrites the files. At a record
//! above `--max-msg-size`, nsqd loses the rest of the file. At zeros, which a power failure or an
//! old nsqd has left in front of whole records, nsqd loses the rest of the file, too. nsqd ignores
//! files behind the write position.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use diskq::{Attempt, DiskError, Files, is_media_error};
use wire::id::MessageId;
use wire::limits::ID_BYTES;

use wire::go_error::system_text;

use super::names::{HEADER_BYTES, SIZE_BYTES, data_file, positions_file};

/// Bytes of a file that are read at a time. A larger record is read at once.
const WINDOW_BYTES: u64 = 64 << 10;
/// Most bytes of a file with positions, which has three short lines.
const POSITIONS_BYTES_MAX: u64 = 256;

/// A message in a queue's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) timestamp_ns: i64,
    /// Number of deliveries so far.
    pub(crate) attempts: u16,
    pub(crate) id: [u8; ID_BYTES],
    pub(crate) body: &'a [u8],
}

/// The files of a queue, from a listing of the directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The length of the file with the positions, if it exists.
    pub(crate) positions: Option<u64>,
    /// The lengths of the data files, by number.
    pub(crate) data: BTreeMap<u64, u64>,
}

/// Reads a queue. The present record is the head.
#[derive(Debug)]
pub(crate) struct QueueReader<'a, F> {
    files: &'a F,
    directory: &'a Path,
    name: String,
    /// Largest body that is always taken, in bytes. A larger record is taken only if it is
    /// certainly nsqd's.
    body_bytes_max: u64,
    /// The remaining files: number, start offset, length.
    upcoming: VecDeque<(u64, u64, u64)>,
    current: Option<Open>,
    window: Vec<u8>,
    /// The range of the head in the window, or `None` if there is no head (any more).
    head: Option<(usize, usize)>,
    /// The number of unread records according to the positions.
    depth: u64,
    count: u64,
    large_count: u64,
    /// One sentence for each fault that was found.
    notes: Vec<String>,
}

#[derive(Debug)]
struct Open {
    path: PathBuf,
    name: String,
    /// The offset at which the next record starts.
    offset: u64,
    bytes: u64,
    /// The offset at which the window starts.
    window_at: u64,
}

impl<'a, F: Files> QueueReader<'a, F> {
    /// Opens a queue and reads its positions. The head is the first unread record.
    pub(crate) fn open(
        files: &'a F,
        directory: &'a Path,
        name: String,
        queue: &Queue,
        body_bytes_max: u64,
    ) -> Result<QueueReader<'a, F>, DiskError> {
        let mut reader = QueueReader {
            files,
            directory,
            name,
            body_bytes_max,
            upcoming: VecDeque::new(),
            current: None,
            window: Vec::new(),
            head: None,
            depth: 0,
            count: 0,
            large_count: 0,
            notes: Vec::new(),
        };
        let (start_number, start_offset) = reader.find_start(queue)?;
        for (&number, &bytes) in queue.data.range(start_number..) {
            let offset = if number == start_number {
                start_offset
            } else {
                0
            };
            reader.upcoming.push_back((number, offset, bytes));
        }
        reader.advance()?;
        Ok(reader)
    }

    /// Returns the present record, or `None` at the end of the queue.
    pub(crate) fn head(&self) -> Option<Record<'_>> {
        let (start, end) = self.head?;
        let bytes = self.window.get(start..end)?;
        let (timestamp, rest) = bytes.split_first_chunk()?;
        let (attempts, rest) = rest.split_first_chunk()?;
        let (id, body) = rest.split_first_chunk()?;
        Some(Record {
            timestamp_ns: i64::from_be_bytes(*timestamp),
            attempts: u16::from_be_bytes(*attempts),
            id: *id,
            body,
        })
    }

    /// Makes the next record the head.
    pub(crate) fn advance(&mut self) -> Result<(), DiskError> {
        self.head = None;
        loop {
            match &self.current {
                Some(open) if open.has_more() => {}
                _ => match self.upcoming.pop_front() {
                    Some((number, offset, bytes)) => {
                        self.current = self.open_file(number, offset, bytes);
                        continue;
                    }
                    None => return Ok(()),
                },
            }
            let mut read = self.read_record();
            if let Err(Unread::Damaged(_)) = read
                && self.skip_zeros()?
            {
                read = self.read_record();
            }
            let Err(why) = read else {
                return Ok(());
            };
            let Some(open) = self.current.take() else {
                continue;
            };
            let why = match why {
                Unread::Damaged(why) => why,
                Unread::Failed(error) => return Err(DiskError::io("read", &open.path, error)),
            };
            let Open {
                name,
                offset,
                bytes,
                ..
            } = open;
            self.notes.push(format!(
                "{name} cannot be read from byte {offset} on ({why}): its last {} bytes are not imported",
                bytes - offset
            ));
        }
    }

    /// Returns the faults that were found. The queue must have been read.
    pub(crate) fn into_notes(mut self) -> Vec<String> {
        if self.count < self.depth {
            self.notes.push(format!(
                "queue {}: its positions count {} messages, but {} were found",
                self.name, self.depth, self.count
            ));
        }
        if self.large_count > 0 {
            self.notes.push(format!(
                "queue {}: {} messages above --max-msg-size ({} bytes) are imported, too",
                self.name, self.large_count, self.body_bytes_max
            ));
        }
        self.notes
    }

    fn note(&mut self, text: &str) {
        self.notes.push(format!("queue {}: {text}", self.name));
    }

    /// Finds the file and offset of the first unread record.
    fn find_start(&mut self, queue: &Queue) -> Result<(u64, u64), DiskError> {
        let Some(bytes) = queue.positions else {
            if !queue.data.is_empty() {
                self.note(
                    "it has no positions (nsqd would read nothing): all of its files are read",
                );
            }
            return Ok((0, 0));
        };
        let path = self.directory.join(positions_file(&self.name));
        let mut text = vec![0; bytes.min(POSITIONS_BYTES_MAX) as usize];
        self.files
            .read_at(&path, 0, &mut text)
            .in_attempt("read", &path)?;
        let fields = parse_positions(&text);
        let (depth, read, write) = match fields[..] {
            [depth, number, offset, write_number, write_offset] => {
                (depth, (number, offset), (write_number, write_offset))
            }
            // The numbers behind the read position are not needed.
            [_, number, offset, _] => {
                self.note("its positions are damaged: it is read to the end of its files");
                return Ok((number, offset));
            }
            _ => {
                self.note(
                    "its positions are damaged (nsqd would read nothing): all of its files are read, \
                     which may repeat messages",
                );
                return Ok((0, 0));
            }
        };
        self.depth = depth;
        if read > write {
            self.note(
                "its positions contradict each other (nsqd would remove it): all of its files are \
                 read, which may repeat messages",
            );
            return Ok((0, 0));
        }
        if read != write {
            self.report_missing(queue, read.0, write);
        }
        Ok(read)
    }

    /// Reports the files between the positions that do not exist.
    fn report_missing(&mut self, queue: &Queue, first: u64, write: (u64, u64)) {
        // nsqd creates a file with its first record.
        let end = write.0.saturating_add(u64::from(write.1 > 0));
        let mut expected = first;
        let mut gaps = Vec::new();
        for &number in queue.data.range(first..).map(|(number, _)| number) {
            gaps.push(expected..number);
            expected = number.saturating_add(1);
        }
        gaps.push(expected..end);
        for gap in gaps.into_iter().filter(|gap| !gap.is_empty()) {
            let first = data_file(&self.name, gap.start);
            let count = gap.end - gap.start;
            let others = if count > 1 {
                format!(" (and the {} files behind it)", count - 1)
            } else {
                String::new()
            };
            self.notes
                .push(format!("{first}{others} is missing, with its messages"));
        }
    }

    fn open_file(&mut self, number: u64, offset: u64, bytes: u64) -> Option<Open> {
        let name = data_file(&self.name, number);
        if offset > bytes {
            self.notes.push(format!(
                "{name} has {bytes} bytes, but its first unread byte is {offset}: the missing bytes were \
                 read before, or are lost"
            ));
            return None;
        }
        self.window.clear();
        Some(Open {
            path: self.directory.join(&name),
            name,
            offset,
            bytes,
            window_at: offset,
        })
    }

    /// Makes the next record of the current file the head.
    fn read_record(&mut self) -> Result<(), Unread> {
        let start = self.bytes_ahead(0, SIZE_BYTES as u64)?;
        let size = self.window.get(start..).and_then(|rest| rest.first_chunk());
        let size = i32::from_be_bytes(*size.expect("so many bytes are there"));
        let invalid = || Unread::Damaged(format!("invalid message read size ({size})"));
        let bytes = u64::try_from(size).map_err(|_| invalid())?;
        if bytes < HEADER_BYTES as u64 {
            return Err(invalid());
        }
        let start = self.bytes_ahead(SIZE_BYTES as u64, bytes)?;
        self.head = Some((start, start + bytes as usize));
        if bytes - HEADER_BYTES as u64 > self.body_bytes_max {
            let id = self.head().map(|record| MessageId(record.id).decode());
            if id.flatten().is_none() {
                self.head = None;
                return Err(invalid());
            }
            self.large_count += 1;
        }
        let open = self.current.as_mut().expect("a file is open");
        open.offset += SIZE_BYTES as u64 + bytes;
        self.count += 1;
        Ok(())
    }

    /// Goes on behind the zeros at the current offset, if whole messages follow that end exactly at the end of the
    /// file. Returns whether they do. Otherwise nobody knows where a record begins, and the offset
    /// stays.
    fn skip_zeros(&mut self) -> Result<bool, DiskError> {
        let open = self.current.as_ref().expect("a file is open");
        let (zeros_at, path) = (open.offset, open.path.clone());
        let found = self.find_behind_zeros();
        let start = match found {
            Ok(start) => start,
            Err(Unread::Failed(error)) => return Err(DiskError::io("read", &path, error)),
            Err(Unread::Damaged(_)) => None,
        };
        self.go_to(start.unwrap_or(zeros_at));
        if let (Some(start), Some(open)) = (start, &self.current) {
            self.notes.push(format!(
                "{} has {} zero bytes from byte {zeros_at} on, which are left out: the messages behind \
                 them are whole",
                open.name,
                start - zeros_at
            ));
        }
        Ok(start.is_some())
    }

    /// Returns the offset of the first record behind the zeros at the current offset. The first
    /// bytes of its size are zeros, too.
    fn find_behind_zeros(&mut self) -> Result<Option<u64>, Unread> {
        let open = self.current.as_ref().expect("a file is open");
        let (zeros_at, bytes) = (open.offset, open.bytes);
        let mut first = zeros_at;
        loop {
            let piece = (bytes - first).min(WINDOW_BYTES);
            if piece == 0 {
                return Ok(None);
            }
            self.go_to(first);
            let start = self.bytes_ahead(0, piece)?;
            let piece = &self.window[start..start + piece as usize];
            match piece.iter().position(|byte| *byte != 0) {
                Some(at) => {
                    first += at as u64;
                    break;
                }
                None => first += piece.len() as u64,
            }
        }
        for ahead in (0..SIZE_BYTES as u64).rev() {
            let Some(start) = first.checked_sub(ahead).filter(|start| *start > zeros_at) else {
                continue;
            };
            match self.has_only_messages(start) {
                Ok(true) => return Ok(Some(start)),
                Ok(false) | Err(Unread::Damaged(_)) => {}
                Err(failed) => return Err(failed),
            }
        }
        Ok(None)
    }

    /// Returns whether the file consists of whole messages from this offset to its end.
    fn has_only_messages(&mut self, start: u64) -> Result<bool, Unread> {
        let counts = (self.count, self.large_count);
        self.go_to(start);
        let mut is_message = true;
        let mut result = Ok(());
        while is_message && result.is_ok() && self.current.as_ref().is_some_and(Open::has_more) {
            result = self.read_record();
            let id = self.head().map(|record| MessageId(record.id).decode());
            is_message = id.flatten().is_some();
        }
        self.head = None;
        (self.count, self.large_count) = counts;
        result.map(|()| is_message)
    }

    /// Goes to another offset of the current file.
    fn go_to(&mut self, offset: u64) {
        let open = self.current.as_mut().expect("a file is open");
        open.offset = offset;
        open.window_at = offset;
        self.window.clear();
    }

    /// Returns the offset in the window of the `bytes` bytes that begin `ahead` bytes behind the
    /// current offset.
    fn bytes_ahead(&mut self, ahead: u64, bytes: u64) -> Result<usize, Unread> {
        let open = self.current.as_mut().expect("a file is open");
        let end = open.offset + ahead + bytes;
        if end > open.bytes {
            return Err(Unread::Damaged("unexpected EOF".to_owned()));
        }
        if end > open.window_at + self.window.len() as u64 {
            open.window_at = open.offset;
            let needed = ahead + bytes;
            let wanted = needed.max(WINDOW_BYTES).min(open.bytes - open.offset);
            let mut read = |bytes: u64| {
                self.window.resize(bytes as usize, 0);
                self.files
                    .read_at(&open.path, open.offset, &mut self.window)
            };
            // The device may be unable to read bytes behind the record.
            let result = match read(wanted) {
                Err(error) if is_media_error(&error) => read(needed),
                result => result,
            };
            result.inspect_err(|_| self.window.clear())?;
        }
        Ok((open.offset + ahead - open.window_at) as usize)
    }
}

impl Open {
    fn has_more(&self) -> bool {
        self.offset < self.bytes
    }
}

/// Why the next record cannot be read.
enum Unread {
    /// Its bytes are wrong, missing, or unreadable for the device.
    Damaged(String),
    /// Another failure, which says nothing about the bytes.
    Failed(io::Error),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        if is_media_error(&error) {
            Unread::Damaged(system_text(&error))
        } else {
            Unread::Failed(error)
        }
    }
}

/// Parses the five numbers of `<depth>\n<number>,<offset>\n<number>,<offset>\n`, up to the first
/// invalid one.
fn parse_positions(text: &[u8]) -> Vec<u64> {
    let mut fields = Vec::new();
    let mut rest = text;
    for separator in [b'\n', b',', b'\n', b',', b'\n'] {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, behind) = rest.split_at(digits);
        let number = std::str::from_utf8(number)
            .ok()
            .and_then(|n| n.parse().ok());
        let Some(number) = number else { break };
        fields.push(number);
        match behind.split_first() {
            Some((byte, behind)) if *byte == separator => rest = behind,
            // The last line feed may be missing.
            _ => break,
        }
    }
    fields
}
