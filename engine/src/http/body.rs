//! Request bodies: read up to a limit, or got rid of; and the two forms of `/mpub`.

use std::io;

use bytes::Bytes;
use wire::command::Batch;
use wire::limits::Limits;

use super::Bodies;
use super::chunked::{Chunked, Step};
use super::connection::{Connection, Io};
use super::head::Framing;
use super::reply::Failure;

/// What is left of a body is read and thrown away before the answer if it is less than this; else
/// the connection is closed. The number is that of Go's server.
const DISCARD_BYTES_MAX: u64 = 256 * 1024;

/// A request's body and what has become of it.
pub(super) struct RequestBody<'a, S> {
    connection: &'a mut Connection<S>,
    framing: Framing,
    announced_bytes: Option<u64>,
    /// The peer sends nothing before it is asked to, which has not been done yet.
    awaits_continue: bool,
    is_broken: bool,
}

/// A body, or its beginning.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) bytes: Bytes,
    pub(super) end: End,
}

/// Where a received body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Complete,
    /// The peer stopped in the middle, or the chunks are malformed.
    Broken,
    /// There is more than the limit. `bytes` holds more than the limit, by at most one read.
    OverLimit,
}

impl<'a, S: Io> RequestBody<'a, S> {
    /// What follows a head that was just taken off the connection.
    pub(super) fn new(
        connection: &'a mut Connection<S>,
        framing: Framing,
        awaits_continue: bool,
    ) -> RequestBody<'a, S> {
        let announced_bytes = match framing {
            Framing::Length(bytes) => Some(bytes),
            Framing::Chunked(_) => None,
        };
        RequestBody {
            connection,
            framing,
            announced_bytes,
            awaits_continue,
            is_broken: false,
        }
    }

    /// The announced length; `None` when it is sent in chunks.
    pub(super) fn announced_bytes(&self) -> Option<u64> {
        self.announced_bytes
    }

    /// Reads until the end or until there is more than the limit. A body of known length is read to
    /// where it stays: only what came together with the head is copied.
    pub(super) async fn receive(&mut self, bytes_max: u64) -> Received {
        let mut bytes = Vec::new();
        let end = match self.framing {
            Framing::Length(count) if count <= bytes_max => {
                self.receive_announced(&mut bytes, count).await
            }
            _ => self.receive_pieces(&mut bytes, bytes_max).await,
        };
        Received {
            bytes: Bytes::from(bytes),
            end,
        }
    }

    async fn receive_announced(&mut self, bytes: &mut Vec<u8>, count: u64) -> End {
        let count = usize::try_from(count).expect("below a limit of nsqd's");
        let asked = self.ask_to_continue().await;
        self.framing = Framing::Length(0);
        let read = match asked {
            Ok(()) => self.connection.read_to(bytes, count).await,
            Err(error) => Err(error),
        };
        self.is_broken = read.is_err();
        if self.is_broken {
            End::Broken
        } else {
            End::Complete
        }
    }

    async fn receive_pieces(&mut self, bytes: &mut Vec<u8>, bytes_max: u64) -> End {
        while let Some(piece) = self.next_piece().await {
            bytes.extend_from_slice(piece);
            if bytes.len() as u64 > bytes_max {
                return End::OverLimit;
            }
        }
        if self.is_broken {
            End::Broken
        } else {
            End::Complete
        }
    }

    /// Reads to the end without keeping anything, whatever the length; false if that fails.
    pub(super) async fn read_and_forget(&mut self) -> bool {
        while self.next_piece().await.is_some() {}
        !self.is_broken
    }

    /// Gets rid of what the handler left unread. Returns whether the connection has to be closed
    /// because that is too much. `is_closing`: the connection ends anyway. A peer that sends its body
    /// only when asked is not asked any more.
    pub(super) async fn finish(&mut self, is_closing: bool) -> bool {
        if self.is_broken {
            return true;
        }
        let (is_at_end, left_bytes) = match &self.framing {
            Framing::Length(left) => (*left == 0, *left),
            Framing::Chunked(chunked) => (chunked.is_at_end(), 0),
        };
        if is_at_end {
            return false;
        }
        if is_closing || self.awaits_continue || left_bytes >= DISCARD_BYTES_MAX {
            return true;
        }
        let mut count: u64 = 0;
        while let Some(piece) = self.next_piece().await {
            count += piece.len() as u64;
            if count >= DISCARD_BYTES_MAX {
                return true;
            }
        }
        self.is_broken
    }

    /// The next bytes, never empty; `None` at the end and after a failure.
    async fn next_piece(&mut self) -> Option<&[u8]> {
        match self.find_piece().await {
            Ok(0) => None,
            Ok(count) => Some(self.connection.take(count)),
            Err(_) => {
                self.is_broken = true;
                None
            }
        }
    }

    /// Reads until a piece of the body is at the front of what was read. Returns its length; 0 at
    /// the end.
    async fn find_piece(&mut self) -> io::Result<usize> {
        self.ask_to_continue().await?;
        loop {
            let unread = self.connection.unread();
            let step = match &mut self.framing {
                Framing::Length(left) => take_length(left, unread),
                Framing::Chunked(chunked) => take_chunk(chunked, unread)?,
            };
            match step {
                Step::Skip(count) => _ = self.connection.take(count),
                Step::Data(count) => return Ok(count),
                Step::End => return Ok(0),
                Step::More => {
                    if self.connection.fill().await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }

    /// Also if the body is there already, as most servers do.
    async fn ask_to_continue(&mut self) -> io::Result<()> {
        let is_empty = matches!(self.framing, Framing::Length(0));
        if !is_empty && std::mem::take(&mut self.awaits_continue) {
            let answer = b"HTTP/1.1 100 Continue\r\n\r\n";
            return self.connection.write(answer).await;
        }
        Ok(())
    }
}

fn take_length(left: &mut u64, unread: &[u8]) -> Step {
    if *left == 0 {
        return Step::End;
    }
    if unread.is_empty() {
        return Step::More;
    }
    let count = usize::try_from(*left).map_or(unread.len(), |left| left.min(unread.len()));
    *left -= count as u64;
    Step::Data(count)
}

fn take_chunk(chunked: &mut Chunked, unread: &[u8]) -> io::Result<Step> {
    let step = chunked.step(unread);
    step.map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The limits of `/mpub`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MpubLimits {
    pub(super) msg_bytes_max: u64,
    pub(super) body_bytes_max: u64,
}

/// One message per line. nsqd judges while it reads, so the first offence in the stream counts.
pub(super) fn split_lines(received: Received, limits: MpubLimits) -> Result<Bodies, Failure> {
    let mut places = Vec::new();
    let mut start = 0;
    while start < received.bytes.len() {
        let rest = &received.bytes[start..];
        let line_feed = rest.iter().position(|&byte| byte == b'\n');
        let end = match (line_feed, received.end) {
            (Some(bytes), _) => start + bytes,
            (None, End::Broken) => break,
            (None, _) => received.bytes.len(),
        };
        let total = end as u64 + u64::from(line_feed.is_some());
        if total > limits.body_bytes_max {
            return Err(Failure::too_large("BODY_TOO_BIG"));
        }
        if (end - start) as u64 > limits.msg_bytes_max {
            return Err(Failure::too_large("MSG_TOO_BIG"));
        }
        if end > start {
            places.push(start..end);
        }
        start = end + 1;
    }
    match received.end {
        End::Complete => Ok(Bodies::many(received.bytes, places)),
        End::Broken => Err(Failure::INTERNAL),
        End::OverLimit => Err(Failure::too_large("BODY_TOO_BIG")),
    }
}

/// The bytes of a number in MPUB's body.
const SIZE_BYTES: usize = 4;

/// The body of MPUB, as on the wire; what follows the last message is ignored.
pub(super) fn split_binary(received: Received, limits: MpubLimits) -> Result<Bodies, Failure> {
    if received.end == End::OverLimit {
        return Err(Failure::too_large("BODY_TOO_BIG"));
    }
    let narrow = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
    let limits = Limits {
        message_bytes_max: narrow(limits.msg_bytes_max),
        body_bytes_max: narrow(limits.body_bytes_max),
        ..Limits::default()
    };
    let batch = Batch::parse_binary(&received.bytes, &limits)
        .map_err(|error| Failure::too_large(error.as_str()))?;
    // A count, then each with its size in front.
    let mut end = SIZE_BYTES;
    let places = batch.iter().map(|message| {
        let start = end + SIZE_BYTES;
        end = start + message.len();
        start..end
    });
    let places = places.collect();
    Ok(Bodies::many(received.bytes, places))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MpubLimits = MpubLimits {
        msg_bytes_max: 5,
        body_bytes_max: 20,
    };

    fn received(bytes: &[u8], end: End) -> Received {
        Received {
            bytes: Bytes::copy_from_slice(bytes),
            end,
        }
    }

    #[test]
    fn lines() {
        let check = |body: &str, end: End, expected: Result<&[&str], &str>| {
            let lines = split_lines(received(body.as_bytes(), end), LIMITS);
            let expected = expected.map(|lines| lines.iter().map(|s| s.to_string()).collect());
            let lines = lines.map_err(|failure| failure.1).map(|lines| {
                lines
                    .iter()
                    .map(|line| String::from_utf8_lossy(line).into_owned())
                    .collect()
            });
            assert_eq!(
                lines,
                expected.map_err(|code: &str| code) as Result<Vec<String>, _>
            );
        };
        check("", End::Complete, Ok(&[]));
        check("\n\n", End::Complete, Ok(&[]));
        check("a\nb\r\n\nc", End::Complete, Ok(&["a", "b\r", "c"]));
        check("12345\n12345", End::Complete, Ok(&["12345", "12345"]));
        check("123456\n", End::Complete, Err("MSG_TOO_BIG"));
        check("123456", End::Complete, Err("MSG_TOO_BIG"));
        check(
            "12345\n12345\n12345\n1\n",
            End::Complete,
            Ok(&["12345", "12345", "12345", "1"]),
        );
        check(
            "12345\n12345\n12345\n12\n",
            End::OverLimit,
            Err("BODY_TOO_BIG"),
        );
        // Complete lines are judged before the failure is noticed.
        check("a\nb", End::Broken, Err("INTERNAL_ERROR"));
        check("123456\nb", End::Broken, Err("MSG_TOO_BIG"));
        check("1\n123456", End::Broken, Err("INTERNAL_ERROR"));
        check(
            "123456\n45678901234567890",
            End::OverLimit,
            Err("MSG_TOO_BIG"),
        );
        check(
            "12345678901234567890123",
            End::OverLimit,
            Err("BODY_TOO_BIG"),
        );
    }

    fn binary(count: i32, messages: &[(i32, &str)]) -> Vec<u8> {
        let mut bytes = count.to_be_bytes().to_vec();
        for (size, body) in messages {
            bytes.extend_from_slice(&size.to_be_bytes());
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }

    #[test]
    fn binary_bodies() {
        let check = |body: &[u8], expected: Result<&[&str], &str>| {
            let bodies = split_binary(received(body, End::Complete), LIMITS);
            let bodies = bodies.map_err(|failure| failure.1);
            let messages = bodies.as_ref().map(|bodies| {
                assert_eq!(bodies.count(), bodies.iter().count());
                bodies.iter().collect()
            });
            let expected = expected.map(|some| some.iter().map(|one| one.as_bytes()).collect());
            assert_eq!(
                messages.map_err(|code| *code) as Result<Vec<&[u8]>, _>,
                expected,
                "{body:?}"
            );
        };
        check(&binary(2, &[(1, "a"), (2, "bc")]), Ok(&["a", "bc"]));
        check(&binary(1, &[(1, "a"), (2, "bc")]), Ok(&["a"]));
        check(b"", Err("BAD_BODY"));
        check(b"\0\0\0", Err("BAD_BODY"));
        check(&binary(0, &[]), Err("BAD_BODY"));
        check(&binary(-1, &[]), Err("BAD_BODY"));
        check(&binary(4, &[]), Err("BAD_BODY"));
        check(&binary(3, &[]), Err("BAD_MESSAGE"));
        check(&binary(1, &[(0, "")]), Err("BAD_MESSAGE"));
        check(&binary(1, &[(-1, "")]), Err("BAD_MESSAGE"));
        check(&binary(1, &[(6, "123456")]), Err("BAD_MESSAGE"));
        check(&binary(1, &[(3, "12")]), Err("BAD_MESSAGE"));
        check(&binary(2, &[(1, "a")]), Err("BAD_MESSAGE"));
        let over = received(&binary(1, &[(1, "a")]), End::OverLimit);
        assert_eq!(split_binary(over, LIMITS).unwrap_err().1, "BODY_TOO_BIG");
        let none = MpubLimits {
            msg_bytes_max: 5,
            body_bytes_max: 0,
        };
        let one = received(&binary(1, &[(1, "a")]), End::Complete);
        assert_eq!(split_binary(one, none).unwrap_err().1, "BAD_BODY");
    }
}
