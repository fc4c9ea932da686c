//! [`Writer`]: the open file of an archive, and its messages from the write to the answer.
//!
//! ```text
//!   thread of the topic     write 1 ─► write 2 ─► write 3 ─► wait for sync 1, and so on
//!                              │          └─► sync 2 ──────────►
//!   threads of the syncs       └─► sync 1 ──────────►
//! ```
//!
//! After a sync has written its bytes, it waits some milliseconds for the disk's flush. With several syncs at the same
//! time, another one writes during this wait. They end in their order: a message is finished only if the syncs before
//! have succeeded.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use program::{log_error, log_info};

use super::open_file::OpenFile;
use crate::nsq_to_file::compression::Encoder;
use crate::nsq_to_file::disk::{Disk, DiskError};

/// The bytes of messages that are collected before they are encoded and written.
pub(super) const WRITE_BYTES_MAX: usize = 256 * 1024;

/// The open file of an archive, and its messages. `M` stands for a message that is still to be finished.
pub(crate) struct Writer<D: Disk, M> {
    pub(super) disk: D,
    /// The topic and the channel, at the beginning of each log line: `[topic/channel]`.
    pub(super) label: String,
    pub(super) file: Option<OpenFile<D>>,
    encoder: Encoder,
    /// Bytes of messages that were not encoded and written yet.
    plain: Vec<u8>,
    /// Encoded bytes that were not written yet. Empty between two events.
    encoded: Vec<u8>,
    /// The messages that the open file has, and that no sync has or had.
    batch: Vec<M>,
    /// The bytes of these messages in the file, before they are compressed.
    batch_bytes: u64,
    /// The running syncs, oldest first. Without a file, there are none.
    syncs: VecDeque<Running<D::Sync>>,
    /// The messages of these syncs.
    syncing: VecDeque<M>,
    /// The messages that are synced.
    finished: Vec<M>,
    /// The messages whose file somebody has removed.
    returned: Vec<M>,
}

/// A sync that goes on beside the next writes.
struct Running<S> {
    sync: S,
    /// The number of messages in the sync.
    message_count: usize,
    /// The bytes of the file that are synced when the sync has succeeded.
    length: u64,
}

impl<D: Disk, M> Writer<D, M> {
    /// Returns a writer without a file.
    pub(super) fn new(disk: D, label: String, encoder: Encoder) -> Writer<D, M> {
        Writer {
            disk,
            label,
            file: None,
            encoder,
            plain: Vec::new(),
            encoded: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            syncs: VecDeque::new(),
            syncing: VecDeque::new(),
            finished: Vec::new(),
            returned: Vec::new(),
        }
    }

    /// Adds a message to the batch. Its bytes are written later.
    pub(super) fn add(&mut self, body: &[u8], message: M) {
        self.plain.extend_from_slice(body);
        self.plain.push(b'\n');
        let bytes = body.len() as u64 + 1;
        if let Some(file) = &mut self.file {
            file.size += bytes;
        }
        self.batch.push(message);
        self.batch_bytes += bytes;
    }

    /// Adds a message that no file can have, so that it goes back to nsqd.
    pub(super) fn add_without_body(&mut self, message: M) {
        self.batch.push(message);
    }

    /// Ends the torn line of a file that was just opened.
    pub(super) fn end_line(&mut self) {
        self.plain.push(b'\n');
    }

    /// Writes and syncs all messages, which then count as finished.
    pub(crate) fn sync(&mut self) -> Result<(), DiskError> {
        self.end_syncs()?;
        if self.batch.is_empty() {
            return Ok(());
        }
        self.write_batch()?;
        self.sync_file()?;
        if !self.forget_removed_file()? {
            self.finished.append(&mut self.batch);
        }
        self.batch_bytes = 0;
        Ok(())
    }

