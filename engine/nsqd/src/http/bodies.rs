//! [`Bodies`]: the messages of one request, and the two forms of `/mpub` in which they come.

use std::io::BufRead;

use bytes::Bytes;
use program::http::{End, Failure, Received};
use wire::command::Batch;

use crate::config::Config;

/// The messages that one request publishes. The broker stores all of them, or the request fails.
///
/// Each [`Bodies::iter`] splits the bytes into messages anew: a list of the messages' places would take more memory
/// than small messages do.
#[derive(Clone, Debug)]
pub(super) struct Bodies {
    received: Bytes,
    form: Form,
    count: u32,
    body_bytes: u64,
}

/// The form in which a request has its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// All bytes are one message.
    One,
    /// Each line that is not empty is a message, without its line feed.
    Lines,
    /// Each message has its size in front, as in an MPUB: a [`Batch`].
    Packed,
}

impl Bodies {
    /// The body of `/pub`.
    pub(super) fn one(received: Bytes) -> Bodies {
        Bodies {
            body_bytes: received.len() as u64,
            received,
            form: Form::One,
            count: 1,
        }
    }

    /// Returns how many messages there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The total size of the messages.
    pub(super) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The messages, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let received = &self.received[..];
        let one = (self.form == Form::One).then_some(received);
        let lines = (self.form == Form::Lines).then(|| lines(received));
        let packed = (self.form == Form::Packed).then(|| {
            Batch::from_packed(self.count, received).expect("the batch was whole when it came")
        });
        let many = lines.into_iter().flatten();
        let many = many.chain(packed.into_iter().flatten());
        one.into_iter().chain(many)
    }
}

/// One message per line. nsqd judges while it reads, so the first offence in the stream counts.
pub(super) fn split_lines(received: Received, config: &Config) -> Result<Bodies, Failure> {
    let (mut count, mut body_bytes) = (0u32, 0);
    let mut rest = &received.bytes[..];
    while !rest.is_empty() {
        let (whole, behind) = split_line(rest);
        let line = match (whole.strip_suffix(b"\n"), received.end) {
            (Some(line), _) => line,
            (None, End::Broken) => break,
            (None, _) => whole,
        };
        let total = received.bytes.len() - behind.len();
        if total as u64 > config.body_bytes_max {
            return Err(Failure::too_large("BODY_TOO_BIG"));
        }
        if line.len() as u64 > config.msg_bytes_max {
            return Err(Failure::too_large("MSG_TOO_BIG"));
        }
        if !line.is_empty() {
            let too_many = Failure::too_large("BODY_TOO_BIG");
            count = count.checked_add(1).ok_or(too_many)?;
            body_bytes += line.len() as u64;
        }
        rest = behind;
    }
    match received.end {
        End::Complete => Ok(Bodies {
            received: received.bytes,
            form: Form::Lines,
            count,
            body_bytes,
        }),
        End::Broken => Err(Failure::INTERNAL),
        End::OverLimit => Err(Failure::too_large("BODY_TOO_BIG")),
    }
}

/// Returns the lines of a body that are not empty, without their line feeds.
fn lines(mut body: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    std::iter::from_fn(move || {
        while !body.is_empty() {
            let (whole, behind) = split_line(body);
            body = behind;
            let line = whole.strip_suffix(b"\n").unwrap_or(whole);
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    })
}

/// Splits a body into its first line, with the line feed if there is one, and the rest.
fn split_line(body: &[u8]) -> (&[u8], &[u8]) {
    let mut behind = body;
    let line_bytes = behind.skip_until(b'\n');
    body.split_at(line_bytes.expect("reading memory does not fail"))
}

/// The body of MPUB, as on the wire; what follows the last message is ignored.
pub(super) fn split_binary(received: Received, config: &Config) -> Result<Bodies, Failure> {
    if received.end == End::OverLimit {
        return Err(Failure::too_large("BODY_TOO_BIG"));
    }
    let batch = Batch::parse_binary(&received.bytes, &config.limits())
        .map_err(|error| Failure::too_large(error.as_str()))?;
    Ok(Bodies {
        received: received.bytes.slice_ref(batch.packed()),
        form: Form::Packed,
        count: batch.count(),
        body_bytes: batch.body_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Complete lines are judged before the end of a body that is cut or too long. The recorded cases
    /// (`tests/differential/http_mpub.case`) have all other bodies.
    #[test]
    fn the_first_offence_in_a_stream_counts() {
        let args = ["--max-msg-size=5", "--max-body-size=20"].map(Into::into);
        let config = Config::from_args(args).expect("good flags");
        for (body, end, expected) in [
            ("a\nb", End::Broken, "INTERNAL_ERROR"),
            ("123456\nb", End::Broken, "MSG_TOO_BIG"),
            ("1\n123456", End::Broken, "INTERNAL_ERROR"),
            ("123456\n45678901234567890", End::OverLimit, "MSG_TOO_BIG"),
            ("12345678901234567890123", End::OverLimit, "BODY_TOO_BIG"),
            ("12345\n12345\n12345\n12\n", End::OverLimit, "BODY_TOO_BIG"),
        ] {
            let bytes = Bytes::copy_from_slice(body.as_bytes());
            let refused = split_lines(Received { bytes, end }, &config);
            assert_eq!(refused.expect_err("an offence").code, expected, "{body:?}");
        }
    }
}
