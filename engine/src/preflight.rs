//! What is checked before anything starts: that this system lets the shards run, and that the
//! addresses are free. A check that fails says what happened and what to do about it, to a reader
//! who has never heard of io_uring.
//!
//! ```text
//!   descriptors                            soft limits are raised as far as they go
//!   io_uring there, allowed, new enough?   as many rings as shards, once
//!   addresses                              bound once without SO_REUSEPORT, then given to the shards
//! ```
//!
//! Each check is a question to the system and a pure judgement of its answer; the judgements are
//! tested with the answers of systems that we do not have.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use crate::reactor;
use diskq::system_text;

/// The first kernel that can wait in a ring for a time.
const KERNEL_MIN: Kernel = Kernel {
    major: 5,
    minor: 11,
};

/// Locked memory per shard: what the kernel charges for its ring, before Linux 5.12 and again since
/// 6.13, to processes without CAP_IPC_LOCK.
const MEMLOCK_BYTES_PER_SHARD: u64 = 64 * 1024;

/// Descriptors besides those of clients: listeners, log, metadata, standard streams, some slack.
const DESCRIPTORS_PROCESS: u64 = 64;

/// Descriptors per shard: the ring, the wake-up, listeners, a few segments.
const DESCRIPTORS_PER_SHARD: u64 = 16;

/// How long an address that is in use is tried again. The listener of a killed process was seen to
/// outlive it, for less than 20 ms (8 of 8 runs, Linux 6.18); most likely because the kernel takes
/// rings apart later, and a request in a ring holds its socket. A supervisor that restarts at once
/// must not fail for that.
const BIND_PATIENCE: Duration = Duration::from_secs(1);
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// A kernel's version, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    /// 6 of 6.18.44
    pub major: u32,
    /// 18 of 6.18.44
    pub minor: u32,
}

/// Why the program cannot start here. The text is meant for the FATAL line.
#[derive(Debug)]
pub enum PreflightError {
    /// The kernel has no io_uring, or lacks operations.
    KernelTooOld {
        /// What runs.
        kernel: Kernel,
    },
    /// `kernel.io_uring_disabled` is 1 (and we are not in the group) or 2.
    IoUringDisabled {
        /// The setting.
        setting: u8,
    },
    /// The kernel would do it, but a filter forbids it: what container runtimes do by default.
    IoUringForbidden,
    /// io_uring failed for another reason.
    IoUringFailed {
        /// The reason.
        source: io::Error,
    },
    /// RLIMIT_MEMLOCK cannot be raised far enough.
    MemlockTooLow {
        /// The hard limit.
        hard_bytes: u64,
        /// What is needed.
        need_bytes: u64,
        /// For how many shards.
        shard_count: NonZeroUsize,
    },
    /// RLIMIT_NOFILE cannot be raised far enough.
    DescriptorsTooFew {
        /// The hard limit.
        hard_count: u64,
        /// What is needed.
        need_count: u64,
        /// For how many shards.
        shard_count: NonZeroUsize,
    },
    /// An address cannot be listened on.
    Listen {
        /// As the operator wrote it.
        address: String,
        /// In nsqd's words, where it has some.
        why: String,
        /// What to do.
        hint: &'static str,
    },
}

