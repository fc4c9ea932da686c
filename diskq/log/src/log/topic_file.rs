//! The file that a topic keeps beside its log.

use std::sync::Arc;

use crate::random::splitmix64;
use crate::request::{Failure, Request};
use crate::topic_file::{TopicFile, UnfinishedFile};

use super::{Log, Notice};

impl Log {
    /// Has the topic's file written. [`Notice::TopicFileWritten`] says how that went.
    ///
    /// The file counts when it is renamed. The keeper does that before every job that the log gives after the notice.
    pub fn write_topic_file(&mut self, contents: Box<dyn TopicFile>) {
        self.topic_files += 1;
        // Another log of the same name, before or after this one, has another seed or begins at another seq.
        let mut state = self.options.process_seed ^ self.next.0.rotate_left(20) ^ self.topic_files;
        let file = UnfinishedFile(splitmix64(&mut state));
        self.requests
            .push_back(Request::WriteTopicFile { file, contents });
    }

    pub(super) fn topic_file_written(
        &mut self,
        file: UnfinishedFile,
        result: Result<(), Failure>,
        notices: &mut Vec<Notice>,
    ) {
        if result.is_ok() {
            self.requests.push_back(Request::RenameTopicFile(file));
            self.sync.is_file_renamed = true;
            // The topic may get no new message that makes a sync due.
            self.schedule_sync();
        }
        let result = result.map_err(|failure| Arc::from(failure.text));
        notices.push(Notice::TopicFileWritten(result));
    }
}
