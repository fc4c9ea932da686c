//! The limit on the files and connections that a process may have open.

use program::log_warn;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, as Go's runtime does. The soft limit of most systems is 1,024, for the sake of
/// programs that use `select`. A sandbox that does not allow this leaves the limit as it is, and a WARNING line says so.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        let current = limit.current.unwrap_or(u64::MAX);
        log_warn!(
            "the limit on open files stays at {current} - {error} (ulimit -n; systemd: LimitNOFILE=)"
        );
    }
}
