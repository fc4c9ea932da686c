//! [`PauseTerms`]: what an operator said about a pause.

/// The terms of a pause: its end, a note, and a name. All of them may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseTerms {
    /// The time at which the pause ends by itself, in Unix nanoseconds. 0: the pause has no end.
    pub until_ns: u64,
    /// The time that the operator asked for, in nanoseconds. 0: the pause has no end, or the time is not known.
    pub length_ns: u64,
    /// The reason for the pause. Empty: none was given. At most 65,535 bytes are recorded.
    pub note: String,
    /// The name of the operator. Empty: none was given. At most 65,535 bytes are recorded.
    pub by: String,
}

impl PauseTerms {
    /// Returns whether the pause has no terms, as in the original.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.until_ns == 0 && self.note.is_empty() && self.by.is_empty()
    }
}
