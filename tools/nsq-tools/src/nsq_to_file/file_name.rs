//! [`FileNames`]: the names of one topic's files, in the form of `--filename-format`. [`warnings`]: tokens in it that mean
//! nothing.

use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use jiff::Zoned;
use regex::{Captures, Regex};

use crate::flags::distinct;

/// The token of the revision.
const REVISION: &str = "<REV>";

/// The tokens of `--filename-format`.
const TOKENS: [&str; 5] = ["<TOPIC>", "<HOST>", "<PID>", "<DATETIME>", REVISION];

/// The tokens of `--host-identifier`.
const HOST_TOKENS: [&str; 2] = ["<SHORT_HOST>", "<HOSTNAME>"];

/// The parts of file names that all topics share.
#[derive(Clone, Debug)]
pub(super) struct NameFormat {
    /// `--filename-format`
    pub(super) format: String,
    /// `--datetime-format`
    pub(super) date_format: String,
    /// The value of `<HOST>`.
    pub(super) host: String,
    /// The value of `<PID>`.
    pub(super) pid: u32,
    /// The end of each name, which the format may have already: `.gz`, or an empty text.
    pub(super) suffix: &'static str,
    /// True if files of the same name must be told apart by their revision.
    pub(super) needs_revision: bool,
}

/// The names of one topic's files.
#[derive(Clone, Debug)]
pub(super) struct FileNames {
    /// The format with only `<DATETIME>` and `<REV>` left.
    format: String,
    date_format: String,
    /// The last result of [`FileNames::at`], with its time in seconds. No directive of a date is finer
    /// than a second.
    last: Option<(i64, String)>,
}

impl NameFormat {
    /// Checks that files cannot overwrite each other.
    ///
    /// # Errors
    /// The format lacks `<REV>` and needs it. The error is the reason for the user.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if self.needs_revision && !self.format.contains(REVISION) {
            Err("missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
        } else {
            Ok(())
        }
    }

    /// Returns the names of a topic's files.
    pub(super) fn of_topic(&self, topic: &str) -> FileNames {
        let mut format = self.format.clone();
        if !self.needs_revision {
            format = format.replace(REVISION, "");
        }
        format = format
            .replace("<TOPIC>", file_text(topic))
            .replace("<HOST>", &self.host)
            .replace("<PID>", &self.pid.to_string());
        if !format.ends_with(self.suffix) {
            format.push_str(self.suffix);
        }
        FileNames {
            format,
            date_format: self.date_format.clone(),
            last: None,
        }
    }
}

/// Returns the text that stands for a topic in names of files. `.` and `..` are names of topics that anybody may publish
/// to, and lead to other directories. They are escaped as in a URL, because no topic's name has a percent sign.
fn file_text(topic: &str) -> &str {
    match topic {
        "." => "%2E",
        ".." => "%2E%2E",
        other => other,
    }
}

/// The names that one topic's files can have, at any time and with any process id.
#[derive(Clone, Debug)]
pub(super) struct NamePattern {
    /// The groups are the revisions.
    regex: Regex,
    /// The number of directories in each name.
    pub(super) depth: usize,
}

impl NameFormat {
    /// Returns the names that a topic's files can have, plain and compressed. The host is that of this format.
    pub(super) fn pattern(&self, topic: &str) -> NamePattern {
        let format = self
            .format
            .strip_suffix(self.suffix)
            .unwrap_or(&self.format);
        let format = normalized(Path::new(format.trim_start_matches('/')));
        let mut rest: &str = &format.to_string_lossy();
        let mut regex = String::from("^");
        let date = date_pattern(&self.date_format);
        let tokens = [
            ("<TOPIC>", regex::escape(file_text(topic))),
            ("<HOST>", regex::escape(&self.host)),
            ("<PID>", "[0-9]+".to_owned()),
            ("<DATETIME>", date),
            (REVISION, "(-[0-9]{6,})".to_owned()),
        ];
        while let Some(next) = rest.chars().next() {
            match tokens.iter().find(|(token, _)| rest.starts_with(token)) {
                Some((token, pattern)) => {
                    regex.push_str(pattern);
                    rest = &rest[token.len()..];
                }
                None => {
                    regex.push_str(&regex::escape(next.encode_utf8(&mut [0; 4])));
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        regex.push_str(r"(?:\.gz|\.zst)?$");
        NamePattern {
            depth: regex.matches('/').count(),
            regex: Regex::new(&regex).expect("all texts of the command line are escaped"),
        }
    }
}

impl NamePattern {
    /// Returns true if a file of the topic can have this relative path.
    pub(super) fn fits(&self, relative: &Path) -> bool {
        relative
            .to_str()
            .is_some_and(|path| self.regex.is_match(path))
    }

    /// Returns the name of the next revision of a path that fits.
    pub(super) fn next_revision(&self, relative: &Path) -> PathBuf {
        let path = relative.to_string_lossy();
        let Some(found) = self.regex.captures(&path) else {
            return relative.to_path_buf();
        };
        let mut next = path.clone().into_owned();
        let revisions: Vec<_> = found.iter().skip(1).flatten().collect();
        for group in revisions.iter().rev() {
            let revision = group.as_str()[1..].parse::<u64>().unwrap_or_default();
            next.replace_range(
                group.range(),
                &format!("-{:06}", revision.saturating_add(1)),
            );
        }
        PathBuf::from(next)
    }
}

impl FileNames {
    /// Returns the name at this time, with `<REV>` left in place.
    pub(super) fn at(&mut self, now: &Zoned) -> &str {
        let second = now.timestamp().as_second();
        let is_known = self.last.as_ref().is_some_and(|(at, _)| *at == second);
        if !is_known {
            let date = date_text(&self.date_format, now);
            self.last = Some((second, self.format.replace("<DATETIME>", &date)));
        }
        self.last.as_ref().map_or("", |(_, name)| name)
    }
}

/// Returns the relative path of a revision. Two paths that lead to the same place are equal: the
/// path has no `.`, no empty part, and `..` only at its beginning.
pub(super) fn with_revision(name: &str, revision: u32) -> PathBuf {
    let path = name.replace(REVISION, &format!("-{revision:06}"));
    normalized(Path::new(path.trim_start_matches('/')))
}

/// Returns a path without `.`, and without `..` where a name precedes it.
pub(super) fn normalized(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if clean.file_name().is_some() => {
                clean.pop();
            }
            Component::ParentDir if clean.has_root() => {}
            other => clean.push(other),
        }
    }
    if clean.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        clean
    }
}

