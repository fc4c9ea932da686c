//! Texts of the operating system's errors in Go's words, which nsqd also uses.

use std::io;

/// Returns the text of an error of the operating system as Go writes it: `no space left on device`,
/// not `No space left on device (os error 28)`. Clients and operators search for these texts.
#[must_use]
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = match error.raw_os_error() {
        Some(_) => text.split(" (os error").next().unwrap_or_default(),
        None => return text,
    };
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_answers_read_as_in_nsqd() {
        let check = |code, expected| {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(system_text(&error), expected);
        };
        check(libc::ENOSPC, "no space left on device");
        check(libc::EMFILE, "too many open files");
        assert_eq!(system_text(&io::Error::other("Odd one")), "Odd one");
    }
}
