//! [`Process`]: the resources of the daemon's process, from /proc, when it is on this machine.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::machine::field;

/// A process to be watched.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// The process id.
    pub pid: u32,
}

/// The resources that a process has used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all threads in nanoseconds, ended threads included.
    pub cpu_ns: u64,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
    /// Voluntary context switches of the threads that exist now.
    pub switches_voluntary: u64,
    /// Involuntary context switches of the threads that exist now.
    pub switches_involuntary: u64,
    /// Bytes that the process caused to be written to disk; `None` when the process is another user's.
    pub disk_written_bytes: Option<u64>,
}

impl Usage {
    /// Returns the use since `earlier`, with the memory of now.
    pub fn since(self, earlier: Usage) -> Usage {
        let used = |of: fn(&Usage) -> u64| of(&self).saturating_sub(of(&earlier));
        let written = self.disk_written_bytes.zip(earlier.disk_written_bytes);
        Usage {
            cpu_ns: used(|usage| usage.cpu_ns),
            rss_bytes: self.rss_bytes,
            switches_voluntary: used(|usage| usage.switches_voluntary),
            switches_involuntary: used(|usage| usage.switches_involuntary),
            disk_written_bytes: written.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

impl Process {
    /// Finds the process that listens at a TCP address of this machine; `None` when there is none, or this user may not
    /// see it.
    pub fn listening_at(address: SocketAddr) -> Option<Process> {
        if !is_local(address) {
            return None;
        }
        let links = listening_sockets(address.port());
        if links.is_empty() {
            return None;
        }
        let pids = fs::read_dir("/proc").ok()?.flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .map(|pid| Process { pid })
            .find(|process| process.has_link(&links))
    }

    fn has_link(self, links: &[PathBuf]) -> bool {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid));
        let descriptors = descriptors.into_iter().flatten().flatten();
        let mut found = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        found.any(|link| links.contains(&link))
    }

    /// Reads what the process has used; `None` when the process is gone.
    pub fn usage(self) -> Option<Usage> {
        let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.pid)).ok();
        let pages: u64 = read("statm")?.split_whitespace().nth(1)?.parse().ok()?;
        let io = read("io");
        let written = io.and_then(|io| field(&io, "write_bytes")?.parse().ok());
        let clock = clock_getcpuclockid(Pid::from_raw(self.pid.try_into().ok()?)).ok()?;
        let cpu = Duration::from(clock.now().ok()?);
        let mut usage = Usage {
            cpu_ns: cpu.as_nanos() as u64,
            rss_bytes: pages * rustix::param::page_size() as u64,
            disk_written_bytes: written,
            ..Usage::default()
        };
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        for task in tasks.flatten() {
            // A thread may end while we look.
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let count = |name| field(&status, name).map_or(0, number);
            usage.switches_voluntary += count("voluntary_ctxt_switches");
            usage.switches_involuntary += count("nonvoluntary_ctxt_switches");
        }
        Some(usage)
    }
}

/// CPU time used and CPU time waited for by a thread of this process, in nanoseconds.
pub fn thread_times_ns(thread: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    let text = text.unwrap_or_default();
    let mut numbers = text.split_whitespace().map(number);
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// Tells whether the address belongs to this machine: only then a socket can be bound to it.
fn is_local(address: SocketAddr) -> bool {
    address.ip().is_loopback() || std::net::UdpSocket::bind((address.ip(), 0)).is_ok()
}

/// The sockets that listen on a port, as the links of descriptors name them.
fn listening_sockets(port: u16) -> Vec<PathBuf> {
    const LISTENING: &str = "0A";
    let port = format!(":{port:04X}");
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [_, local, _, LISTENING, _, _, _, _, _, inode, ..] = words[..]
                && local.ends_with(&port)
            {
                sockets.push(format!("socket:[{inode}]").into());
            }
        }
    }
    sockets
}

#[cfg(test)]
mod tests;
