use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::line::{Escaped, LINE_BYTES_MAX, cut};
use super::*;

/// A stderr that a test can read and block.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn line(level: Level, text: &str) -> Line {
    // 2026-11-21 09:12:50.018344 UTC, from the specification.
    let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_795_252_370_018_344);
    Line {
        at,
        level,
        text: text.to_string(),
    }
}

fn writer(sink: &Sink, dropped_count: &'static AtomicU64) -> Writer<Sink> {
    let mut writer = Writer::new(Style::of_daemon("nsqd"), sink.clone(), dropped_count);
    writer.zone = TimeZone::UTC;
    writer
}

#[test]
fn a_line_is_nsqds() {
    let mut bytes = Vec::new();
    let mut style = Style::of_daemon("nsqd");
    line(Level::Info, "nsqd v1.3.0").append_to(&mut bytes, &style, &TimeZone::UTC);
    let east = TimeZone::fixed(jiff::tz::offset(5));
    style.prefix = "XX ".to_string();
    line(Level::Warn, "odd\u{1}").append_to(&mut bytes, &style, &east);
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        "[nsqd] 2026/11/21 09:12:50.018344 INFO: nsqd v1.3.0\n\
         XX 2026/11/21 14:12:50.018344 WARNING: odd\\x01\n"
    );
}

#[test]
fn a_plain_line_has_a_time_and_a_text() {
    let mut bytes = Vec::new();
    let style = Style {
        format: Format::Plain,
        ..Style::of_daemon("nsq_tail")
    };
    let lines = [
        (Level::Info, "a\n"),
        (Level::Warn, "b"),
        (Level::Warn, "WRN    1 c"),
        (Level::Error, "ERROR: d"),
    ];
    for (level, text) in lines {
        line(level, text).append_to(&mut bytes, &style, &TimeZone::UTC);
    }
    let expected = ["a\\n", "WARNING: b", "WRN    1 c", "ERROR: d"]
        .map(|text| format!("2026/11/21 09:12:50 {text}\n"));
    assert_eq!(String::from_utf8(bytes).unwrap(), expected.concat());
}

/// The lines had two levels: `INFO: INF    1 [t/c] stopping...`.
#[test]
fn an_event_of_the_client_has_one_level() {
    let written = |format, text: &str| {
        let mut bytes = Vec::new();
        let style = Style {
            format,
            ..Style::of_daemon("nsq_to_file")
        };
        line(Level::Error, text).append_to(&mut bytes, &style, &TimeZone::UTC);
        String::from_utf8(bytes).unwrap()
    };
    let event = "ERR   12 [t/c] disconnected";
    let text = written(Format::Text, event);
    assert!(text.ends_with(" ERROR: 12 [t/c] disconnected\n"), "{text}");
    let json = written(Format::Json, event);
    assert!(
        json.contains(r#""message":"12 [t/c] disconnected"}"#),
        "{json}"
    );
    let plain = written(Format::Plain, event);
    assert!(
        plain.ends_with(":50 ERR   12 [t/c] disconnected\n"),
        "{plain}"
    );
    let other = written(Format::Text, "ERRATA");
    assert!(other.ends_with(" ERROR: ERRATA\n"), "{other}");
}

#[test]
fn a_line_in_json_is_an_object() {
    let check = |level, text: &str, zone: &TimeZone, expected: &str| {
        let mut bytes = Vec::new();
        let style = Style {
            format: Format::Json,
            ..Style::of_daemon("nsqd")
        };
        line(level, text).append_to(&mut bytes, &style, zone);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    };
    check(
        Level::Info,
        "nsqd v1.3.0",
        &TimeZone::UTC,
        "{\"time\":\"2026-11-21T09:12:50.018344Z\",\"level\":\"info\",\"program\":\"nsqd\",\
         \"message\":\"nsqd v1.3.0\"}\n",
    );
    check(
        Level::Warn,
        "odd \"\u{1b}[2J\"\n<é>\\\u{7f}\u{9b}31m",
        &TimeZone::fixed(jiff::tz::offset(-5)),
        "{\"time\":\"2026-11-21T04:12:50.018344-05:00\",\"level\":\"warn\",\"program\":\"nsqd\",\
         \"message\":\"odd \\\"\\u001b[2J\\\"\\n\\u003cé\\u003e\\\\\\u007f\\u009b31m\"}\n",
    );
}

#[test]
fn control_characters_are_escaped() {
    for (text, shown) in [
        ("", ""),
        ("caf\u{e9} \\n \"x\"", "caf\u{e9} \\n \"x\""),
        ("a\nb\r\n\tc\n", "a\\nb\\r\\n\\tc\\n"),
        ("\u{1b}[2J\0\u{7f}", "\\x1b[2J\\x00\\x7f"),
        ("\u{85}\u{9b}31m", "\\u0085\\u009b31m"),
    ] {
        assert_eq!(Escaped(text).to_string(), shown);
    }
}

#[test]
fn a_full_queue_drops_and_says_so() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (queue, entries) = mpsc::sync_channel(2);
    let logger = Logger {
        queue,
        dropped_count: &COUNT,
    };
    for _ in 0..5 {
        logger.send(Entry::Line(line(Level::Info, "x")));
    }
    assert_eq!(COUNT.load(Ordering::Relaxed), 3);
    drop(logger);
    let sink = Sink::default();
    writer(&sink, &COUNT).run(&entries);
    let text = sink.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1].ends_with(" WARNING: LOG: 3 lines dropped, stderr is read too slowly"));
    assert_eq!(COUNT.load(Ordering::Relaxed), 0);
}

