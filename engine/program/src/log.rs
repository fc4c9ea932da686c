//! The log: one line per message on stderr, in the format of NSQ's daemons or as JSON.
//!
//! ```text
//!   [nsqd] 2026/11/21 09:12:50.018344 INFO: TCP: new client(127.0.0.1:50142)
//!   prefix date       time, local     level text
//!
//!   {"time":"2026-11-21T09:12:50.018344Z","level":"info","program":"nsqd","message":"TCP: new client(...)"}
//! ```
//!
//! Clients choose parts of some texts. `log/line.rs` escapes control characters, so that no text
//! can begin a line of its own or control a terminal. No other module makes a line of a text.
//!
//! A thread that serves clients must never wait for a terminal or a full pipe. It takes the time,
//! formats the text and puts both into a bounded queue. One writer thread formats the time and
//! writes. When the queue is full, the line is dropped and counted, and the writer reports the
//! number of dropped lines as soon as it can write again. Only [`fatal`](crate::log_fatal) lines
//! wait for the write: they hold the reason why the process ends.
//!
//! A program whose stderr is a terminal can show a text below the lines ([`show_status`]).
//!
//! A repeated error ([`log_repeated`](crate::log_repeated)) has one line a second for each cause
//! (`log/repeats.rs`).

mod level;
mod line;
mod repeats;

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
pub use level::Level;
pub(crate) use line::{Escaped, bare_line, fatal_line};
pub use line::{Format, Style};
use line::{Line, prefix_default};
use repeats::{Held, Repeats};

/// Most lines that wait for the writer. The queue absorbs a burst of connections. More lines than
/// this mean that nobody reads stderr.
const QUEUE_LINES_MAX: usize = 4096;

/// Bytes that the writer collects before it writes. Its buffer has this size.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// Longest time that the end of the process waits for a reader of stderr that does not read.
const FLUSH_WAIT_MAX: Duration = Duration::from_secs(2);

/// Removes the line of a terminal in which the text of [`show_status`] stands.
const CLEAR_LINE: &str = "\r\x1b[K";

/// The lowest level that is written. The value is outside the logger, so that a line below the
/// level costs one relaxed load.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static LOGGER: OnceLock<Logger> = OnceLock::new();
/// The style of the lines that are written directly.
static DIRECT_STYLE: OnceLock<Style> = OnceLock::new();

struct Logger {
    queue: SyncSender<Entry>,
    dropped_count: &'static AtomicU64,
}

/// Number of lines that found the queue full since the writer last reported it.
static DROPPED_COUNT: AtomicU64 = AtomicU64::new(0);

enum Entry {
    Line(Line),
    /// A line of this cause. Only one a second is written, and the last one is never lost.
    Repeated(String, Line),
    /// The text below the lines, without control characters. An empty one removes it.
    Status(String),
    /// The writer answers when every earlier line has been written, also those that were held back.
    Flush(SyncSender<()>),
}

/// Starts the writer thread. A program calls this once, before its other threads start. Lines before
/// the call, and lines after a failure of the call, are written directly.
///
/// # Errors
/// The system cannot start a thread.
pub fn init(level: Level, style: Style) -> io::Result<()> {
    // Like NSQ's daemons, FATAL lines have the default prefix, whatever --log-prefix says.
    let direct = Style {
        prefix: prefix_default(style.program),
        ..style.clone()
    };
    start(level, style, direct)
}

/// Does the same as [`init`] for a tool, whose FATAL lines have the style of all other lines.
///
/// # Errors
/// The system cannot start a thread.
pub fn init_tool(level: Level, style: Style) -> io::Result<()> {
    start(level, style.clone(), style)
}

fn start(level: Level, style: Style, direct: Style) -> io::Result<()> {
    set_level(level);
    assert!(DIRECT_STYLE.set(direct).is_ok(), "the log is started once");
    let (queue, entries) = mpsc::sync_channel(QUEUE_LINES_MAX);
    let writer = Writer::new(style, io::stderr(), &DROPPED_COUNT);
    std::thread::Builder::new()
        .name("log".to_string())
        .spawn(move || writer.run(&entries))?;
    let logger = Logger {
        queue,
        dropped_count: &DROPPED_COUNT,
    };
    assert!(LOGGER.set(logger).is_ok(), "the log is started once");
    Ok(())
}

