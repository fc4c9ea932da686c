//! [`Archive`]: the files of one topic, and the messages that wait for a sync.
//!
//! ```text
//!   message ─► plain ─► encoder ─► encoded ─► file in --work-dir      written, not finished: batch
//!                                               │ sync
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

mod open_file;
mod rotation;
#[cfg(test)]
mod sim_disk;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::Zoned;
use program::{log_error, log_info, log_warn};

use self::open_file::OpenFile;
use super::compression::Encoder;
use super::disk::{Disk, DiskError, Opened};
use super::file_name::{FileNames, with_revision};
use super::settings::Settings;

/// The bytes of messages that are collected before they are encoded and written.
const WRITE_BYTES_MAX: usize = 256 * 1024;

/// The bytes of messages after which a batch is synced. nsqd sends the next messages while the disk
/// works: it gets the answers for one part of `--max-in-flight` before the other part is written.
const SYNC_BYTES_MAX: u64 = 8 * 1024 * 1024;

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
    disk: D,
    settings: Arc<Settings>,
    /// The topic and the channel, at the beginning of each log line: `[topic/channel]`.
    label: String,
    names: FileNames,
    file: Option<OpenFile<D::File>>,
    /// The name of the last file that was opened, with `<REV>` left in place.
    name: Option<String>,
    /// The revision of that file.
    revision: u32,
    encoder: Encoder,
    /// Bytes of messages that were not encoded and written yet.
    plain: Vec<u8>,
    /// Encoded bytes that were not written yet. Empty between two events.
    encoded: Vec<u8>,
    /// The messages that the open file has, and that are not synced.
    batch: Vec<M>,
    /// The bytes of these messages in the file, before they are compressed.
    batch_bytes: u64,
    /// The messages that are synced.
    finished: Vec<M>,
    /// The messages whose file somebody has removed.
    returned: Vec<M>,
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
        Ok(Archive {
            disk,
            label: format!("[{topic}/{channel}]"),
            names: settings.names.of_topic(topic),
            file: None,
            name: None,
            revision: 0,
            encoder: Encoder::new(settings.compression)?,
            plain: Vec::new(),
            encoded: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            finished: Vec::new(),
            returned: Vec::new(),
            settings,
        })
    }

    /// Takes a message. The first message of a file is synced at once, and so are the messages of a
    /// full batch.
    pub(super) fn take(&mut self, now: &Now, body: &[u8], message: M) -> Result<(), DiskError> {
        let is_first = self.needs_rotation(now);
        if is_first && let Err(error) = self.rotate(now) {
            self.batch.push(message);
            return Err(error);
        }
        self.plain.extend_from_slice(body);
        self.plain.push(b'\n');
        let bytes = body.len() as u64 + 1;
        if let Some(file) = &mut self.file {
            file.size += bytes;
        }
        self.batch.push(message);
        self.batch_bytes += bytes;
        let is_full =
            self.batch.len() >= self.settings.batch_max || self.batch_bytes >= SYNC_BYTES_MAX;
        if is_first || is_full {
            return self.sync();
        }
        if self.plain.len() >= WRITE_BYTES_MAX {
            self.write()?;
        }
        Ok(())
    }

    /// Ends a group of messages: without compression, readers of the file see the messages from now
    /// on. If the consumer is starved, no more messages come before some are finished, so the batch
    /// is synced.
    pub(super) fn end_group(&mut self, is_starved: bool) -> Result<(), DiskError> {
        match is_starved {
            true => self.sync(),
            false => self.write(),
        }
    }

    /// Handles the end of `--sync-interval`: syncs, and rotates if a rotation is due.
    pub(super) fn tick(&mut self, now: &Now) -> Result<(), DiskError> {
        match (self.needs_rotation(now), self.settings.skips_empty_files) {
            (false, _) => self.sync(),
            (true, true) => self.close(),
            (true, false) => self.rotate(now),
        }
    }

    /// Writes and syncs all messages, which then count as finished.
    pub(super) fn sync(&mut self) -> Result<(), DiskError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        log_info!(
            "{} syncing {} records to disk",
            self.label,
            self.batch.len()
        );
        self.write()?;
        self.end_member()?;
        self.sync_file()?;
        if !self.forget_removed_file()? {
            self.finished.append(&mut self.batch);
        }
        self.batch_bytes = 0;
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
            self.batch.len()
        );
        self.file = None;
        self.returned.append(&mut self.batch);
        Ok(true)
    }

    /// Syncs and closes the open file, and moves it to `--output-dir`. The next message opens another
    /// file.
    pub(super) fn close(&mut self) -> Result<(), DiskError> {
        self.sync()?;
        // The end of a torn line may still wait for the message that did not come.
        self.write()?;
        self.end_empty_file()?;
        if !self.settings.moves_files() {
            self.file = None;
            return Ok(());
        }
        self.forget_lost_file()?;
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        let handed_over = self.hand_over(&file);
        if let Err(error) = &handed_over
            && error.source.kind() == io::ErrorKind::NotFound
        {
            // Somebody may have moved or removed the file since the look.
            self.file = Some(file);
            self.forget_lost_file()?;
            if self.file.take().is_none() {
                return Ok(());
            }
        }
        handed_over
    }

    /// Forgets a file that somebody has removed or moved away, so that it cannot be handed over. All its messages are
    /// synced.
    fn forget_lost_file(&mut self) -> Result<(), DiskError> {
        if self.forget_removed_file()? {
            return Ok(());
        }
        let Some(file) = &self.file else {
            return Ok(());
        };
        let has_name = self.disk.has_name(&file.file, &file.path);
        if !has_name.map_err(|source| file.error("look for", source))? {
            log_warn!(
                "{} somebody has moved {} away, so the file does not go to {}; all its messages are synced in the file \
                 that was moved, and the next message begins another file",
                self.label,
                file.path.display(),
                self.settings.output_dir.display()
            );
            self.file = None;
        }
        Ok(())
    }

    /// Returns true if messages wait for [`take_finished`](Archive::take_finished) or
    /// [`take_returned`](Archive::take_returned).
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

    /// Ends the archive after an error: returns the messages that are not synced.
    pub(super) fn into_unfinished(self) -> Vec<M> {
        self.batch
    }

    /// Returns the number of messages that wait for a sync.
    pub(super) fn batch_len(&self) -> usize {
        self.batch.len()
    }

    /// Returns true if the next message belongs to another file, and logs the reason.
    fn needs_rotation(&mut self, now: &Now) -> bool {
        let name = self.names.at(&now.wall);
        let Some(file) = &self.file else {
            return true;
        };
        let reason = rotation::reason(file, name, now.monotonic, &self.settings);
        if let Some(reason) = &reason {
            log_info!("{} {reason}, rotating...", self.label);
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
            self.make_parent(&path)?;
            if self.is_taken(&relative)? {
                self.revision += 1;
                continue;
            }
            let opened = match self.disk.open(&path, must_be_new) {
                Err(error) if must_be_new && error.kind() == io::ErrorKind::AlreadyExists => {
                    let path = path.display();
                    log_warn!("{} working file already exists: {path}", self.label);
                    self.revision += 1;
                    continue;
                }
                opened => opened.map_err(|source| error("open", &path, source))?,
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
                log_warn!("{} working file has another writer: {path}", self.label);
                self.revision += 1;
                continue;
            }
            log_info!("{} opening {}", self.label, path.display());
            let file = OpenFile {
                file,
                name: name.clone(),
                relative,
                path,
                size,
                opened: now.monotonic,
            };
            if let Some(reason) = rotation::full(&file, &self.settings) {
                log_info!("{} {reason}, rotating...", self.label);
                self.revision += 1;
                continue;
            }
            if has_torn_line {
                let path = file.path.display();
                log_warn!(
                    "{} the last line of {path} was cut off, ending it",
                    self.label
                );
                self.plain.push(b'\n');
            }
            self.file = Some(file);
            return Ok(());
        }
    }

    /// Returns true if `--output-dir` is another directory, and has a file of this name.
    fn is_taken(&mut self, relative: &Path) -> Result<bool, DiskError> {
        if !self.settings.moves_files() {
            return Ok(false);
        }
        let path = self.settings.output_dir.join(relative);
        self.make_parent(&path)?;
        let exists = self.disk.exists(&path);
        let exists = exists.map_err(|source| error("look for", &path, source))?;
        if exists {
            let path = path.display();
            log_warn!("{} output file already exists: {path}", self.label);
        }
        Ok(exists)
    }

    /// Moves a closed file to `--output-dir`. If its name is taken, the file gets the next revision
    /// that is free.
    fn hand_over(&mut self, file: &OpenFile<D::File>) -> Result<(), DiskError> {
        let source = file.path.display();
        let target = self.settings.output_dir.join(&file.relative);
        log_info!(
            "{} moving finished file {source} to {}",
            self.label,
            target.display()
        );
        // A cleaner may have removed the directory since the file was opened.
        self.make_parent(&target)?;
        if self.move_file(file, &target)? {
            return Ok(());
        }
        log_warn!(
            "{} destination file already exists: {}",
            self.label,
            target.display()
        );
        let mut revision = self.revision;
        loop {
            revision += 1;
            let target = self
                .settings
                .output_dir
                .join(with_revision(&file.name, revision));
            self.make_parent(&target)?;
            if self.move_file(file, &target)? {
                log_info!(
                    "{} renamed finished file {source} to {} to avoid overwrite",
                    self.label,
                    target.display()
                );
                return Ok(());
            }
        }
    }

    /// Moves a file. Returns false if the new name is taken.
    fn move_file(&mut self, file: &OpenFile<D::File>, target: &Path) -> Result<bool, DiskError> {
        match self.disk.move_file(&file.path, target) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(file.error("move", source)),
        }
    }

    fn make_parent(&mut self, path: &Path) -> Result<(), DiskError> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let made = self.disk.make_directories(directory);
        made.map_err(|source| error("make the directory", directory, source))
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
        }
        Ok(())
    }

    fn write_encoded(&mut self) -> Result<(), DiskError> {
        if let Some(file) = &mut self.file
            && !self.encoded.is_empty()
        {
            let written = self.disk.write(&mut file.file, &self.encoded);
            written.map_err(|source| file.error("write to", source))?;
            self.encoded.clear();
        }
        Ok(())
    }

    fn encoding_error(&self, source: io::Error) -> DiskError {
        let path = self.file.as_ref().map_or(Path::new(""), |file| &file.path);
        error("compress the messages of", path, source)
    }
}

fn error(verb: &'static str, path: &Path, source: io::Error) -> DiskError {
    DiskError {
        verb,
        path: path.to_path_buf(),
        source,
    }
}
