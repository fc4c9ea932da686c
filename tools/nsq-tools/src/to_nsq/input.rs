//! [`Input`]: the records of standard input, as fast as `--rate` allows ([`Rate`]).

use std::io::{self, Read};
use std::thread;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;
use tokio::time;

/// The bytes of one read.
const READ_BYTES_MAX: usize = 64 * 1024;

/// The reads that wait for the publishes. Beyond them, the input waits.
const READS_MAX: usize = 4;

/// The records of an input.
#[derive(Debug)]
pub(super) struct Input {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    /// `None` after the end of the input.
    records: Option<Records>,
    rate: Option<Rate>,
    began: Instant,
    /// The next record, and the time at which it may go.
    waiting: Option<(Bytes, time::Instant)>,
}

impl Input {
    /// Reads `source` on a thread of its own, because a read of a terminal or pipe cannot be
    /// interrupted. The thread ends with the source, or with the process.
    pub(super) fn new(
        mut source: impl Read + Send + 'static,
        delimiter: u8,
        rate: Option<Rate>,
    ) -> Input {
        let (sender, pieces) = mpsc::channel(READS_MAX);
        thread::spawn(move || {
            let mut buffer = vec![0; READ_BYTES_MAX];
            loop {
                let piece = match source.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(count) => Ok(Bytes::copy_from_slice(&buffer[..count])),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_last = piece.is_err();
                if sender.blocking_send(piece).is_err() || is_last {
                    return;
                }
            }
        });
        Input {
            pieces,
            records: Some(Records::new(delimiter)),
            rate,
            began: Instant::now(),
            waiting: None,
        }
    }

    /// Returns the next record that is not empty, or `None` at the end of the input. Empty records
    /// take their share of the rate. Dropping the future loses no record.
    ///
    /// # Errors
    /// The input cannot be read.
    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some((_, at)) = &self.waiting {
                time::sleep_until(*at).await;
                match self.waiting.take() {
                    Some((record, _)) if !record.is_empty() => return Ok(Some(record)),
                    _ => continue,
                }
            }
            let Some(record) = self.next_record().await? else {
                return Ok(None);
            };
            let wait = match &mut self.rate {
                Some(rate) => rate.take(self.began.elapsed()),
                None => Duration::ZERO,
            };
            if wait.is_zero() && !record.is_empty() {
                return Ok(Some(record));
            }
            if !wait.is_zero() {
                self.waiting = Some((record, time::Instant::now() + wait));
            }
        }
    }

    /// Returns the next record, which may be empty. The rest behind the last delimiter is a record
    /// if it is not empty.
    async fn next_record(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let Some(records) = &mut self.records else {
                return Ok(None);
            };
            if let Some(record) = records.next_whole() {
                return Ok(Some(record));
            }
            match self.pieces.recv().await {
                Some(piece) => records.add(&piece?),
                None => {
                    let rest = self.records.take().map(Records::rest);
                    return Ok(rest.filter(|rest| !rest.is_empty()));
                }
            }
        }
    }
}

/// A counter of tokens. It starts at 1 and gains one token every 1/N second, up to N. Each record
/// takes one token.
///
/// The counter has no clock. Times are durations since the start.
#[derive(Debug)]
pub(super) struct Rate {
    /// Records per second.
    per_second: u64,
    /// The tokens that were taken, minus the tokens that the cap has refused.
    taken: u64,
}

impl Rate {
    /// Returns the limit of `per_second` records, or `None` if that is below 1.
    pub(super) fn new(per_second: i64) -> Option<Rate> {
        let per_second = u64::try_from(per_second).ok().filter(|n| *n >= 1)?;
        Some(Rate {
            per_second,
            taken: 0,
        })
    }

    /// Returns the line that says the limit.
    pub(super) fn announcement(&self) -> String {
        format!("Throttling messages rate to max:{}/second", self.per_second)
    }

    /// Takes a token for a record. Returns the time to wait before the record, which is zero if
    /// there was a token.
    fn take(&mut self, now: Duration) -> Duration {
        let gained = 1 + self.gained(now);
        // Tokens above the cap are lost.
        self.taken = self.taken.max(gained.saturating_sub(self.per_second));
        self.taken += 1;
        if self.taken <= gained {
            return Duration::ZERO;
        }
        self.time_of(self.taken - 1).saturating_sub(now)
    }

    /// Returns the number of tokens that the counter has gained since the start.
    fn gained(&self, now: Duration) -> u64 {
        let tokens = now.as_nanos().saturating_mul(u128::from(self.per_second)) / NANOS;
        u64::try_from(tokens).unwrap_or(u64::MAX - 1)
    }

    /// Returns the time at which the counter has gained this number of tokens.
    fn time_of(&self, tokens: u64) -> Duration {
        let nanos = (u128::from(tokens) * NANOS).div_ceil(u128::from(self.per_second));
        Duration::from_nanos_u128(nanos)
    }
}

/// The nanoseconds of a second.
const NANOS: u128 = 1_000_000_000;

/// The input that is not split yet.
///
/// Invariant: the first `searched` bytes have no delimiter.
#[derive(Debug)]
struct Records {
    delimiter: u8,
    buffer: BytesMut,
    searched: usize,
}

impl Records {
    /// Returns an empty input.
    fn new(delimiter: u8) -> Records {
        Records {
            delimiter,
            buffer: BytesMut::new(),
            searched: 0,
        }
    }

    /// Adds a piece of the input.
    fn add(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Returns the next record that a delimiter ends, without the delimiter. The record may be empty.
    fn next_whole(&mut self) -> Option<Bytes> {
        let unsearched = &self.buffer[self.searched..];
        match memchr::memchr(self.delimiter, unsearched) {
            Some(place) => {
                let mut record = self.buffer.split_to(self.searched + place + 1);
                record.truncate(record.len() - 1);
                self.searched = 0;
                Some(record.freeze())
            }
            None => {
                self.searched = self.buffer.len();
                None
            }
        }
    }

    /// Returns the rest of the input after its end, which no delimiter ends, without the line feed that ends a text. The
    /// rest may be empty. The original drops the last byte of the rest, whatever it is.
    fn rest(self) -> Bytes {
        let mut rest = self.buffer;
        if rest.ends_with(b"\n") {
            rest.truncate(rest.len() - 1);
        }
        rest.freeze()
    }
}

#[cfg(test)]
mod tests;
