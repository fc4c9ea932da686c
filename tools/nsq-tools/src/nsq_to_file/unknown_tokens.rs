//! [`warnings`]: tokens and directives in the formats of file names that mean nothing, such as `<TOPC>` and `%Q`.
//!
//! The original takes such text as it is, and so does this program: an existing format may contain such text on purpose.

use regex::Regex;

use super::date_format::DIRECTIVES;
use super::file_name::{HOST_TOKENS, TOKENS};

/// Returns a line for each unknown token of `--filename-format` and `--host-identifier`, and for each unknown directive of
/// `--datetime-format`.
pub(super) fn warnings(file_name: &str, date: &str, host: &str) -> Vec<String> {
    let directives = DIRECTIVES.chars().map(|directive| format!("%{directive}"));
    let directives: Vec<String> = directives.chain(["%%".to_owned()]).collect();
    let line = |flag: &str, found: &str, kind: &str, known: &str| {
        format!("--{flag} has {found:?}, which is none of the {kind} and stays as it is: {known}")
    };
    let file_name = unknown_tokens(file_name, &TOKENS).into_iter();
    let file_name =
        file_name.map(|token| line("filename-format", token, "tokens", &TOKENS.join(" ")));
    let host = unknown_tokens(host, &HOST_TOKENS).into_iter();
    let host = host.map(|token| line("host-identifier", token, "tokens", &HOST_TOKENS.join(" ")));
    let date = unknown_directives(date).into_iter();
    let date = date.map(|directive| {
        line(
            "datetime-format",
            &directive,
            "directives",
            &directives.join(" "),
        )
    });
    file_name.chain(host).chain(date).collect()
}

/// Returns the texts in the form of a token that are not known, each once. A token is a word in angle brackets.
fn unknown_tokens<'a>(format: &'a str, known: &[&str]) -> Vec<&'a str> {
    let form = Regex::new("<[A-Za-z0-9_-]+>").expect("the pattern is right");
    let mut unknown = Vec::new();
    for found in form.find_iter(format) {
        let token = found.as_str();
        if !known.contains(&token) && !unknown.contains(&token) {
            unknown.push(token);
        }
    }
    unknown
}

/// Returns the directives that are not known, each once, and a percent sign at the end.
fn unknown_directives(format: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        let directive = after.chars().next();
        rest = &after[directive.map_or(0, char::len_utf8)..];
        if directive.is_some_and(|known| known == '%' || DIRECTIVES.contains(known)) {
            continue;
        }
        let found: String = ['%'].into_iter().chain(directive).collect();
        if !unknown.contains(&found) {
            unknown.push(found);
        }
    }
    unknown
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
