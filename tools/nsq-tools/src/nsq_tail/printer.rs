//! [`Printer`]: the messages of one write, and the number of messages that may still come.

use super::message_file::Received;
use super::output::Output;

/// The size at which collected messages are written, in bytes.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// The number at which collected messages are written. Each file waits for the disk.
const WRITE_MESSAGES_MAX: usize = 1000;

/// Collects messages that are written together. `M` stands for a message that is to be finished when it is written.
pub(super) struct Printer<M> {
    output: Output,
    /// The number of messages that may still be taken.
    left: u64,
    /// The messages that are collected, or that are being written.
    unfinished: Vec<M>,
}

impl<M> Printer<M> {
    /// Returns a printer that takes at most `message_count` messages. `None` sets no limit.
    pub(super) fn new(output: Output, message_count: Option<u64>) -> Printer<M> {
        Printer {
            output,
            left: message_count.unwrap_or(u64::MAX),
            unfinished: Vec::new(),
        }
    }

    /// Returns true if the number of messages is reached.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Returns true if the collected messages are many enough to be written now.
    pub(super) fn is_full(&self) -> bool {
        self.unfinished.len() >= WRITE_MESSAGES_MAX || self.output.size() >= WRITE_BYTES_MAX
    }

    /// Adds a message.
    pub(super) fn add(&mut self, received: &Received<'_>, message: M) {
        debug_assert!(!self.is_done(), "the caller looks first");
        self.output.add(received);
        self.left -= 1;
        self.unfinished.push(message);
    }

    /// Takes the collected messages for a write, and returns their number. The messages are unfinished until
    /// [`Printer::written`].
    pub(super) fn take(&mut self) -> (Output, usize) {
        (self.output.take(), self.unfinished.len())
    }

    /// Returns the oldest `count` messages, which were written.
    pub(super) fn written(&mut self, count: usize) -> impl Iterator<Item = M> + use<'_, M> {
        self.unfinished.drain(..count)
    }

    /// Returns the messages that were not written.
    pub(super) fn into_unfinished(self) -> Vec<M> {
        self.unfinished
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use bytes::Bytes;
    use ringq_client::MessageId;

    use super::*;

    fn add(printer: &mut Printer<i32>, length: usize, message: i32) {
        let received = Received {
            topic: "t",
            body: &Bytes::from(vec![b'x'; length]),
            published: UNIX_EPOCH,
            id: MessageId(*b"0123456789abcdef"),
        };
        printer.add(&received, message);
    }

    #[test]
    fn messages_are_finished_after_one_write() {
        let mut printer = Printer::new(Output::lines(true), Some(4));
        for message in 1..=3 {
            add(&mut printer, 1, message);
        }
        assert!(!printer.is_done());
        add(&mut printer, 1, 4);
        assert!(printer.is_done() && !printer.is_full());
        let (output, count) = printer.take();
        assert_eq!((output.size(), count), (24, 4));
        let finished: Vec<i32> = printer.written(4).collect();
        assert_eq!(finished, [1, 2, 3, 4]);
        let (output, count) = printer.take();
        assert_eq!((output.size(), count), (0, 0));
    }

    #[test]
    fn without_a_limit_the_messages_are_written_when_there_are_many() {
        let mut printer = Printer::new(Output::lines(false), None);
        add(&mut printer, WRITE_BYTES_MAX - 2, 1);
        assert!(!printer.is_full());
        add(&mut printer, 0, 2);
        assert!(printer.is_full() && !printer.is_done());

        let mut printer = Printer::new(Output::files(std::path::Path::new("d")), None);
        for message in 1..WRITE_MESSAGES_MAX as i32 {
            add(&mut printer, 1, message);
        }
        assert!(!printer.is_full());
        add(&mut printer, 1, 0);
        assert!(printer.is_full());
    }

    #[test]
    fn messages_that_were_not_written_are_not_finished() {
        let mut printer = Printer::new(Output::lines(false), None);
        for message in 1..=3 {
            add(&mut printer, 4, message);
        }
        assert_eq!(printer.take().1, 3);
        assert_eq!(printer.written(1).collect::<Vec<_>>(), [1]);
        assert_eq!(printer.into_unfinished(), [2, 3]);
    }
}