/// Sets the lowest level that is written.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Returns the lowest level that is written.
pub fn level() -> Level {
    Level::of(LEVEL.load(Ordering::Relaxed))
}

/// Returns true when lines of this level are written. The macros check this before they format.
pub fn enabled(level: Level) -> bool {
    level as u8 >= LEVEL.load(Ordering::Relaxed)
}

/// Writes a line. The macros have checked the level.
pub fn write(level: Level, text: fmt::Arguments<'_>) {
    let line = Line::format(level, text);
    #[cfg(any(test, feature = "capture"))]
    if capture::take_in(level, &line.text) {
        return;
    }
    if level == Level::Fatal {
        show_status(String::new());
        flush();
        write_directly(&line);
        return;
    }
    match LOGGER.get() {
        Some(logger) => logger.send(Entry::Line(line)),
        None => write_directly(&line),
    }
}

/// Writes a line. Further lines of the same cause within a second become one line, with their number and the text of the
/// last one. The macro has checked the level.
pub fn write_repeated(level: Level, cause: String, text: fmt::Arguments<'_>) {
    let Some(logger) = LOGGER.get() else {
        return write(level, text);
    };
    let line = Line::format(level, text);
    logger.send(Entry::Repeated(cause, line));
}

/// Shows `text` below the lines of a terminal, in place of the last such text. An empty text removes
/// it. Only a program whose stderr is a terminal calls this. `text` has no control characters, and
/// fits into a line of the terminal. When stderr is read too slowly, texts are left out.
pub fn show_status(text: String) {
    if let Some(logger) = LOGGER.get() {
        // The next text replaces one that found no room.
        let _ = logger.queue.try_send(Entry::Status(text));
    }
}

/// Waits until every earlier line is written, for at most two seconds.
pub fn flush() {
    if let Some(logger) = LOGGER.get() {
        logger.flush(Instant::now() + FLUSH_WAIT_MAX);
    }
}

/// Writes a line without the writer thread, when there is none or when the process ends.
fn write_directly(line: &Line) {
    let mut bytes = Vec::new();
    let style = DIRECT_STYLE.get().cloned().unwrap_or(Style {
        program: "",
        prefix: String::new(),
        format: Format::Text,
    });
    line.append_to(&mut bytes, &style, &TimeZone::system());
    // A failure to write to stderr cannot be reported anywhere.
    let _ = io::stderr().write_all(&bytes);
}

