//! [`Archive`]: the files of one topic, and the messages that wait for a sync.
//!
//! ```text
//!   message ─► plain ─► encoder ─► encoded ─► file in --work-dir      written, not finished: batch
//!                                               │ sync                also those: syncing
//!                                               ▼
//!                                             synced                  finished
//!                                               │ close
//!                                               ▼
//!                                             file in --output-dir
//! ```
//!
//! A message is finished only when a power failure cannot take it any more: its bytes are synced, and
//! so is the name of its file. The archive reads no clock. Each event brings the time, and goes to the
//! disk through the trait [`Disk`].
//!
//! [`Archive`] decides where each message goes: names and rotation. Its [`Writer`] has the open file, the syncs, and the
//! answers that follow from them:
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
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use jiff::Zoned;
use program::{log_error, log_info, log_warn};
use wire::go_value::duration_text;

use super::compression::Encoder;
use super::config::Settings;
use super::disk::{Disk, DiskError, Opened, Stop};
use super::file_name::{FileNames, with_revision};
use super::output_move::{OutputMove, make_parent};

/// The time of an event.
#[derive(Clone, Debug)]
pub(super) struct Now {
    /// The local time, for names of files.
    pub(super) wall: Zoned,
    /// The time for everything else.
    pub(super) monotonic: Instant,
}

/// The files of one topic. `M` stands for a message that is still to be finished.
pub(super) struct Archive<D: Disk, M> {
    /// The open file, and its messages from the write to the answer.
    pub(super) writer: Writer<D, M>,
    settings: Arc<Settings>,
    names: FileNames,
    /// The name of the last file that was opened, with `<REV>` left in place.
    name: Option<String>,
    /// The revision of that file.
    revision: u32,
}

impl<D: Disk, M> Archive<D, M> {
    /// Returns the archive of a topic. It opens no file before the first event.
    ///
    /// # Errors
    /// The encoder cannot be made: see [`Encoder::new`].
    pub(super) fn new(
        disk: D,
        settings: Arc<Settings>,
        topic: &str,
        channel: &str,
    ) -> io::Result<Archive<D, M>> {
        let label = format!("[{topic}/{channel}]");
        let encoder = Encoder::new(settings.compression)?;
        Ok(Archive {
            writer: Writer::new(disk, label, encoder),
            names: settings.names.of_topic(topic),
            name: None,
            revision: 0,
            settings,
        })
    }

    /// Takes a message. The first message of a file is synced at once, and so are the messages of a
    /// full batch. If a batch is full because of its bytes, the next messages do not wait for its sync:
    /// see [`first_sync`](Writer::first_sync).
    pub(super) fn take(&mut self, now: &Now, body: &[u8], message: M) -> Result<(), DiskError> {
        let is_first = self.needs_rotation(now);
        if is_first && let Err(error) = self.rotate(now) {
            // No file can have it, so it goes back to nsqd.
            self.writer.batch.push(message);
            return Err(error);
        }
        self.writer.add(body, message);
        if is_first || self.writer.batch_len() >= self.settings.batch_max {
            return self.writer.sync();
        }
        if self.writer.batch_bytes >= self.settings.batch_bytes_max {
            return self.writer.begin_sync();
        }
        if self.writer.plain.len() >= WRITE_BYTES_MAX {
            return self.writer.write();
        }
        Ok(())
    }

    /// Ends a group of messages: without compression, readers of the file see the messages from now
    /// on. If the consumer is starved, no more messages come before some are finished, so the batch
    /// is synced, unless running syncs finish some soon.
    pub(super) fn end_group(&mut self, is_starved: bool) -> Result<(), DiskError> {
        if is_starved && self.writer.syncs.is_empty() {
            self.writer.sync()
        } else {
            self.writer.write()
        }
    }

    /// Handles the end of `--sync-interval`: syncs, and rotates if a rotation is due.
    pub(super) fn tick(&mut self, now: &Now) -> Result<(), DiskError> {
        match (self.needs_rotation(now), self.settings.skips_empty_files) {
            (false, _) => self.writer.sync(),
            (true, true) => self.close(),
            (true, false) => self.rotate(now),
        }
    }

    /// Syncs and closes the open file, and moves it to `--output-dir`. The next message opens another
    /// file.
    pub(super) fn close(&mut self) -> Result<(), DiskError> {
        self.writer.sync()?;
        // The end of a torn line may still wait for the message that did not come.
        self.writer.write()?;
        self.writer.end_empty_file()?;
        if !self.settings.moves_files() {
            self.writer.file = None;
            return Ok(());
        }
        self.forget_lost_file()?;
        let Some(file) = self.writer.file.take() else {
            return Ok(());
        };
        let handed_over = self.hand_over(&file);
        if let Err(error) = &handed_over
            && error.source.kind() == io::ErrorKind::NotFound
        {
            // Somebody may have moved or removed the file since the look.
            self.writer.file = Some(file);
            self.forget_lost_file()?;
            if self.writer.file.take().is_none() {
                return Ok(());
            }
        }
        handed_over
    }

