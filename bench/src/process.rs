//! [`Process`]: the resources of the daemon's process, from /proc, when it is on this machine.

use std::fs;
use std::net::SocketAddr;
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
        let written = self.disk_written_bytes.zip(earlier.disk_written_bytes);
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            rss_bytes: self.rss_bytes,
            switches_voluntary: (self.switches_voluntary)
                .saturating_sub(earlier.switches_voluntary),
            switches_involuntary: (self.switches_involuntary)
                .saturating_sub(earlier.switches_involuntary),
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
        let inodes = listening_inodes(address.port());
        let links: Vec<String> = inodes
            .iter()
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        if links.is_empty() {
            return None;
        }
        let pids = fs::read_dir("/proc").ok()?.flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .map(|pid| Process { pid })
            .find(|process| process.has_link(&links))
    }

    fn has_link(self, links: &[String]) -> bool {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else {
            return false;
        };
        descriptors
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|link| {
                links
                    .iter()
                    .any(|wanted| link.as_os_str() == wanted.as_str())
            })
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
        for task in fs::read_dir(format!("/proc/{}/task", self.pid))
            .ok()?
            .flatten()
        {
            // A thread may end while we look.
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let status = read("status");
            let count = |name| field(&status, name).map_or(0, first_number);
            usage.switches_voluntary += count("voluntary_ctxt_switches");
            usage.switches_involuntary += count("nonvoluntary_ctxt_switches");
        }
        Some(usage)
    }
}

/// CPU time used and CPU time waited for by a thread of this process, in nanoseconds.
pub fn thread_times_ns(thread: u32) -> (u64, u64) {
    let text =
        fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    let mut numbers = text.split_whitespace().map(first_number);
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn first_number(text: &str) -> u64 {
    let word = text.split_whitespace().next();
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Tells whether the address belongs to this machine: only then a socket can be bound to it.
fn is_local(address: SocketAddr) -> bool {
    address.ip().is_loopback() || std::net::UdpSocket::bind((address.ip(), 0)).is_ok()
}

/// The inodes of the sockets that listen on a port.
fn listening_inodes(port: u16) -> Vec<u64> {
    const LISTENING: &str = "0A";
    let mut inodes = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, ..] = words[..] else {
                continue;
            };
            let at_port = local
                .rsplit_once(':')
                .is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port));
            if at_port && state == LISTENING {
                inodes.extend(words.get(9).and_then(|inode| inode.parse::<u64>().ok()));
            }
        }
    }
    inodes
}

#[cfg(test)]
mod tests;
