//! [`Line`]: the form of a line, as text or as JSON.

use std::fmt;
use std::io::Write;
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use wire::go_json::to_string;
use wire::json_object;

use super::Level;
use crate::local_time;

/// Longest text of a line, in bytes. Longer texts are cut, so that the queue holds at most 64 MiB.
/// Only DEBUG lines that quote a body are longer.
pub(super) const LINE_BYTES_MAX: usize = 16 * 1024;

/// The tags of levels with which the events of a client begin, as in NSQ's client libraries.
const CLIENT_TAGS: [&str; 4] = ["DBG ", "INF ", "WRN ", "ERR "];

/// A date and a time with seconds: `2026/11/21 09:12:50`.
const DATE_TIME: &str = "%Y/%m/%d %H:%M:%S";

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The form of NSQ's daemons: prefix, time with microseconds, level, text.
    Text,
    /// The form of NSQ's tools: time, text. The text of a warning follows behind `WARNING: `.
    Plain,
    /// One JSON object for each line, with `time`, `level`, `program` and `message`.
    Json,
}

/// The properties that all lines of a program share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Style {
    /// The name of the program in JSON.
    pub program: &'static str,
    /// The first characters of each line in [`Format::Text`].
    pub prefix: String,
    /// The form of the lines.
    pub format: Format,
}

impl Style {
    /// Returns the default style of a daemon.
    pub fn of_daemon(program: &'static str) -> Style {
        Style {
            program,
            prefix: prefix_default(program),
            format: Format::Text,
        }
    }
}

/// Returns a daemon's default prefix, which its FATAL lines always have: `[nsqd] `.
pub(super) fn prefix_default(program: &str) -> String {
    format!("[{program}] ")
}

/// A line that is not formatted yet.
pub(super) struct Line {
    pub(super) at: SystemTime,
    pub(super) level: Level,
    pub(super) text: String,
}

impl Line {
    /// Returns a line of this moment.
    pub(super) fn now(level: Level, text: String) -> Line {
        Line {
            at: SystemTime::now(),
            level,
            text,
        }
    }

    /// Formats the text of a line of this moment. A long text is cut.
    pub(super) fn format(level: Level, text: fmt::Arguments<'_>) -> Line {
        let mut line = Line::now(level, String::new());
        line.text = fmt::format(text);
        cut(&mut line.text);
        line
    }

    /// Appends the line in the form that `style` names, with its line feed.
    pub(super) fn append_to(&self, buffer: &mut Vec<u8>, style: &Style, zone: &TimeZone) {
        // A clock outside jiff's range (years -9999 to 9999) must not lose the line.
        let at = Timestamp::try_from(self.at).unwrap_or(Timestamp::UNIX_EPOCH);
        let text = match style.format {
            Format::Text => self.text_without_tag(),
            Format::Plain | Format::Json => &self.text,
        };
        let text = Escaped(text);
        let time = zone.to_datetime(at);
        let date = time.strftime(DATE_TIME);
        // Writing to a Vec cannot fail.
        let _ = match style.format {
            Format::Text => writeln!(
                buffer,
                "{}{date}.{:06} {}: {text}",
                style.prefix,
                time.subsec_nanosecond() / 1000,
                self.level.word(),
            ),
            Format::Plain => writeln!(buffer, "{date} {}{text}", self.plain_level()),
            Format::Json => writeln!(buffer, "{}", self.json(style, zone, at)),
        };
    }

    /// Returns the beginning of the text in [`Format::Plain`]. NSQ's tools write no level, so the text of an error names it
    /// already, and an event of the client begins with the level's tag.
    fn plain_level(&self) -> &'static str {
        if self.level == Level::Warn && self.tag().is_none() {
            "WARNING: "
        } else {
            ""
        }
    }

    /// Returns the tag of an event of the client.
    fn tag(&self) -> Option<&'static str> {
        CLIENT_TAGS
            .into_iter()
            .find(|tag| self.text.starts_with(tag))
    }

    /// Returns the text without the tag of an event of the client: the line has a level already.
    pub(super) fn text_without_tag(&self) -> &str {
        match self.tag() {
            Some(tag) => self.text[tag.len()..].trim_start(),
            None => &self.text,
        }
    }

    fn json(&self, style: &Style, zone: &TimeZone, at: Timestamp) -> String {
        let time = local_time::rfc3339_zoned(&at.to_zoned(zone.clone()), "%.6f");
        let mut json = to_string(&json_object! {
            time,
            level: self.level.name(),
            program: style.program,
            message: self.text_without_tag(),
        });
        // JSON allows the upper control characters unescaped, but a terminal obeys some of them.
        while let Some(c) = json.chars().find(|c| matches!(c, '\u{7f}'..='\u{9f}')) {
            json = json.replace(c, &format!("\\u{:04x}", u32::from(c)));
        }
        json
    }
}

/// A text whose control characters are displayed as Go quotes them: `\n`, `\x1b`, `\u0085`.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(char::is_control) {
            let (before, after) = rest.split_at(at);
            f.write_str(before)?;
            let mut chars = after.chars();
            match chars.next() {
                Some('\n') => f.write_str("\\n")?,
                Some('\r') => f.write_str("\\r")?,
                Some('\t') => f.write_str("\\t")?,
                Some(c) if c.is_ascii() => write!(f, "\\x{:02x}", u32::from(c))?,
                Some(c) => write!(f, "\\u{:04x}", u32::from(c))?,
                None => {}
            }
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

pub(super) fn cut(text: &mut String) {
    if text.len() > LINE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        text.push_str("...");
    }
}

/// Returns the FATAL line for `text`, with its line feed, for a daemon whose log has not started.
pub(crate) fn fatal_line(program: &'static str, text: &str) -> String {
    let line = Line::now(Level::Fatal, text.to_string());
    let mut bytes = Vec::new();
    line.append_to(&mut bytes, &Style::of_daemon(program), &TimeZone::system());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a line with its line feed in the form that NSQ's programs use before they have a log:
/// without prefix, level and fractions of seconds.
pub(crate) fn bare_line(text: &str) -> String {
    let at = Timestamp::now().to_zoned(TimeZone::system());
    format!("{} {text}\n", at.strftime(DATE_TIME))
}
