//! Texts that clients choose, and that must not fill the disk.

/// Cuts a text off that has more bytes, and marks the place.
pub(crate) fn cut_off(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_ends_between_two_characters() {
        let cut = |text: &str| {
            let mut text = text.to_owned();
            cut_off(&mut text, 4);
            text
        };
        assert_eq!(cut("abcd"), "abcd");
        assert_eq!(cut("abcde"), "abcd…");
        assert_eq!(cut("abcéf"), "abc…");
    }
}
