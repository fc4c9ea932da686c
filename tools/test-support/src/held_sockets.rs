//! [`HeldSockets`]: what a daemon sees of systemd's socket activation, and restarts under connections that must not notice.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::daemon::send_signal;
use crate::{TIMEOUT, wait_until};

/// A shell that becomes the program in its arguments. systemd sets LISTEN_PID after the fork, which a `Command` cannot.
const SHELL: &str = "export LISTEN_PID=$$; exec \"$0\" \"$@\"";
/// The descriptor of the first socket.
const FIRST: i32 = 3;
/// The length of the queue of a socket. All clients of a restart on a busy machine have room in the queue.
const BACKLOG: i32 = 4096;
/// 200 connections a second.
const PAUSE: Duration = Duration::from_millis(5);
/// The time between two restarts.
const LIFE: Duration = Duration::from_millis(200);

/// Sockets that stay when a daemon ends, each with its name in LISTEN_FDNAMES.
#[derive(Debug, Default)]
pub struct HeldSockets(Vec<(String, OwnedFd)>);

impl HeldSockets {
    /// Holds a socket.
    pub fn hold(&mut self, name: &str, socket: impl Into<OwnedFd>) {
        self.0.push((name.to_owned(), socket.into()));
    }

    /// Listens on a free port of 127.0.0.1.
    pub fn listen(&mut self, name: &str) -> SocketAddr {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = self.listen_on(name, Domain::IPV4, &any.into());
        address.as_socket().expect("it is an IP address")
    }

    /// Listens on a unix socket.
    pub fn listen_unix(&mut self, name: &str, path: &Path) {
        let address = SockAddr::unix(path).expect("the path is short");
        self.listen_on(name, Domain::UNIX, &address);
    }

    fn listen_on(&mut self, name: &str, domain: Domain, address: &SockAddr) -> SockAddr {
        let socket = Socket::new(domain, Type::STREAM, None).expect("the system has a socket");
        socket.bind(address).expect("the address is free");
        socket.listen(BACKLOG).expect("it is bound");
        let address = socket.local_addr().expect("it is bound");
        self.hold(name, socket);
        address
    }

    /// Returns a command that becomes `program`, which inherits the sockets.
    pub fn command(&self, program: &Path) -> Command {
        let names: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        let mappings = (FIRST..)
            .zip(&self.0)
            .map(|(child_fd, (_, socket))| FdMapping {
                parent_fd: socket.try_clone().expect("a descriptor is left"),
                child_fd,
            });
        let mut command = Command::new("sh");
        command
            .args(["-c", SHELL])
            .arg(program)
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .fd_mappings(mappings.collect())
            .expect("each number is there once");
        command
    }
}

/// The place that clients connect to.
#[derive(Clone, Debug)]
pub enum Place {
    /// An IP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// What a client sends after it has connected, and the end of the answer.
#[derive(Clone, Debug)]
pub struct Question {
    /// The place of the daemon.
    pub place: Place,
    /// The bytes of the client.
    pub request: &'static [u8],
    /// The bytes that the answer contains.
    pub answer: &'static [u8],
}

impl Question {
    /// A `GET /ping`.
    pub fn ping(place: Place) -> Question {
        Question {
            place,
            request: b"GET /ping HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
            answer: b"\r\n\r\nOK",
        }
    }

    /// Asks until there is an answer. A daemon that is killed may have taken a connection, and the next one answers. The
    /// error is that of a connect, which must never fail.
    fn ask(&self) -> io::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            let is_answered = match &self.place {
                Place::Tcp(address) => {
                    let stream = TcpStream::connect(address)?;
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    self.ask_over(stream)
                }
                Place::Unix(path) => {
                    let stream = UnixStream::connect(path)?;
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    self.ask_over(stream)
                }
            };
            if is_answered {
                return Ok(());
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Returns false after a cut connection.
    fn ask_over(&self, mut stream: impl Read + Write) -> bool {
        let mut answer = Vec::new();
        let mut buffer = [0; 512];
        if stream.write_all(self.request).is_err() {
            return false;
        }
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..count]);
            if answer
                .windows(self.answer.len())
                .any(|part| part == self.answer)
            {
                return true;
            }
        }
        false
    }
}

/// A daemon, which ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the process was waited for already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts a daemon, and waits until it answers.
    fn start(mut command: Command, questions: &[Question]) -> Running {
        let running = Running(
            command
                .stdout(Stdio::null())
                .spawn()
                .expect("the daemon can be run"),
        );
        for question in questions {
            question.ask().expect("the daemon answers");
        }
        running
    }

    /// Ends the daemon by SIGKILL or SIGTERM.
    fn end(mut self, kills: bool) {
        if kills {
            self.0.kill().expect("it was not waited for");
        } else {
            send_signal(self.0.id(), "TERM");
        }
        let has_ended = || matches!(self.0.try_wait(), Ok(Some(_)));
        assert!(wait_until(TIMEOUT, has_ended), "the daemon does not end");
    }
}

/// Restarts a daemon, by SIGKILL and SIGTERM in turn, while 200 clients a second ask the questions in turn. Fails if a
/// connection is refused, or a client has no answer in the end. Calls `at_end` with the daemon still running, and with the
/// number of answers that the clients have to each question.
pub fn check_restarts(
    command: impl Fn() -> Command,
    questions: &[Question],
    restarts: u64,
    at_end: impl FnOnce(&[usize]),
) {
    let is_over = AtomicBool::new(false);
    let is_over = &is_over;
    thread::scope(|scope| {
        let clients = scope.spawn(move || {
            let rounds = questions.iter().enumerate().cycle();
            let clients = rounds.take_while(|_| !is_over.load(Ordering::Relaxed));
            let clients = clients.map(|(index, question)| {
                thread::sleep(PAUSE);
                (index, scope.spawn(move || question.ask()))
            });
            clients.collect::<Vec<_>>()
        });
        // A failed assertion ends the clients, too.
        let ends = Ends(is_over);
        for restart in 0..restarts {
            let running = Running::start(command(), questions);
            thread::sleep(LIFE);
            running.end(restart % 2 == 0);
        }
        let _last = Running::start(command(), questions);
        thread::sleep(LIFE);
        drop(ends);
        let mut answers = vec![0; questions.len()];
        for (index, client) in clients.join().expect("clients were started") {
            let answered = client.join().expect("a client does not panic");
            answered.unwrap_or_else(|error| panic!("{:?}: {error}", questions[index].place));
            answers[index] += 1;
        }
        at_end(&answers);
    });
}

/// Ends the clients.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
