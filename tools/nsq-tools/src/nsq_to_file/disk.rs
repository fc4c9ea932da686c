//! [`Disk`]: the operations on files that an archive needs. [`OsDisk`] is the real file system.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError, remove_file};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use new_file::{FILE_MODE, parent, rename_new, sync_directory, temporary_file};
use program::log::Level;
use program::log_repeated;
use rustix::fs::{AtFlags, CWD, FsWord, Statx, StatxFlags, fstatfs, statx};
use rustix::io::Errno;
use tokio::sync::Notify;

use crate::process::advice;

/// The mode of new directories, before the umask.
const DIRECTORY_MODE: u32 = 0o770;

/// The number of times that another process may move a file while it is being opened. Two in a row are improbable.
const LOST_MAX: u32 = 100;

/// The operations on files that an archive needs. After a power failure, the disk has everything
/// that these operations promise.
pub(super) trait Disk {
    /// An open file.
    type File;

    /// A sync that goes on beside other operations.
    type Sync;

    /// Makes a directory and those that lead to it. New directories survive a power failure.
    fn make_directories(&mut self, path: &Path) -> io::Result<()>;

    /// Returns true if there is a file of this name.
    fn exists(&mut self, path: &Path) -> io::Result<bool>;

    /// Opens a file, whose name survives a power failure. A file that is there stays as it is, and
    /// grows at its end.
    ///
    /// # Errors
    /// `AlreadyExists` if the file must be new and is not.
    fn open(&mut self, path: &Path, must_be_new: bool) -> io::Result<Opened<Self::File>>;

    /// Writes bytes at the end of a file.
    fn write(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;

    /// Waits until a file's bytes survive a power failure.
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()>;

    /// Returns the number of syncs of a file that may run at the same time. It is at least 1.
    fn syncs_max(&self, file: &Self::File) -> usize;

    /// Begins to wait until the bytes that a file has now survive a power failure. More bytes may be
    /// written meanwhile.
    fn begin_sync(&mut self, file: &mut Self::File) -> io::Result<Self::Sync>;

    /// Waits for the end of a sync.
    fn end_sync(&mut self, file: &mut Self::File, sync: Self::Sync) -> io::Result<()>;

    /// Returns true if somebody has removed an open file that had this name.
    fn is_removed(&mut self, file: &Self::File, path: &Path) -> io::Result<bool>;

    /// Returns true if a name still leads to an open file.
    fn has_name(&mut self, file: &Self::File, path: &Path) -> io::Result<bool>;

    /// Moves a file. The new name survives a power failure. `stop` ends a copy to another file system.
    ///
    /// # Errors
    /// `AlreadyExists` if the new name is taken, and `Interrupted` after a stop. The file then keeps its name.
    fn move_file(&mut self, from: &Path, to: &Path, stop: &Stop) -> io::Result<()>;

    /// Takes away the bytes of a file behind this length.
    fn cut(&mut self, file: &mut Self::File, length: u64) -> io::Result<()>;

    /// Removes the file of this name.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

/// A file that was just opened.
#[derive(Debug)]
pub(super) struct Opened<F> {
    pub(super) file: F,
    /// The bytes that it has already.
    pub(super) size: u64,
    /// True if the last of these bytes is not a line feed: a write was cut off.
    pub(super) has_torn_line: bool,
    /// True if somebody else writes the file now.
    pub(super) is_shared: bool,
}

/// The real file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct OsDisk;

impl Disk for OsDisk {
    type File = OsFile;
    type Sync = OsSync;

    fn make_directories(&mut self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let parent = parent(path);
        if parent != path {
            self.make_directories(parent)?;
        }
        match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Ok(()) => sync_directory(parent),
            // Another topic, or another process, may make the same directory.
            Err(_) if path.is_dir() => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Errno::NOTDIR.into()),
            Err(error) => Err(error),
        }
    }

    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn open(&mut self, path: &Path, must_be_new: bool) -> io::Result<Opened<OsFile>> {
        open(path, must_be_new, has_name)
    }

    fn write(&mut self, file: &mut OsFile, bytes: &[u8]) -> io::Result<()> {
        file.file.write_all(bytes)
    }

    fn sync(&mut self, file: &mut OsFile) -> io::Result<()> {
        file.file.sync_all()
    }

    fn syncs_max(&self, file: &OsFile) -> usize {
        file.syncs_max()
    }

    fn begin_sync(&mut self, file: &mut OsFile) -> io::Result<OsSync> {
        file.begin_sync(|work| thread::Builder::new().name("sync".to_owned()).spawn(work))
    }

    fn end_sync(&mut self, file: &mut OsFile, sync: OsSync) -> io::Result<()> {
        file.end_sync(sync)
    }

    fn is_removed(&mut self, file: &OsFile, path: &Path) -> io::Result<bool> {
        is_removed(&file.file, path)
    }

    fn has_name(&mut self, file: &OsFile, path: &Path) -> io::Result<bool> {
        has_name(&file.file, path)
    }

