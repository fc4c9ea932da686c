//! Restricted environments for a broker: no privileges, no io_uring, a tiny file system.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nsqd::preflight::{is_kernel_too_old, prepare_system};

use test_support::ext4::Ext4;
use test_support::skip::{kernel_lacks, not_tested};

/// Returns true if this process may mount, raise limits and ignore permissions.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

/// Returns the prefix of a command that runs without privileges. Root keeps its name, so that the
/// command still reaches the binary and the files of the test, but loses every capability: it can
/// neither ignore permissions nor exceed hard limits.
pub fn without_privileges() -> Vec<String> {
    if is_root() {
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
            .map(str::to_owned)
            .to_vec()
    } else {
        Vec::new()
    }
}

/// Returns the prefix of a command without privileges that has a limit of `prlimit`, such as `--nofile=64:64`.
pub fn limited(limit: &str) -> Vec<String> {
    let mut words = vec!["prlimit".to_owned(), limit.to_owned()];
    words.extend(without_privileges());
    words
}

/// An ext4 file system of 64 MiB that can fail.
pub struct LoopExt4(Ext4);

impl LoopExt4 {
    /// Makes and mounts one. Prints a notice and returns None if that is not possible.
    pub fn mount() -> Option<LoopExt4> {
        let ext4 = Ext4::mount(64 << 20, "has_journal", "loop,errors=remount-ro");
        if ext4.is_none() {
            not_tested("no ext4 on a loop device (root is needed)");
        }
        ext4.map(LoopExt4)
    }

    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Stops the file system at once and for good, as if its device had gone: no more bytes are
    /// written.
    #[allow(unsafe_code)]
    pub fn shut_down(&self) {
        const FS_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let without_flush: u32 = 2;
        let directory = std::fs::File::open(self.path()).expect("it is mounted");
        // SAFETY: the call reads one number behind the pointer, which outlives the call.
        let done = unsafe {
            libc::ioctl(
                directory.as_raw_fd(),
                FS_IOC_SHUTDOWN as _,
                &raw const without_flush,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    /// Makes the kernel find an error in the file system, which then becomes read-only.
    pub fn fail(&self) {
        let device = std::fs::metadata(self.path()).expect("it is mounted").dev();
        let (major, minor) = (libc::major(device), libc::minor(device));
        let name = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
        let name = name.expect("a block device has a name");
        let name = name.file_name().expect("a block device has a name");
        let trigger = Path::new("/sys/fs/ext4")
            .join(name)
            .join("trigger_fs_error");
        std::fs::write(trigger, "by a test").expect("ext4 lets root try its errors");
    }
}

/// Returns the names and contents of all files below a directory, sorted. Files may come and go at
/// the same time. A file that is gone when it is read is omitted.
pub fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                directories.push(path.clone());
                found.push((path, Vec::new()));
            } else if let Ok(bytes) = std::fs::read(&path) {
                found.push((path, bytes));
            }
        }
    }
    found.sort();
    found
}

/// Returns the first two numbers of the kernel's version.
pub fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.trim().parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The system's switch of io_uring, as it shows itself to a process of a test. The switch of all other processes stays as it
/// is, so io_uring itself has to be denied by [`answer_io_uring_with`].
pub struct IoUringSwitch {
    file: tempfile::NamedTempFile,
}

impl IoUringSwitch {
    const PATH: &str = "/proc/sys/kernel/io_uring_disabled";

    /// Prints a notice and returns None if no process can see this value.
    pub fn showing(value: &str) -> Option<IoUringSwitch> {
        if !Path::new(IoUringSwitch::PATH).exists() {
            kernel_lacks("the kernel (before 6.6) has no kernel.io_uring_disabled");
            return None;
        }
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
        file.write_all(value.as_bytes())
            .expect("the file system has room");
        let switch = IoUringSwitch { file };
        let via = switch.via();
        let seen = Command::new(&via[0])
            .args(&via[1..])
            .args(["cat", IoUringSwitch::PATH])
            .output();
        if !seen
            .as_ref()
            .is_ok_and(|output| output.stdout == value.as_bytes())
        {
            not_tested(&format!(
                "no mount namespace (root is needed) with kernel.io_uring_disabled: {seen:?}"
            ));
            return None;
        }
        Some(switch)
    }

    /// Returns the prefix of a command that sees this switch.
    pub fn via(&self) -> Vec<String> {
        let mount = r#"mount --bind "$0" "$1" && shift && exec "$@""#;
        let file = self.file.path().to_str().expect("the name is a text");
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            mount,
            file,
            IoUringSwitch::PATH,
        ]
        .map(str::to_owned)
        .to_vec()
    }
}

