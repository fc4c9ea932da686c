//! The kernel's figures about a process.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rss {
    /// `VmRSS`: all resident memory, the sum of the three below.
    pub total_bytes: u64,
    /// Heap and stacks.
    pub anonymous_bytes: u64,
    /// Mapped files, including the program's own code.
    pub file_bytes: u64,
    /// Shared memory.
    pub shared_bytes: u64,
}

/// Reads `/proc/PID/status`; panics if the process is gone.
pub fn rss(pid: u32) -> Rss {
    let status = read(&format!("/proc/{pid}/status"));
    let kilobytes = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    let rss = Rss {
        total_bytes: kilobytes("VmRSS") * 1024,
        anonymous_bytes: kilobytes("RssAnon") * 1024,
        file_bytes: kilobytes("RssFile") * 1024,
        shared_bytes: kilobytes("RssShmem") * 1024,
    };
    assert!(
        rss.total_bytes > 0,
        "process {pid} has no memory: has it ended?"
    );
    rss
}

/// Returns the user and system time of all threads so far. Panics if the process is gone.
///
/// The time is the sum of `/proc/PID/task/*/schedstat`, in nanoseconds, or the time in
/// `/proc/PID/stat`, in ticks of 10 ms. Some kernels lack the first, which also omits threads that
/// have ended. The larger of the two figures is more accurate.
pub fn cpu_time(pid: u32) -> Duration {
    let mut precise = Duration::ZERO;
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    for task in tasks
        .unwrap_or_else(|error| panic!("process {pid} is gone: {error}"))
        .flatten()
    {
        // A thread may end after the listing.
        let schedstat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let nanos = schedstat
            .split_whitespace()
            .next()
            .and_then(|field| field.parse().ok());
        precise += Duration::from_nanos(nanos.unwrap_or(0));
    }
    // The second field, the command, may contain spaces, but the fields behind its ")" do not.
    // Counted from there, utime and stime are fields 11 and 12. USER_HZ is 100 on every Linux.
    let stat = read(&format!("/proc/{pid}/stat"));
    let after = stat.rsplit(')').next().unwrap_or("");
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |index: usize| -> u64 {
        fields
            .get(index)
            .and_then(|field| field.parse().ok())
            .unwrap_or(0)
    };
    let coarse = Duration::from_millis((ticks(11) + ticks(12)) * 10);
    // Rounding may make the ticks larger by up to one tick. Only a larger gap counts.
    if coarse > precise + Duration::from_millis(20) {
        coarse
    } else {
        precise
    }
}

/// Returns the processor time that a process uses during `work`, in percent of one core.
pub fn cpu_percent(pid: u32, work: impl FnOnce()) -> f64 {
    let (before, start) = (cpu_time(pid), Instant::now());
    work();
    let used = cpu_time(pid) - before;
    100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64()
}

/// Returns the number of open descriptors.
pub fn open_files(pid: u32) -> usize {
    descriptors(pid).len()
}

/// Returns the numbers of the open descriptors.
pub fn descriptors(pid: u32) -> BTreeSet<usize> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"));
    files
        .unwrap_or_else(|error| panic!("process {pid} is gone: {error}"))
        .flatten()
        .filter_map(|file| file.file_name().to_string_lossy().parse().ok())
        .collect()
}

/// Returns the first core that this process may use, in the notation of `taskset`.
pub fn first_core() -> String {
    let status = read("/proc/self/status");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    // The list has the form `0-3,8`.
    let list = list.expect("Linux lists the cores").trim();
    let first = list.split(['-', ',']).next().expect("a split has a part");
    first.to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the state of the connection from `peer` at the side of `address`: `01` is open, and `08` is open although the
/// peer has ended its side. The kernel shows:
///
/// ```text
///   sl  local_address rem_address   st ...
///    0: 0100007F:5E56 0100007F:A0C8 01 ...
/// ```
pub fn tcp_state(address: SocketAddr, peer: SocketAddr) -> Option<String> {
    let table = read("/proc/net/tcp");
    let [local, remote] = [address, peer].map(|end| format!(":{:04X}", end.port()));
    table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_it = words.len() > 3 && words[1].ends_with(&local) && words[2].ends_with(&remote);
        is_it.then(|| words[3].to_owned())
    })
}
