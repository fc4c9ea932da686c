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
    assert!(began.elapsed() >= Duration::from_millis(150));
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

/// Sends `count` records one after the other from `start`. Returns the end of the last wait.
fn send(rate: &mut Rate, count: usize, start: Duration) -> Duration {
    (0..count).fold(start, |now, _| now + rate.take(now))
}

fn rate(per_second: i64) -> Rate {
    Rate::new(per_second).expect("a rate of at least 1")
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn records_are_spread_over_the_second() {
    let mut rate = rate(10);
    assert_eq!(
        rate.announcement(),
        "Throttling messages rate to max:10/second"
    );
    assert_eq!(send(&mut rate, 1, Duration::ZERO), Duration::ZERO);
    assert_eq!(send(&mut rate, 24, Duration::ZERO), 2400 * MS);
}

#[test]
fn an_idle_time_allows_a_burst_of_one_second() {
    let mut rate = rate(10);
    let start = Duration::from_secs(100);
    assert_eq!(send(&mut rate, 10, start), start);
    assert_eq!(send(&mut rate, 1, start), start + 100 * MS);
    // Half a second of tokens.
    let later = start + 600 * MS;
    assert_eq!(send(&mut rate, 5, later), later);
    assert_eq!(send(&mut rate, 1, later), later + 100 * MS);
}

#[test]
fn a_rate_of_one() {
    let mut rate = rate(1);
    assert_eq!(send(&mut rate, 4, Duration::ZERO), 3000 * MS);
}

#[test]
fn large_rates_do_not_overflow() {
    let mut rate = rate(i64::MAX);
    assert!(send(&mut rate, 10_000, Duration::ZERO) < MS);
    assert_eq!(
        send(&mut rate, 10_000, Duration::MAX / 2),
        Duration::MAX / 2
    );
}

#[test]
fn below_one_there_is_no_limit() {
    assert!(Rate::new(0).is_none());
    assert!(Rate::new(-5).is_none());
}

/// Feeds the input in pieces of each size, and compares the records and the rest.
fn check(delimiter: u8, input: &str, expected: &[&str], rest: &str) {
    for size in 1..=input.len().max(1) {
        let mut records = Records::new(delimiter);
        let mut found = Vec::new();
        for piece in input.as_bytes().chunks(size) {
            records.add(piece);
            found.extend(std::iter::from_fn(|| records.next_whole()));
        }
        assert_eq!(found, expected, "{input:?} in pieces of {size}");
        assert_eq!(records.rest(), rest, "{input:?} in pieces of {size}");
    }
}

#[test]
fn the_delimiter_ends_a_record() {
    check(b'\n', "", &[], "");
    check(b'\n', "\n", &[""], "");
    check(b'\n', "one\n\ntwo\nthree", &["one", "", "two"], "three");
    check(b'\n', "one\r\n", &["one\r"], "");
    check(b',', "one,two,three\n", &["one", "two"], "three");
    check(b',', "one\n,two\n\n", &["one\n"], "two\n");
    check(b',', "one,\n", &["one"], "");
    check(0, "a\0b", &["a"], "b");
}

#[test]
fn a_long_record_is_searched_once() {
    let mut records = Records::new(b'\n');
    let piece = [b'x'; 1024];
    for size in 1..=100 {
        records.add(&piece);
        assert_eq!(records.next_whole(), None);
        assert_eq!(records.searched, size * piece.len());
    }
    records.add(b"\n");
    assert_eq!(
        records.next_whole().map(|record| record.len()),
        Some(102_400)
    );
}
