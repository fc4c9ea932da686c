//! [`TopicName`] and [`ChannelName`]: names that have been checked.
//!
//! ```text
//!   [.a-zA-Z0-9_-]+(#ephemeral)?      1 to 64 bytes in all
//! ```
//!
//! The types are distinct so that a topic is never passed for a channel.

use std::fmt;

use crate::limits::{EPHEMERAL_SUFFIX, NAME_BYTES_MAX};

/// Returns true when `name` is a valid name of a topic or channel.
#[inline]
#[must_use]
pub fn is_valid_name(name: &[u8]) -> bool {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return false;
    }
    let stem = name.strip_suffix(EPHEMERAL_SUFFIX).unwrap_or(name);
    // `#` is not allowed in a stem, so a second suffix fails here. The loop reads all bytes even
    // after a bad one: nearly all names are valid, and for a valid name this loop is the fastest.
    !stem.is_empty()
        && stem
            .iter()
            .fold(true, |good, byte| good & IN_STEM[usize::from(*byte)])
}

/// The explanation for a user who gave an invalid name: `"a b" is not 1 to 64 characters ...`. It follows what was wrong,
/// such as `--topic is invalid: `. All programs explain a name with these words.
#[derive(Clone, Copy, Debug)]
pub struct InvalidName<'a>(pub &'a str);

impl fmt::Display for InvalidName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = str::from_utf8(EPHEMERAL_SUFFIX).expect("the suffix is ASCII");
        write!(
            f,
            "{:?} is not 1 to {NAME_BYTES_MAX} characters of a-z A-Z 0-9 . _ -, of which the last {} may be {suffix}",
            self.0,
            suffix.len()
        )
    }
}

/// Returns true when `name` ends in `#ephemeral`: its topic or channel is deleted with its last user.
#[inline]
#[must_use]
pub fn is_ephemeral(name: &[u8]) -> bool {
    name.ends_with(EPHEMERAL_SUFFIX)
}

/// The set of the bytes `[.a-zA-Z0-9_-]`.
const IN_STEM: [bool; 256] = {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        set[byte] =
            (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'.' | b'_' | b'-');
        byte += 1;
    }
    set
};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name<'a>(&'a [u8]);

        impl<'a> $name<'a> {
            /// Returns the name if it is valid (see [`is_valid_name`]).
            #[inline]
            #[must_use]
            pub fn new(name: &'a [u8]) -> Option<Self> {
                is_valid_name(name).then_some(Self(name))
            }

            /// Returns the name as it was sent: ASCII, 1 to 64 bytes.
            #[inline]
            #[must_use]
            pub fn as_bytes(&self) -> &'a [u8] {
                self.0
            }

            /// Returns the name as text. This checks all bytes again: on the message path, compare
            /// bytes.
            ///
            /// # Panics
            /// Never: a valid name is ASCII.
            #[must_use]
            pub fn as_str(&self) -> &'a str {
                str::from_utf8(self.0).expect("a valid name is ASCII")
            }

            /// Returns true when the name ends in `#ephemeral`.
            #[inline]
            #[must_use]
            pub fn is_ephemeral(&self) -> bool {
                is_ephemeral(self.0)
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.as_str())
            }
        }
    };
}

name! {
    /// A valid topic name, borrowed.
    TopicName
}

name! {
    /// A valid channel name, borrowed.
    ChannelName
}

#[cfg(test)]
mod tests;
