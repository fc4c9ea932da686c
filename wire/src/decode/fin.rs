//! A shortcut for FINs, which come in runs: most commands of a consumer are FINs.

use crate::id::{MessageId, Seq};
use crate::limits::ID_BYTES;

/// Bytes of a FIN in the spelling of client libraries.
pub const FIN_BYTES: usize = VERB.len() + ID_BYTES + 1;

const VERB: &[u8; 4] = b"FIN ";

/// Returns the seq and node of the message that `line` finishes, if the line is `FIN <id>` LF with
/// an id that a node could have assigned.
///
/// The caller passes a line with the result `None` to the [`Decoder`](super::Decoder), which knows
/// the other spellings, the errors, and the states in which FIN is allowed. `Some` names the same
/// message as the decoder would.
#[inline]
#[must_use]
pub fn fin(line: &[u8; FIN_BYTES]) -> Option<(Seq, u16)> {
    let (verb, rest) = line.split_first_chunk::<4>()?;
    let (id, end) = rest.split_first_chunk::<ID_BYTES>()?;
    (verb == VERB && end == b"\n")
        .then(|| MessageId(*id).decode())
        .flatten()
}