    /// Writes the batch, and begins to sync it. Waits for the oldest sync if too many are running.
    pub(super) fn begin_sync(&mut self) -> Result<(), DiskError> {
        // The disk works for the syncs while these bytes go to the page cache.
        self.write_batch()?;
        while let Some(file) = &self.file
            && self.syncs.len() >= self.disk.syncs_max(&file.file)
        {
            self.end_sync()?;
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let begun = self.disk.begin_sync(&mut file.file);
        let sync = begun.map_err(|source| file.error("sync", source))?;
        self.syncs.push_back(Running {
            sync,
            message_count: self.batch.len(),
            length: file.written,
        });
        self.syncing.extend(self.batch.drain(..));
        self.batch_bytes = 0;
        Ok(())
    }

    /// Returns true if syncs are running.
    pub(super) fn is_syncing(&self) -> bool {
        !self.syncs.is_empty()
    }

    /// Returns the oldest running sync. [`end_sync`](Writer::end_sync) is to follow its end.
    pub(crate) fn first_sync(&self) -> Option<&D::Sync> {
        self.syncs.front().map(|running| &running.sync)
    }

    /// Waits for the oldest running sync, if there is one. Its messages then count as finished. After a failure, no messages
    /// of running syncs do.
    pub(crate) fn end_sync(&mut self) -> Result<(), DiskError> {
        let Some(first) = self.syncs.pop_front() else {
            return Ok(());
        };
        let ended = self.finish(first);
        if ended.is_err() {
            self.syncs.clear();
        }
        ended
    }

    fn finish(&mut self, first: Running<D::Sync>) -> Result<(), DiskError> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let ended = self.disk.end_sync(&mut file.file, first.sync);
        ended.map_err(|source| file.error("sync", source))?;
        file.synced = first.length;
        if !self.forget_removed_file()? {
            let synced = self.syncing.drain(..first.message_count);
            self.finished.extend(synced);
        }
        Ok(())
    }

    /// Waits for all running syncs.
    pub(crate) fn end_syncs(&mut self) -> Result<(), DiskError> {
        while !self.syncs.is_empty() {
            self.end_sync()?;
        }
        Ok(())
    }

