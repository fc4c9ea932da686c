//! The data path: there, writable, in nobody's use, and closed to other users; and its nsqd.dat. A start gives the advice in its
//! FATAL line, and `nsqd --check` in its findings.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use diskq::{DataPathLock, DiskError, OsFiles};
use diskq_import::{Exposed, Metadata};
use wire::go_error::system_text;

use super::Finding;

/// The end of a start that cannot lock the data path. Texts that the original has are the original's.
pub(crate) fn lock_failed(path: &Path, error: &DiskError) -> String {
    let shown = path.display();
    let cause = match error {
        DiskError::Locked(_) => format!(
            "cannot flock directory {shown} - resource temporarily unavailable \
             (possibly in use by another instance of nsqd)"
        ),
        DiskError::Missing(_) => format!(
            "open {shown}: no such file or directory - create it or choose another --data-path"
        ),
        other => format!("{other} - {}", judge(path, other).advice),
    };
    format!("failed to instantiate nsqd - failed to lock data-path: {cause}")
}

/// The lock is given back at once: only an nsqd that starts within these microseconds could find it taken.
pub(crate) fn check(path: &Path) -> Finding {
    let free = DataPathLock::acquire(path).map(drop);
    let usable = free.and_then(|()| diskq::check_writable(path));
    if let Err(error) = usable {
        return judge(path, &error);
    }
    let user = rustix::process::geteuid().as_raw();
    let owner = std::fs::metadata(path).map_or(user, |directory| directory.uid());
    judge_user(path, owner, user)
}

/// Judges a data path that `user` can use. What root can do tells nothing about the user that runs nsqd.
fn judge_user(path: &Path, owner: u32, user: u32) -> Finding {
    let shown = path.display();
    if user == 0 && owner != 0 {
        return Finding::warning(
            format!("{shown} belongs to the user {owner}, and root makes this check"),
            format!("repeat it as the user that runs nsqd (sudo -u '#{owner}')"),
        );
    }
    Finding::ok(format!(
        "{shown} is a directory that can be written to, and no other nsqd uses it"
    ))
}

/// Judges the error of a lock of the data path, or of a write to it.
fn judge(path: &Path, error: &DiskError) -> Finding {
    let shown = path.display();
    let (found, advice) = match error {
        DiskError::Missing(_) => {
            return Finding::failure(
                format!("{shown} does not exist, and nsqd does not create it"),
                format!(
                    "create it (mkdir -p {shown}) for the user that runs nsqd, or choose another --data-path"
                ),
            );
        }
        DiskError::NotADirectory(_) => (
            format!("{shown} is not a directory"),
            "choose a directory as --data-path",
        ),
        DiskError::NotPermitted(_, source)
            if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
        {
            (
                format!("{shown} is on a file system that is mounted read-only"),
                "mount it writable (mount -o remount,rw); if the kernel made it read-only, its log (dmesg) says why",
            )
        }
        DiskError::NotPermitted(_, source) => (
            format!(
                "{shown} cannot be used by this user: {}",
                system_text(source)
            ),
            "give the directory to the user that runs nsqd (chown), who must be able to read, write and enter it",
        ),
        DiskError::Locked(_) => {
            return Finding::waiting(
                format!("{shown} is in use by the nsqd that runs here: the directory is fine"),
                "",
            );
        }
        DiskError::Io { .. } | DiskError::Failed(_) => (
            format!("{shown} cannot be used: {error}"),
            "look for the cause in the kernel's log (dmesg)",
        ),
    };
    Finding::failure(found, advice)
}

/// Reads the list of topics and channels.
pub(crate) fn load_metadata(path: &Path) -> Result<Metadata, Finding> {
    Metadata::load(path)
        .map_err(|error| Finding::failure(error.to_string(), advice_on_metadata(path)))
}

/// What a start finds in the list of topics and channels.
pub(crate) fn metadata(path: &Path) -> Finding {
    match load_metadata(path) {
        Err(finding) => finding,
        Ok(metadata) => Finding::ok(match metadata.topics.len() {
            0 => "lists no topics yet".to_owned(),
            1 => "can be read, and lists 1 topic".to_owned(),
            count => format!("can be read, and lists {count} topics"),
        }),
    }
}

/// The advice about an nsqd.dat that cannot be used.
fn advice_on_metadata(data_path: &Path) -> &'static str {
    let due = diskq_import::due_takeover(&OsFiles, data_path, &[]);
    if due.is_ok_and(|due| !due.unlisted.is_empty()) {
        return "bring back an nsqd.dat that is whole, for example from a backup: of the original nsqd's files, a start takes \
                over those of the topics in nsqd.dat, and without nsqd.dat none";
    }
    "to start without it move the file aside: logs know their topics and channels, and only topics without a log are missing \
     then"
}

