//! [`Token`]: names what a task waits for, in the words that all engines share.

use std::io;

/// The kind of readiness that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// There is something to read, or the peer has ended its side.
    Read,
    /// There is room to write.
    Write,
}

impl Direction {
    pub(super) const ALL: [Direction; 2] = [Direction::Read, Direction::Write];
}

/// Names the wait for a direction of a source, or the receiving for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token(pub(super) u64);

/// The bit of the tokens that name a receiving.
const RECEIVING: u64 = 1 << 63;
/// The bit of the direction. In a token with [`RECEIVING`], it names the end of the receiving.
const WRITE: u64 = 1 << 32;

impl Token {
    /// Names a wait. The serial number distinguishes the sources that have had the same index.
    pub(super) fn new(index: usize, serial: u32, direction: Direction) -> Token {
        // The last index is left out: the ring has numbers of its own there.
        debug_assert!(index < (1 << 30) - 1, "descriptors are fewer");
        Token((index as u64) << 33 | (direction as u64) << 32 | u64::from(serial))
    }

    /// Names the receiving for the source of this token.
    #[cfg(target_os = "linux")]
    pub(super) fn of_receiving(self) -> Token {
        Token(self.0 & !WRITE | RECEIVING)
    }

    /// Names the attempt to end the receiving for the source of this token.
    #[cfg(target_os = "linux")]
    pub(super) fn of_end(self) -> Token {
        Token(self.0 | WRITE | RECEIVING)
    }

    /// Returns whether the token names a receiving.
    pub(super) fn is_of_receiving(self) -> bool {
        self.0 & (RECEIVING | WRITE) == RECEIVING
    }

    /// Returns whether the token names the attempt to end a receiving.
    #[cfg(target_os = "linux")]
    pub(super) fn is_of_end(self) -> bool {
        self.0 & (RECEIVING | WRITE) == RECEIVING | WRITE
    }

    pub(super) fn index(self) -> usize {
        ((self.0 & !RECEIVING) >> 33) as usize
    }

    pub(super) fn serial(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn direction(self) -> Direction {
        match self.0 & WRITE {
            0 => Direction::Read,
            _ => Direction::Write,
        }
    }
}

/// Returns the place of a source in a list by index, which grows as far as needed.
pub(super) fn place_of<T: Default>(places: &mut Vec<T>, token: Token) -> &mut T {
    let index = token.index();
    if places.len() <= index {
        places.resize_with(index + 1, T::default);
    }
    &mut places[index]
}

/// The result of `Driver::take_received`.
#[derive(Debug)]
pub(super) enum Received {
    /// The number of bytes taken; 0 is the end.
    Bytes(usize),
    /// Nothing has come yet. `Driver::for_each_ready` gives [`Token::of_receiving`] when something comes.
    Nothing,
    /// The engine does not receive for this descriptor. The reader uses `recv`.
    Off,
    /// The connection is broken.
    Failed(io::Error),
}
