//! [`OsFile`]: a file of the real file system, whose syncs go on beside the next writes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use program::log::Level;
use program::log_repeated;
use rustix::fs::{FsWord, fstatfs};
use tokio::sync::Notify;

/// The number of syncs of a file that may run at the same time. After a sync has written its bytes, it waits some
/// milliseconds for the disk's flush. With three syncs, another one writes during this wait.
pub(super) const SYNCS_MAX: usize = 3;

/// The type of all FUSE file systems (`FUSE_SUPER_MAGIC` of the kernel).
pub(super) const FUSE: FsWord = 0x6573_5546;

/// A file that is written.
#[derive(Debug)]
pub(crate) struct OsFile {
    pub(super) file: File,
    /// Handles for syncs that run at the same time, without those that are in use. The first sync opens them.
    pub(super) handles: Vec<Arc<File>>,
    handle_count: usize,
    /// The type of the file system. `None` if the system does not tell.
    pub(super) file_system: Option<FsWord>,
}

impl OsFile {
    pub(super) fn new(file: File) -> OsFile {
        OsFile {
            file_system: fstatfs(&file).ok().map(|found| found.f_type),
            file,
            handles: Vec::new(),
            handle_count: 0,
        }
    }

    /// Opens the handles. The system reports a failed write once for each time that a file was opened. So each sync has
    /// its own handle, and no sync takes the failure of another one away. The first handle is a copy of the one that
    /// writes: it also reports what failed before the other handles were opened.
    ///
    /// The handles are open for writing, because SMB refuses to sync others (before Linux 5.16).
    pub(super) fn open_handles(&mut self) -> io::Result<()> {
        self.handles.push(Arc::new(self.file.try_clone()?));
        let count = self.file_system.map_or(1, syncs_max);
        let mut options = OpenOptions::new();
        options.append(true);
        // Without /proc, or if too many files are open, fewer syncs run at the same time.
        let others = (1..count).map_while(|_| options.open(link(&self.file)).ok());
        self.handles.extend(others.map(Arc::new));
        self.handles.reverse();
        self.handle_count = self.handles.len();
        Ok(())
    }

    /// Begins a sync. `start` starts the thread. Without a thread or a handle, the sync is made here, and the next write
    /// waits for it.
    pub(super) fn begin_sync(
        &mut self,
        start: impl FnOnce(SyncWork) -> io::Result<JoinHandle<io::Result<()>>>,
    ) -> io::Result<OsSync> {
        if self.handle_count == 0
            && let Err(error) = self.open_handles()
        {
            warn_of_sync_here(&error);
            // No other sync is running, so the handle that writes is free.
            return Ok(OsSync::ended_here(None, self.file.sync_all()));
        }
        let handle = self.handles.pop().ok_or(io::ErrorKind::ResourceBusy)?;
        let has_ended = Arc::new(Notify::new());
        let started = start(Box::new({
            let (handle, has_ended) = (Arc::clone(&handle), Arc::clone(&has_ended));
            move || {
                let synced = handle.sync_all();
                has_ended.notify_one();
                synced
            }
        }));
        match started {
            Ok(thread) => Ok(OsSync {
                handle: Some(handle),
                work: Work::Beside(thread),
                has_ended,
            }),
            Err(error) => {
                warn_of_sync_here(&error);
                // Another sync may use the handle that writes.
                let synced = handle.sync_all();
                Ok(OsSync::ended_here(Some(handle), synced))
            }
        }
    }

    /// Waits for the end of a sync.
    pub(super) fn end_sync(&mut self, sync: OsSync) -> io::Result<()> {
        let synced = match sync.work {
            Work::Beside(thread) => {
                let panicked = |_| io::Error::other("the thread of the sync has panicked");
                thread.join().map_err(panicked)?
            }
            Work::Ended(synced) => synced,
        };
        self.handles.extend(sync.handle);
        synced
    }

    /// Returns the number of syncs that may run at the same time. Before the first sync, it is 1.
    pub(super) fn syncs_max(&self) -> usize {
        self.handle_count.max(1)
    }
}

/// Logs that a sync cannot go on beside the next writes.
fn warn_of_sync_here(why: &io::Error) {
    let why = wire::go_error::system_text(why);
    let cause = format!(
        "a sync holds up the next messages, because it gets no thread or file handle: {why}"
    );
    log_repeated!(Level::Warn, cause.clone(), "{cause}");
}

/// Returns the number of syncs of a file that may run at the same time on a file system of this type.
///
/// In FUSE, a sync may cover only what was written through its own handle, and failed writes may be reported there only:
/// JuiceFS ignores a sync through a handle that was opened for reading, and sshfs keeps the failures of each handle. So
/// all syncs go through the handle that writes, one after the other.
fn syncs_max(file_system: FsWord) -> usize {
    match file_system {
        FUSE => 1,
        _ => SYNCS_MAX,
    }
}

/// A sync that is to be made on another thread.
type SyncWork = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A sync, usually on a thread of its own. A thread costs far less than the syncs that have one: those of many bytes.
#[derive(Debug)]
pub(crate) struct OsSync {
    /// The handle of the sync, which the next sync can use. `None` stands for the handle that writes.
    handle: Option<Arc<File>>,
    work: Work,
    has_ended: Arc<Notify>,
}

#[derive(Debug)]
enum Work {
    Beside(JoinHandle<io::Result<()>>),
    Ended(io::Result<()>),
}

impl OsSync {
    fn ended_here(handle: Option<Arc<File>>, synced: io::Result<()>) -> OsSync {
        let has_ended = Notify::new();
        has_ended.notify_one();
        OsSync {
            handle,
            work: Work::Ended(synced),
            has_ended: Arc::new(has_ended),
        }
    }

    /// Waits for the end of the sync. The future may be dropped, and the next one still sees the end.
    pub(crate) async fn ended(&self) {
        self.has_ended.notified().await;
    }
}

/// Returns the path of the link that the system has for an open file.
pub(super) fn link(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
