//! [`TopicName`] and [`ChannelName`]: names that have been looked at.
//!
//! ```text
//!   [.a-zA-Z0-9_-]+(#ephemeral)?      1 to 64 bytes in all
//! ```
//!
//! The two are distinct types so that a topic is never passed for a channel.

use std::fmt;

use crate::limits::{EPHEMERAL_SUFFIX, NAME_BYTES_MAX};

/// Whether `name` may name a topic or channel.
#[inline]
#[must_use]
pub fn is_valid_name(name: &[u8]) -> bool {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return false;
    }
    let stem = name.strip_suffix(EPHEMERAL_SUFFIX).unwrap_or(name);
    // `#` is no stem byte, so a second suffix fails here. All bytes are looked at even if the first is
    // wrong: names are good as a rule, and then this is the fastest.
    !stem.is_empty()
        && stem
            .iter()
            .fold(true, |good, byte| good & IN_STEM[usize::from(*byte)])
}

/// The bytes of `[.a-zA-Z0-9_-]`.
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
            /// The name, if it is valid (see [`is_valid_name`]).
            #[inline]
            #[must_use]
            pub fn new(name: &'a [u8]) -> Option<Self> {
                is_valid_name(name).then_some(Self(name))
            }

            /// The name as it was sent: ASCII, 1 to 64 bytes.
            #[inline]
            #[must_use]
            pub fn as_bytes(&self) -> &'a [u8] {
                self.0
            }

            /// The name as text. It is looked at once more: where each message passes, compare bytes.
            ///
            /// # Panics
            /// Never: a valid name is ASCII.
            #[must_use]
            pub fn as_str(&self) -> &'a str {
                str::from_utf8(self.0).expect("a valid name is ASCII")
            }

            /// Whether the name ends in `#ephemeral`.
            #[inline]
            #[must_use]
            pub fn is_ephemeral(&self) -> bool {
                self.0.ends_with(EPHEMERAL_SUFFIX)
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
