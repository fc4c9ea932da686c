//! [`date_text`]: dates in file names, in the form of `--datetime-format`.

use std::sync::LazyLock;

use jiff::Zoned;
use regex::{Captures, Regex};

/// The directives. All but `%%` have the meaning that C's `strftime` gives them in English.
pub(super) const DIRECTIVES: [&str; 16] = [
    "%Y", "%y", "%m", "%B", "%b", "%d", "%A", "%a", "%H", "%I", "%M", "%S", "%p", "%Z", "%z", "%%",
];

/// A text in the form of a directive, or a percent sign at the end.
pub(super) static DIRECTIVE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("(?s)%.?").expect("the pattern is right"));

/// Returns `at` in the form of `format`. An unknown directive stays as it is, and so does a percent
/// sign at the end.
pub(super) fn date_text(format: &str, at: &Zoned) -> String {
    let text = |found: &Captures<'_>| match &found[0] {
        "%%" => "%".to_owned(),
        known if DIRECTIVES.contains(&known) => at.strftime(known).to_string(),
        unknown => unknown.to_owned(),
    };
    DIRECTIVE.replace_all(format, text).into_owned()
}

/// Returns a regular expression for the dates that [`date_text`] makes of this format at any time.
pub(super) fn date_pattern(format: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_those_of_the_original() {
        let check = |at: &str, format: &str, expected: &str| {
            let at: Zoned = at.parse().unwrap();
            assert_eq!(date_text(format, &at), expected);
        };
        let at = "2026-11-21T09:20:47.5+00:00[UTC]";
        // The original printed this line.
        check(
            at,
            "%B|%b|%m|%A|%a|%d|%H|%I|%M|%S|%Y|%y|%p|%Z|%z|%%|%j|%Q|%",
            "November|Nov|11|Saturday|Sat|21|09|09|20|47|2026|26|AM|UTC|+0000|%|%j|%Q|%",
        );
        check(at, "%Y-%m-%d_%H", "2026-11-21_09");
        check(at, "", "");
        check(at, "%é%%d", "%é%d");
        // Text that looks like Go's layout of dates is text.
        check(at, "x1 2006 Jan MST PM", "x1 2006 Jan MST PM");
        let berlin = "2026-01-02T15:04:05+01:00[Europe/Berlin]";
        check(berlin, "%I%p %Z %z %d %y", "03PM CET +0100 02 26");
        check("2026-01-02T00:04:05+00:00[UTC]", "%I%p", "12AM");
    }
    #[test]
    fn the_pattern_fits_each_date_of_its_format() {
        let formats = [
            "%B|%b|%m|%A|%a|%d|%H|%I|%M|%S|%Y|%y|%p|%Z|%z|%%|%j|%Q|%",
            "%Y-%m-%d_%H",
            "(%Y)/%m.%é",
            "",
        ];
        let zones = ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"];
        for (format, zone) in formats.iter().flat_map(|f| zones.map(|zone| (*f, zone))) {
            let pattern = regex::Regex::new(&format!("^{}$", date_pattern(format))).unwrap();
            for month in 1..=12 {
                let at: Zoned = format!("2026-{month:02}-21T09:20:47[{zone}]")
                    .parse()
                    .unwrap();
                let text = date_text(format, &at);
                assert!(pattern.is_match(&text), "{pattern} {text}");
            }
        }
        assert_eq!(date_pattern("%Y.%m"), r"-?[0-9]{4}\.[0-9]{2}");
    }
}
