//! A memcached for tests, on a unix socket of its own, and one in its place that tells what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::daemon::send_signal;
use crate::skip::not_tested;
use crate::{TIMEOUT, wait_until};

/// A running memcached. A drop kills the process.
#[derive(Debug)]
pub struct Memcached {
    child: Child,
    directory: TempDir,
    memory_mib: u32,
}

impl Memcached {
    /// Starts memcached with its default memory of 64 MiB. `None`, with a line, if the machine has none. In CI, this fails
    /// the test.
    pub fn start() -> Option<Memcached> {
        Memcached::with_memory(64)
    }

    /// The same with another memory.
    pub fn with_memory(memory_mib: u32) -> Option<Memcached> {
        let directory = tempfile::tempdir().expect("a directory");
        let Ok(child) = launch(&directory.path().join("socket"), memory_mib) else {
            not_tested("memcached is not installed");
            return None;
        };
        let server = Memcached {
            child,
            directory,
            memory_mib,
        };
        server.wait();
        Some(server)
    }

    /// Returns the address: `unix:///path`.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns the path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Returns a number of its `stats`. Panics if it has none of this name.
    pub fn stat(&self, name: &str) -> u64 {
        let mut stream = UnixStream::connect(self.socket()).expect("memcached listens");
        stream.write_all(b"stats\r\nquit\r\n").expect("it reads");
        let mut stats = String::new();
        stream.read_to_string(&mut stats).expect("it answers");
        let value = stats.lines().find_map(|line| {
            let value = line.strip_prefix("STAT ")?.strip_prefix(name)?;
            value.trim().parse().ok()
        });
        value.unwrap_or_else(|| panic!("no {name} in {stats}"))
    }

    fn wait(&self) {
        let socket = self.socket();
        let listens = || UnixStream::connect(&socket).is_ok();
        assert!(wait_until(TIMEOUT, listens), "memcached does not listen");
    }

    /// Stops the process, which keeps its connections and answers nothing until [`go_on`](Memcached::go_on).
    pub fn stand_still(&self) {
        send_signal(self.child.id(), "STOP");
    }

    /// Lets the process go on.
    pub fn go_on(&self) {
        send_signal(self.child.id(), "CONT");
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
        let launched = launch(&self.socket(), self.memory_mib);
        self.child = launched.expect("memcached is installed");
        self.wait();
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.kill();
    }
}

fn launch(socket: &Path, memory_mib: u32) -> std::io::Result<Child> {
    Command::new("memcached")
        .args(["-u", "root", "-m", &memory_mib.to_string(), "-s"])
        .arg(socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// A server that stores nothing, answers each `add` and `set` with success, and keeps their times to live.
#[derive(Debug)]
pub struct FakeMemcached {
    address: String,
    lives: Lives,
    /// The directory of a unix socket.
    _directory: Option<TempDir>,
}

/// The times to live, in seconds, in the order in which they came.
type Lives = Arc<Mutex<Vec<i64>>>;

impl FakeMemcached {
    /// Starts the server on a unix socket. Its threads end with their connections, and with the process.
    #[must_use]
    pub fn start() -> FakeMemcached {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let accept = move || listener.accept().map(|(stream, _)| stream);
        let address = format!("unix://{}", path.display());
        FakeMemcached::serve(address, Some(directory), accept)
    }

    /// Starts the server on a port of 127.0.0.1.
    #[must_use]
    pub fn start_on_tcp() -> FakeMemcached {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address").to_string();
        let accept = move || listener.accept().map(|(stream, _)| stream);
        FakeMemcached::serve(address, None, accept)
    }

    fn serve<S>(
        address: String,
        directory: Option<TempDir>,
        accept: impl Fn() -> std::io::Result<S> + Send + 'static,
    ) -> FakeMemcached
    where
        S: Send + 'static,
        for<'s> &'s S: Read + Write,
    {
        let lives = Lives::default();
        let all = Arc::clone(&lives);
        thread::spawn(move || {
            while let Ok(stream) = accept() {
                let lives = Arc::clone(&all);
                thread::spawn(move || answer(&stream, &lives));
            }
        });
        FakeMemcached {
            address,
            lives,
            _directory: directory,
        }
    }

    /// Returns the address: `unix:///path` or `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Takes the times to live, in seconds, in the order in which they came.
    #[must_use]
    pub fn take_lives(&self) -> Vec<i64> {
        std::mem::take(&mut self.lives.lock())
    }
}

/// Answers the commands of a connection: `add` and `set`, whose lines are `add key flags life bytes` and the value.
fn answer<S>(stream: &S, lives: &Mutex<Vec<i64>>)
where
    for<'s> &'s S: Read + Write,
{
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(command) = lines.next() {
        let life = command.split(' ').nth(3).and_then(|life| life.parse().ok());
        let life = life.unwrap_or_else(|| panic!("not add and not set: {command:?}"));
        lines.next();
        lives.lock().push(life);
        let mut stream = stream;
        if stream.write_all(b"STORED\r\n").is_err() {
            return;
        }
    }
}
