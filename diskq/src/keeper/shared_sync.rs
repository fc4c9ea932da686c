//! [`SharedSync`]: one `syncfs` for the syncs of many logs, and why no write error escapes it.
//!
//! The kernel remembers a failed write in two places that know nothing of each other. The *file* tells the next
//! sync of any of its descriptors, once; a descriptor that is opened later is told, too, as long as nobody was.
//! The *file system* tells the next `syncfs` of each descriptor, once, and does not say whose write it was. From
//! that follows what may be believed:
//!
//! - A `syncfs` that succeeds on a descriptor that never failed is believed: it waits for all writes under way and
//!   looks at the error after that. Nothing in this file system has failed since the descriptor was opened, which was
//!   before any log of this process took a message.
//! - The first failure of a descriptor condemns no log. The failed write may belong to a log outside of the
//!   round, and this descriptor reports it only once. So the descriptor is closed for good. From then on each
//!   log's files and names are synced by themselves, beginning with the logs of this round.
//! - The log whose write failed learns it from its own sync, however late that sync comes. Only a sync of the
//!   file itself clears the file's error, and only the keeper of that log syncs the log's files and directory. The
//!   first failed sync poisons the log.
//! - Every keeper syncs the data path's directory. After a failed sync of this directory, the
//!   [`DataPath`](crate::DataPath), which all keepers share, makes all later syncs of it fail.
//! - No thread hides an error from another thread. Each thread has a `SharedSync` with its own descriptor, and
//!   the kernel reports the error once to each descriptor.

use std::io;

use diskq_log::plant;
use diskq_log::{Failure, Reply, Request, SyncFailure};

use super::directory::log_path;
use super::jobs::{Keeper, has_sync_first};
use crate::files::Files;

/// A file system as one keeper thread syncs it as a whole, until that fails once.
#[derive(Debug)]
pub struct SharedSync<F: Files> {
    /// `None` after the first failure.
    file_system: Option<F::FileSystem>,
    /// The error of that failure, until a caller takes it.
    failure: Option<io::Error>,
}

impl<F: Files> SharedSync<F> {
    /// Returns why shared syncs have ended. Returns the reason once.
    pub fn take_failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }
}

impl<F: Files> Keeper<F> {
    /// Opens the descriptor for shared syncs. Call this before any log takes a message: a shared sync reports
    /// only the failures of writes that come after this call.
    pub fn shared_sync(&self) -> io::Result<SharedSync<F>> {
        Ok(SharedSync {
            file_system: Some(self.files.open_file_system(&self.data_path)?),
            failure: None,
        })
    }

    /// Does jobs that end with a sync ([`Request::is_sync`]), given with the names of their topics; at most one of a
    /// kind for each log. The cost is that of one sync, and of whatever else waits to be written in this file system.
    pub fn handle_together(
        &self,
        shared: &mut SharedSync<F>,
        jobs: Vec<(&str, Request)>,
    ) -> Vec<Option<Reply>> {
        if let Some(file_system) = &shared.file_system {
            let sync = || {
                plant!(
                    SyncfsErrorSwallowed,
                    return self.files.sync_file_system(file_system).or(Ok(()))
                );
                self.files.sync_file_system(file_system)
            };
            let write = |(topic, request): &(&str, Request)| self.do_up_to_sync(topic, request);
            let attempt = || {
                if jobs.iter().any(|(_, request)| has_sync_first(request)) {
                    sync()?;
                }
                let written: Vec<_> = jobs.iter().map(write).collect();
                sync()?;
                Ok(written)
            };
            let failure = match attempt() {
                Ok(written) => {
                    let jobs = written.into_iter().zip(jobs);
                    // A job that failed before its sync has nothing to make durable: for example, a log without a
                    // directory.
                    let reply = |(written, (topic, request)): (Result<_, _>, (&str, Request))| {
                        request.durable_reply(written.and_then(|()| self.still_there(topic)))
                    };
                    return jobs.map(reply).collect();
                }
                Err(failure) => failure,
            };
            shared.file_system = None;
            shared.failure = Some(failure);
        }
        // The part of a job before its sync may be done twice.
        let handle = |(topic, request): (&str, Request)| self.handle(topic, request);
        jobs.into_iter().map(handle).collect()
    }

    /// Fails if the log's directory is gone. An operator may have removed it, and then its messages are not durable.
    fn still_there(&self, topic: &str) -> Result<(), SyncFailure> {
        let path = log_path(&self.data_path, topic);
        match self.files.length(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(SyncFailure::Final(Failure::of("sync", &path, &error)))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
