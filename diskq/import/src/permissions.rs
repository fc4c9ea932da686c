//! [`Exposed`]: files of nsqd that other users of the machine can reach, because of their permissions.
//!
//! Every file that ringq makes below a data path has mode 0600, and every directory 0700. Earlier versions gave them
//! what the umask allows, and a restored backup may have other modes.
//!
//! Only what has a name of ours or of the original's is looked at. The data path itself belongs to the operator, who may
//! have other files in it. A directory that other users cannot enter shields all files in it, so most starts look at one
//! directory per topic and at no segment.
//!
//! What belongs to a user who is neither that of this process nor the owner of the data path is no file of nsqd. Root could
//! change it, and its owner could put a link to any file of the system in its place meanwhile.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use diskq::{Attempt, DiskError, LOG_SUFFIX, deleted_topic};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use rustix::process::geteuid;

use crate::import::{DONE, NEW, ORIGINAL_PREFIX};
use crate::metadata::FILE_NAME;
use crate::nsqd_files::{is_temporary, parse_name};

/// The permissions of all users but the owner.
const OTHERS: u32 = 0o077;

/// The files and directories of nsqd that other users can reach.
#[derive(Debug, Default)]
pub struct Exposed {
    /// Their number.
    pub count: u64,
    /// The name of the first one in the data path, and its mode.
    pub first: Option<(String, u32)>,
}

impl Exposed {
    /// Looks through the data path, and changes nothing. A directory counts once, without its
    /// content. Blocks.
    ///
    /// # Errors
    /// The data path cannot be read.
    pub fn find(data_path: &Path) -> Result<Exposed, DiskError> {
        let mut exposed = Exposed::default();
        for entry in list(data_path)? {
            exposed.add(&entry, 1);
        }
        Ok(exposed)
    }

    /// Takes all permissions of other users away. What fails stays as it is, and the rest is done. The first failure is
    /// returned with what has been done. Blocks. The caller must hold the lock of the data path.
    pub fn close(data_path: &Path) -> (Exposed, Result<(), DiskError>) {
        let mut exposed = Exposed::default();
        let mut result = Ok(());
        let entries = list(data_path).unwrap_or_else(|error| {
            result = Err(error);
            Vec::new()
        });
        for entry in entries {
            let (count, closed) = close(&entry);
            exposed.add(&entry, count);
            result = result.and(closed);
        }
        (exposed, result)
    }

    fn add(&mut self, entry: &Entry, count: u64) {
        self.count += count;
        if count > 0 && self.first.is_none() {
            let name = entry.entry.file_name().to_string_lossy().into_owned();
            self.first = Some((name, entry.mode));
        }
    }
}

/// A file or directory that other users can reach.
struct Entry {
    entry: DirEntry,
    is_dir: bool,
    mode: u32,
    /// The users to whom nsqd's files may belong.
    owners: [u32; 2],
}

/// Returns what other users can reach of nsqd's files in the data path, sorted by name.
fn list(data_path: &Path) -> Result<Vec<Entry>, DiskError> {
    let metadata = fs::metadata(data_path).in_attempt("look at", data_path)?;
    if metadata.permissions().mode() & OTHERS == 0 {
        return Ok(Vec::new());
    }
    let mut entries = exposed_in(data_path, [geteuid().as_raw(), metadata.uid()])?;
    entries.retain(|entry| {
        let name = entry.entry.file_name();
        name.to_str().is_some_and(|name| {
            if entry.is_dir {
                is_directory_of_ours(name)
            } else {
                is_file_of_nsqd(name)
            }
        })
    });
    entries.sort_by_key(|entry| entry.entry.file_name());
    Ok(entries)
}

fn is_directory_of_ours(name: &str) -> bool {
    name.ends_with(LOG_SUFFIX)
        || deleted_topic(name).is_some()
        || name == NEW
        || name == DONE
        || name.starts_with(ORIGINAL_PREFIX)
}

fn is_file_of_nsqd(name: &str) -> bool {
    name == FILE_NAME || is_temporary(name, FILE_NAME) || parse_name(name).is_some()
}