    /// Forgets a file that somebody has removed or moved away, so that it cannot be handed over. All its messages are
    /// synced.
    fn forget_lost_file(&mut self) -> Result<(), DiskError> {
        if self.writer.forget_removed_file()? {
            return Ok(());
        }
        let Some(file) = &self.writer.file else {
            return Ok(());
        };
        let has_name = self.writer.disk.has_name(&file.file, &file.path);
        if !has_name.map_err(|source| file.error("look for", source))? {
            log_warn!(
                "{} somebody has moved {} away, so the file does not go to {}; all its messages are synced in the file \
                 that was moved, and the next message begins another file",
                self.writer.label,
                file.path.display(),
                self.settings.output_dir.display()
            );
            self.writer.file = None;
        }
        Ok(())
    }

    /// Ends the open file after an error. If the file was new, it keeps only what is synced: a torn end would stay there, and
    /// each start on a full disk would leave one more such file.
    pub(super) fn end_after_failure(&mut self) -> Result<(), DiskError> {
        if self.settings.opens_only_new_files() {
            self.writer.cut_unsynced()
        } else {
            Ok(())
        }
    }

    /// Returns true if the next message belongs to another file, and logs the reason.
    fn needs_rotation(&mut self, now: &Now) -> bool {
        let name = self.names.at(&now.wall);
        let Some(file) = &self.writer.file else {
            return true;
        };
        let reason = file.rotation_reason(name, now.monotonic, &self.settings);
        if let Some(reason) = &reason {
            log_info!("{} {reason}, rotating...", self.writer.label);
        }
        reason.is_some()
    }

    fn rotate(&mut self, now: &Now) -> Result<(), DiskError> {
        self.close()?;
        self.open(now)
    }

    /// Opens the first file that is free: it never replaces a file, neither here nor, later, in
    /// `--output-dir`.
    fn open(&mut self, now: &Now) -> Result<(), DiskError> {
        let name = self.names.at(&now.wall).to_owned();
        let is_same = self.name.as_ref() == Some(&name);
        self.revision = if is_same { self.revision + 1 } else { 0 };
        self.name = Some(name.clone());
        let must_be_new = self.settings.opens_only_new_files();
        loop {
            let relative = with_revision(&name, self.revision);
            let path = self.settings.work_dir.join(&relative);
            make_parent(&mut self.writer.disk, &path)?;
            if self.is_taken(&relative)? {
                self.revision += 1;
                continue;
            }
            let opened = match self.writer.disk.open(&path, must_be_new) {
                Err(error) if must_be_new && error.kind() == io::ErrorKind::AlreadyExists => {
                    let path = path.display();
                    log_warn!("{} working file already exists: {path}", self.writer.label);
                    self.revision += 1;
                    continue;
                }
                opened => opened.map_err(|source| DiskError::new("open", &path, source))?,
            };
            let Opened {
                file,
                size,
                has_torn_line,
                is_shared,
            } = opened;
            if is_shared && self.settings.moves_files() {
                // The other writer moves the file, perhaps in the middle of these messages.
                let path = path.display();
                log_warn!(
                    "{} working file has another writer: {path}",
                    self.writer.label
                );
                self.revision += 1;
                continue;
            }
            log_info!("{} opening {}", self.writer.label, path.display());
            let file = OpenFile {
                file,
                name: name.clone(),
                relative,
                path,
                size,
                written: 0,
                synced: 0,
                opened: now.monotonic,
            };
            if let Some(reason) = file.full(&self.settings) {
                log_info!("{} {reason}, rotating...", self.writer.label);
                self.revision += 1;
                continue;
            }
            if has_torn_line {
                let path = file.path.display();
                log_warn!(
                    "{} the last line of {path} was cut off, ending it",
                    self.writer.label
                );
                self.writer.plain.push(b'\n');
            }
            self.writer.file = Some(file);
            return Ok(());
        }
    }

    /// Returns true if `--output-dir` is another directory, and has a file of this name.
    fn is_taken(&mut self, relative: &Path) -> Result<bool, DiskError> {
        if !self.settings.moves_files() {
            return Ok(false);
        }
        let path = self.settings.output_dir.join(relative);
        make_parent(&mut self.writer.disk, &path)?;
        let exists = self.writer.disk.exists(&path);
        let exists = exists.map_err(|source| DiskError::new("look for", &path, source))?;
        if exists {
            let path = path.display();
            log_warn!("{} output file already exists: {path}", self.writer.label);
        }
        Ok(exists)
    }

    /// Moves a closed file to `--output-dir`. If its name is taken, the file gets the next revision
    /// that is free.
    fn hand_over(&mut self, file: &OpenFile<D>) -> Result<(), DiskError> {
        let source = file.path.display();
        let target = self.settings.output_dir.join(&file.relative);
        log_info!(
            "{} moving finished file {source} to {}",
            self.writer.label,
            target.display()
        );
        let mut revision = self.revision;
        let moving = OutputMove {
            from: &file.path,
            output_dir: &self.settings.output_dir,
            relative: file.relative.clone(),
            label: &self.writer.label,
            // The stop of the tool waits for the files that the tool has written, as long as it waits for answers.
            stop: &Stop::default(),
        };
        let moved = moving.run(&mut self.writer.disk, |_| {
            revision += 1;
            with_revision(&file.name, revision)
        })?;
        if moved != target {
            log_info!(
                "{} renamed finished file {source} to {} to avoid overwrite",
                self.writer.label,
                moved.display()
            );
        }
        Ok(())
    }
}

