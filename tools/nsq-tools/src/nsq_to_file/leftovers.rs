//! [`Leftovers`]: the files of a topic that an earlier run has left in `--work-dir`.
//!
//! ```text
//!   files below --work-dir ─► with a name of this topic ─► locked by nobody ─► mended, synced ─► --output-dir
//!                                                          └─► locked: looked at again later
//! ```
//!
//! A process that writes a file holds its lock until the file has moved. So a file without a lock has no writer. A process
//! that was killed keeps its locks for a moment, until it is gone.
//!
//! ```text
//!   member  member  mem          the writer was killed in the last member
//!   member  member  member       what could be read of the last member, as a whole one
//! ```
//!
//! Messages are finished only behind the end of a member, so a torn member has no finished message. Its messages come
//! again. Without the mending, `zcat` and `zstdcat` would end with an error at the end of the file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::bufread::GzDecoder;
use program::{log_error, log_info, log_warn};
use zstd::stream::read::Decoder as ZstdDecoder;

use super::compression::{Compression, Encoder};
use super::config::Settings;
use super::disk::{DiskError, OsDisk, Stop, has_name, is_gone, last_byte};
use super::file_name::NamePattern;
use super::output_move::OutputMove;

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
            let depth = self.pattern.depth;
            collect(&self.settings, Path::new(""), depth, &mut found)?;
        }
        found.retain(|relative| self.pattern.fits(relative));
        // Earlier revisions keep their place before later ones, also if all are renamed.
        found.sort();
        for relative in found {
            if self.is_locked_or_take(&relative)? {
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
            match self.is_locked_or_take(&relative) {
                Ok(false) => {}
                Ok(true) => self.locked.push(relative),
                Err(error) => log_error!("{} {error}", self.label),
            }
        }
    }

    /// Mends and moves a file, unless the tool is stopping. Returns true if another process writes the file. Otherwise,
    /// this run has nothing more to do.
    fn is_locked_or_take(&self, relative: &Path) -> Result<bool, DiskError> {
        if self.stop.is_set() {
            return Ok(false);
        }
        let path = self.settings.work_dir.join(relative);
        match lock(&path, &self.label)? {
            Lock::Taken(file) => match self.take_locked(relative, file) {
                Err(error) if self.stop.has_ended(&error.source) => {
                    let (label, shown) = (&self.label, path.display());
                    log_info!("{label} stopping, leaving {shown} for the next run");
                    Ok(false)
                }
                taken => taken.map(|()| false),
            },
            Lock::OfAnother => Ok(true),
            Lock::None => Ok(false),
        }
    }

    /// Mends a locked file, and moves it. A file without messages is removed. A file that somebody has moved or removed
    /// since it was locked is left alone.
    fn take_locked(&self, relative: &Path, mut file: File) -> Result<(), DiskError> {
        let (label, output_dir) = (&self.label, &self.settings.output_dir);
        let path = self.settings.work_dir.join(relative);
        let shown = path.display();
        let end = mend(&mut file, compression(relative), &self.stop)
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

/// The bytes that are decoded at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// The state in which the end of a file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The file was whole.
    Whole,
    /// The file was cut off, and has been mended.
    Torn,
    /// The file has bytes behind its last readable member that no killed writer leaves. The file stays as it was.
    Damaged,
}

/// Mends the end of a file: completes its last line, gzip member or zstd frame. The file may be empty afterwards. A
/// compressed file is read from its begin, which takes long if it is large. `stop` ends this.
fn mend(file: &mut File, compression: Compression, stop: &Stop) -> io::Result<End> {
    match compression {
        Compression::None => mend_line(file),
        compression => mend_member(file, compression, stop),
    }
}

/// Ends the last line.
fn mend_line(file: &mut File) -> io::Result<End> {
    if file.seek(SeekFrom::End(0))? == 0 || last_byte(file)? == b'\n' {
        return Ok(End::Whole);
    }
    file.write_all(b"\n")?;
    Ok(End::Torn)
}

fn mend_member(file: &mut File, compression: Compression, stop: &Stop) -> io::Result<End> {
    file.rewind()?;
    let mut reader = BufReader::new(&*file);
    let start = loop {
        let start = reader.stream_position()?;
        let first = reader.fill_buf()?;
        if first.is_empty() {
            return Ok(End::Whole);
        }
        // Without this check, a short file of another form would count as a member without its end.
        let magic = magic(compression);
        if !first
            .iter()
            .zip(magic)
            .all(|(found, expected)| found == expected)
        {
            return Ok(End::Damaged);
        }
        match decode(&mut reader, compression, |_| stop.check()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break start,
            Err(error) if is_damage(&error) => return Ok(End::Damaged),
            Err(error) => return Err(error),
        }
    };
    file.seek(SeekFrom::Start(start))?;
    let mut encoder = Encoder::new(compression)?;
    let (mut encoded, mut last) = (Vec::new(), b'\n');
    let torn = decode(&mut BufReader::new(&*file), compression, |piece| {
        last = piece.last().copied().unwrap_or(last);
        encoder.encode(piece, &mut encoded)
    });
    if let Err(error) = torn
        && error.kind() != io::ErrorKind::UnexpectedEof
    {
        return Err(error);
    }
    if last != b'\n' {
        encoder.encode(b"\n", &mut encoded)?;
    }
    encoder.end(&mut encoded)?;
    file.set_len(start)?;
    file.seek(SeekFrom::Start(start))?;
    file.write_all(&encoded)?;
    Ok(End::Torn)
}

/// Returns the first bytes of each member or frame.
fn magic(compression: Compression) -> &'static [u8] {
    match compression {
        Compression::Zstd(_) => b"\x28\xb5\x2f\xfd",
        Compression::Gzip(_) | Compression::None => b"\x1f\x8b\x08",
    }
}

/// Decodes one member or frame, and gives its bytes to `out`.
///
/// # Errors
/// `UnexpectedEof` if the input ends too early.
fn decode(
    reader: &mut impl BufRead,
    compression: Compression,
    mut out: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut decoder: Box<dyn Read + '_> = match compression {
        Compression::Zstd(_) => Box::new(ZstdDecoder::with_buffer(reader)?.single_frame()),
        Compression::Gzip(_) | Compression::None => Box::new(GzDecoder::new(reader)),
    };
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match decoder.read(&mut piece)? {
            0 => return Ok(()),
            count => out(&piece[..count])?,
        }
    }
}

/// Returns true for an error of a decoder, and false for one of the disk.
fn is_damage(error: &io::Error) -> bool {
    // zstd's errors have the kind `Other`, and no error of the system has it.
    let kinds = [
        io::ErrorKind::InvalidData,
        io::ErrorKind::InvalidInput,
        io::ErrorKind::Other,
    ];
    error.raw_os_error().is_none() && kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests;
