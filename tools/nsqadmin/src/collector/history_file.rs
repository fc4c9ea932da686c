//! [`HistoryFile`]: the file in which the past is saved. [`Saves`]: its saves beside the collection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use new_file::FileLock;
use parking_lot::Mutex;
use program::{log_error, log_info, log_warn};
use tokio::task::{JoinHandle, spawn_blocking};
use wire::go_error::system_text;

use crate::history::{History, write_pieces};

/// Time between two saves.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Longest time for the save at the end. A process that gets SIGTERM is often killed after 30 s.
const LAST_SAVE_MAX: Duration = Duration::from_secs(10);

/// The file of `--history-file`. Until it is dropped, no other process can use the file.
#[derive(Debug)]
pub(super) struct HistoryFile {
    /// The path without symbolic links.
    path: PathBuf,
    pub(super) history: Arc<Mutex<History>>,
    /// Taken for the sake of other processes only.
    _lock: FileLock,
    /// Held during a save, so there is one at a time.
    saving: Mutex<()>,
}

impl HistoryFile {
    /// Reads the history, which is empty without a file. A damaged file is moved aside. If `given` is a symbolic link, the file
    /// is its target. The calling thread may wait for a second, until a process that ends gives the file up.
    ///
    /// # Errors
    /// Another process uses the file, the file cannot be locked or read, its directory is missing, or it cannot be moved
    /// aside, for the FATAL line. The file stays as it is.
    pub(super) fn read(given: &Path, bytes_max: usize) -> Result<HistoryFile, String> {
        let failed = |why| {
            let shown = given.display();
            format!("failed to read --history-file ({shown}) - {why}")
        };
        let path = resolve(given).map_err(|error| failed(system_text(&error)))?;
        check_kind(&path).map_err(failed)?;
        let lock = FileLock::take(&path).map_err(|error| format!("--history-file: {error}"))?;
        if let Some(warning) = lock.warning() {
            log_warn!("--history-file: {warning}");
        }
        let history = match std::fs::read(&path) {
            Ok(bytes) => parse(&path, &bytes, bytes_max)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => History::new(bytes_max),
            Err(error) => return Err(failed(system_text(&error))),
        };
        Ok(HistoryFile {
            path,
            history: Arc::new(Mutex::new(history)),
            _lock: lock,
            saving: Mutex::default(),
        })
    }

    /// Saves the history. Blocks until the file is on disk.
    pub(super) fn save(&self) {
        let _saving = self.saving.lock();
        // Samples need not wait until all pieces are written.
        let written = new_file::replace(&self.path, |file| {
            write_pieces(file, |last| self.history.lock().piece(last))
        });
        if let Err(error) = written {
            let (shown, why) = (self.path.display(), system_text(&error));
            log_error!("failed to save the history in {shown} - {why}");
        }
    }

    /// Saves the history, and gives up after some seconds: a disk that hangs must not keep the process alive.
    pub(super) fn save_at_end(self: &Arc<Self>) {
        let file = self.clone();
        match ends_within(LAST_SAVE_MAX, move || file.save()) {
            Ok(true) => {}
            Ok(false) => {
                let (shown, limit) = (self.path.display(), LAST_SAVE_MAX.as_secs());
                log_error!(
                    "the save of the history in {shown} takes more than {limit} s and is given up"
                );
            }
            Err(error) => log_error!("cannot start a thread to save the history: {error}"),
        }
    }
}

/// Finds out if a start can use the file. No file is changed, and no lock is taken.
///
/// # Errors
/// The reason.
pub(crate) fn check_history_file(given: &str) -> Result<(), String> {
    let failed = |why| format!("--history-file ({given}) cannot be used: {why}");
    let path = resolve(given.as_ref()).map_err(|error| failed(system_text(&error)))?;
    check_kind(&path).map_err(failed)?;
    let checked = new_file::check_replaceable(&path);
    checked.map_err(|error| failed(system_text(&error)))
}

/// Returns the path without symbolic links, also if there is no file yet. By the name of a link, the lock would be that of
/// another file, and a save would replace the link.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    match std::fs::read_link(path) {
        // The target is relative to the directory of the link. A circle of links is another error of `canonicalize`.
        Ok(target) => resolve(&path.with_file_name("").join(target)),
        Err(_) => Ok(path.to_owned()),
    }
}

/// Checks that the path is that of a file, or that one can be made there.
fn check_kind(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(()),
        Ok(_) => Err("this is no regular file".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            // Without its directory, the file could never be written.
            match parent.filter(|parent| !parent.is_dir()).map(Path::display) {
                None => Ok(()),
                Some(missing) => Err(format!(
                    "the directory {missing} is missing: make it, or choose another path"
                )),
            }
        }
        Err(error) => Err(system_text(&error)),
    }
}

/// Returns the history of these bytes. If they are damaged, the file is moved aside, and the history is empty.
fn parse(path: &Path, bytes: &[u8], bytes_max: usize) -> Result<History, String> {
    let shown = path.display();
    let why = match History::from_bytes(bytes, bytes_max) {
        Ok(history) => {
            log_info!("history: {} series from {shown}", history.len());
            return Ok(history);
        }
        Err(why) => why,
    };
    let aside = move_aside(path).map_err(|error| {
        let refused = system_text(&error);
        format!("--history-file ({shown}) is damaged ({why}) and cannot be renamed - {refused}")
    })?;
    let aside = aside.display();
    log_error!("history: {shown} cannot be read and is moved to {aside}: {why}");
    Ok(History::new(bytes_max))
}

/// Renames a file to `<file>.bad`, or to `<file>.bad-1` and so on if that name is taken. Returns the new name.
fn move_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 0.. {
        let mut target = path.as_os_str().to_owned();
        target.push(".bad");
        if number > 0 {
            target.push(format!("-{number}"));
        }
        let target = PathBuf::from(target);
        match new_file::rename_new(path, &target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            renamed => return renamed.map(|()| target),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Runs `work` on a thread. Returns true if it ends within the limit. Otherwise, it goes on.
fn ends_within(limit: Duration, work: impl FnOnce() + Send + 'static) -> io::Result<bool> {
    let (sender, end) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        work();
        // Nobody waits any more if the time is over.
        let _ = sender.send(());
    })?;
    Ok(end.recv_timeout(limit).is_ok())
}

/// Starts saves, one at a time, and waits for none of them.
pub(super) struct Saves {
    save: Arc<dyn Fn() + Send + Sync>,
    /// The time at which the last save was due.
    last: Option<Instant>,
    running: Option<JoinHandle<()>>,
}

impl Saves {
    /// `save` does one save, and logs its failures.
    pub(super) fn new(save: impl Fn() + Send + Sync + 'static) -> Saves {
        Saves {
            save: Arc::new(save),
            last: None,
            running: None,
        }
    }

    /// Starts a save if the last one was due a minute ago. The first one is due at once, so that a file that cannot be
    /// written is known soon after the start. A save that has not ended delays the next one by a minute.
    pub(super) fn start_if_due(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now < last + SAVE_INTERVAL) {
            return;
        }
        self.last = Some(now);
        let running = self.running.as_ref();
        if running.is_some_and(|save| !save.is_finished()) {
            log_warn!(
                "history: the last save has not ended yet, so no new one begins for a minute"
            );
            return;
        }
        let save = self.save.clone();
        self.running = Some(spawn_blocking(move || save()));
    }
}

#[cfg(test)]
mod tests;