#[test]
fn an_error_that_comes_again_has_one_line_and_a_count() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (queue, entries) = mpsc::sync_channel(1000);
    for n in 0..140 {
        let line = line(Level::Error, &format!("TOPIC(t{n}): cannot - no room"));
        let entry = Entry::Repeated("cannot: no room".to_owned(), line);
        assert!(queue.try_send(entry).is_ok());
    }
    let line = line(Level::Error, "TOPIC(t): cannot - no device");
    let entry = Entry::Repeated("cannot: no device".to_owned(), line);
    assert!(queue.try_send(entry).is_ok());
    let sink = Sink::default();
    let writer = writer(&sink, &COUNT);
    let thread = std::thread::spawn(move || writer.run(&entries));
    let deadline = Instant::now() + Duration::from_secs(60);
    while sink.text().lines().count() < 3 {
        assert!(Instant::now() < deadline, "{}", sink.text());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(queue);
    thread.join().unwrap();
    let text = sink.text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with(" ERROR: TOPIC(t0): cannot - no room"));
    assert!(lines[1].ends_with(" ERROR: TOPIC(t): cannot - no device"));
    let expected =
        " ERROR: LOG: 139 more like it within a second, the last: TOPIC(t139): cannot - no room";
    assert!(lines[2].ends_with(expected), "{text}");
}

#[test]
fn flush_waits_for_earlier_lines_but_not_for_ever() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (queue, entries) = mpsc::sync_channel(8);
    let logger = Logger {
        queue,
        dropped_count: &COUNT,
    };
    logger.send(Entry::Line(line(Level::Error, "first")));
    // No writer runs yet: flush stops at its deadline.
    logger.flush(Instant::now());
    let sink = Sink::default();
    let writer = writer(&sink, &COUNT);
    let thread = std::thread::spawn(move || writer.run(&entries));
    logger.flush(Instant::now() + Duration::from_secs(60));
    assert_eq!(
        sink.text(),
        "[nsqd] 2026/11/21 09:12:50.018344 ERROR: first\n"
    );
    drop(logger);
    thread.join().unwrap();
}

/// Regression: counts that were held back were lost with the process, and were ERROR lines, whatever the level of the lines.
#[test]
fn flush_reports_held_back_lines() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (queue, entries) = mpsc::sync_channel(8);
    let (done, _wait_done) = mpsc::sync_channel(1);
    for text in ["first", "second", "third"] {
        let entry = Entry::Repeated("no room".to_owned(), line(Level::Warn, text));
        assert!(queue.try_send(entry).is_ok());
    }
    assert!(queue.try_send(Entry::Flush(done)).is_ok());
    drop(queue);
    let sink = Sink::default();
    writer(&sink, &COUNT).run(&entries);
    let text = sink.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].ends_with(" WARNING: first"));
    assert!(lines[1].ends_with(" WARNING: LOG: 2 more like it within a second, the last: third"));
}

