//! A shortcut for FINs, which come in runs: a consumer sends little else.

use crate::id::{MessageId, Seq};
use crate::limits::ID_BYTES;

/// The bytes of a FIN as clients write it.
pub const FIN_BYTES: usize = VERB.len() + ID_BYTES + 1;

const VERB: &[u8; 4] = b"FIN ";

/// The seq and node of the message that `line` finishes, if it is `FIN <id>` LF with an id that a node
/// could have given out.
///
/// What is `None` here is for the [`Decoder`](super::Decoder), which knows the other spellings, what is
/// wrong with the rest, and in which state a client may say so. What is not `None` means the same there.
#[inline]
#[must_use]
pub fn fin(line: &[u8; FIN_BYTES]) -> Option<(Seq, u16)> {
    let (verb, rest) = line.split_first_chunk::<4>()?;
    let (id, end) = rest.split_first_chunk::<ID_BYTES>()?;
    (verb == VERB && end == b"\n")
        .then(|| MessageId(*id).decode())
        .flatten()
}
