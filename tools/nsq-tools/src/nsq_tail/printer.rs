//! [`Printer`]: lines for stdout, and the messages that they are.

/// The bytes of lines that are collected before they are written.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// Collects the lines of messages, which are written together. `M` stands for a message that is to be finished when its
/// line is written.
pub(super) struct Printer<M> {
    prints_topic: bool,
    /// The number of messages that may still be taken.
    left: u64,
    lines: Vec<u8>,
    /// The messages of these lines, or of the lines that are being written.
    unfinished: Vec<M>,
}

impl<M> Printer<M> {
    /// Returns a printer that takes at most `message_count` messages. `None` sets no limit.
    pub(super) fn new(prints_topic: bool, message_count: Option<u64>) -> Printer<M> {
        Printer {
            prints_topic,
            left: message_count.unwrap_or(u64::MAX),
            lines: Vec::new(),
            unfinished: Vec::new(),
        }
    }

    /// Returns true if the number of messages is reached.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Returns true if the collected lines are many enough to be written now.
    pub(super) fn is_full(&self) -> bool {
        self.lines.len() >= WRITE_BYTES_MAX
    }

    /// Adds the line of a message: the body as it is, and a line feed.
    pub(super) fn add(&mut self, topic: &str, body: &[u8], message: M) {
        debug_assert!(!self.is_done(), "the caller looks first");
        if self.prints_topic {
            self.lines.extend_from_slice(topic.as_bytes());
            self.lines.extend_from_slice(b" | ");
        }
        self.lines.extend_from_slice(body);
        self.lines.push(b'\n');
        self.left -= 1;
        self.unfinished.push(message);
    }

    /// Takes the collected lines for a write. Their messages stay here until [`Printer::written`].
    pub(super) fn take_lines(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lines)
    }

    /// Returns the messages whose lines were written.
    pub(super) fn written(&mut self) -> impl Iterator<Item = M> + use<'_, M> {
        self.unfinished.drain(..)
    }

    /// Returns the messages whose lines were not written.
    pub(super) fn into_unfinished(self) -> Vec<M> {
        self.unfinished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_finished_after_one_write_of_whole_lines() {
        let mut printer = Printer::new(true, Some(4));
        printer.add("a", b"one\ntwo", 1);
        printer.add("b", b"", 2);
        printer.add("a", b"\xff", 3);
        assert!(!printer.is_done());
        printer.add("b", b"x", 4);
        assert!(printer.is_done() && !printer.is_full());
        assert_eq!(
            printer.take_lines(),
            b"a | one\ntwo\nb | \na | \xff\nb | x\n"
        );
        let finished: Vec<i32> = printer.written().collect();
        assert_eq!(finished, [1, 2, 3, 4]);
        assert!(printer.take_lines().is_empty());
    }

    #[test]
    fn without_a_limit_the_lines_are_written_when_there_are_many() {
        let mut printer = Printer::new(false, None);
        printer.add("a", &[b'x'; WRITE_BYTES_MAX - 2], 1);
        assert!(!printer.is_full());
        printer.add("a", b"", 2);
        assert!(printer.is_full() && !printer.is_done());
    }

    #[test]
    fn messages_that_were_not_written_are_not_finished() {
        let mut printer = Printer::new(false, None);
        printer.add("a", b"long", 1);
        assert_eq!(printer.take_lines(), b"long\n");
        assert_eq!(printer.into_unfinished(), [1]);
    }
}