    fn move_file(&mut self, from: &Path, to: &Path, stop: &Stop) -> io::Result<()> {
        move_file(from, to, stop)
    }

    fn cut(&mut self, file: &mut OsFile, length: u64) -> io::Result<()> {
        file.file.set_len(length)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// Opens a file as [`Disk::open`] says. `has_name` finds out if the name still leads to the file.
fn open(
    path: &Path,
    must_be_new: bool,
    has_name: impl Fn(&File, &Path) -> io::Result<bool>,
) -> io::Result<Opened<OsFile>> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(FILE_MODE);
    for lost_count in 0..LOST_MAX {
        let made = options.clone().create_new(true).open(path);
        let mut file = match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !must_be_new => {
                options.clone().create(true).open(path)?
            }
            // The last try made the file, so nobody else has.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && lost_count > 0 => break,
            made => made?,
        };
        let is_shared = match file.try_lock() {
            // A file system without locks has nothing to say about other processes.
            Ok(()) | Err(TryLockError::Error(_)) => false,
            Err(TryLockError::WouldBlock) => true,
        };
        if !has_name(&file, path)? {
            // Another process has moved the file in the meantime.
            continue;
        }
        // A process that made the file may have been killed before it synced the name.
        sync_directory(parent(path))?;
        let size = file.metadata()?.len();
        let has_torn_line = size > 0 && last_byte(&mut file)? != b'\n';
        return Ok(Opened {
            file: OsFile::new(file),
            size,
            has_torn_line,
            is_shared,
        });
    }
    Err(io::Error::other(
        "as soon as the file is open, its name seems to lead to another one: this file system does not tell files apart",
    ))
}

/// Returns the last byte of a file that has one.
pub(super) fn last_byte(file: &mut File) -> io::Result<u8> {
    let mut byte = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// The failure of an operation on a file. The text says what to do.
#[derive(Debug)]
pub(super) struct DiskError {
    /// The operation: `write to`.
    pub(super) verb: &'static str,
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

impl DiskError {
    /// Returns the failure of an operation on a file.
    pub(super) fn new(verb: &'static str, path: &Path, source: io::Error) -> DiskError {
        DiskError {
            verb,
            path: path.to_path_buf(),
            source,
        }
    }
}

impl std::fmt::Display for DiskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DiskError { verb, path, source } = self;
        let why = wire::go_error::system_text(source);
        write!(f, "cannot {verb} {}: {why}", path.display())?;
        match advice(source) {
            Some(advice) => write!(
                f,
                "; {advice}, or choose another directory (--output-dir, --work-dir). Messages that were not synced are not \
                 finished, and come again"
            ),
            None => Ok(()),
        }
    }
}

/// The number of syncs of a file that may run at the same time. After a sync has written its bytes, it waits some
/// milliseconds for the disk's flush. With three syncs, another one writes during this wait.
const SYNCS_MAX: usize = 3;

/// The type of all FUSE file systems (`FUSE_SUPER_MAGIC` of the kernel).
const FUSE: FsWord = 0x6573_5546;

/// A file that is written.
#[derive(Debug)]
pub(super) struct OsFile {
    file: File,
    /// Handles for syncs that run at the same time, without those that are in use. The first sync opens them.
    handles: Vec<Arc<File>>,
    handle_count: usize,
    /// The type of the file system. `None` if the system does not tell.
    file_system: Option<FsWord>,
}

