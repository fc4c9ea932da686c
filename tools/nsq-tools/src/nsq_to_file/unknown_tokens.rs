//! [`warnings`]: tokens and directives in the formats of file names that mean nothing, such as `<TOPC>` and `%Q`.
//!
//! The original takes such text as it is, and so does this program: an existing format may contain such text on purpose.

use regex::Regex;

use super::date_format::{DIRECTIVE, DIRECTIVES};
use super::file_name::{HOST_TOKENS, TOKENS};

/// Returns a line for each unknown token of `--filename-format` and `--host-identifier`, and for each unknown directive of
/// `--datetime-format`. A token is a word in angle brackets.
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
        let mut unknown: Vec<&str> = Vec::new();
        for found in form.find_iter(format) {
            let found = found.as_str();
            if !known.contains(&found) && !unknown.contains(&found) {
                unknown.push(found);
            }
        }
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
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_of_names_are_told() {
        let check = |file_name: &str, date: &str, host: &str, expected: &[&str]| {
            assert_eq!(warnings(file_name, date, host), expected);
        };
        let all = "%Y.%y.%m.%B.%b.%d.%A.%a.%H.%I.%M.%S.%p.%Z.%z.%%";
        check(
            "<TOPIC><HOST><PID><DATETIME><REV>",
            all,
            "<SHORT_HOST>.<HOSTNAME>",
            &[],
        );
        check("a<b, c>d, <>, < x >, <<é>", "", "x > y", &[]);
        check(
            "<TOPC>/<TOPC><topic><REV>",
            "%Y-%Q%%Q%é%Q%",
            "<HOST>",
            &[
                "--filename-format has \"<TOPC>\", which is none of the tokens and stays as it is: \
                 <TOPIC> <HOST> <PID> <DATETIME> <REV>",
                "--filename-format has \"<topic>\", which is none of the tokens and stays as it is: \
                 <TOPIC> <HOST> <PID> <DATETIME> <REV>",
                "--host-identifier has \"<HOST>\", which is none of the tokens and stays as it is: \
                 <SHORT_HOST> <HOSTNAME>",
                "--datetime-format has \"%Q\", which is none of the directives and stays as it is: \
                 %Y %y %m %B %b %d %A %a %H %I %M %S %p %Z %z %%",
                "--datetime-format has \"%é\", which is none of the directives and stays as it is: \
                 %Y %y %m %B %b %d %A %a %H %I %M %S %p %Z %z %%",
                "--datetime-format has \"%\", which is none of the directives and stays as it is: \
                 %Y %y %m %B %b %d %A %a %H %I %M %S %p %Z %z %%",
            ],
        );
    }
}