    /// Forgets a file that somebody has removed. Its messages that are not finished go back to nsqd, and the finished ones
    /// are lost. The next message opens another file. Returns true if a file was forgotten.
    pub(super) fn forget_removed_file(&mut self) -> Result<bool, DiskError> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let is_removed = self.disk.is_removed(&file.file, &file.path);
        if !is_removed.map_err(|source| file.error("look for", source))? {
            return Ok(false);
        }
        log_error!(
            "{} somebody has removed {} with all messages that it had; the {} of them that were not \
             finished go back to nsqd, and the next message begins another file",
            self.label,
            file.path.display(),
            self.syncing.len() + self.batch.len()
        );
        // The next file begins without the bytes of these messages.
        self.write()?;
        self.end_member()?;
        self.file = None;
        // The results of the other syncs change nothing.
        self.syncs.clear();
        self.returned.extend(self.syncing.drain(..));
        self.returned.append(&mut self.batch);
        self.batch_bytes = 0;
        Ok(true)
    }

    /// Returns true if messages wait for [`take_finished`](Writer::take_finished) or
    /// [`take_returned`](Writer::take_returned).
    pub(crate) fn has_answers(&self) -> bool {
        !self.finished.is_empty() || !self.returned.is_empty()
    }

    /// Returns the messages that were synced since the last call.
    pub(crate) fn take_finished(&mut self) -> impl Iterator<Item = M> + use<'_, D, M> {
        self.finished.drain(..)
    }

    /// Returns the messages since the last call whose file somebody has removed. They must come again.
    pub(crate) fn take_returned(&mut self) -> impl Iterator<Item = M> + use<'_, D, M> {
        self.returned.drain(..)
    }

    /// Ends the file of a writer after an error: takes away what is not synced, and the whole file if nothing is. No other
    /// process may write the file.
    pub(super) fn cut_unsynced(&mut self) -> Result<(), DiskError> {
        let Some(mut file) = self.file.take() else {
            return Ok(());
        };
        let shown = file.path.display();
        if file.synced > 0 {
            log_info!(
                "{} cutting {shown} to the {} bytes that are synced",
                self.label,
                file.synced
            );
            let cut = self.disk.cut(&mut file.file, file.synced);
            return cut.map_err(|source| file.error("cut", source));
        }
        let has_name = self.disk.has_name(&file.file, &file.path);
        if has_name.map_err(|source| file.error("look for", source))? {
            log_info!("{} removing {shown}, which has no message", self.label);
            let removed = self.disk.remove(&file.path);
            removed.map_err(|source| file.error("remove", source))?;
        }
        Ok(())
    }

    /// Ends the writer after an error: returns the messages that are not synced.
    pub(crate) fn into_unfinished(self) -> impl Iterator<Item = M> {
        self.syncing.into_iter().chain(self.batch)
    }

    /// Returns the number of messages that wait for the begin of a sync.
    pub(crate) fn batch_len(&self) -> usize {
        self.batch.len()
    }

    /// Returns the bytes of these messages.
    pub(super) fn batch_bytes(&self) -> u64 {
        self.batch_bytes
    }

    /// Encodes and writes the collected bytes if there are many.
    pub(super) fn write_if_large(&mut self) -> Result<(), DiskError> {
        if self.plain.len() >= WRITE_BYTES_MAX {
            self.write()
        } else {
            Ok(())
        }
    }

    /// Writes what the next sync is to cover.
    fn write_batch(&mut self) -> Result<(), DiskError> {
        log_info!(
            "{} syncing {} records to disk",
            self.label,
            self.batch.len()
        );
        self.write()?;
        self.end_member()
    }

    /// Encodes and writes the collected bytes.
    pub(super) fn write(&mut self) -> Result<(), DiskError> {
        if self.plain.is_empty() {
            return Ok(());
        }
        if let Encoder::Plain = self.encoder {
            std::mem::swap(&mut self.plain, &mut self.encoded);
        } else {
            let encoded = self.encoder.encode(&self.plain, &mut self.encoded);
            encoded.map_err(|source| self.encoding_error(source))?;
            self.plain.clear();
        }
        self.write_encoded()
    }

    /// Ends the gzip member or zstd frame.
    fn end_member(&mut self) -> Result<(), DiskError> {
        let ended = self.encoder.end(&mut self.encoded);
        ended.map_err(|source| self.encoding_error(source))?;
        self.write_encoded()
    }

    /// Gives a compressed file without messages an empty member or frame: `zcat` and `zstdcat` refuse
    /// a file of 0 bytes.
    pub(super) fn end_empty_file(&mut self) -> Result<(), DiskError> {
        let is_empty = self.file.as_ref().is_some_and(|file| file.size == 0);
        if !is_empty || matches!(self.encoder, Encoder::Plain) {
            return Ok(());
        }
        let begun = self.encoder.encode(&[], &mut self.encoded);
        begun.map_err(|source| self.encoding_error(source))?;
        self.end_member()?;
        self.sync_file()
    }

    fn sync_file(&mut self) -> Result<(), DiskError> {
        if let Some(file) = &mut self.file {
            let synced = self.disk.sync(&mut file.file);
            synced.map_err(|source| file.error("sync", source))?;
            file.synced = file.written;
        }
        Ok(())
    }

    fn write_encoded(&mut self) -> Result<(), DiskError> {
        if let Some(file) = &mut self.file
            && !self.encoded.is_empty()
        {
            let written = self.disk.write(&mut file.file, &self.encoded);
            written.map_err(|source| file.error("write to", source))?;
            file.written += self.encoded.len() as u64;
            self.encoded.clear();
        }
        Ok(())
    }

    fn encoding_error(&self, source: io::Error) -> DiskError {
        let path = self.file.as_ref().map_or(Path::new(""), |file| &file.path);
        DiskError::new("compress the messages of", path, source)
    }
}
