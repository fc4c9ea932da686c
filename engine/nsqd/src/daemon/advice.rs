//! Advice for the operator whose data path or nsqd.dat cannot be used. A start gives it in its FATAL line, and `nsqd --check` in
//! its findings.

use std::io;
use std::path::Path;

use diskq::{DiskError, OsFiles};
use diskq_import::Exposed;

use super::StartError;

/// The end of a start that cannot lock the data path. Texts that the original has are the original's.
pub(super) fn lock_failed(path: &Path, error: &DiskError) -> StartError {
    let shown = path.display();
    let cause = match error {
        DiskError::Locked(_) => format!(
            "cannot flock directory {shown} - resource temporarily unavailable \
             (possibly in use by another instance of nsqd)"
        ),
        DiskError::Missing(_) => format!(
            "open {shown}: no such file or directory - create it or choose another --data-path"
        ),
        other => format!("{other} - {}", of_data_path(path, other)),
    };
    StartError(format!(
        "failed to instantiate nsqd - failed to lock data-path: {cause}"
    ))
}

/// The advice about an nsqd.dat that cannot be used.
pub(crate) fn of_metadata(data_path: &Path) -> &'static str {
    let due = diskq_import::due_takeover(&OsFiles, data_path, &[]);
    if due.is_ok_and(|due| !due.unlisted.is_empty()) {
        return "bring back an nsqd.dat that is whole, for example from a backup: of the original nsqd's files, a start takes \
                over those of the topics in nsqd.dat, and without nsqd.dat none";
    }
    "to start without it move the file aside: logs know their topics and channels, and only topics without a log are missing \
     then"
}

/// The advice for those who read files of nsqd as another user.
pub(crate) const READERS: &str = "if a group is meant to read messages, such as for backups, run its program as the user of nsqd (docs/upgrade.md)";

/// Says which files other users of the machine can reach. `None`: no file.
pub(crate) fn exposed(data_path: &Path, exposed: &Exposed) -> Option<String> {
    let (name, mode) = exposed.first.as_ref()?;
    let others = match exposed.count {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    Some(format!(
        "other users of this machine can reach files of nsqd in {}: {name} (mode {mode:04o}){others}",
        data_path.display()
    ))
}

/// The advice about a data path.
pub(crate) fn of_data_path(path: &Path, error: &DiskError) -> String {
    let advice = match error {
        DiskError::Missing(_) => {
            return format!(
                "create it (mkdir -p {}) for the user that runs nsqd, or choose another --data-path",
                path.display()
            );
        }
        DiskError::NotADirectory(_) => "choose a directory as --data-path",
        DiskError::NotPermitted(_, source)
            if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
        {
            "mount it writable (mount -o remount,rw); if the kernel made it read-only, its log (dmesg) says why"
        }
        DiskError::NotPermitted(..) => {
            "give the directory to the user that runs nsqd (chown), who must be able to read, write and enter it"
        }
        DiskError::Locked(_) => {
            "nothing if that nsqd is the one to run here; else stop it, or choose another --data-path"
        }
        DiskError::Io { .. } | DiskError::Failed(_) => {
            "look for the cause in the kernel's log (dmesg)"
        }
    };
    advice.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line named the error only. `nsqd --check` had the advice.
    #[test]
    fn the_fatal_line_says_what_to_do() {
        let path = Path::new("/data");
        let line = |code| {
            let error =
                DiskError::NotPermitted(path.to_path_buf(), io::Error::from_raw_os_error(code));
            lock_failed(path, &error).to_string()
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
        assert!(of_metadata(directory.path()).starts_with("to start without it"));
        let queue = directory.path().join("orders.diskqueue.000000.dat");
        std::fs::write(queue, "").unwrap();
        assert!(of_metadata(directory.path()).starts_with("bring back an nsqd.dat"));
    }
}