/// The files that other users of the machine can reach.
pub(crate) fn permissions(path: &Path) -> Finding {
    match Exposed::find(path) {
        Ok(Exposed { count, first }) => match first {
            None => Finding::ok("no other user of this machine can read messages"),
            Some((name, mode)) => {
                let others = match count {
                    1 => String::new(),
                    count => format!(" and {} more", count - 1),
                };
                let shown = path.display();
                Finding::warning(
                    format!(
                        "other users of this machine can reach files of nsqd in {shown}: {name} (mode {mode:04o}){others}"
                    ),
                    "take the permissions away (chmod -R go=), unless a group is meant to read messages",
                )
            }
        },
        Err(error) => Finding::warning(
            error.to_string(),
            "give the files to the user of nsqd (chown)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::check::State;

    #[test]
    fn every_reason_has_its_own_advice() {
        let path = Path::new("/data");
        let check = |error: DiskError, found: &str, advice: &str| {
            let finding = judge(path, &error);
            assert_eq!(finding.state, State::Failure, "{finding:?}");
            assert!(finding.found.starts_with("/data "), "{finding:?}");
            assert!(finding.found.contains(found), "{finding:?}");
            assert!(finding.advice.contains(advice), "{finding:?}");
        };
        let own = || path.to_path_buf();
        let system = |code| io::Error::from_raw_os_error(code);
        check(
            DiskError::Missing(own()),
            "does not exist",
            "mkdir -p /data",
        );
        check(
            DiskError::NotADirectory(own()),
            "not a directory",
            "choose a directory",
        );
        assert_eq!(judge(path, &DiskError::Locked(own())).state, State::Waiting);
        let read_only = DiskError::NotPermitted(own(), system(libc::EROFS));
        check(read_only, "read-only", "remount,rw");
        let closed = DiskError::NotPermitted(own(), system(libc::EACCES));
        check(closed, "permission denied", "chown");
        let broken = DiskError::Io {
            attempt: "lock",
            path: own(),
            source: system(libc::EIO),
        };
        check(broken, "nput/output error", "dmesg");
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(super::check(directory.path()).state, State::Ok);
    }

    /// The check said "ready" to root, and nsqd's own user was refused at the start.
    #[test]
    fn root_is_told_whose_the_data_path_is() {
        let path = Path::new("/data");
        for (owner, user, state) in [
            (0, 0, State::Ok),
            (998, 998, State::Ok),
            // A group may be meant to write.
            (998, 999, State::Ok),
            (998, 0, State::Warning),
        ] {
            let finding = judge_user(path, owner, user);
            assert_eq!(finding.state, state, "{owner} {user}: {finding:?}");
        }
        let finding = judge_user(path, 998, 0);
        assert!(
            finding.found.contains("belongs to the user 998"),
            "{finding:?}"
        );
        assert!(finding.advice.contains("sudo -u '#998'"), "{finding:?}");
    }

    #[test]
    fn metadata_that_cannot_be_read_is_found() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(metadata(directory.path()).state, State::Ok);
        std::fs::write(directory.path().join("nsqd.dat"), "{").unwrap();
        let finding = metadata(directory.path());
        assert_eq!(finding.state, State::Failure);
        assert!(finding.found.contains("nsqd.dat"), "{finding:?}");
        test_support::assert_like(&finding.advice, "…move the file aside…");
    }

    /// The line named the error only. `nsqd --check` had the advice.
    #[test]
    fn the_fatal_line_says_what_to_do() {
        let path = Path::new("/data");
        let line = |code| {
            let error =
                DiskError::NotPermitted(path.to_path_buf(), io::Error::from_raw_os_error(code));
            lock_failed(path, &error)
        };
        assert_eq!(
            line(libc::EACCES),
            "failed to instantiate nsqd - failed to lock data-path: /data: permission denied - give the directory to the \
             user that runs nsqd (chown), who must be able to read, write and enter it"
        );
        assert!(line(libc::EROFS).contains("remount,rw"));
    }

    /// Before a takeover, the advice was to start without nsqd.dat. Such a start has no topics at all.
    #[test]
    fn nsqd_dat_is_needed_for_a_takeover() {
        let directory = tempfile::tempdir().unwrap();
        assert!(advice_on_metadata(directory.path()).starts_with("to start without it"));
        let queue = directory.path().join("orders.diskqueue.000000.dat");
        std::fs::write(queue, "").unwrap();
        assert!(advice_on_metadata(directory.path()).starts_with("bring back an nsqd.dat"));
    }
}