impl fmt::Display for PreflightError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PreflightError::KernelTooOld { kernel } => write!(
                f,
                "this kernel ({}.{}) is too old for io_uring as ringq uses it - use Linux {}.{} \
                 or newer",
                kernel.major, kernel.minor, KERNEL_MIN.major, KERNEL_MIN.minor
            ),
            PreflightError::IoUringDisabled { setting } => write!(
                f,
                "io_uring is switched off on this system (kernel.io_uring_disabled = {setting}) - \
                 allow it with: sysctl -w kernel.io_uring_disabled=0"
            ),
            PreflightError::IoUringForbidden => write!(
                f,
                "this process is not allowed to use io_uring, most likely by the seccomp profile \
                 of its container - run it with a profile that allows io_uring_setup, \
                 io_uring_enter and io_uring_register (docker: --security-opt seccomp=<profile>)"
            ),
            PreflightError::IoUringFailed { source } => {
                write!(f, "io_uring does not work here: {}", system_text(source))?;
                if source.kind() == io::ErrorKind::OutOfMemory {
                    write!(
                        f,
                        " - allow this process more memory (systemd: MemoryMax=; docker: --memory=)"
                    )?;
                }
                Ok(())
            }
            PreflightError::MemlockTooLow {
                hard_bytes,
                need_bytes,
                shard_count,
            } => write!(
                f,
                "the limit on locked memory is {} KiB, but {shard_count} shards need {} KiB - \
                 raise it (ulimit -l {}; systemd: LimitMEMLOCK=; docker: --ulimit memlock=), or \
                 use fewer --shards",
                hard_bytes / 1024,
                need_bytes / 1024,
                need_bytes / 1024
            ),
            PreflightError::DescriptorsTooFew {
                hard_count,
                need_count,
                shard_count,
            } => write!(
                f,
                "the limit on open files is {hard_count}, but {shard_count} shards need at least \
                 {need_count}, and each client one more - raise it (ulimit -n; systemd: \
                 LimitNOFILE=; docker: --ulimit nofile=), or use fewer --shards"
            ),
            PreflightError::Listen { address, why, hint } => {
                write!(f, "listen ({address}) failed - {why}")?;
                if hint.is_empty() {
                    Ok(())
                } else {
                    write!(f, " - {hint}")
                }
            }
        }
    }
}

impl std::error::Error for PreflightError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PreflightError::IoUringFailed { source } => Some(source),
            _ => None,
        }
    }
}

/// What the checks found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Where clients are to be listened for, with the port decided.
    pub tcp_address: SocketAddr,
    /// The same for HTTP; `None` if it is switched off.
    pub http_address: Option<SocketAddr>,
    /// The same for HTTPS; `None` also without a certificate.
    pub https_address: Option<SocketAddr>,
}

/// All checks but those of addresses.
pub fn check_system(shard_count: NonZeroUsize) -> Result<(), PreflightError> {
    check_descriptors(shard_count)?;
    check_io_uring(shard_count, kernel())
}

/// All checks, in the order in which nsqd would fail.
pub fn check(config: &Config) -> Result<Ready, PreflightError> {
    check_system(config.shard_count)?;
    // All probes are held until all have succeeded: two equal ports are found out.
    let tcp = bind_probe(&config.tcp_address)?;
    let http = match config.http_address.as_str() {
        "" => None,
        address => Some(bind_probe(address)?),
    };
    let https = match config.https_address.as_str() {
        address if config.has_certificate() && !address.is_empty() => Some(bind_probe(address)?),
        _ => None,
    };
    Ok(Ready {
        tcp_address: tcp.address(),
        http_address: http.as_ref().map(BoundProbe::address),
        https_address: https.as_ref().map(BoundProbe::address),
    })
}

/// The running kernel; 0.0 if its name is not understood, which then counts as old only if
/// io_uring fails, too.
fn kernel() -> Kernel {
    parse_kernel(&rustix::system::uname().release().to_string_lossy())
}

fn parse_kernel(release: &str) -> Kernel {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    Kernel {
        major: next(),
        minor: next(),
    }
}

/// Has rings do once what shards have them do.
fn check_io_uring(shard_count: NonZeroUsize, kernel: Kernel) -> Result<(), PreflightError> {
    // Any raise will do that is enough for the kernel, which knows best what it charges.
    let memlock = raise(Resource::Memlock, 0, u64::MAX);
    debug_assert!(memlock.is_ok(), "nothing was demanded");
    match reactor::try_rings(shard_count) {
        Ok(true) => Ok(()),
        Ok(false) => Err(PreflightError::KernelTooOld { kernel }),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Err(judge_memory(
            error,
            getrlimit(Resource::Memlock).current,
            shard_count,
        )),
        Err(error) => Err(judge_io_uring(error, io_uring_disabled(), kernel)),
    }
}

fn judge_memory(
    source: io::Error,
    limit_bytes: Option<u64>,
    shard_count: NonZeroUsize,
) -> PreflightError {
    let need_bytes = MEMLOCK_BYTES_PER_SHARD * shard_count.get() as u64;
    match limit_bytes {
        Some(hard_bytes) if hard_bytes < need_bytes => PreflightError::MemlockTooLow {
            hard_bytes,
            need_bytes,
            shard_count,
        },
        _ => PreflightError::IoUringFailed { source },
    }
}

