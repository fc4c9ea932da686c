//! The data path: there, writable, and in nobody's use.

use std::io;
use std::path::Path;

use diskq::{DataPathLock, DiskError};
use diskq_import::{Exposed, Metadata, MetadataError};
use wire::go_error::system_text;

use super::Finding;
use crate::daemon::advice;

/// The lock is given back at once: only an nsqd that starts within these microseconds could find it taken.
pub(super) fn check(path: &Path) -> Finding {
    let free = DataPathLock::acquire(path).map(drop);
    judge(path, free.and_then(|()| diskq::check_writable(path)))
}

fn judge(path: &Path, usable: Result<(), DiskError>) -> Finding {
    const NAME: &str = "data-path";
    let shown = path.display();
    let error = match usable {
        Ok(()) => {
            return Finding::ok(
                NAME,
                format!("{shown} is a directory that can be written to, and no other nsqd uses it"),
            );
        }
        Err(error) => error,
    };
    let found = match &error {
        DiskError::Missing(_) => format!("{shown} does not exist, and nsqd does not create it"),
        DiskError::NotADirectory(_) => format!("{shown} is not a directory"),
        DiskError::NotPermitted(_, source)
            if source.kind() == io::ErrorKind::ReadOnlyFilesystem =>
        {
            format!("{shown} is on a file system that is mounted read-only")
        }
        DiskError::NotPermitted(_, source) => {
            format!(
                "{shown} cannot be used by this user: {}",
                system_text(source)
            )
        }
        DiskError::Locked(_) => format!(
            "{shown} is in use by another nsqd that runs: the directory is fine, but a second nsqd on it would be refused"
        ),
        other => format!("{shown} cannot be used: {other}"),
    };
    Finding::failure(NAME, found, advice::of_data_path(path, &error))
}

/// The files that other users of the machine can reach. A start closes them.
pub(super) fn permissions(path: &Path) -> Finding {
    const NAME: &str = "permissions";
    match Exposed::find(path) {
        Ok(exposed) => match advice::exposed(path, &exposed) {
            None => Finding::ok(NAME, "no other user of this machine can read messages"),
            Some(found) => Finding::warning(
                NAME,
                found,
                format!(
                    "nothing, because a start takes these permissions away; {}",
                    advice::READERS
                ),
            ),
        },
        Err(error) => Finding::warning(
            NAME,
            error.to_string(),
            "give the files to the user of nsqd (chown)",
        ),
    }
}

/// The list of topics and channels, which a start reads.
pub(super) fn metadata(path: &Path) -> Finding {
    judge_metadata(Metadata::load(path), path)
}

fn judge_metadata(loaded: Result<Metadata, MetadataError>, path: &Path) -> Finding {
    const NAME: &str = "nsqd.dat";
    match loaded {
        Err(error) => Finding::failure(NAME, error.to_string(), advice::of_metadata(path)),
        Ok(metadata) => Finding::ok(
            NAME,
            match metadata.topics.len() {
                0 => "lists no topics yet".to_owned(),
                1 => "can be read, and lists 1 topic".to_owned(),
                count => format!("can be read, and lists {count} topics"),
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn every_reason_has_its_own_advice() {
        let path = Path::new("/data");
        let check = |error: DiskError, found: &str, advice: &str| {
            let finding = judge(path, Err(error));
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
        check(DiskError::Locked(own()), "another nsqd", "stop it");
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
        assert_eq!(judge(path, Ok(())).state, State::Ok);
    }

    #[test]
    fn metadata_that_cannot_be_read_is_found() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(metadata(directory.path()).state, State::Ok);
        std::fs::write(directory.path().join("nsqd.dat"), "{").unwrap();
        let finding = metadata(directory.path());
        assert_eq!(finding.state, State::Failure);
        assert!(finding.found.contains("nsqd.dat"), "{finding:?}");
        assert!(
            finding.advice.contains("move the file aside"),
            "{finding:?}"
        );
    }
}