/// The failure and the recovery of a store were held back apart. So the line about the failure could be the last one, although
/// the store had recovered.
#[test]
fn the_last_line_of_something_that_comes_and_goes_is_its_state() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (queue, entries) = mpsc::sync_channel(8);
    let (done, _wait_done) = mpsc::sync_channel(1);
    for text in ["ERR    1 [t/c] no answer", "INF    1 [t/c] answers"].repeat(2) {
        let level = if text.starts_with("ERR") {
            Level::Error
        } else {
            Level::Info
        };
        let entry = Entry::Repeated("[t/c] store".to_owned(), line(level, text));
        assert!(queue.try_send(entry).is_ok());
    }
    assert!(queue.try_send(Entry::Flush(done)).is_ok());
    drop(queue);
    let sink = Sink::default();
    writer(&sink, &COUNT).run(&entries);
    let text = sink.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].ends_with(" ERROR: 1 [t/c] no answer"));
    // The held lines have an error among them.
    let last = " ERROR: LOG: 3 more like it within a second, the last: 1 [t/c] answers";
    assert!(lines[1].ends_with(last), "{text}");
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let mut text = "é".repeat(LINE_BYTES_MAX);
    cut(&mut text);
    assert_eq!(text.len(), LINE_BYTES_MAX + 3);
    assert!(text.ends_with("é..."));
}

#[test]
fn levels_are_read_in_any_case_but_warning_is_not_one() {
    assert_eq!("WARN".parse(), Ok(Level::Warn));
    assert_eq!("Debug".parse(), Ok(Level::Debug));
    let error = "warning".parse::<Level>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid log level 'warning' (debug, info, warn, error, fatal)"
    );
}

#[test]
fn a_fatal_line_has_the_fixed_prefix_and_ends_in_a_line_feed() {
    let text = fatal_line("nsqd", "failed to instantiate nsqd - x");
    assert!(text.starts_with("[nsqd] 20"), "{text:?}");
    assert!(
        text.ends_with(" FATAL: failed to instantiate nsqd - x\n"),
        "{text:?}"
    );
}

/// Regression: the line was cut like the lines of the queue.
#[test]
fn a_fatal_line_before_the_log_starts_is_whole() {
    let why = "x".repeat(LINE_BYTES_MAX + 1);
    let text = fatal_line("nsqd", &why);
    assert!(text.ends_with(&format!(" FATAL: {why}\n")));
}

/// Regression: the time was taken when the text was formatted already.
#[test]
fn a_line_has_the_time_before_its_text_is_formatted() {
    struct Clock(std::cell::Cell<Option<SystemTime>>);
    impl fmt::Display for Clock {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.set(Some(SystemTime::now()));
            Ok(())
        }
    }
    let clock = Clock(Default::default());
    let line = Line::format(Level::Info, format_args!("{clock}"));
    assert!(Some(line.at) <= clock.0.get());
}

#[test]
fn lines_below_the_level_are_not_formatted() {
    struct Loud;
    impl fmt::Display for Loud {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("formatted a line that is not wanted");
        }
    }
    capture::start();
    crate::log_debug!("{}", Loud);
    crate::log_info!("a {}", 1);
    crate::log_fatal!("b");
    assert_eq!(capture::stop(), ["INFO: a 1", "FATAL: b"]);
}

#[test]
fn a_status_stays_below_the_lines() {
    let sink = Sink::default();
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    let mut writer = writer(&sink, &DROPPED);
    let mut expected = String::new();
    let mut check = |writer: &mut Writer<Sink>, entry, output: &str| {
        writer.handle(entry);
        writer.write_out();
        expected += output;
        assert_eq!(sink.text(), expected);
    };
    let at = "[nsqd] 2026/11/21 09:12:50.018344 INFO: ";
    let status = |text: &str| Entry::Status(text.to_string());
    let info = |text: &str| Entry::Line(line(Level::Info, text));
    check(&mut writer, info("a"), &format!("{at}a\n"));
    check(&mut writer, status("1 message"), "1 message");
    check(&mut writer, status("1 message"), "");
    check(&mut writer, status("2 messages"), "\r\x1b[K2 messages");
    check(
        &mut writer,
        info("b"),
        &format!("\r\x1b[K{at}b\n2 messages"),
    );
    check(&mut writer, status(""), "\r\x1b[K");
    check(&mut writer, info("c"), &format!("{at}c\n"));
}
