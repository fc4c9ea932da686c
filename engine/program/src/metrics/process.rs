//! The figures of the process, under the names that Prometheus's own libraries use.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::{Exposition, Family, Kind};

const CPU: Family = Family::new(
    "process_cpu_seconds_total",
    Kind::Counter,
    "CPU time of the process, user and system.",
);
const START: Family = Family::new(
    "process_start_time_seconds",
    Kind::Gauge,
    "Unix time at which the process started.",
);
const RESIDENT: Family = Family::new(
    "process_resident_memory_bytes",
    Kind::Gauge,
    "Memory of the process that is in RAM, mapped files included.",
);
const VIRTUAL: Family = Family::new(
    "process_virtual_memory_bytes",
    Kind::Gauge,
    "Address space of the process.",
);
const OPEN_FILES: Family = Family::new(
    "process_open_fds",
    Kind::Gauge,
    "Open file descriptors, sockets included.",
);
const FILES_MAX: Family = Family::new(
    "process_max_fds",
    Kind::Gauge,
    "Limit of the open file descriptors.",
);
const THREADS: Family = Family::new("process_threads", Kind::Gauge, "Threads of the process.");

/// The metrics of [`append_process`].
pub const PROCESS: &[Family] = &[
    CPU, START, RESIDENT, VIRTUAL, OPEN_FILES, FILES_MAX, THREADS,
];

/// Writes the figures of the process. Figures that the system does not tell are left out. Reads files of `/proc`.
pub fn append_process(out: &mut Exposition, started: SystemTime) {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    out.single(CPU, used.tv_sec as f64 + used.tv_nsec as f64 / 1e9);
    let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    out.single(START, started.as_secs_f64());
    if let Some((size, resident)) = memory_bytes() {
        out.single(RESIDENT, resident);
        out.single(VIRTUAL, size);
    }
    // The directory is open while it is read.
    if let Some(count) = entries("/proc/self/fd") {
        out.single(OPEN_FILES, count.saturating_sub(1));
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current {
        out.single(FILES_MAX, limit);
    }
    if let Some(count) = entries("/proc/self/task") {
        out.single(THREADS, count);
    }
}

/// Returns the address space and the memory in RAM, in bytes.
fn memory_bytes() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split(' ').map(|word| word.parse::<u64>().ok());
    let page_bytes = rustix::param::page_size() as u64;
    Some((pages.next()?? * page_bytes, pages.next()?? * page_bytes))
}

fn entries(directory: &str) -> Option<u64> {
    let entries = fs::read_dir(directory).ok()?;
    Some(entries.count() as u64)
}
