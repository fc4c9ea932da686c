//! A memcached for tests, on a unix socket of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{TIMEOUT, wait_until};

/// A running memcached. A drop kills the process.
#[derive(Debug)]
pub struct Memcached {
    child: Child,
    directory: TempDir,
}

impl Memcached {
    /// Starts memcached. `None`, with a line, if the machine has none. In CI, this fails the test.
    pub fn start() -> Option<Memcached> {
        let directory = tempfile::tempdir().expect("a directory");
        let Ok(child) = launch(&directory.path().join("socket")) else {
            let line = "*** NOT TESTED: memcached is not installed ***";
            assert!(std::env::var_os("CI").is_none(), "{line}");
            eprintln!("{line}");
            return None;
        };
        let server = Memcached { child, directory };
        server.wait();
        Some(server)
    }

    /// Returns the address: `unix:///path`.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn wait(&self) {
        let socket = self.socket();
        let listens = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        assert!(wait_until(TIMEOUT, listens), "memcached does not listen");
    }

    /// Kills the process, and waits for its end.
    pub fn kill(&mut self) {
        // Both calls fail only if the process has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills the process if it still runs, and starts an empty one at the same address.
    pub fn restart(&mut self) {
        self.kill();
        std::fs::remove_file(self.socket()).expect("memcached leaves its socket");
        self.child = launch(&self.socket()).expect("memcached is installed");
        self.wait();
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(socket: &Path) -> std::io::Result<Child> {
    Command::new("memcached")
        .args(["-u", "root", "-s"])
        .arg(socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
