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
//! | file | part |
//! |---|---|
//! | `archive` | messages, names and rotation: where each message goes |
//! | `archive/open_file` | the reasons for another file |
//! | `archive/writer` | the open file: writes, syncs, and the answers that follow from them |

mod open_file;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jiff::Zoned;
use program::{log_info, log_warn};

use self::open_file::OpenFile;
use self::writer::Writer;
use super::compression::Encoder;
use super::disk::{Disk, DiskError, Opened};
use super::file_name::{FileNames, with_revision};
use super::output_move::{OutputMove, make_parent};
use super::settings::Settings;
use super::stop::Stop;

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
            self.writer.add_without_body(message);
            return Err(error);
        }
        self.writer.add(body, message);
        if is_first || self.writer.batch_len() >= self.settings.batch_max {
            return self.writer.sync();
        }
        if self.writer.batch_bytes() >= self.settings.batch_bytes_max {
            return self.writer.begin_sync();
        }
        self.writer.write_if_large()
    }

    /// Ends a group of messages: without compression, readers of the file see the messages from now
    /// on. If the consumer is starved, no more messages come before some are finished, so the batch
    /// is synced, unless running syncs finish some soon.
    pub(super) fn end_group(&mut self, is_starved: bool) -> Result<(), DiskError> {
        if is_starved && !self.writer.is_syncing() {
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
                self.writer.end_line();
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
