//! [`States`]: the saved states of a log's topic, and which of the two files has the last durable one.

/// The saved states.
#[derive(Clone, Copy, Debug, Default)]
pub struct States {
    /// The highest number given so far.
    pub(super) last_number: u64,
    /// The index of the file that has the last state. The next state goes to the other file.
    pub(super) last_file: usize,
    /// True if the last state was found at the start: it may be in the page cache only.
    pub(super) is_doubtful: bool,
    /// The number of states that this process has made durable.
    pub(super) saved_count: u64,
    pub(super) is_writing: bool,
}

impl States {
    /// Makes the state after start-up. `last_number` is the highest number in a file, and `last_file` the index of the
    /// file that has the newest whole state.
    #[must_use]
    pub fn from_found(last_number: u64, last_file: usize) -> States {
        States {
            last_number,
            last_file,
            is_doubtful: last_number > 0,
            ..States::default()
        }
    }
}