/// The file that an archive writes.
struct OpenFile<D: Disk> {
    file: D::File,
    /// The name with `<REV>` left in place.
    name: String,
    /// The path below `--work-dir`, and later below `--output-dir`.
    relative: PathBuf,
    /// The path while the file is open.
    path: PathBuf,
    /// The bytes of the messages before compression, and those that the file had when it was opened.
    size: u64,
    /// The bytes that were written since the opening.
    written: u64,
    /// The first of these bytes that are synced.
    synced: u64,
    /// The time of the opening.
    opened: Instant,
}

impl<D: Disk> OpenFile<D> {
    /// Returns the failure of an operation on this file.
    fn error(&self, verb: &'static str, source: io::Error) -> DiskError {
        DiskError::new(verb, &self.path, source)
    }

    /// Returns the reason why the next message belongs to another file, if there is one. `name` is the
    /// name of a file that is opened now.
    fn rotation_reason(&self, name: &str, now: Instant, settings: &Settings) -> Option<String> {
        if self.name != name {
            return Some(format!("new filename {name}"));
        }
        let age = now.saturating_duration_since(self.opened);
        if settings.rotate_interval.is_some_and(|max| age > max) {
            return Some(format!("{} since last open", duration_text(age)));
        }
        self.full(settings)
    }

    /// Returns the reason why the file is too large, if it is.
    fn full(&self, settings: &Settings) -> Option<String> {
        let max = settings.rotate_size.filter(|max| self.size > *max)?;
        let (path, size) = (self.path.display(), self.size);
        Some(format!("{path} currently {size} bytes (> {max})"))
    }
}

/// The bytes of messages that are collected before they are encoded and written.
const WRITE_BYTES_MAX: usize = 256 * 1024;

/// The open file of an archive, and its messages. `M` stands for a message that is still to be finished.
pub(super) struct Writer<D: Disk, M> {
    disk: D,
    /// The topic and the channel, at the beginning of each log line: `[topic/channel]`.
    label: String,
    file: Option<OpenFile<D>>,
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
    fn new(disk: D, label: String, encoder: Encoder) -> Writer<D, M> {
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
    fn add(&mut self, body: &[u8], message: M) {
        self.plain.extend_from_slice(body);
        self.plain.push(b'\n');
        let bytes = body.len() as u64 + 1;
        if let Some(file) = &mut self.file {
            file.size += bytes;
        }
        self.batch.push(message);
        self.batch_bytes += bytes;
    }

    /// Writes and syncs all messages, which then count as finished.
    pub(super) fn sync(&mut self) -> Result<(), DiskError> {
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
    fn begin_sync(&mut self) -> Result<(), DiskError> {
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

    /// Returns the oldest running sync. [`end_sync`](Writer::end_sync) is to follow its end.
    pub(super) fn first_sync(&self) -> Option<&D::Sync> {
        self.syncs.front().map(|running| &running.sync)
    }

    /// Waits for the oldest running sync, if there is one. Its messages then count as finished. After a failure, no messages
    /// of running syncs do.
    pub(super) fn end_sync(&mut self) -> Result<(), DiskError> {
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
    pub(super) fn end_syncs(&mut self) -> Result<(), DiskError> {
        while !self.syncs.is_empty() {
            self.end_sync()?;
        }
        Ok(())
    }

    /// Forgets a file that somebody has removed. Its messages that are not finished go back to nsqd, and the finished ones
    /// are lost. The next message opens another file. Returns true if a file was forgotten.
    fn forget_removed_file(&mut self) -> Result<bool, DiskError> {
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
    pub(super) fn has_answers(&self) -> bool {
        !self.finished.is_empty() || !self.returned.is_empty()
    }

    /// Returns the messages that were synced since the last call.
    pub(super) fn take_finished(&mut self) -> impl Iterator<Item = M> + use<'_, D, M> {
        self.finished.drain(..)
    }

    /// Returns the messages since the last call whose file somebody has removed. They must come again.
    pub(super) fn take_returned(&mut self) -> impl Iterator<Item = M> + use<'_, D, M> {
        self.returned.drain(..)
    }

    /// Ends the file of a writer after an error: takes away what is not synced, and the whole file if nothing is. No other
    /// process may write the file.
    fn cut_unsynced(&mut self) -> Result<(), DiskError> {
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
    pub(super) fn into_unfinished(self) -> impl Iterator<Item = M> {
        self.syncing.into_iter().chain(self.batch)
    }

    /// Returns the number of messages that wait for the begin of a sync.
    pub(super) fn batch_len(&self) -> usize {
        self.batch.len()
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
    fn write(&mut self) -> Result<(), DiskError> {
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
    fn end_empty_file(&mut self) -> Result<(), DiskError> {
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

#[cfg(test)]
mod tests;
