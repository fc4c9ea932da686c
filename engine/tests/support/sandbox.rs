//! Surroundings in which a broker has a hard time: no privileges, no io_uring, a tiny file system.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Says loudly that a test cannot run here; with `CI` set, fails.
pub fn not_tested(why: &str) {
    // The test harness captures what the print macros write unless the test fails; a skipped test
    // passes, so this goes past it.
    let text = format!("\n*** NOT TESTED: {why} ***\n");
    let _ = io::stderr().write_all(text.as_bytes());
    assert!(
        std::env::var_os("CI").is_none(),
        "CI counts what is not tested as failed: {text}"
    );
}

/// Whether this process may mount, raise limits and ignore permissions.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

/// What to put in front of a command so that it runs without privileges. Root keeps its name, so
/// that it still reaches the binary and the files of the test, and loses every capability: it
/// cannot ignore permissions nor exceed hard limits.
pub fn without_privileges() -> Vec<String> {
    if is_root() {
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
            .map(str::to_owned)
            .to_vec()
    } else {
        Vec::new()
    }
}

/// A small tmpfs, unmounted at the end of the test.
pub struct Tmpfs {
    mount_point: tempfile::TempDir,
}

impl Tmpfs {
    /// Mounts one; None, said loudly, where that is not possible. `size` as in `mount -o size=8m`.
    pub fn mount(size: &str) -> Option<Tmpfs> {
        let mount_point = tempfile::Builder::new()
            .prefix("nsqd-tmpfs-")
            .tempdir()
            .expect("a temporary directory can be made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size},mode=0700"))
            .arg("nsqd-test")
            .arg(mount_point.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Tmpfs { mount_point }),
            other => {
                not_tested(&format!(
                    "a tmpfs cannot be mounted (root is needed): {other:?}"
                ));
                None
            }
        }
    }

    pub fn path(&self) -> PathBuf {
        self.mount_point.path().to_path_buf()
    }

    /// Makes the file system read-only.
    pub fn make_read_only(&self) {
        let status = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.path())
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "what was mounted can be remounted"
        );
    }

    /// Fills what is left, but for less than a page; remove the file to free it.
    pub fn fill(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        let mut file = std::fs::File::create(&path).expect("an inode is left");
        for chunk in [vec![1; 64 * 1024], vec![1; 4096]] {
            while file.write_all(&chunk).is_ok() {}
        }
        path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a broker that is still dying may hold files, and must not leave a mount behind.
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.mount_point.path())
            .status();
    }
}

/// An ext4 file system of 64 MiB on a loop device, unmounted at the end of the test.
pub struct LoopExt4 {
    directory: tempfile::TempDir,
}

impl LoopExt4 {
    /// Makes and mounts one; None, said loudly, where that is not possible.
    pub fn mount() -> Option<LoopExt4> {
        let directory = tempfile::Builder::new()
            .prefix("nsqd-ext4-")
            .tempdir()
            .expect("a temporary directory can be made");
        let disk = LoopExt4 { directory };
        std::fs::create_dir(disk.path()).expect("the directory is empty");
        let image = disk.directory.path().join("image");
        let file = std::fs::File::create(&image).expect("the directory is ours");
        file.set_len(64 << 20).expect("a sparse file costs no room");
        let image = image.to_str().expect("it was named above");
        let path = disk.path();
        let path = path.to_str().expect("it was named above");
        let steps = [
            vec!["mkfs.ext4", "-q", image],
            // Detaches the loop device when it is unmounted.
            vec!["mount", "-o", "loop,errors=remount-ro", image, path],
        ];
        for step in steps {
            let done = Command::new(step[0]).args(&step[1..]).output();
            if !done.as_ref().is_ok_and(|output| output.status.success()) {
                not_tested(&format!(
                    "no ext4 on a loop device (root is needed): {step:?} {done:?}"
                ));
                return None;
            }
        }
        Some(disk)
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    /// Stops the file system at once and for good, as if its device had gone: nothing more is written.
    #[allow(unsafe_code)]
    pub fn shut_down(&self) {
        const FS_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let without_flush: u32 = 2;
        let directory = std::fs::File::open(self.path()).expect("it is mounted");
        // SAFETY: the call reads one number behind the pointer, which outlives it.
        let done = unsafe {
            libc::ioctl(
                directory.as_raw_fd(),
                FS_IOC_SHUTDOWN as _,
                &raw const without_flush,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    /// Has the kernel find an error in the file system: it becomes read-only.
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

impl Drop for LoopExt4 {
    fn drop(&mut self) {
        // Lazily: a broker that is still dying may hold files, and must not leave a mount behind. Fails if it was
        // never mounted.
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

/// Names and contents of everything below a directory, sorted. Files may come and go meanwhile;
/// what is gone when it is looked at is left out.
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

/// Makes every io_uring call of the command's process fail with `errno`, as the seccomp profiles of
/// container runtimes do (EPERM), and as a kernel without io_uring does (ENOSYS).
#[allow(unsafe_code)]
pub fn answer_io_uring_with(command: &mut Command, errno: i32) {
    // The same three numbers on every architecture: they are newer than the split.
    const SETUP: u32 = 425;
    const REGISTER: u32 = 427;
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
    const JUMP_IF_GREATER_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let errno = u32::try_from(errno).expect("error numbers are positive");
    let mut filter = [
        // The number of the call is the first word of `seccomp_data`.
        step(LOAD_WORD, 0, 0, 0),
        step(JUMP_IF_GREATER_EQUAL, 0, 2, SETUP),
        step(JUMP_IF_GREATER, 1, 0, REGISTER),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
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
        // SAFETY: the kernel copies the program, which outlives the call, as does the filter that
        // it points to: the closure owns it.
        let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and touches nothing but its
    // own memory: no allocation, no lock.
    unsafe { command.pre_exec(install) };
}

/// Gives the command's process the default action for SIGHUP. A test that runs under `nohup` hands its
/// ignored SIGHUP down to every child otherwise.
#[allow(unsafe_code)]
pub fn hear_hangups(command: &mut Command) {
    let reset = || {
        // SAFETY: `SIG_DFL` is no function, so nothing can run at a wrong moment.
        match unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) } {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: between fork and exec the closure makes one system call and touches no memory.
    unsafe { command.pre_exec(reset) };
}