impl OsFile {
    fn new(file: File) -> OsFile {
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
    fn open_handles(&mut self) -> io::Result<()> {
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
    fn begin_sync(
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
    fn end_sync(&mut self, sync: OsSync) -> io::Result<()> {
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
    fn syncs_max(&self) -> usize {
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
pub(super) struct OsSync {
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
    pub(super) async fn ended(&self) {
        self.has_ended.notified().await;
    }
}

/// Returns the path of the link that the system has for an open file.
fn link(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The end of the path that Linux shows for a file without a name.
const DELETED: &[u8] = b" (deleted)";

/// Returns true if somebody has removed an open file that had this name.
fn is_removed(file: &File, path: &Path) -> io::Result<bool> {
    let links = file.metadata()?.nlink();
    is_nameless(links, &present_path(file), || has_name(file, path))
}

/// Decides if an open file was removed. `links` is the number of its names, `present_path` is its path now, and
/// `has_name` says if the path of its opening still leads to the file. Some file systems report 0 links for files that
/// are there, so that number alone proves nothing.
fn is_nameless(
    links: u64,
    present_path: &Path,
    has_name: impl FnOnce() -> io::Result<bool>,
) -> io::Result<bool> {
    let name = present_path.file_name().unwrap_or_default().as_bytes();
    // The kernel says so, but some FUSE file systems still report a link.
    let is_deleted = name.ends_with(DELETED);
    // An NFS client and libfuse rename a removed file that is still open, and remove it when the file is closed.
    let is_hidden = name.starts_with(b".nfs") || name.starts_with(b".fuse_hidden");
    if links == 0 || is_deleted || is_hidden {
        Ok(!has_name()?)
    } else {
        Ok(false)
    }
}

/// Returns the path that an open file has now, or an empty path if the system does not tell.
fn present_path(file: &File) -> PathBuf {
    std::fs::read_link(link(file)).unwrap_or_default()
}

/// Returns true if `path` still leads to `file`.
pub(super) fn has_name(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    let named = match std::fs::metadata(path) {
        Ok(named) => named,
        Err(error) if is_gone(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    // Another file system may lie over the directory now.
    if named.dev() != own.dev() {
        return Ok(false);
    }
    let has_its_number = named.ino() == own.ino() || is_present_path(file, path);
    Ok(has_its_number || is_renumbered(file, &present_path(file), path)?)
}

/// Returns true if a name leads to nothing: the file may be gone, or a directory that leads to it, or the directory may be
/// replaced by a file.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Returns true if the system says that `path` is where an open file is now. Some file systems (FUSE, CIFS) give a file
/// another inode number each time that it is looked up, so the number alone does not prove that a name leads elsewhere.
fn is_present_path(file: &File, path: &Path) -> bool {
    path.canonicalize()
        .is_ok_and(|path| path == present_path(file))
}

/// Returns true if the system calls an open file deleted only because the file system has given another inode number to
/// the path: see [`is_present_path`]. Then the file at the path equals the open file in all but the number.
fn is_renumbered(file: &File, present_path: &Path, path: &Path) -> io::Result<bool> {
    let present_path = present_path.as_os_str().as_bytes();
    let Some(old_path) = present_path.strip_suffix(DELETED) else {
        return Ok(false);
    };
    let is_here = path
        .canonicalize()
        .is_ok_and(|path| path.as_os_str().as_bytes() == old_path);
    if !is_here {
        return Ok(false);
    }
    // The system may remember the size that the file at the path had before the last write.
    let fresh = AtFlags::STATX_FORCE_SYNC;
    let own = statx(
        file,
        "",
        fresh | AtFlags::EMPTY_PATH,
        StatxFlags::BASIC_STATS,
    )?;
    match statx(CWD, path, fresh, StatxFlags::BASIC_STATS) {
        Ok(named) => Ok(traits(&own) == traits(&named)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns what two files hardly have in common: links, size, and the time of the last change in nanoseconds.
fn traits(file: &Statx) -> (u32, u64, i64, u32) {
    let changed = file.stx_mtime;
    (
        file.stx_nlink,
        file.stx_size,
        changed.tv_sec,
        changed.tv_nsec,
    )
}

/// The order to end long work on files, such as a copy. All clones share the order.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Gives the order.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns true after the order.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends work by an error after the order. Work calls this before each step that takes long.
    ///
    /// # Errors
    /// `Interrupted` after the order.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_set() {
            Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the tool is stopping",
            ))
        } else {
            Ok(())
        }
    }

    /// Returns true if work has ended by this error because of the order.
    pub(super) fn has_ended(&self, error: &io::Error) -> bool {
        self.is_set() && error.kind() == io::ErrorKind::Interrupted
    }
}

/// The bytes that are copied and synced at a time. A stop waits for one such piece.
const PIECE_BYTES: u64 = 64 << 20;

/// Moves a file as [`Disk::move_file`] says, also to another file system:
///
/// ```text
///   copy under a temporary name ─► sync ─► rename ─► sync of the directory ─► removal of the old file
///   └──────── a stop ends this ───────┘    └── the end of the process waits for these ──┘
/// ```
///
/// A process that is killed between the rename and the removal leaves the file at both places, and the next run archives
/// it again.
fn move_file(from: &Path, to: &Path, stop: &Stop) -> io::Result<()> {
    match rename_new(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => copy(from, to, stop)?,
        renamed => renamed?,
    }
    sync_directory(parent(to))?;
    sync_directory(parent(from))
}

/// Copies a file to another file system, under a temporary name first, and removes it.
fn copy(from: &Path, to: &Path, stop: &Stop) -> io::Result<()> {
    let (temporary, target) = temporary_file(to)?;
    let copied = copy_contents(from, target, stop).and_then(|()| rename_new(&temporary, to));
    if let Err(error) = copied {
        // The first error has the reason.
        let _ = remove_file(&temporary);
        return Err(error);
    }
    sync_directory(parent(to))?;
    match remove_file(from) {
        // Somebody has moved the file in the meantime.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if refuses_removals(&error) => {
            // Each start would leave another copy. The first error has the reason.
            let _ = remove_file(to);
            Err(error)
        }
        removed => removed,
    }
}

fn copy_contents(from: &Path, mut target: File, stop: &Stop) -> io::Result<()> {
    let mut source = File::open(from)?;
    loop {
        stop.check()?;
        let piece = &mut (&mut source).take(PIECE_BYTES);
        if io::copy(piece, &mut target)? == 0 {
            break;
        }
        // The last sync then has little to do, so it does not hold up a stop.
        target.sync_data()?;
    }
    target.sync_all()?;
    stop.check()
}

/// Returns true for an error that proves that the file is still there.
fn refuses_removals(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

#[cfg(test)]
mod tests;
