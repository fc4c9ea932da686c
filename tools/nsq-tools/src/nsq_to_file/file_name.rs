//! [`FileNames`]: the names of one topic's files, in the form of `--filename-format`.

use std::path::{Component, Path, PathBuf};

use jiff::Zoned;

use regex::{Captures, Regex};

use super::date_format::{date_pattern, date_text};

/// The token of the revision.
const REVISION: &str = "<REV>";

/// The tokens of `--filename-format`.
pub(super) const TOKENS: [&str; 5] = ["<TOPIC>", "<HOST>", "<PID>", "<DATETIME>", REVISION];

/// The tokens of `--host-identifier`.
pub(super) const HOST_TOKENS: [&str; 2] = ["<SHORT_HOST>", "<HOSTNAME>"];

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
    depth: usize,
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
    /// Returns the number of directories in each name.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

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
        for group in revisions(&found).rev() {
            let revision = group.as_str()[1..].parse::<u64>().unwrap_or_default();
            next.replace_range(
                group.range(),
                &format!("-{:06}", revision.saturating_add(1)),
            );
        }
        PathBuf::from(next)
    }
}

/// Returns the revisions in a path, in their order.
fn revisions<'a>(found: &Captures<'a>) -> impl DoubleEndedIterator<Item = regex::Match<'a>> {
    let groups: Vec<_> = found.iter().skip(1).flatten().collect();
    groups.into_iter()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn format(format: &str, suffix: &'static str, needs_revision: bool) -> NameFormat {
        NameFormat {
            format: format.to_owned(),
            date_format: "%Y-%m-%d_%H".to_owned(),
            host: "web1".to_owned(),
            pid: 7,
            suffix,
            needs_revision,
        }
    }

    fn now() -> Zoned {
        "2026-11-21T09:20:47+00:00[UTC]".parse().unwrap()
    }

    #[test]
    fn tokens_are_replaced_everywhere() {
        let check = |text: &str, suffix, needs_revision, expected: &str| {
            let format = format(text, suffix, needs_revision);
            assert_eq!(format.of_topic("events").at(&now()), expected);
        };
        let default = "<TOPIC>.<HOST><REV>.<DATETIME>.log";
        check(default, "", false, "events.web1.2026-11-21_09.log");
        check(default, "", true, "events.web1<REV>.2026-11-21_09.log");
        check(
            default,
            ".gz",
            true,
            "events.web1<REV>.2026-11-21_09.log.gz",
        );
        check("<REV>.gz", ".gz", true, "<REV>.gz");
        check("<REV>.zst", ".zst", true, "<REV>.zst");
        check("<PID>/<TOPIC>/<TOPIC>", "", false, "7/events/events");
        check("<OTHER>", "", false, "<OTHER>");
    }

    /// One message to the topic `..` made directories outside of `--output-dir`, or ended the tool.
    #[test]
    fn no_topic_leads_to_another_directory() {
        for (topic, text) in [(".", "%2E"), ("..", "%2E%2E"), ("...", "..."), (".a", ".a")] {
            for form in [
                "<TOPIC>/<REV>",
                "a/<TOPIC>/b<REV>",
                "<TOPIC><REV>",
                "<TOPIC>/<TOPIC><REV>",
            ] {
                let format = format(form, "", true);
                let found = with_revision(format.of_topic(topic).at(&now()), 0);
                let expected = form.replace("<TOPIC>", text).replace("<REV>", "-000000");
                assert_eq!(found, Path::new(&expected));
                assert!(format.pattern(topic).fits(&found), "{}", found.display());
            }
        }
    }

    #[test]
    fn a_name_changes_with_the_time() {
        let mut names = format("<DATETIME>", "", false).of_topic("events");
        assert_eq!(names.at(&now()), "2026-11-21_09");
        let later = now().checked_add(jiff::Span::new().hours(1)).unwrap();
        assert_eq!(names.at(&later), "2026-11-21_10");
        assert_eq!(names.at(&now()), "2026-11-21_09");
    }

    #[test]
    fn files_that_could_overwrite_each_other_need_revisions() {
        assert_eq!(format("a", "", false).check(), Ok(()));
        assert_eq!(format("<REV>", "", true).check(), Ok(()));
        assert!(format("a", "", true).check().is_err());
    }

    #[test]
    fn paths_are_relative_and_normal() {
        let check = |name: &str, revision, expected: &str| {
            assert_eq!(with_revision(name, revision), Path::new(expected));
        };
        check("a<REV>.log", 0, "a-000000.log");
        check("a<REV>/b<REV>", 1_234_567, "a-1234567/b-1234567");
        check("/a//b/./c", 0, "a/b/c");
        check("a/../../b", 0, "../b");
        let check = |path: &str, expected: &str| {
            assert_eq!(normalized(Path::new(path)), Path::new(expected));
        };
        check("./work/", "work");
        check("/a/../../b", "/b");
        check("", ".");
        check("a/..", ".");
    }

    #[test]
    fn the_host_is_short_unless_it_is_given() {
        assert_eq!(host("", "web1.dc2"), "web1");
        assert_eq!(host("h-<SHORT_HOST>", "web1.dc2"), "h-web1");
        assert_eq!(
            host("<HOSTNAME>/<HOSTNAME>", "web1.dc2"),
            "web1.dc2/web1.dc2"
        );
        assert_eq!(host("x", "web1"), "x");
    }
    #[test]
    fn the_pattern_fits_the_names_of_one_topic() {
        let mut format = format("<TOPIC>.<HOST><REV>.<DATETIME>.log", "", true);
        let check = |format: &NameFormat, path: &str, expected: bool| {
            let pattern = format.pattern("a.b");
            assert_eq!(pattern.fits(Path::new(path)), expected, "{path}");
        };
        for (path, expected) in [
            ("a.b.web1-000000.2026-11-21_09.log", true),
            ("a.b.web1-1234567.2025-01-01_23.log.gz", true),
            ("a.b.web1-000000.2026-11-21_09.log.zst", true),
            ("a.b.web1-000000.2026-11-21_09.log.bz2", false),
            ("a.b.web1-000000.2026-11-21_09.logx", false),
            ("a.b.web2-000000.2026-11-21_09.log", false),
            ("a.b.web1.2026-11-21_09.log", false),
            ("axb.web1-000000.2026-11-21_09.log", false),
            ("b.web1-000000.2026-11-21_09.log", false),
            ("x/a.b.web1-000000.2026-11-21_09.log", false),
        ] {
            check(&format, path, expected);
        }
        // The process id is that of an earlier run, and the suffix may be a part of the format.
        format.format = "/<PID>//<TOPIC>/./<DATETIME><REV>.gz".to_owned();
        format.date_format = "%Y/%m".to_owned();
        format.suffix = ".gz";
        check(&format, "123/a.b/2026/11-000000.gz", true);
        check(&format, "123/a.b/2026-11-000000.gz", false);
        assert_eq!(format.pattern("t").depth(), 3);
    }

    #[test]
    fn a_path_has_a_next_revision() {
        let format = format("<TOPIC><REV>/<REV>.log", "", true);
        let next = format
            .pattern("t")
            .next_revision(Path::new("t-000009/-000009.log"));
        assert_eq!(next, Path::new("t-000010/-000010.log"));
    }
}
