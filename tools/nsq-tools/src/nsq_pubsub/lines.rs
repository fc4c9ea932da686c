//! [`Lines`]: the bytes that wait for a client, and the messages that they belong to.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes that are gathered before they are written.
const BYTES_MAX: usize = 64 * 1024;

/// Lines that wait for a client. `A` is the means by which a message is answered.
#[derive(Debug)]
pub(super) struct Lines<A> {
    bytes: Vec<u8>,
    /// The bytes that the socket has taken.
    written: usize,
    /// Each message's line in `bytes`, in order.
    messages: VecDeque<(Range<usize>, A)>,
}

impl<A> Lines<A> {
    pub(super) fn new() -> Lines<A> {
        Lines {
            bytes: Vec::new(),
            written: 0,
            messages: VecDeque::new(),
        }
    }

    /// Adds the line of a message.
    pub(super) fn push(&mut self, body: &[u8], acker: A) {
        let start = self.bytes.len();
        self.push_text(body);
        self.messages.push_back((start..self.bytes.len(), acker));
    }

    /// Adds a line that belongs to no message.
    pub(super) fn push_text(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.bytes.push(b'\n');
    }

    /// Returns true if no more lines should be added before these are written.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= BYTES_MAX
    }

    /// Returns the bytes that the socket has not taken yet.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// The socket has taken `count` of the waiting bytes. Returns the messages whose lines have left.
    pub(super) fn take(&mut self, count: usize) -> impl Iterator<Item = A> + use<'_, A> {
        self.written += count;
        let written = self.written;
        if written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
            // A single large message must not keep its memory for the life of the stream.
            self.bytes.shrink_to(2 * BYTES_MAX);
        }
        std::iter::from_fn(move || {
            let (_, acker) = self
                .messages
                .pop_front_if(|(line, _)| line.end <= written)?;
            Some(acker)
        })
    }

    /// Returns the messages whose lines have not left, or not wholly. The second value is true if the line has begun to
    /// leave.
    pub(super) fn unwritten(self) -> impl Iterator<Item = (A, bool)> {
        let written = self.written;
        let messages = self.messages.into_iter();
        messages.map(move |(line, acker)| (acker, line.start < written))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_done_when_its_whole_line_has_left() {
        let mut lines = Lines::new();
        lines.push(b"ab", 1);
        lines.push_text(b"heart");
        lines.push(b"", 2);
        lines.push(b"cd", 3);
        assert_eq!(lines.waiting(), b"ab\nheart\n\ncd\n");
        let mut taken = Vec::new();
        for count in [2, 1, 6, 1, 2] {
            taken.push(lines.take(count).collect::<Vec<_>>());
        }
        assert_eq!(taken, [vec![], vec![1], vec![], vec![2], vec![]]);
        assert_eq!(lines.waiting(), b"\n");
        lines.push(b"ef", 4);
        assert_eq!(
            lines.unwritten().collect::<Vec<_>>(),
            [(3, true), (4, false)]
        );
    }

    #[test]
    fn the_memory_of_a_large_message_is_given_back() {
        let mut lines = Lines::new();
        lines.push(&vec![b'x'; 10 << 20], ());
        assert!(lines.is_full());
        let all = lines.waiting().len();
        assert_eq!(lines.take(all).count(), 1);
        assert!(lines.waiting().is_empty() && !lines.is_full());
        assert!(lines.bytes.capacity() <= 2 * BYTES_MAX);
        lines.push(b"y", ());
        assert_eq!(lines.waiting(), b"y\n");
    }
}