impl Logger {
    fn send(&self, entry: Entry) {
        if self.queue.try_send(entry).is_err() {
            self.dropped_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self, deadline: Instant) {
        let (done, wait_done) = mpsc::sync_channel(1);
        let mut entry = Entry::Flush(done);
        while let Err(TrySendError::Full(back)) = self.queue.try_send(entry) {
            if Instant::now() >= deadline {
                return;
            }
            entry = back;
            std::thread::sleep(Duration::from_millis(1));
        }
        // Both outcomes have the same meaning: the wait is over.
        let _ = wait_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

struct Writer<W> {
    style: Style,
    zone: TimeZone,
    target: W,
    dropped_count: &'static AtomicU64,
    repeats: Repeats,
    buffer: Vec<u8>,
    /// The text below the lines, and the one that the terminal shows now.
    status: String,
    shown_status: String,
}

impl<W: Write> Writer<W> {
    fn new(style: Style, target: W, dropped_count: &'static AtomicU64) -> Writer<W> {
        Writer {
            style,
            zone: TimeZone::system(),
            target,
            dropped_count,
            repeats: Repeats::default(),
            buffer: Vec::with_capacity(WRITE_BYTES_MAX),
            status: String::new(),
            shown_status: String::new(),
        }
    }

    /// Writes lines until the last sender is gone. Lines that are ready are written in one write.
    fn run(mut self, entries: &Receiver<Entry>) {
        loop {
            let now = Instant::now();
            let report = self.repeats.next();
            // Without a count to report, the wait has no limit.
            let wait = report.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
            match entries.recv_timeout(wait) {
                Ok(entry) => self.handle(entry),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let held = self.repeats.take_held(Instant::now());
            self.report_held(held);
            while self.buffer.len() < WRITE_BYTES_MAX
                && let Ok(entry) = entries.try_recv()
            {
                self.handle(entry);
            }
            self.write_out();
        }
    }

    fn handle(&mut self, entry: Entry) {
        match entry {
            Entry::Line(line) => {
                line.append_to(&mut self.buffer, &self.style, &self.zone);
                self.report_dropped();
            }
            Entry::Repeated(cause, line) => {
                if let Some(line) = self.repeats.admit(cause, line, Instant::now()) {
                    self.handle(Entry::Line(line));
                }
            }
            Entry::Status(text) => self.status = text,
            Entry::Flush(done) => {
                let held = self.repeats.take_all_held();
                self.report_held(held);
                self.report_dropped();
                self.write_out();
                // The caller of flush may have stopped waiting.
                let _ = done.try_send(());
            }
        }
    }

    fn report_dropped(&mut self) {
        let dropped_count = self.dropped_count.swap(0, Ordering::Relaxed);
        if dropped_count > 0 {
            let text = format!("LOG: {dropped_count} lines dropped, stderr is read too slowly");
            self.append(Level::Warn, text);
        }
    }

    fn report_held(&mut self, held: Vec<Held>) {
        for Held { count, level, last } in held {
            // The new line has the level already.
            let last_text = last.text_without_tag();
            let text = format!("LOG: {count} more like it within a second, the last: {last_text}");
            self.append(level, text);
        }
    }

    fn append(&mut self, level: Level, text: String) {
        let line = Line::now(level, text);
        line.append_to(&mut self.buffer, &self.style, &self.zone);
    }

    fn write_out(&mut self) {
        if self.buffer.is_empty() && self.status == self.shown_status {
            return;
        }
        if !self.shown_status.is_empty() {
            self.buffer.splice(..0, CLEAR_LINE.bytes());
        }
        self.buffer.extend_from_slice(self.status.as_bytes());
        self.shown_status.clone_from(&self.status);
        // A failure to write to stderr cannot be reported anywhere.
        let _ = self.target.write_all(&self.buffer);
        self.buffer.clear();
    }
}

/// Logs at level DEBUG. Arguments as for `format!`, evaluated only if the level is enabled.
#[macro_export]
macro_rules! log_debug {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Debug, $($text)+) };
}

/// Logs at level INFO. Arguments as for `format!`, evaluated only if the level is enabled.
#[macro_export]
macro_rules! log_info {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Info, $($text)+) };
}

/// Logs at level WARNING. Arguments as for `format!`, evaluated only if the level is enabled.
#[macro_export]
macro_rules! log_warn {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Warn, $($text)+) };
}

/// Logs at level ERROR. Arguments as for `format!`, evaluated only if the level is enabled.
#[macro_export]
macro_rules! log_error {
    ($($text:tt)+) => { $crate::log_at!($crate::log::Level::Error, $($text)+) };
}

/// Logs a line that may come often: one line a second for each cause. The first arguments are the level, and the cause, a
/// `String`. The others are as for `format!`. The cause is not written: lines about the same thing, such as its failure and
/// its recovery, have the same cause.
#[macro_export]
macro_rules! log_repeated {
    ($level:expr, $cause:expr, $($text:tt)+) => {
        if $crate::log::enabled($level) {
            $crate::log::write_repeated($level, $cause, format_args!($($text)+));
        }
    };
}

/// Logs at level FATAL, always, and waits until the line is written. The caller ends the process.
#[macro_export]
macro_rules! log_fatal {
    ($($text:tt)+) => { $crate::log::write($crate::log::Level::Fatal, format_args!($($text)+)) };
}

/// Logs at a level given as a value.
#[macro_export]
macro_rules! log_at {
    ($level:expr, $($text:tt)+) => {
        if $crate::log::enabled($level) {
            $crate::log::write($level, format_args!($($text)+));
        }
    };
}

/// Collects the lines of the current thread, for tests of the log.
#[cfg(any(test, feature = "capture"))]
pub mod capture {
    use std::cell::RefCell;

    use super::Level;

    thread_local! {
        static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
    }

    /// Starts to collect this thread's lines instead of writing them.
    pub fn start() {
        LINES.with_borrow_mut(|lines| *lines = Some(Vec::new()));
    }

    /// Ends the collection. Returns the lines since `start` as `LEVEL: text`.
    pub fn stop() -> Vec<String> {
        LINES.with_borrow_mut(|lines| lines.take().unwrap_or_default())
    }

    pub(super) fn take_in(level: Level, text: &str) -> bool {
        LINES.with_borrow_mut(|lines| match lines {
            Some(lines) => {
                lines.push(format!("{}: {text}", level.word()));
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests;
