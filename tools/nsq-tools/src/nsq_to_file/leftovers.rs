//! [`take_up`]: the files that a killed run has left in `--work-dir`.
//!
//! ```text
//!   files below --work-dir ─► with a name of this topic ─► locked by nobody ─► mended, synced ─► --output-dir
//! ```
//!
//! A process that writes a file holds its lock until the file has moved. So a file without a lock has no writer.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use program::{log_info, log_warn};

use super::compression::Compression;
use super::disk::{Disk, DiskError, OsDisk, has_name, is_gone};
use super::file_name::NamePattern;
use super::settings::Settings;
use super::torn_end::{self, End};

/// The levels of compression for the end of a torn file.
const GZIP: Compression = Compression::Gzip(6);
const ZSTD: Compression = Compression::Zstd(3);

/// Moves the files of a topic that an earlier run has left in `--work-dir` to `--output-dir`. No file is replaced, and
/// the files of other processes stay. Returns the number of moved files. `label` begins the log lines.
///
/// # Errors
/// An operation on a file failed. The file is in one of the two directories.
pub(super) fn take_up(settings: &Settings, topic: &str, label: &str) -> Result<usize, DiskError> {
    if !settings.moves_files() {
        return Ok(0);
    }
    let pattern = settings.names.pattern(topic);
    let mut found = Vec::new();
    collect(settings, Path::new(""), pattern.depth(), &mut found)?;
    found.retain(|relative| pattern.fits(relative));
    // Earlier revisions keep their place before later ones, also if all are renamed.
    found.sort();
    let mut count = 0;
    for relative in found {
        let path = settings.work_dir.join(&relative);
        if let Some(file) = lock(&path, label)? {
            let is_moved = take_up_file(settings, &pattern, &relative, file, label)?;
            count += usize::from(is_moved);
        }
    }
    Ok(count)
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
        Err(source) => return Err(failure("read", &directory, source)),
    };
    for entry in entries {
        let entry = entry.map_err(|source| failure("read", &directory, source))?;
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

/// Opens a file and locks it. Returns `None` if another process writes the file, or has just moved it.
fn lock(path: &Path, label: &str) -> Result<Option<File>, DiskError> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(source) => return Err(failure("open", path, source)),
    };
    let shown = path.display();
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            log_info!("{label} another process writes {shown}, leaving it there");
            return Ok(None);
        }
        Err(TryLockError::Error(error)) => {
            log_warn!(
                "{label} cannot see whether another process writes {shown}, leaving it there: {error}"
            );
            return Ok(None);
        }
    }
    let is_there = has_name(&file, path).map_err(|source| failure("look for", path, source))?;
    Ok(is_there.then_some(file))
}

/// Mends a locked file, and moves it. Returns false if the file had no message and was removed, or if somebody has moved
/// or removed the file since it was locked.
fn take_up_file(
    settings: &Settings,
    pattern: &NamePattern,
    relative: &Path,
    mut file: File,
    label: &str,
) -> Result<bool, DiskError> {
    let path = settings.work_dir.join(relative);
    let shown = path.display();
    let end = torn_end::mend(&mut file, compression(relative))
        .map_err(|source| failure("mend", &path, source))?;
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
    let size = synced.map_err(|source| failure("sync", &path, source))?;
    if size.len() == 0 {
        log_info!("{label} removing {shown}, which an earlier run left empty");
        return match std::fs::remove_file(&path) {
            Err(source) if !is_gone(&source) => Err(failure("remove", &path, source)),
            _ => Ok(false),
        };
    }
    let mut target = relative.to_path_buf();
    loop {
        let full = settings.output_dir.join(&target);
        let parent = full.parent().unwrap_or(Path::new("."));
        let made = OsDisk.make_directories(parent);
        made.map_err(|source| failure("make the directory", parent, source))?;
        match OsDisk.move_file(&path, &full) {
            Ok(()) => {
                let full = full.display();
                log_info!("{label} moved {shown}, which an earlier run left, to {full}");
                return Ok(true);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let full = full.display();
                log_warn!("{label} destination file already exists: {full}");
                target = pattern.next_revision(&target);
            }
            // A directory of the new name may be gone instead.
            Err(error) if is_gone(&error) && !has_name(&file, &path).unwrap_or(true) => {
                log_warn!(
                    "{label} somebody has moved {shown} away, which an earlier run left, so it does not go to {}",
                    settings.output_dir.display()
                );
                return Ok(false);
            }
            Err(source) => return Err(failure("move", &path, source)),
        }
    }
}

/// Returns the form of a file with this name.
fn compression(path: &Path) -> Compression {
    match path.extension().and_then(|end| end.to_str()) {
        Some("gz") => GZIP,
        Some("zst") => ZSTD,
        _ => Compression::None,
    }
}

fn failure(verb: &'static str, path: &Path, source: io::Error) -> DiskError {
    DiskError {
        verb,
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests;
