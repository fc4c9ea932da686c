//! [`States`]: what a log's topic saves beside the log: states of messages that the log need not have any more, and the
//! topic's file.

use wire::id::Seq;

use crate::random::splitmix64;
use crate::request::{Request, StateJob, SyncFailure};
use crate::state::{TopicFile, UnfinishedFile};

use super::answers::Notice;
use super::context::Context;
use super::sync::Sync;

/// The saved states, in two files that are written in turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct States {
    /// The highest number given so far.
    last_number: u64,
    /// The index of the file that has the last durable state. The next state goes to the other file.
    last_file: usize,
    /// True if the last state was found at the start: it may be in the page cache only.
    is_doubtful: bool,
    /// The number of states that this process has made durable.
    saved_count: u64,
    is_writing: bool,
    /// Unfinished files of the topic that this log has named.
    topic_files: u64,
}

impl States {
    /// Makes the state after start-up. `last_number` is the highest number in a file, and `last_file` the index of the
    /// file that has the newest whole state.
    #[must_use]
    pub fn from_found(last_number: u64, last_file: usize) -> States {
        States {
            last_number,
            last_file,
            is_doubtful: last_number > 0,
            ..States::default()
        }
    }

    pub(super) fn save(&mut self, context: &mut Context, boundary: Seq, body: Vec<u8>) {
        assert!(!self.is_writing, "one state at a time");
        self.last_number += 1;
        self.is_writing = true;
        context.ask(Request::WriteState(StateJob {
            number: self.last_number,
            file: (1 - self.last_file) as u8,
            boundary,
            body,
            // A crash of the process left this file. The power may fail while the other file is written.
            sync_other: self.is_doubtful,
            // The two files are new at first.
            names: self.saved_count < 2,
        }));
    }

    pub(super) fn written(
        &mut self,
        context: &mut Context,
        sync: &mut Sync,
        boundary: Seq,
        result: Result<(), SyncFailure>,
    ) {
        self.is_writing = false;
        match result {
            Ok(()) => {
                self.last_file = 1 - self.last_file;
                self.is_doubtful = false;
                self.saved_count += 1;
                context.tell(Notice::StateSaved(boundary));
            }
            Err(failure) => {
                sync.take_failure(context, failure, |why| Notice::StateFailed(boundary, why));
            }
        }
    }

    pub(super) fn write_topic_file(
        &mut self,
        context: &mut Context,
        next: Seq,
        contents: Box<dyn TopicFile>,
    ) {
        self.topic_files += 1;
        // Another log of the same name, before or after this one, has another seed or begins at another seq.
        let mut state = context.options.process_seed ^ next.0.rotate_left(20) ^ self.topic_files;
        let file = UnfinishedFile(splitmix64(&mut state));
        context.ask(Request::WriteTopicFile { file, contents });
    }
}
