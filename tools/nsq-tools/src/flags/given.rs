//! The values of flags without a default.

use program::Options;

/// Returns the value of a flag that has no default. A flag without a value is refused: the variable of a script may be
/// missing, and the tool must not go on as if the flag were not there.
///
/// # Errors
/// The value is empty. The error tells the user to write `wanted`.
pub fn given(
    options: &Options,
    flag: &str,
    value: String,
    wanted: &str,
) -> Result<Option<String>, String> {
    if value.is_empty() && options.is_given(flag) {
        return Err(format!(
            "--{flag} has no value: write {wanted}, or leave the flag out"
        ));
    }
    Ok(Some(value).filter(|value| !value.is_empty()))
}
