//! Just enough of Rust's syntax to find the texts in a call.

/// Returns the end of a string literal whose quote is at `at`: one past the closing quote.
fn literal_end(source: &str, at: usize) -> usize {
    let bytes = source.as_bytes();
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    end + 1
}

/// Returns the end of a character literal that begins at `at`, such as `'('`. A lifetime is none.
fn character_end(source: &str, at: usize) -> Option<usize> {
    let bytes = source.as_bytes();
    let length = if bytes.get(at + 1) == Some(&b'\\') {
        4
    } else {
        3
    };
    let is_character = bytes[at] == b'\'' && bytes.get(at + length - 1) == Some(&b'\'');
    is_character.then_some(at + length)
}

/// Returns what is between the bracket before `at` and the bracket that closes it.
pub(super) fn arguments(source: &str, at: usize) -> &str {
    let bytes = source.as_bytes();
    let (mut depth, mut end) = (1, at);
    while end < bytes.len() {
        if let Some(behind) = character_end(source, end) {
            end = behind;
            continue;
        }
        match bytes[end] {
            b'"' => {
                end = literal_end(source, end);
                continue;
            }
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        end += 1;
    }
    &source[at..end.min(bytes.len())]
}

/// Returns the string literals of a piece of source, as the program has them.
pub(super) fn literals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(quote) = source[at..].find('"').map(|it| it + at) {
        if quote > 0
            && let Some(behind) = character_end(source, quote - 1)
        {
            at = behind;
            continue;
        }
        let end = literal_end(source, quote).min(source.len());
        let mut text = String::new();
        let mut rest = &source[quote + 1..end.saturating_sub(1)];
        while let Some((before, behind)) = rest.split_once('\\') {
            text.push_str(before);
            rest = match behind.strip_prefix('\n') {
                // A literal that goes on in the next line.
                Some(next) => next.trim_start(),
                None => {
                    text.push_str(behind.get(..1).unwrap_or_default());
                    behind.get(1..).unwrap_or_default()
                }
            };
        }
        text.push_str(rest);
        found.push(text);
        at = end;
    }
    found
}

/// Returns the first part of a format string that is no placeholder and has this many bytes at least. If there is none,
/// returns the longest part.
pub(super) fn fixed_part(text: &str, bytes_min: usize) -> &str {
    let parts = text.split(['{', '}']).step_by(2);
    let fixed = parts.map(|part| part.trim_matches([' ', ':', ';', ',', '-', '(', ')']));
    let mut long = fixed.clone().filter(|part| part.len() >= bytes_min);
    let longest = || fixed.clone().max_by_key(|part| part.len());
    long.next().or_else(longest).unwrap_or_default()
}

/// Returns the source without comments that are lines of their own, and without the tests at its end.
pub(super) fn product(source: &str) -> String {
    let tests = source.find("#[cfg(test)]\nmod tests");
    let lines = source[..tests.unwrap_or(source.len())].lines();
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_texts_of_a_call_are_found() {
    let source =
        "log_warn!(\n \"a {x} long \\\n    text: {}\",\n f('(', \"b\\\"c\"));\nlater(\"d\")";
    let call = arguments(source, "log_warn!(".len());
    assert_eq!(literals(call), ["a {x} long text: {}", "b\"c"]);
    assert_eq!(
        fixed_part("TOPIC({name}): cannot read {} back again", 9),
        "cannot read"
    );
}
