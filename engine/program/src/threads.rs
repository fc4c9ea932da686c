//! The text about a thread that the system refuses.

use std::io;

use wire::go_error::system_text;

/// Returns the reason for which a program ends, and what to do. `thread` is, for example, "the log's thread".
pub fn thread_refused(thread: &str, error: &io::Error) -> String {
    format!(
        "cannot start {thread}: {} - raise the limit on processes and threads (ulimit -u; systemd: TasksMax=; docker: \
         --pids-limit)",
        system_text(error)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text ended with an error of the system in the words of a library.
    #[test]
    fn the_text_says_what_to_do() {
        let error = io::Error::from_raw_os_error(11);
        let text = thread_refused("the log's thread", &error);
        let begin = "cannot start the log's thread: resource temporarily unavailable - raise the limit on processes";
        assert!(text.starts_with(begin), "{text}");
    }
}
