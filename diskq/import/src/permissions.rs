//! [`Exposed`]: files of nsqd that other users of the machine can reach, because of their permissions.
//!
//! Every file that ringq makes below a data path has mode 0600, and every directory 0700. A restored backup may have other
//! modes.
//!
//! Only what has a name of ours or of the original's is looked at. The data path itself belongs to the operator, who may
//! have other files in it. A directory that other users cannot enter shields all files in it, so only the entries of the
//! data path are looked at.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use diskq::{Attempt, DiskError, LOG_SUFFIX, deleted_topic};

use crate::import::{DONE, NEW, ORIGINAL_PREFIX};
use crate::metadata::FILE_NAME;
use crate::nsqd_files::{is_temporary, parse_name};

/// The permissions of all users but the owner.
const OTHERS: u32 = 0o077;

/// The files and directories of nsqd that other users can reach. A directory counts once, without its content.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exposed {
    /// Their number.
    pub count: u64,
    /// The name of the first one in the data path, and its mode.
    pub first: Option<(String, u32)>,
}

impl Exposed {
    /// Looks through the data path, and changes nothing. Leaves out links: they lead to files that are not nsqd's. Blocks.
    ///
    /// # Errors
    /// The data path cannot be read.
    pub fn find(data_path: &Path) -> Result<Exposed, DiskError> {
        let metadata = fs::metadata(data_path).in_attempt("look at", data_path)?;
        if metadata.permissions().mode() & OTHERS == 0 {
            return Ok(Exposed::default());
        }
        let mut exposed = Vec::new();
        for entry in fs::read_dir(data_path).in_attempt("list", data_path)? {
            let entry = entry.in_attempt("list", data_path)?;
            let metadata = entry.metadata().in_attempt("look at", &entry.path())?;
            let mode = metadata.permissions().mode();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_ours = metadata.is_dir() && is_directory_of_ours(&name)
                || metadata.is_file() && is_file_of_nsqd(&name);
            if is_ours && mode & OTHERS != 0 {
                exposed.push((name.into_owned(), mode & 0o7777));
            }
        }
        exposed.sort();
        Ok(Exposed {
            count: exposed.len() as u64,
            first: exposed.into_iter().next(),
        })
    }
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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn nsqds_files_that_others_can_reach_are_found_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (name, mode) in [
            ("nsqd.dat", 0o644),
            ("orders.diskqueue.000000.dat", 0o640),
            ("clicks.diskqueue.000000.dat", 0o600),
            ("nsqd.log", 0o644),
            ("nsqd.toml", 0o644),
        ] {
            fs::write(at(name), "text").unwrap();
            chmod(&at(name), mode);
        }
        for (name, mode) in [
            ("orders.log", 0o2755),
            ("clicks.log", 0o700),
            ("gone.log.deleted-3", 0o755),
            ("import.done", 0o755),
            ("nsqd-original-2026-01-31-115959", 0o755),
            ("backup", 0o755),
        ] {
            fs::create_dir(at(name)).unwrap();
            chmod(&at(name), mode);
        }
        symlink(at("nsqd.log"), at("orders.diskqueue.000001.dat")).unwrap();
        symlink(at("backup"), at("linked.log")).unwrap();
        // Nobody else can enter the data path.
        chmod(directory.path(), 0o700);
        let found = Exposed::find(directory.path()).unwrap();
        assert_eq!(found, Exposed::default());
        chmod(directory.path(), 0o750);
        let found = Exposed::find(directory.path()).unwrap();
        let first = Some(("gone.log.deleted-3".to_owned(), 0o755));
        assert_eq!(found, Exposed { count: 6, first });
        Exposed::find(&at("missing")).unwrap_err();
    }
}
