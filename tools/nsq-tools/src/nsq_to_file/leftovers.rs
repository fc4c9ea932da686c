//! [`Leftovers`]: the files of a topic that an earlier run has left in `--work-dir`.
//!
//! ```text
//!   files below --work-dir ─► with a name of this topic ─► locked by nobody ─► mended, synced ─► --output-dir
//!                                                          └─► locked: looked at again later
//! ```
//!
//! A process that writes a file holds its lock until the file has moved. So a file without a lock has no writer. A process
//! that was killed keeps its locks for a moment, until it is gone.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use program::{log_error, log_info, log_warn};

use super::compression::Compression;
use super::disk::{DiskError, OsDisk, has_name, is_gone};
use super::file_name::NamePattern;
use super::output_move::OutputMove;
use super::settings::Settings;
use super::stop::Stop;
use super::torn_end::{self, End};

/// The levels of compression for the end of a torn file.
const GZIP: Compression = Compression::Gzip(6);
const ZSTD: Compression = Compression::Zstd(3);

/// The files of a topic that an earlier run has left in `--work-dir`.
#[derive(Debug)]
pub(super) struct Leftovers {
    settings: Arc<Settings>,
    pattern: NamePattern,
    /// The beginning of the log lines.
    label: String,
    /// The order to leave the other files for the next run.
    stop: Stop,
    /// The paths below `--work-dir` of files that other processes had locked.
    locked: Vec<PathBuf>,
}

impl Leftovers {
    /// Returns the leftovers of a topic, before the first look. `stop` ends each look soon: the files that are left stay
    /// where they are.
    pub(super) fn new(settings: Arc<Settings>, topic: &str, label: &str, stop: Stop) -> Leftovers {
        Leftovers {
            pattern: settings.names.pattern(topic),
            settings,
            label: label.to_owned(),
            stop,
            locked: Vec::new(),
        }
    }

    /// Moves the files of the topic that an earlier run has left in `--work-dir` to `--output-dir`. No file is replaced, and
    /// the files of other processes stay: see [`look_again`](Leftovers::look_again).
    ///
    /// # Errors
    /// An operation on a file failed. The file is in one of the two directories.
    pub(super) fn take_up(&mut self) -> Result<(), DiskError> {
        let mut found = Vec::new();
        if self.settings.moves_files() {
            let depth = self.pattern.depth();
            collect(&self.settings, Path::new(""), depth, &mut found)?;
        }
        found.retain(|relative| self.pattern.fits(relative));
        // Earlier revisions keep their place before later ones, also if all are renamed.
        found.sort();
        for relative in found {
            if self.take(&relative)? == Found::Locked {
                log_warn!(
                    "{} another process writes {}: it stays there, and moves if that process ends without moving it",
                    self.label,
                    self.settings.work_dir.join(&relative).display()
                );
                self.locked.push(relative);
            }
        }
        Ok(())
    }

    /// Returns true if other processes had locked some of the files.
    pub(super) fn are_left(&self) -> bool {
        !self.locked.is_empty()
    }

    /// Looks again at the files that other processes had locked. A file that cannot be moved now stays for the next run.
    pub(super) fn look_again(&mut self) {
        for relative in std::mem::take(&mut self.locked) {
            match self.take(&relative) {
                Ok(Found::Free) => {}
                Ok(Found::Locked) => self.locked.push(relative),
                Err(error) => log_error!("{} {error}", self.label),
            }
        }
    }

    /// Mends and moves a file, unless another process writes it, or the tool is stopping.
    fn take(&self, relative: &Path) -> Result<Found, DiskError> {
        if self.stop.is_set() {
            return Ok(Found::Free);
        }
        let path = self.settings.work_dir.join(relative);
        match lock(&path, &self.label)? {
            Lock::Taken(file) => match self.take_locked(relative, file) {
                Err(error) if self.stop.has_ended(&error.source) => {
                    let (label, shown) = (&self.label, path.display());
                    log_info!("{label} stopping, leaving {shown} for the next run");
                    Ok(Found::Free)
                }
                taken => taken.map(|()| Found::Free),
            },
            Lock::OfAnother => Ok(Found::Locked),
            Lock::None => Ok(Found::Free),
        }
    }