/// The system's switch, where there is one (since Linux 6.6).
fn io_uring_disabled() -> Option<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

fn judge_io_uring(source: io::Error, disabled: Option<u8>, kernel: Kernel) -> PreflightError {
    let errno = Errno::from_io_error(&source);
    match errno {
        Some(Errno::NOSYS) if kernel < KERNEL_MIN => PreflightError::KernelTooOld { kernel },
        // A kernel that has it and says that it has not: some filters answer so.
        Some(Errno::NOSYS) => PreflightError::IoUringForbidden,
        Some(Errno::PERM | Errno::ACCESS) => match disabled {
            Some(setting @ 1..) => PreflightError::IoUringDisabled { setting },
            _ => PreflightError::IoUringForbidden,
        },
        _ => PreflightError::IoUringFailed { source },
    }
}

/// What to do about a resource limit.
#[derive(Debug, PartialEq, Eq)]
enum Limit {
    Keep,
    RaiseTo(u64),
    /// Even the hard limit, given here, is too low.
    Refuse(u64),
}

/// `None` is no limit.
fn judge_limit(limit: &Rlimit, need: u64, wanted: u64) -> Limit {
    let soft = limit.current.unwrap_or(u64::MAX);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if hard < need {
        Limit::Refuse(hard)
    } else if soft < wanted.min(hard) {
        Limit::RaiseTo(wanted.min(hard))
    } else {
        Limit::Keep
    }
}

/// Raises a soft limit. Returns the limit that is too low, if it is.
fn raise(resource: Resource, need: u64, wanted: u64) -> Result<(), u64> {
    let limit = getrlimit(resource);
    match judge_limit(&limit, need, wanted) {
        Limit::Keep => Ok(()),
        Limit::Refuse(hard) => Err(hard),
        Limit::RaiseTo(soft) => {
            let raised = Rlimit {
                current: Some(soft),
                maximum: limit.maximum,
            };
            match setrlimit(resource, raised) {
                Ok(()) => Ok(()),
                // Raising within the hard limit is always allowed; a sandbox may disagree, and
                // what we have may still be enough.
                Err(_) => {
                    let current = limit.current.unwrap_or(u64::MAX);
                    if current < need { Err(current) } else { Ok(()) }
                }
            }
        }
    }
}

/// Raises the limit as far as it goes: clients take one each.
fn check_descriptors(shard_count: NonZeroUsize) -> Result<(), PreflightError> {
    let need_count = descriptors_need_count(shard_count);
    raise(Resource::Nofile, need_count, u64::MAX).map_err(|hard_count| {
        PreflightError::DescriptorsTooFew {
            hard_count,
            need_count,
            shard_count,
        }
    })
}

fn descriptors_need_count(shard_count: NonZeroUsize) -> u64 {
    DESCRIPTORS_PROCESS + DESCRIPTORS_PER_SHARD * shard_count.get() as u64
}

/// An address that was found free, and is kept until this is dropped. The shards bind it with
/// SO_REUSEPORT, which fails while this is held; so it is dropped right before.
#[derive(Debug)]
pub struct BoundProbe {
    address: SocketAddr,
    /// `None` if only connections of an earlier process are in the way.
    _listener: Option<TcpListener>,
}

impl BoundProbe {
    /// What the shards are to bind: resolved, and with a port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Binds an address without SO_REUSEPORT. With it, a second nsqd of the same user would start
/// without an error and take half of the connections. Blocks for up to a second.
pub fn bind_probe(address: &str) -> Result<BoundProbe, PreflightError> {
    bind_probe_within(address, BIND_PATIENCE)
}

fn bind_probe_within(address: &str, patience: Duration) -> Result<BoundProbe, PreflightError> {
    let refuse = |why: String, hint: &'static str| PreflightError::Listen {
        address: address.to_string(),
        why,
        hint,
    };
    let (host, port) = split_host_port(address).ok_or_else(|| {
        let why = "not of the form <host>:<port>, which nsqd takes for a unix socket".to_string();
        refuse(
            why,
            "this version of ringq listens on TCP only, for example on 0.0.0.0:4150",
        )
    })?;
    let port = parse_port(port).map_err(|why| refuse(format!("listen tcp: {why}"), ""))?;
    let candidate = resolve(host, port)
        .map_err(|why| refuse(format!("listen tcp: lookup {host}: {why}"), ""))?;
    let Some(candidate) = candidate else {
        return Err(refuse(
            format!("listen tcp: lookup {host}: no such host"),
            "",
        ));
    };
    bind_patiently(candidate, patience).map_err(|error| {
        let why = system_text(&error);
        refuse(
            format!("listen tcp {candidate}: bind: {why}"),
            bind_hint(&error),
        )
    })
}

