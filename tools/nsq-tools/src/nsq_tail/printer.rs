//! [`Printer`]: lines for stdout, and the messages that they are.

use std::io::{self, Write};

/// The bytes of lines that are collected before they are written.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// Collects the lines of messages, and writes them together. `M` stands for a message that is to be
/// finished when its line is written.
pub(super) struct Printer<W, M> {
    output: W,
    prints_topic: bool,
    /// The number of messages that may still be taken.
    left: u64,
    lines: Vec<u8>,
    /// The messages of these lines.
    unfinished: Vec<M>,
}

impl<W: Write, M> Printer<W, M> {
    /// Returns a printer that takes at most `message_count` messages. `None` sets no limit.
    pub(super) fn new(output: W, prints_topic: bool, message_count: Option<u64>) -> Printer<W, M> {
        Printer {
            output,
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

    /// Writes the collected lines, and returns their messages.
    ///
    /// # Errors
    /// The lines cannot be written. A part of them may be. Their messages are not finished.
    pub(super) fn write(&mut self) -> io::Result<impl Iterator<Item = M> + use<'_, W, M>> {
        self.output.write_all(&self.lines)?;
        self.output.flush()?;
        self.lines.clear();
        Ok(self.unfinished.drain(..))
    }

    /// Returns the messages whose lines were not written.
    pub(super) fn into_unfinished(self) -> Vec<M> {
        self.unfinished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps each write apart.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl Write for &mut Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn messages_are_finished_after_one_write_of_whole_lines() {
        let mut writes = Writes::default();
        let mut printer = Printer::new(&mut writes, true, Some(4));
        printer.add("a", b"one\ntwo", 1);
        printer.add("b", b"", 2);
        printer.add("a", b"\xff", 3);
        assert!(!printer.is_done());
        printer.add("b", b"x", 4);
        assert!(printer.is_done() && !printer.is_full());
        let finished: Vec<i32> = printer.write().unwrap().collect();
        assert_eq!(finished, [1, 2, 3, 4]);
        assert_eq!(writes.0, [b"a | one\ntwo\nb | \na | \xff\nb | x\n"]);
    }

    #[test]
    fn without_a_limit_the_lines_are_written_when_there_are_many() {
        let mut writes = Writes::default();
        let mut printer = Printer::new(&mut writes, false, None);
        printer.add("a", &[b'x'; WRITE_BYTES_MAX - 2], 1);
        assert!(!printer.is_full());
        printer.add("a", b"", 2);
        assert!(printer.is_full() && !printer.is_done());
    }

    #[test]
    fn messages_that_cannot_be_written_are_not_finished() {
        let mut printer = Printer::new(io::Cursor::new([0; 3]), false, None);
        printer.add("a", b"long", 1);
        assert!(printer.write().is_err());
        assert_eq!(printer.into_unfinished(), [1]);
    }
}