/// Returns the value of `<HOST>`: the host name up to its first dot, or `identifier` with
/// `<SHORT_HOST>` and `<HOSTNAME>` replaced.
pub(super) fn host(identifier: &str, hostname: &str) -> String {
    let short = hostname.split('.').next().unwrap_or(hostname);
    match identifier {
        "" => short.to_owned(),
        identifier => identifier
            .replace("<SHORT_HOST>", short)
            .replace("<HOSTNAME>", hostname),
    }
}

/// The directives. All but `%%` have the meaning that C's `strftime` gives them in English.
const DIRECTIVES: [&str; 16] = [
    "%Y", "%y", "%m", "%B", "%b", "%d", "%A", "%a", "%H", "%I", "%M", "%S", "%p", "%Z", "%z", "%%",
];

/// A text in the form of a directive, or a percent sign at the end.
static DIRECTIVE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("(?s)%.?").expect("the pattern is right"));

/// Returns `at` in the form of `format`. An unknown directive stays as it is, and so does a percent
/// sign at the end.
fn date_text(format: &str, at: &Zoned) -> String {
    let text = |found: &Captures<'_>| match &found[0] {
        "%%" => "%".to_owned(),
        known if DIRECTIVES.contains(&known) => at.strftime(known).to_string(),
        unknown => unknown.to_owned(),
    };
    DIRECTIVE.replace_all(format, text).into_owned()
}

/// Returns a regular expression for the dates that [`date_text`] makes of this format at any time.
fn date_pattern(format: &str) -> String {
    let pattern = |found: &Captures<'_>| {
        let pattern = match &found[0] {
            "%%" => "%",
            "%Y" => "-?[0-9]{4}",
            "%y" | "%m" | "%d" | "%H" | "%I" | "%M" | "%S" => "[0-9]{2}",
            "%B" | "%b" | "%A" | "%a" | "%p" => "[A-Za-z]+",
            "%Z" => "[A-Za-z0-9+-]+",
            "%z" => "[+-][0-9]{4,6}",
            unknown => unknown,
        };
        pattern.to_owned()
    };
    // No known directive changes when it is escaped.
    let escaped = regex::escape(format);
    DIRECTIVE.replace_all(&escaped, pattern).into_owned()
}

/// Returns a line for each unknown token of `--filename-format` and `--host-identifier`, and for each unknown directive of
/// `--datetime-format`. A token is a word in angle brackets. The original takes such text as it is, and so does this
/// program: an existing format may contain such text on purpose.
pub(super) fn warnings(file_name: &str, date: &str, host: &str) -> Vec<String> {
    let token = Regex::new("<[A-Za-z0-9_-]+>").expect("the pattern is right");
    let mut lines = Vec::new();
    for (flag, kind, format, form, known) in [
        ("filename-format", "tokens", file_name, &token, &TOKENS[..]),
        ("host-identifier", "tokens", host, &token, &HOST_TOKENS),
        (
            "datetime-format",
            "directives",
            date,
            &DIRECTIVE,
            &DIRECTIVES,
        ),
    ] {
        let found = form.find_iter(format).map(|found| found.as_str());
        let unknown = distinct(found.filter(|found| !known.contains(found)));
        let known = known.join(" ");
        lines.extend(unknown.iter().map(|found| {
            format!(
                "--{flag} has {found:?}, which is none of the {kind} and stays as it is: {known}"
            )
        }));
    }
    lines
}

#[cfg(test)]
mod tests;