/// Returns the files and directories in a directory that belong to one of these users and that other users can reach. Leaves out
/// links: they lead to files that are not nsqd's.
fn exposed_in(directory: &Path, owners: [u32; 2]) -> Result<Vec<Entry>, DiskError> {
    let mut exposed = Vec::new();
    for entry in fs::read_dir(directory).in_attempt("list", directory)? {
        let entry = entry.in_attempt("list", directory)?;
        let metadata = entry.metadata().in_attempt("look at", &entry.path())?;
        let mode = metadata.permissions().mode();
        let is_ours = owners.contains(&metadata.uid());
        if is_ours && (metadata.is_dir() || metadata.is_file()) && mode & OTHERS != 0 {
            exposed.push(Entry {
                entry,
                is_dir: metadata.is_dir(),
                mode: mode & 0o7777,
                owners,
            });
        }
    }
    Ok(exposed)
}

/// Closes a file, or a directory with its content. Returns how many files and directories were closed, and the first
/// failure. The directory is closed last: until then, the next start goes through it again.
fn close(entry: &Entry) -> (u64, Result<(), DiskError>) {
    let path = entry.entry.path();
    close_at(CWD, &path, &path, entry.owners)
}

/// Closes the file or directory that has this name in `directory`. All names are resolved in open directories, so nobody can
/// lead this elsewhere by a link in the place of a directory.
fn close_at(
    directory: BorrowedFd<'_>,
    name: &Path,
    path: &Path,
    owners: [u32; 2],
) -> (u64, Result<(), DiskError>) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(directory, name, flags, Mode::empty()).map_err(io::Error::from);
    let opened = opened.and_then(|file| {
        let file = File::from(file);
        let metadata = file.metadata()?;
        Ok((file, metadata))
    });
    let (file, metadata) = match opened.in_attempt("open", path) {
        Ok(opened) => opened,
        Err(error) => return (0, Err(error)),
    };
    let mode = metadata.permissions().mode();
    let is_known = metadata.is_dir() || metadata.is_file();
    if !is_known || !owners.contains(&metadata.uid()) || mode & OTHERS == 0 {
        return (0, Ok(()));
    }
    let (count, result) = if metadata.is_dir() {
        close_content(&file, path, owners)
    } else {
        (0, Ok(()))
    };
    match take_away(&file, mode & 0o7777).in_attempt("chmod", path) {
        Ok(()) => (count + 1, result),
        Err(error) => (count, result.and(Err(error))),
    }
}

/// Closes what a directory has.
fn close_content(directory: &File, path: &Path, owners: [u32; 2]) -> (u64, Result<(), DiskError>) {
    let (mut count, mut result) = (0, Ok(()));
    let entries = match Dir::read_from(directory).map_err(io::Error::from) {
        Ok(entries) => entries,
        Err(error) => return (0, Err(error).in_attempt("list", path)),
    };
    for entry in entries {
        let entry = match entry.map_err(io::Error::from).in_attempt("list", path) {
            Ok(entry) => entry,
            Err(error) => return (count, result.and(Err(error))),
        };
        let name = Path::new(OsStr::from_bytes(entry.file_name().to_bytes()));
        let is_content = matches!(
            entry.file_type(),
            FileType::Directory | FileType::RegularFile | FileType::Unknown
        );
        if is_content && !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            let (closed_count, closed) =
                close_at(directory.as_fd(), name, &path.join(name), owners);
            count += closed_count;
            result = result.and(closed);
        }
    }
    (count, result)
}