/// Returns true if this machine lets a broker use io_uring. Otherwise prints that a test is
/// skipped.
pub fn has_io_uring() -> bool {
    match prepare_system("io_uring", NonZeroUsize::MIN) {
        Ok(_) => return true,
        Err(error) if is_kernel_too_old() => kernel_lacks(&error.to_string()),
        Err(error) => not_tested(&error.to_string()),
    }
    false
}

/// The three calls of io_uring: setup, enter and register. They have the same numbers on every architecture.
pub const IO_URING: [i64; 3] = [425, 426, 427];

/// Makes every io_uring call of the command's process fail with `errno`: EPERM as with the seccomp
/// profiles of container runtimes, or ENOSYS as with a kernel without io_uring.
pub fn answer_io_uring_with(command: &mut Command, errno: i32) {
    answer_calls(command, IO_URING.map(|call| (call, errno)).to_vec());
}

/// Makes the registration of receive buffers fail, as before Linux 5.19. Rings work without them.
pub fn deny_receive_buffers(command: &mut Command) {
    let [_, _, register] = IO_URING;
    answer_calls(command, vec![(register, libc::EINVAL)]);
}

/// The best known calls, besides those of io_uring, that a container without further capabilities may not make. Source: the
/// table "Significant syscalls blocked by the default profile" of Docker's documentation, and `profiles/seccomp/default.json`
/// of moby.
pub const CONTAINERS_DENY: [i64; 42] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_move_pages,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_set_mempolicy,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Gives the command's process a seccomp filter like the default profile of Docker, containerd and
/// Kubernetes (`RuntimeDefault`). Those profiles list the permitted calls, some by their arguments.
/// This filter denies io_uring and [`CONTAINERS_DENY`].
pub fn confine_like_container(command: &mut Command) {
    let denied = CONTAINERS_DENY.into_iter().chain(IO_URING);
    let denied = denied.map(|call| (call, libc::EPERM));
    // With this error, libc falls back to `clone`, whose flags a filter can read.
    let unknown = (libc::SYS_clone3, libc::ENOSYS);
    answer_calls(command, denied.chain([unknown]).collect());
}

/// Makes all system calls of the command's process fail with EPERM, except for these. `clone3` fails as if it were unknown.
pub fn permit_only(command: &mut Command, calls: &[i64]) {
    let permitted = calls.iter().map(|call| (*call, None));
    let unknown = (libc::SYS_clone3, Some(libc::ENOSYS));
    filter_calls(
        command,
        permitted.chain([unknown]).collect(),
        Some(libc::EPERM),
    );
}

/// Makes system calls of the command's process fail with an error number.
fn answer_calls(command: &mut Command, answers: Vec<(i64, i32)>) {
    let answers = answers.into_iter();
    let answers = answers.map(|(call, errno)| (call, Some(errno)));
    filter_calls(command, answers.collect(), None);
}

/// Makes system calls of the command's process fail with an error number, or permits them if there is none. `other` is the
/// answer to all other calls.
#[allow(unsafe_code)]
fn filter_calls(command: &mut Command, answers: Vec<(i64, Option<i32>)>, other: Option<i32>) {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let answer = |errno: Option<i32>| match errno {
        None => libc::SECCOMP_RET_ALLOW,
        Some(errno) => {
            let errno = u32::try_from(errno).expect("error numbers are positive");
            libc::SECCOMP_RET_ERRNO | errno
        }
    };
    // The number of the call is the first word of `seccomp_data`.
    let mut filter = vec![step(LOAD_WORD, 0, 0, 0)];
    for (call, errno) in answers {
        let call = u32::try_from(call).expect("call numbers are positive");
        filter.push(step(JUMP_IF_EQUAL, 0, 1, call));
        filter.push(step(RETURN, 0, 0, answer(errno)));
    }
    filter.push(step(RETURN, 0, 0, answer(other)));
    let install = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: a plain system call with four numbers.
        let no_new = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        if no_new != 0 {
            return Err(io::Error::last_os_error());
        }
        let mode = libc::SECCOMP_MODE_FILTER;
        // SAFETY: the kernel copies the program, which outlives the call. The closure owns the
        // filter that the program points to.
        let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and touches only its own
    // memory: no allocation, no lock.
    unsafe { command.pre_exec(install) };
}

/// Gives the command's process the default action for SIGHUP. Otherwise a test under `nohup` passes
/// its ignored SIGHUP on to every child.
#[allow(unsafe_code)]
pub fn hear_hangups(command: &mut Command) {
    let reset = || {
        // SAFETY: `SIG_DFL` is not a function, so no code can run at a wrong moment.
        match unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) } {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: between fork and exec the closure makes one system call and touches no memory.
    unsafe { command.pre_exec(reset) };
}
