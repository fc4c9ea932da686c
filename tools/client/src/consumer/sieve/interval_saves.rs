//! [`IntervalSaves`]: the saves of a consumer's filter while the consumer runs, and the one at its end.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::Sieve;
use crate::dedup::{DedupReport, SaveResult};

/// The saves while the consumer runs (`save_interval`), apart from the one at its end. One of them runs at a time: a
/// disk that hangs would keep a thread and a snapshot of the filter for each.
#[derive(Default)]
pub(super) struct IntervalSaves {
    last: Option<JoinHandle<()>>,
    is_reported: bool,
}

impl IntervalSaves {
    /// Begins a save, if the last one has ended.
    pub(super) fn begin(&mut self, sieve: &Arc<Sieve>) {
        if self.last.as_ref().is_some_and(|last| !last.is_finished()) {
            if let (false, Some(path)) = (self.is_reported, sieve.dedup.state_file()) {
                let path = path.to_owned();
                sieve.report(DedupReport::SaveDelayed { path });
            }
            self.is_reported = true;
            return;
        }
        self.is_reported = false;
        let sieve = Arc::clone(sieve);
        self.last = Some(tokio::spawn(async move { sieve.save_if_due().await }));
    }
}

impl Sieve {
    /// Saves the filter at an interval, unless another consumer with this filter saves it, or has begun to save it a
    /// short time ago.
    async fn save_if_due(&self) {
        if let Some(saved) = self.dedup.save_if_due(&self.runtime).await {
            self.report_save(saved);
        }
    }

    /// Saves the filter at the end.
    pub(super) async fn save(&self) {
        if self.dedup.state_file().is_some() {
            self.report_save(self.dedup.save_or_join(&self.runtime).await);
        }
    }

    fn report_save(&self, saved: SaveResult) {
        let Some(path) = self.dedup.state_file() else {
            return;
        };
        let path = path.to_owned();
        self.report(match saved {
            Ok(()) => DedupReport::Saved { path },
            Err(error) => DedupReport::SaveFailed { path, error },
        });
    }
}
