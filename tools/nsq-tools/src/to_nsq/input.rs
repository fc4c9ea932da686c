//! [`Input`]: the records of standard input, as fast as `--rate` allows.

use std::io::{self, Read};
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time;

use super::rate::Rate;
use super::records::Records;

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
                None => time::Duration::ZERO,
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(mut input: Input) -> Vec<Bytes> {
        let mut records = Vec::new();
        while let Some(record) = input.next().await.expect("the input can be read") {
            records.push(record);
        }
        assert_eq!(input.next().await.expect("the end stays"), None);
        records
    }

    #[tokio::test]
    async fn empty_records_are_skipped_and_the_rest_is_a_record() {
        let check = async |text: &'static str, expected: &[&str]| {
            let input = Input::new(text.as_bytes(), b'\n', None);
            assert_eq!(all(input).await, expected, "{text:?}");
        };
        check("", &[]).await;
        check("\n\n", &[]).await;
        check("one\n\ntwo\nthree", &["one", "two", "three"]).await;
        check("one\n", &["one"]).await;
    }

    #[tokio::test]
    async fn a_long_input_comes_whole() {
        let line = "x".repeat(997);
        let text = format!("{line}\n").repeat(2000);
        let input = Input::new(io::Cursor::new(text), b'\n', None);
        assert_eq!(all(input).await, vec![line; 2000]);
    }

    #[tokio::test]
    async fn empty_records_take_their_share_of_the_rate() {
        let began = Instant::now();
        let input = Input::new("a\n\n\nb\n".as_bytes(), b'\n', Rate::new(20));
        assert_eq!(all(input).await, ["a", "b"]);
        assert!(began.elapsed() >= time::Duration::from_millis(150));
    }

    #[tokio::test]
    async fn an_error_of_the_input_is_reported() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let mut input = Input::new(Broken, b'\n', None);
        let error = input.next().await.expect_err("the error comes");
        assert_eq!(error.to_string(), "broken");
    }
}
