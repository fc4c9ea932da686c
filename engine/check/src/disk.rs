//! The disk: room, files like those of a log, and the time that a sync takes.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use diskq::TrialFile;
use program::check::{Finding, bytes_text};
use wire::go_error::system_text;

/// Less room than one segment of a steady flow: publishes are refused soon after the start.
const FREE_BYTES_MIN: u64 = 1 << 20;
/// Less room than this is gone within minutes at 10 MB/s.
const FREE_BYTES_FEW: u64 = 1 << 30;
/// A topic with a backlog takes a directory, its checkpoints and some segments.
const FREE_FILES_FEW: u64 = 1000;

/// A sync that is slower than this is that of a rotating or a remote disk.
const SYNC_SLOW: Duration = Duration::from_millis(10);
const SYNC_COUNT: u32 = 9;
/// No further sync is tried after this.
const SYNC_TIMEOUT: Duration = Duration::from_secs(3);
const SYNC_BYTES: usize = 4096;

/// The size of the file that is reserved and mapped: twice a log's first segment, so that all syncs have room.
const TRIAL_BYTES: u32 = 64 * 1024;
const _: () = assert!(TRIAL_BYTES as usize >= SYNC_BYTES * SYNC_COUNT as usize);

/// Judges the room that is free.
pub fn space(path: &Path) -> Finding {
    match rustix::fs::statvfs(path) {
        Ok(answer) => judge_space(&Space {
            free_bytes: answer.f_bavail.saturating_mul(answer.f_frsize),
            total_bytes: answer.f_blocks.saturating_mul(answer.f_frsize),
            free_files: answer.f_favail,
            total_files: answer.f_files,
        }),
        Err(errno) => Finding::warning(
            format!(
                "the file system does not say how much is free: {}",
                system_text(&errno.into())
            ),
            "look for the cause in the kernel's log (dmesg)",
        ),
    }
}

/// Returns the bytes that an unprivileged process may use. `None`: the file system does not say.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let answer = rustix::fs::statvfs(path).ok()?;
    Some(answer.f_bavail.saturating_mul(answer.f_frsize))
}

/// The room that an unprivileged process may use.
struct Space {
    free_bytes: u64,
    total_bytes: u64,
    free_files: u64,
    /// 0: the file system does not count files.
    total_files: u64,
}

fn judge_space(space: &Space) -> Finding {
    const MORE: &str = "free some, or choose a --data-path on a larger file system; docs/operate/capacity-planning.md says how \
                        much a backlog takes";
    let found = format!(
        "{} of {} are free",
        bytes_text(space.free_bytes),
        bytes_text(space.total_bytes)
    );
    let counts_files = space.total_files > 0;
    if space.free_bytes < FREE_BYTES_MIN {
        let found = format!("{found}: publishes would be refused");
        return Finding::failure(found, MORE);
    }
    if counts_files && space.free_files == 0 {
        return Finding::failure(
            format!(
                "{found}, but no file can be made: all {} inodes are in use",
                space.total_files
            ),
            "remove files, or make the file system anew with more inodes (mkfs -N)",
        );
    }
    if space.free_bytes < FREE_BYTES_FEW {
        return Finding::warning(
            format!("{found}: publishes are refused when that is used up"),
            MORE,
        );
    }
    if counts_files && space.free_files < FREE_FILES_FEW {
        return Finding::warning(
            format!(
                "{found}, but only {} files more can be made: each topic takes several",
                space.free_files
            ),
            "remove files, or make the file system anew with more inodes (mkfs -N)",
        );
    }
    Finding::ok(found)
}

/// The flags about syncs.
#[derive(Clone, Copy, Debug)]
pub struct Syncs {
    /// True with `--sync-every=1`.
    pub before_each_ok: bool,
    /// `--sync-timeout`
    pub timeout: Duration,
}

