//! [`date_text`]: dates in file names, in the form of `--datetime-format`.

use jiff::Zoned;

/// The directives, without their percent signs. All but `%%` have the meaning that C's `strftime`
/// gives them in English.
pub(super) const DIRECTIVES: &str = "YymBbdAaHIMSpZz";

/// Returns `at` in the form of `format`. An unknown directive stays as it is, and so does a percent
/// sign at the end.
pub(super) fn date_text(format: &str, at: &Zoned) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some((literal, after)) = rest.split_once('%') {
        text.push_str(literal);
        let Some(directive) = after.chars().next() else {
            text.push('%');
            return text;
        };
        match directive {
            '%' => text.push('%'),
            known if DIRECTIVES.contains(known) => {
                text.push_str(&at.strftime(&format!("%{known}")).to_string());
            }
            unknown => text.extend(['%', unknown]),
        }
        rest = &after[directive.len_utf8()..];
    }
    text.push_str(rest);
    text
}

/// Returns a regular expression for the dates that [`date_text`] makes of this format at any time.
pub(super) fn date_pattern(format: &str) -> String {
    let mut pattern = String::new();
    let mut rest = format;
    while let Some((literal, after)) = rest.split_once('%') {
        pattern.push_str(&regex::escape(literal));
        let Some(directive) = after.chars().next() else {
            pattern.push('%');
            return pattern;
        };
        match directive {
            '%' => pattern.push('%'),
            'Y' => pattern.push_str("-?[0-9]{4}"),
            'y' | 'm' | 'd' | 'H' | 'I' | 'M' | 'S' => pattern.push_str("[0-9]{2}"),
            'B' | 'b' | 'A' | 'a' | 'p' => pattern.push_str("[A-Za-z]+"),
            'Z' => pattern.push_str("[A-Za-z0-9+-]+"),
            'z' => pattern.push_str("[+-][0-9]{4,6}"),
            unknown => pattern.push_str(&regex::escape(&format!("%{unknown}"))),
        }
        rest = &after[directive.len_utf8()..];
    }
    pattern + &regex::escape(rest)
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
