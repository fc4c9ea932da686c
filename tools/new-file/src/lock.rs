//! [`FileLock`]: lets a file belong to one process, although the file is replaced again and again.
//!
//! ```text
//!   clicks.state        replaced by each save, so a lock on it would be lost
//!   clicks.state.lock   locked; it has the id of the process, and nobody removes it
//! ```

use std::ffi::OsString;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// The time for which a lock of another process is tried again. A process that was killed keeps its locks until all of
/// its memory was given back, and a supervisor may start the next process before.
const LOCK_TIME_MAX: Duration = Duration::from_secs(1);
/// The time between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Most bytes of a process id and the end of its line. A longer file has no id.
const ID_TEXT_MAX: u64 = 16;

/// The lock of a file. Until it is dropped, no other process can take the lock, and neither can this process.
#[derive(Debug)]
pub struct FileLock {
    /// Open for the lock's sake only.
    _file: File,
    warning: Option<String>,
}

/// The reason why a lock cannot be taken.
#[derive(Debug)]
pub enum LockError {
    /// Somebody else has the lock.
    InUse(InUse),
    /// The file beside the locked one cannot be made or locked.
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// A file that another process uses.
#[derive(Debug)]
pub struct InUse {
    /// The file.
    pub path: PathBuf,
    /// The id of that process, if it is known.
    pub process: Option<u32>,
}

impl FileLock {
    /// Takes the lock of the file `path`, which need not be there. The calling thread may wait for a second.
    ///
    /// A file system without locks cannot say what other processes do. Then this process goes on without the lock:
    /// see [`warning`](FileLock::warning).
    ///
    /// # Errors
    /// Another process has the lock, or the file beside `path` cannot be made or locked.
    pub fn take(path: &Path) -> Result<FileLock, LockError> {
        take(path, File::try_lock)
    }

    /// Returns the warning for the user if the file system has no locks.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

fn take(
    path: &Path,
    mut try_lock: impl FnMut(&File) -> Result<(), TryLockError>,
) -> Result<FileLock, LockError> {
    let lock_path = lock_path(path);
    let failed = |source| LockError::Io {
        path: lock_path.clone(),
        source,
    };
    let (mut file, denied) = match open(&lock_path) {
        Ok(opened) => opened,
        // A missing directory is missing for both files.
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            let path = path.to_owned();
            return Err(LockError::Io { path, source });
        }
        Err(error) => return Err(failed(error)),
    };
    let began = Instant::now();
    let warning = loop {
        match try_lock(&file) {
            Ok(()) => break None,
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_TIME_MAX => sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::InUse(InUse {
                    path: path.to_owned(),
                    process: owner(&mut file).filter(|id| is_running(*id)),
                }));
            }
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) if is_unsupported(&error) => {
                break Some(format!(
                    "the file system of {} has no locks ({error}), so nothing keeps a second process from this file: start \
                     only one with it, because two would overwrite each other's state",
                    path.display()
                ));
            }
            // NFS locks only a file that is open for writing.
            Err(TryLockError::Error(error)) => return Err(failed(denied.unwrap_or(error))),
        }
    };
    if denied.is_none() && warning.is_none() {
        write_id(&mut file);
    }
    Ok(FileLock {
        _file: file,
        warning,
    })
}

/// Opens the file with the lock. A file that this user cannot write, such as one that root has left, is opened for reading
/// only, which is enough for a lock. Then the reason is returned, too.
fn open(path: &Path) -> io::Result<(File, Option<io::Error>)> {
    let mut options = OpenOptions::new();
    // A pipe of this name must not hold up the start until it has a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    options.read(true).custom_flags(flags);
    let mut writing = options.clone();
    writing.write(true).create(true).truncate(false);
    let opened = match writing.open(path) {
        Err(denied) if denied.kind() == io::ErrorKind::PermissionDenied => {
            match options.open(path) {
                Ok(file) => (file, Some(denied)),
                Err(_) => return Err(denied),
            }
        }
        opened => (opened?, None),
    };
    if opened.0.metadata()?.is_file() {
        Ok(opened)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// Returns true if no file of this file system can be locked.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        // The last one is that of NFS without its lock service.
        Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK)
    )
}

/// Writes the id of this process to a file. Somebody else's file of this name keeps its content.
fn write_id(file: &mut File) {
    let is_own = file.metadata().is_ok_and(|file| file.len() == 0) || owner(file).is_some();
    if is_own {
        // The id only serves the sentence of the next process. A full disk that does not take it is no reason to end.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
    }
}

/// Returns the path of the file with the lock: `clicks.state.lock` for `clicks.state`.
fn lock_path(path: &Path) -> PathBuf {
    let mut lock = OsString::from(path);
    lock.push(".lock");
    lock.into()
}

/// Returns the process that has written its id to a file.
fn owner(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(ID_TEXT_MAX).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok()
}

/// Returns true if there is a process with this id. A process that could not write to the file has left the id of an earlier
/// one there.
fn is_running(id: u32) -> bool {
    Path::new("/proc").join(id.to_string()).exists()
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::InUse(in_use) => in_use.fmt(f),
            LockError::Io { path, source } => write!(f, "cannot lock {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for LockError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LockError::InUse(_) => None,
            LockError::Io { source, .. } => Some(source),
        }
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is used by ", self.path.display())?;
        match self.process {
            Some(id) => write!(f, "process {id}")?,
            None => f.write_str("another process")?,
        }
        f.write_str(
            ", and two processes would overwrite each other's state; if that process is being stopped, start again when it \
             has ended, and otherwise choose another file for one of the two",
        )
    }
}

#[cfg(test)]
mod tests;