/// Judges files as a log makes them, and their syncs. Without usable files, nothing is synced.
pub fn trial(path: &Path, flags: Syncs) -> (Finding, Option<Finding>) {
    let file = match TrialFile::create(path) {
        Ok(file) => file,
        Err(error) => return (judge_segments(&Err(("made", error))), None),
    };
    let reserved = file
        .reserve(u64::from(TRIAL_BYTES))
        .map_err(|error| ("reserved", error));
    let usable = reserved.and_then(|is_reserved| match file.map(TRIAL_BYTES) {
        Ok(()) => Ok(is_reserved),
        Err(error) => Err(("mapped", error)),
    });
    let synced = usable.is_ok().then(|| judge_syncs(syncs(&file), flags));
    (judge_segments(&usable), synced)
}

/// True if room was reserved without writing zeros. The error names the action that failed.
type Usable = Result<bool, (&'static str, io::Error)>;

fn judge_segments(usable: &Usable) -> Finding {
    match usable {
        Ok(true) => Finding::ok("room for a file can be reserved, and mapped into memory"),
        Ok(false) => Finding::warning(
            "this file system cannot reserve room (fallocate): each new segment is filled with zeros first, so messages \
             are written twice",
            "use ext4 or xfs",
        ),
        Err((step, error)) => {
            let advice = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free some room or raise the quota, or choose another --data-path"
                }
                _ if *step == "mapped" => {
                    "choose a --data-path on a local file system: not every remote one can map files for writing"
                }
                _ => {
                    "look for the cause in the kernel's log (dmesg), or choose another --data-path"
                }
            };
            let why = system_text(error);
            Finding::failure(
                format!(
                    "a file of {} cannot be {step} there: {why}",
                    bytes_text(TRIAL_BYTES.into())
                ),
                advice,
            )
        }
    }
}

/// The times of some syncs, the shortest first.
fn syncs(file: &TrialFile) -> io::Result<Vec<Duration>> {
    let began = Instant::now();
    let mut times = Vec::new();
    for at in 0..SYNC_COUNT {
        let offset = u64::from(at) * SYNC_BYTES as u64;
        times.push(file.write_and_sync(offset, &[1; SYNC_BYTES])?);
        if began.elapsed() > SYNC_TIMEOUT {
            break;
        }
    }
    times.sort();
    Ok(times)
}

fn judge_syncs(times: io::Result<Vec<Duration>>, flags: Syncs) -> Finding {
    let times = match times {
        Ok(times) => times,
        Err(error) => {
            return Finding::failure(
                format!(
                    "a sync fails: {}; no message would be safe from a power failure",
                    system_text(&error)
                ),
                "replace the disk, or choose another --data-path; the kernel's log (dmesg) says what fails",
            );
        }
    };
    let median = times[times.len() / 2];
    let per_second = 1.0 / median.as_secs_f64();
    let verb = if flags.before_each_ok {
        "makes"
    } else {
        "would make"
    };
    let found = format!(
        "a sync of 4 KiB takes {}: --sync-every=1 {verb} each OK wait that long, at most {per_second:.0} publishes a \
         second for a producer that waits for each",
        time_text(median)
    );
    if median <= SYNC_SLOW {
        return Finding::ok(found);
    }
    if flags.before_each_ok {
        return Finding::warning(
            found,
            "use a disk with a protected write cache, publish many messages at once (MPUB), or leave --sync-every at \
             its default",
        );
    }
    Finding::warning(
        format!(
            "{found}; the disk can sync about {per_second:.0} topics a second, and each topic with new messages is \
             synced every {} (--sync-timeout)",
            time_text(flags.timeout)
        ),
        "use a disk with a protected write cache, or, with many topics, a longer --sync-timeout, which is what a power \
         failure can cost",
    )
}

/// Three digits are enough.
fn time_text(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        _ if ms < 1.0 => format!("{ms:.3} ms"),
        _ if ms < 10.0 => format!("{ms:.1} ms"),
        _ if ms < 1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests;