    /// Mends a locked file, and moves it. A file without messages is removed. A file that somebody has moved or removed
    /// since it was locked is left alone.
    fn take_locked(&self, relative: &Path, mut file: File) -> Result<(), DiskError> {
        let (label, output_dir) = (&self.label, &self.settings.output_dir);
        let path = self.settings.work_dir.join(relative);
        let shown = path.display();
        let end = torn_end::mend(&mut file, compression(relative), &self.stop)
            .map_err(|source| DiskError::new("mend", &path, source))?;
        match end {
            End::Whole => {}
            End::Torn => log_warn!(
                "{label} the end of {shown} was cut off, mended it; its unfinished messages come again"
            ),
            End::Damaged => {
                log_warn!("{label} the end of {shown} is damaged and cannot be read, keeping it");
            }
        }
        let synced = file.sync_all().and_then(|()| file.metadata());
        let size = synced.map_err(|source| DiskError::new("sync", &path, source))?;
        if size.len() == 0 {
            log_info!("{label} removing {shown}, which an earlier run left empty");
            return match std::fs::remove_file(&path) {
                Err(source) if !is_gone(&source) => Err(DiskError::new("remove", &path, source)),
                _ => Ok(()),
            };
        }
        let moving = OutputMove {
            from: &path,
            output_dir,
            relative: relative.to_path_buf(),
            label,
            stop: &self.stop,
        };
        match moving.run(&mut OsDisk, |taken| self.pattern.next_revision(taken)) {
            Ok(to) => {
                let to = to.display();
                log_info!("{label} moved {shown}, which an earlier run left, to {to}");
                Ok(())
            }
            // A directory of the new name may be gone instead.
            Err(error) if is_gone(&error.source) && !has_name(&file, &path).unwrap_or(true) => {
                log_warn!(
                    "{label} somebody has moved {shown} away, which an earlier run left, so it does not go to {}",
                    output_dir.display()
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The state in which a file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Another process writes the file.
    Locked,
    /// All others: this run has nothing more to do.
    Free,
}

/// The result of the attempt to lock a file.
enum Lock {
    Taken(File),
    OfAnother,
    /// The file is gone, or the file system has no locks.
    None,
}

/// Adds the files below a directory of `--work-dir`, in this depth.
fn collect(
    settings: &Settings,
    relative: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
) -> Result<(), DiskError> {
    let directory = settings.work_dir.join(relative);
    let entries = match directory.read_dir() {
        Ok(entries) => entries,
        // Without its directory, there is no file. A directory that this user cannot read has no file of this user.
        Err(error) if is_gone(&error) => return Ok(()),
        Err(_) if depth == 0 || !relative.as_os_str().is_empty() => return Ok(()),
        Err(source) => return Err(DiskError::new("read", &directory, source)),
    };
    for entry in entries {
        let entry = entry.map_err(|source| DiskError::new("read", &directory, source))?;
        let (name, kind) = (relative.join(entry.file_name()), entry.file_type());
        let is_output = entry.path() == settings.output_dir;
        // A file that disappears meanwhile has been moved by another process.
        let Ok(kind) = kind else { continue };
        if kind.is_file() && depth == 0 {
            found.push(name);
        } else if kind.is_dir() && depth > 0 && !is_output {
            collect(settings, &name, depth - 1, found)?;
        }
    }
    Ok(())
}

/// Opens a file and locks it.
fn lock(path: &Path, label: &str) -> Result<Lock, DiskError> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(Lock::None),
        Err(source) => return Err(DiskError::new("open", path, source)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Lock::OfAnother),
        Err(TryLockError::Error(error)) => {
            let shown = path.display();
            log_warn!(
                "{label} cannot see whether another process writes {shown}, leaving it there: {error}"
            );
            return Ok(Lock::None);
        }
    }
    // Another process may have moved the file just before.
    let is_there =
        has_name(&file, path).map_err(|source| DiskError::new("look for", path, source))?;
    Ok(if is_there {
        Lock::Taken(file)
    } else {
        Lock::None
    })
}

/// Returns the form of a file with this name.
fn compression(path: &Path) -> Compression {
    match path.extension().and_then(|end| end.to_str()) {
        Some("gz") => GZIP,
        Some("zst") => ZSTD,
        _ => Compression::None,
    }
}

#[cfg(test)]
mod tests;