/// Takes the permissions of other users away.
fn take_away(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode & !OTHERS))?;
    match file.metadata()?.permissions().mode() & OTHERS {
        0 => Ok(()),
        // Some file systems have no permissions of their own, and ignore the call.
        _ => Err(io::Error::other(
            "the file system keeps the permissions as they are",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use test_support::skip::kernel_lacks;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn put(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "text").unwrap();
        chmod(path, mode);
    }

    /// Another user read the bodies of messages out of a segment.
    #[test]
    fn a_start_closes_nsqds_files_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let closed = [
            ("nsqd.dat", 0o644),
            ("orders.diskqueue.000000.dat", 0o640),
            ("orders.log/000000000001.segment", 0o644),
            ("orders.log/checkpoint", 0o600),
            ("gone.log.deleted-3/000000000001.segment", 0o604),
            ("import.done/orders.log/000000000002.segment", 0o666),
            ("nsqd-original-2026-01-31-115959/nsqd.dat", 0o644),
        ];
        let others = ["nsqd.log", "backup/orders.log", "nsqd.toml"];
        for (name, mode) in closed {
            put(&at(name), mode);
        }
        for name in others {
            put(&at(name), 0o644);
        }
        let directories = [
            "orders.log",
            "gone.log.deleted-3",
            "import.done",
            "import.done/orders.log",
            "nsqd-original-2026-01-31-115959",
        ];
        for name in directories {
            chmod(&at(name), 0o755);
        }
        chmod(&at("orders.log"), 0o2755);
        symlink(at("nsqd.log"), at("orders.diskqueue.000001.dat")).unwrap();
        symlink(at("backup"), at("linked.log")).unwrap();

        // Nobody else can enter the data path.
        chmod(directory.path(), 0o700);
        let count = |exposed: Exposed| (exposed.count, exposed.first);
        assert_eq!(count(Exposed::find(directory.path()).unwrap()), (0, None));
        chmod(directory.path(), 0o750);
        let first = Some(("gone.log.deleted-3".to_owned(), 0o755));
        let found = Exposed::find(directory.path()).unwrap();
        assert_eq!(count(found), (6, first.clone()));
        let (exposed, result) = Exposed::close(directory.path());
        result.unwrap();
        let expected = closed.len() - 1 + directories.len();
        assert_eq!(count(exposed), (expected as u64, first));

        for (name, _) in closed {
            assert_eq!(mode(&at(name)), 0o600, "{name}");
        }
        for name in &directories[1..] {
            assert_eq!(mode(&at(name)), 0o700, "{name}");
        }
        assert_eq!(
            mode(&at("orders.log")),
            0o2700,
            "the group of new files stays"
        );
        for name in others {
            assert_eq!(mode(&at(name)), 0o644, "{name}");
        }
        assert_eq!(
            mode(directory.path()),
            0o750,
            "the operator's own directory"
        );
        assert_eq!(count(Exposed::find(directory.path()).unwrap()), (0, None));
        let (again, result) = Exposed::close(directory.path());
        result.unwrap();
        assert_eq!(count(again), (0, None));
    }

    /// Root closed the files of another user, who could put a link in the place of a directory meanwhile.
    #[test]
    fn a_start_by_root_leaves_the_files_of_other_users_alone() {
        let directory = tempfile::tempdir().unwrap();
        chmod(directory.path(), 0o755);
        let file = directory.path().join("strange.log/file");
        put(&file, 0o644);
        chmod(file.parent().unwrap(), 0o755);
        for path in [file.as_path(), file.parent().unwrap()] {
            if let Err(error) = chown(path, Some(12_345), None) {
                kernel_lacks(&format!("files of other users need root: {error}"));
                return;
            }
        }
        let (exposed, result) = Exposed::close(directory.path());
        result.unwrap();
        assert_eq!(exposed.count, 0);
        assert_eq!(mode(&file), 0o644);
        // The data path is the other user's.
        chown(directory.path(), Some(12_345), None).unwrap();
        let (exposed, result) = Exposed::close(directory.path());
        result.unwrap();
        assert_eq!(exposed.count, 2);
    }

    /// A link came into the place of a directory after the look at it, and files of the system lost their permissions.
    #[test]
    fn a_link_in_the_place_of_a_directory_leads_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        chmod(directory.path(), 0o755);
        let at = |name: &str| directory.path().join(name);
        put(&at("orders.log/000000000001.segment"), 0o644);
        put(&at("outside/file"), 0o644);
        chmod(&at("orders.log"), 0o755);
        let entries = list(directory.path()).unwrap();
        assert_eq!(entries.len(), 1);
        fs::rename(at("orders.log"), at("moved")).unwrap();
        symlink(at("outside"), at("orders.log")).unwrap();
        let (count, result) = close(&entries[0]);
        assert_eq!(count, 0);
        result.unwrap_err();
        assert_eq!(mode(&at("outside/file")), 0o644);
    }

    #[test]
    fn a_failure_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let (exposed, result) = Exposed::close(&missing);
        assert_eq!(exposed.count, 0);
        let text = result.unwrap_err().to_string();
        assert!(text.contains("no such file or directory"), "{text}");
        Exposed::find(&missing).unwrap_err();
    }
}
