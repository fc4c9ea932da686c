//! [`QueueWriter`]: writes the files of one queue from its first record to its last.

use std::path::Path;

use diskq::{Attempt, DiskError, Files};

use super::names::{HEADER_BYTES, SIZE_BYTES, data_file, positions_file};
use super::queue_reader::Record;

/// Bytes that are collected before a write, so that not every record costs a call of the file
/// system.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes a queue. Nothing is durable until the caller syncs. The positions are written last,
/// because nsqd reads nothing without them.
pub(crate) struct QueueWriter<'a, F> {
    files: &'a F,
    directory: &'a Path,
    queue: &'a str,
    /// Largest file in bytes (`--max-bytes-per-file`). A single larger record still gets a file.
    file_bytes_max: u64,
    number: u64,
    /// The length of the current file, including the collected records.
    offset: u64,
    collected: Vec<u8>,
    count: u64,
}

impl<'a, F: Files> QueueWriter<'a, F> {
    pub(crate) fn new(
        files: &'a F,
        directory: &'a Path,
        queue: &'a str,
        file_bytes_max: u64,
    ) -> QueueWriter<'a, F> {
        QueueWriter {
            files,
            directory,
            queue,
            file_bytes_max,
            number: 0,
            offset: 0,
            collected: Vec::new(),
            count: 0,
        }
    }

    pub(crate) fn append(&mut self, record: &Record<'_>) -> Result<(), DiskError> {
        let size = HEADER_BYTES + record.body.len();
        let bytes = (SIZE_BYTES + size) as u64;
        if self.offset > 0 && self.offset + bytes > self.file_bytes_max {
            self.flush()?;
            self.number += 1;
            self.offset = 0;
        }
        let size =
            u32::try_from(size).expect("a record comes from a segment, which is below 2 GiB");
        self.collected.extend_from_slice(&size.to_be_bytes());
        self.collected
            .extend_from_slice(&record.timestamp_ns.to_be_bytes());
        self.collected
            .extend_from_slice(&record.attempts.to_be_bytes());
        self.collected.extend_from_slice(&record.id);
        self.collected.extend_from_slice(record.body);
        self.offset += bytes;
        self.count += 1;
        if self.collected.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the rest and the positions. Returns the number of records. A queue without records
    /// has no files.
    pub(crate) fn finish(mut self) -> Result<u64, DiskError> {
        if self.count > 0 {
            self.flush()?;
            let positions = format!("{}\n0,0\n{},{}\n", self.count, self.number, self.offset);
            let path = self.directory.join(positions_file(self.queue));
            self.files
                .write_at(&path, 0, positions.as_bytes())
                .in_attempt("write", &path)?;
        }
        Ok(self.count)
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        let path = self.directory.join(data_file(self.queue, self.number));
        let at = self.offset - self.collected.len() as u64;
        self.files
            .write_at(&path, at, &self.collected)
            .in_attempt("write", &path)?;
        self.collected.clear();
        Ok(())
    }
}
