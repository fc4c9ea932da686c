//! [`DataPath`]: the directory that has the names of all logs and of nsqd.dat.
//!
//! Linux reports a failed write of a directory to one sync only. Each keeper, each deletion and the writer of nsqd.dat
//! sync this directory. So all of them have to learn of the first failed sync, and nobody believes a later sync.

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diskq_log::plant;
use parking_lot::Mutex;

use crate::files::{Files, SyncError};
use wire::go_error::system_text;

/// The data path of a process, with the first failed sync of the directory. Clones share this failure. Each thread that
/// syncs the directory needs a clone: a second `DataPath` of the same path would not know of the failure.
#[derive(Clone, Debug)]
pub struct DataPath {
    path: PathBuf,
    /// The kind and text of the first failed sync.
    failed: Arc<Mutex<Option<(io::ErrorKind, String)>>>,
}

impl DataPath {
    /// Makes the names in the directory durable. Blocks. The first failed sync is final: every later call fails, too. A
    /// directory that cannot be opened for want of descriptors or memory is not a failed sync.
    ///
    /// # Errors
    /// This sync or an earlier one failed, or the directory could not be opened.
    pub fn sync_names(&self, files: &impl Files) -> Result<(), SyncError> {
        // The lock is held during the sync. Otherwise another sync could succeed between the failure of this sync
        // and the moment when the failure is stored.
        let mut failed = self.failed.lock();
        if let Some((kind, text)) = &*failed {
            plant!(DataPathBelieved, return files.sync_dir(&self.path));
            return Err(SyncError::Final(io::Error::new(*kind, text.clone())));
        }
        let synced = files.sync_dir(&self.path);
        if let Err(SyncError::Final(error)) = &synced {
            let text = format!("an earlier sync failed: {}", system_text(error));
            *failed = Some((error.kind(), text));
        }
        synced
    }

    /// Returns whether a sync of the directory has failed. If so, no later sync succeeds.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.lock().is_some()
    }
}

impl<P: Into<PathBuf>> From<P> for DataPath {
    fn from(path: P) -> DataPath {
        DataPath {
            path: path.into(),
            failed: Arc::default(),
        }
    }
}

impl Deref for DataPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}
