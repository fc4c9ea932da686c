//! [`Output`]: the place for messages, with those that are collected for the next write.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::message_file::{self, MessageFile, Received};

/// The place for messages, with the messages that are collected for the next write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Standard output gets a line for each message.
    Lines {
        /// True if the topic stands in front of each message.
        prints_topic: bool,
        lines: Vec<u8>,
    },
    /// A directory gets a file for each message.
    Files {
        directory: Arc<Path>,
        files: Vec<MessageFile>,
    },
}

impl Output {
    /// Returns an output of lines, with the topic in front if `prints_topic`.
    pub(super) fn lines(prints_topic: bool) -> Output {
        let lines = Vec::new();
        Output::Lines {
            prints_topic,
            lines,
        }
    }

    /// Returns an output of files in this directory.
    pub(super) fn files(directory: impl Into<Arc<Path>>) -> Output {
        Output::Files {
            directory: directory.into(),
            files: Vec::new(),
        }
    }

    /// Adds a message. A line is the body as it is, and a line feed.
    pub(super) fn add(&mut self, message: &Received<'_>) {
        match self {
            Output::Lines {
                prints_topic,
                lines,
            } => {
                if *prints_topic {
                    lines.extend_from_slice(message.topic.as_bytes());
                    lines.extend_from_slice(b" | ");
                }
                lines.extend_from_slice(message.body);
                lines.push(b'\n');
            }
            Output::Files { files, .. } => files.push(MessageFile::new(message)),
        }
    }

    /// Returns the number of bytes that are collected.
    pub(super) fn size(&self) -> usize {
        match self {
            Output::Lines { lines, .. } => lines.len(),
            Output::Files { files, .. } => files.iter().map(MessageFile::size).sum(),
        }
    }

    /// Takes the collected messages out, for a write.
    pub(super) fn take(&mut self) -> Output {
        let empty = match self {
            Output::Lines { prints_topic, .. } => Output::lines(*prints_topic),
            Output::Files { directory, .. } => Output::files(Arc::clone(directory)),
        };
        std::mem::replace(self, empty)
    }

    /// Writes the collected messages, whose number is `count`. Blocks while nobody reads stdout, or until the files are
    /// synced. Returns the number of messages that were written as a whole, the oldest first, and the reason for the user
    /// why the others were not.
    pub(super) fn write(self, count: usize) -> (usize, Result<(), String>) {
        match self {
            Output::Lines { lines, .. } => match print(&lines) {
                Ok(()) => (count, Ok(())),
                Err(error) => {
                    let why = wire::go_error::system_text(&error);
                    let failure = format!("ERROR: failed to write to os.Stdout - {why}");
                    (0, Err(failure))
                }
            },
            Output::Files { directory, files } => message_file::save(&directory, &files),
        }
    }
}

fn print(lines: &[u8]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(lines)?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use bytes::Bytes;
    use ringq_client::MessageId;

    use super::*;

    /// Adds messages of these topics.
    fn add(output: &mut Output, messages: &[(&str, &'static [u8])]) {
        for (topic, body) in messages {
            output.add(&Received {
                topic,
                body: &Bytes::from_static(body),
                published: UNIX_EPOCH,
                id: MessageId(*b"0123456789abcdef"),
            });
        }
    }

    #[test]
    fn lines_are_taken_as_a_whole() {
        let mut output = Output::lines(true);
        add(
            &mut output,
            &[("a", b"one\ntwo"), ("b", b""), ("a", b"\xff")],
        );
        assert_eq!(output.size(), 23);
        let expected = Output::Lines {
            prints_topic: true,
            lines: b"a | one\ntwo\nb | \na | \xff\n".to_vec(),
        };
        assert_eq!(output.take(), expected);
        assert_eq!(output, Output::lines(true));

        let mut output = Output::lines(false);
        add(&mut output, &[("a", b"one")]);
        assert!(matches!(output.take(), Output::Lines { lines, .. } if lines == b"one\n"));
    }

    #[test]
    fn files_are_made_in_their_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut output = Output::files(directory.path());
        add(&mut output, &[("a", b"one"), ("b", b"three")]);
        assert_eq!(output.size(), 8);
        assert_eq!(output.take().write(2), (2, Ok(())));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
        // Nothing is written a second time.
        assert_eq!(output.size(), 0);
    }
}
