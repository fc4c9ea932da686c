//! Saving what the topic remembers of messages that the log need not have any more.

use std::sync::Arc;

use wire::id::Seq;

use crate::request::{Request, StateJob, SyncFailure};

use super::{Log, Notice};

impl Log {
    /// Has a state written and made durable. [`Notice::StateSaved`] or [`Notice::StateFailed`] tells the end.
    ///
    /// The state must know all messages below `boundary`, and no other message. All of these must be synced: a power
    /// failure must not take a message that the state knows.
    ///
    /// # Panics
    /// If another state is being written.
    pub fn save_state(&mut self, boundary: Seq, body: Vec<u8>) {
        assert!(!self.states.is_writing, "one state at a time");
        let states = &mut self.states;
        states.last_number += 1;
        states.is_writing = true;
        self.requests.push_back(Request::WriteState(StateJob {
            number: states.last_number,
            file: (1 - states.last_file) as u8,
            boundary,
            body,
            // A crash of the process left this file. The power may fail while the other file is written.
            sync_other: states.is_doubtful,
            // The two files are new at first.
            names: states.saved_count < 2,
        }));
    }

    pub(super) fn state_written(
        &mut self,
        boundary: Seq,
        result: Result<(), SyncFailure>,
        notices: &mut Vec<Notice>,
    ) {
        self.states.is_writing = false;
        match result {
            Ok(()) => {
                self.states.last_file = 1 - self.states.last_file;
                self.states.is_doubtful = false;
                self.states.saved_count += 1;
                notices.push(Notice::StateSaved(boundary));
            }
            Err(failure) => {
                let (SyncFailure::Retryable(why) | SyncFailure::Final(why)) = &failure;
                let cause: Arc<str> = why.text.as_str().into();
                notices.push(Notice::StateFailed(boundary, Arc::clone(&cause)));
                if matches!(failure, SyncFailure::Final(_)) {
                    self.poison(cause, notices);
                }
            }
        }
    }
}