fn bind_patiently(candidate: SocketAddr, patience: Duration) -> io::Result<BoundProbe> {
    let deadline = Instant::now() + patience;
    loop {
        let error = match TcpListener::bind(candidate) {
            Ok(listener) => {
                let address = listener.local_addr()?;
                return Ok(BoundProbe {
                    address,
                    _listener: Some(listener),
                });
            }
            Err(error) => error,
        };
        if is_only_left_over(&error, candidate) {
            return Ok(BoundProbe {
                address: candidate,
                _listener: None,
            });
        }
        if error.kind() != io::ErrorKind::AddrInUse || Instant::now() >= deadline {
            return Err(error);
        }
        std::thread::sleep(BIND_PAUSE);
    }
}

fn bind_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there, perhaps another nsqd (see: ss -ltnp); stop it, or \
             choose another port"
        }
        io::ErrorKind::AddrNotAvailable => "no interface of this machine has this address",
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges (CAP_NET_BIND_SERVICE); choose a higher one"
        }
        _ => "",
    }
}

/// Splits as Go's `net.SplitHostPort`: an IPv6 address needs brackets.
fn split_host_port(address: &str) -> Option<(&str, &str)> {
    let (host, port) = address.rsplit_once(':')?;
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?;
        return (!inner.contains(['[', ']'])).then_some((inner, port));
    }
    (!host.contains([':', '[', ']']) && !port.contains(['[', ']'])).then_some((host, port))
}

/// The error is Go's text.
fn parse_port(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        return Ok(0);
    }
    if let Ok(port) = text.parse::<i64>() {
        return u16::try_from(port).map_err(|_| format!("address {text}: invalid port"));
    }
    // Go would ask for a service of this name; nobody names nsqd's ports.
    Err(format!("lookup tcp/{text}: unknown port"))
}

/// The address to bind. A wildcard is both families on one socket, as in nsqd, or IPv4 alone where
/// the system has no IPv6. A name gives one address, IPv4 if it has one: listening on only one of
/// several is what nsqd does, too.
fn resolve(host: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    if matches!(host, "" | "0.0.0.0" | "::") {
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        return Ok(Some(if has_ipv6() { any6 } else { any4 }));
    }
    let found = (host, port).to_socket_addrs().map_err(|error| {
        // The C library's text, behind the standard library's own words.
        let text = error.to_string();
        text.rsplit(": ")
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    })?;
    Ok(found.min_by_key(SocketAddr::is_ipv6))
}

fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

/// Whether the address is in use only by closing connections of an earlier process. They do not
/// hinder the shards' SO_REUSEPORT, but they do hinder the probe's bind: without this, a restart
/// would be refused for a minute.
fn is_only_left_over(error: &io::Error, address: SocketAddr) -> bool {
    if error.kind() != io::ErrorKind::AddrInUse {
        return false;
    }
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    match tables {
        [Ok(tcp), Ok(tcp6)] => {
            !has_listener(&tcp, address.port()) && !has_listener(&tcp6, address.port())
        }
        // Without IPv6 there is no second table.
        [Ok(tcp), Err(_)] => !has_listener(&tcp, address.port()),
        // What cannot be ruled out stands.
        [Err(_), _] => false,
    }
}

/// Whether a table of `/proc/net/tcp` has a listening socket (state 0A) on the port. On whatever
/// address: telling overlapping addresses apart is not worth a wrong answer.
///
/// ```text
///   sl  local_address rem_address   st ...
///    0: 0100007F:5E56 00000000:0000 0A ...
/// ```
fn has_listener(table: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_port = words.next().is_some_and(|local| local.ends_with(&port));
        is_port && words.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests;
