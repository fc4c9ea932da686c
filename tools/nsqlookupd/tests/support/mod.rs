//! The tools of the tests over real sockets: the real binary as a child process, and a client of
//! protocol V1.

#![allow(unreachable_pub)]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use test_support::TIMEOUT;
use test_support::differential::{self, Addresses, Frame, FrameKind, Words};
use test_support::http::{Response, http};
use test_support::process::{Exit, Process, run};

/// The magic of protocol V1.
pub const MAGIC: &[u8] = b"  V1";

/// Longest answer that a client accepts, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Runs the program under test with exactly these arguments and waits for its end.
pub fn run_nsqlookupd(args: &[&str]) -> Exit {
    run(Command::new(path()).args(args), TIMEOUT)
}

/// Returns the path of the program under test.
pub fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_nsqlookupd"))
}

/// A running nsqlookupd on free ports of 127.0.0.1.
pub struct Lookupd {
    process: Process,
    pub tcp: SocketAddr,
    pub http: SocketAddr,
}

impl Deref for Lookupd {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Lookupd {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

impl Lookupd {
    /// Starts the program under test.
    pub fn start(args: &[&str]) -> Lookupd {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        match Lookupd::try_start(&args, None) {
            Ok(lookupd) => lookupd,
            Err(stderr) => panic!("no start: {stderr}"),
        }
    }

    /// Starts the program under test, or another. The error is its standard error.
    pub fn try_start(args: &[String], program: Option<&Path>) -> Result<Lookupd, String> {
        let process = Process::start(
            Command::new(program.map_or_else(path, Path::to_path_buf))
                .args(["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"])
                .args(args)
                .stdin(Stdio::null())
                .stdout(Stdio::null()),
        );
        let address = |text| process.wait_for_address(text);
        match address(" TCP: listening on ").zip(address(" HTTP: listening on ")) {
            Some((tcp, http)) => Ok(Lookupd { process, tcp, http }),
            None => Err(process.log()),
        }
    }

    /// Sends a GET. Panics only if there is no HTTP answer.
    pub fn get(&self, target: &str) -> Response {
        http(self.http, "GET", target, b"")
    }

    /// Sends a POST. Panics only if there is no HTTP answer.
    pub fn post(&self, target: &str) -> Response {
        http(self.http, "POST", target, b"")
    }
}

impl differential::Daemon for Lookupd {
    fn addresses(&self) -> Addresses {
        Addresses {
            tcp: self.tcp,
            http: self.http,
        }
    }
}

/// A client of protocol V1.
pub struct Client {
    stream: TcpStream,
}

impl Client {
    /// Connects and identifies itself as a node of this name.
    pub fn identified(address: SocketAddr, name: &str) -> Client {
        let mut client = <Client as differential::Client>::connect(address);
        let body = format!(
            r#"{{"broadcast_address":"{name}","hostname":"{name}","tcp_port":4150,"http_port":4151,"version":"1.3.0"}}"#
        );
        let answer = client.ask(&identify(&body));
        assert!(answer.starts_with("{\"broadcast_address\":"), "{answer}");
        client
    }

    /// Sends bytes and returns one answer. Panics if there is none.
    pub fn ask(&mut self, bytes: &[u8]) -> String {
        self.stream.write_all(bytes).expect("nsqlookupd reads");
        let answer = self.answer().expect("the connection works");
        String::from_utf8_lossy(&answer.expect("the connection is open")).into_owned()
    }

    /// Reads one answer, or `None` at the end.
    pub fn answer(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut size = [0; 4];
        if self.stream.read(&mut size[..1])? == 0 {
            return Ok(None);
        }
        self.stream.read_exact(&mut size[1..])?;
        let size = u32::from_be_bytes(size) as usize;
        if size > ANSWER_BYTES_MAX {
            let why = format!("an answer of {size} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut answer = vec![0; size];
        self.stream.read_exact(&mut answer)?;
        Ok(Some(answer))
    }

    /// Returns the socket.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }
}

/// Returns an IDENTIFY with this body.
pub fn identify(body: &str) -> Vec<u8> {
    let size = u32::try_from(body.len()).expect("bodies in tests are small");
    [b"IDENTIFY\n", &size.to_be_bytes()[..], body.as_bytes()].concat()
}

impl differential::Client for Client {
    fn connect(address: SocketAddr) -> Client {
        let mut client = Client::connect_without_magic(address);
        client.stream.write_all(MAGIC).expect("nsqlookupd reads");
        client
    }

    fn connect_without_magic(address: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("nsqlookupd listens");
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(TIMEOUT)).expect("a timeout above zero is accepted");
        }
        stream.set_nodelay(true).expect("TCP has the option");
        Client { stream }
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn close_write(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write); // It may be closed already.
    }

    fn set_read_timeout(&mut self, timeout: Duration) {
        let set = self.stream.set_read_timeout(Some(timeout));
        set.expect("a timeout above zero is accepted");
    }

    fn next_frame(&mut self, words: &mut Words) -> io::Result<Option<Frame>> {
        let Some(answer) = self.answer()? else {
            return Ok(None);
        };
        let kind = if answer.starts_with(b"E_") {
            FrameKind::Fatal
        } else {
            FrameKind::Ordinary
        };
        let text = format!("answer {}", words.show(&answer));
        Ok(Some(Frame { text, kind }))
    }
}
