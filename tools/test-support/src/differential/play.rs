//! Plays one case against one daemon and returns its answers in words.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::case::{Action, Case, HttpRequest};
use super::sent_bytes::{Names, SentBytes, show, unescape};
use crate::http::{http, parse as parse_http};
use crate::{TIMEOUT, wait_until};

/// The time for which the test watches a silent connection.
const QUIET: Duration = Duration::from_millis(300);

/// The addresses of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The address of the TCP protocol.
    pub tcp: SocketAddr,
    /// The address of HTTP.
    pub http: SocketAddr,
}

/// A client of a daemon's TCP protocol.
pub trait Client {
    /// Connects and sends the magic of the protocol.
    fn connect(address: SocketAddr) -> Self;

    /// Connects and sends nothing.
    fn connect_without_magic(address: SocketAddr) -> Self;

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection is broken.
    fn try_send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Ends the client's side.
    fn close_write(&mut self);

    /// Sets the longest wait for a frame.
    fn set_read_timeout(&mut self, timeout: Duration);

    /// Reads the next frame. Returns `None` at an orderly end.
    ///
    /// # Errors
    /// The connection is broken, or silent for too long.
    fn next_frame(&mut self, words: &mut Words) -> io::Result<Option<Frame>>;
}

/// A frame in words.
#[derive(Debug)]
pub struct Frame {
    /// The words.
    pub text: String,
    /// The meaning for the connection.
    pub kind: FrameKind,
}

/// The meaning of a frame for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Others may follow.
    Ordinary,
    /// A heartbeat, which may come at any time.
    Heartbeat,
    /// An error that ends the connection.
    Fatal,
}

/// The words in which frames are described.
#[derive(Debug)]
pub struct Words {
    /// The ids that this case has met.
    pub names: Names,
    /// Replaces each value that differs from run to run.
    normal: fn(&str) -> String,
}

impl Words {
    /// Returns bytes in the notation of the cases.
    pub fn show(&self, bytes: &[u8]) -> String {
        self.names.hide(&(self.normal)(&show(bytes)))
    }
}

/// Plays the case. Returns the answers of each step. After the last step, the test ends the input.
/// Everything that arrives up to the close belongs to the last step.
pub(crate) fn play<C: Client>(
    case: &Case,
    addresses: Addresses,
    normal: fn(&str) -> String,
) -> Vec<Vec<String>> {
    let mut stage = Stage::<C> {
        addresses,
        words: Words {
            names: Names {
                topic: case.name.clone(),
                address: addresses.tcp.to_string(),
                ..Names::default()
            },
            normal,
        },
        connections: BTreeMap::new(),
    };
    let mut answers: Vec<Vec<String>> = Vec::new();
    for step in &case.steps {
        answers.push(stage.perform(&step.action));
    }
    let rest = stage.drain();
    if let Some(last) = answers.last_mut() {
        last.extend(rest);
    }
    answers
}

/// Returns true if an answer says that no answer arrived.
pub(crate) fn is_vain(answer: &str) -> bool {
    answer.ends_with(NOTHING) || answer == NEVER || answer.starts_with(BROKEN)
}

struct Stage<C> {
    addresses: Addresses,
    words: Words,
    /// The open connections by name.
    connections: BTreeMap<String, C>,
}

/// The next thing on a connection.
enum Next {
    Frame(Frame),
    /// No frame can follow.
    End(String),
}

impl Next {
    fn text(self) -> String {
        match self {
            Next::Frame(frame) => frame.text,
            Next::End(text) => text,
        }
    }
}

impl<C: Client> Stage<C> {
    fn perform(&mut self, action: &Action) -> Vec<String> {
        match action {
            Action::Raw(name) => {
                let client = C::connect_without_magic(self.addresses.tcp);
                self.connections.insert(name.clone(), client);
                Vec::new()
            }
            Action::Send(name, sent) => self.send(name, sent),
            Action::Ask(name, sent) => {
                let mut answers = self.send(name, sent);
                answers.extend(self.read(name, 1));
                answers
            }
            Action::Read(name, count) => self.read(name, *count),
            Action::Heartbeat(name) => {
                self.client(name).set_read_timeout(TIMEOUT);
                vec![self.frame(name).text()]
            }
            Action::Quiet(name) => {
                let client = self.client(name);
                client.set_read_timeout(QUIET);
                let next = self.frame(name);
                if matches!(&next, Next::End(text) if text != NOTHING) {
                    self.connections.remove(name);
                }
                vec![next.text()]
            }
            Action::Finish(name) => {
                self.client(name).close_write();
                self.read_to_end(name)
            }
            Action::End(name) => self.read_to_end(name),
            Action::Close(name) => {
                self.connections.remove(name);
                Vec::new()
            }
            Action::Http(request) => self.http(request),
            Action::HttpRaw(sent) => {
                let bytes = sent.bytes(&self.words.names);
                self.http_exchange(&bytes, false, Part::Everything)
            }
            Action::Until(target, text) => {
                let target = self.words.names.fill(target);
                let text = unescape(&self.words.names.fill(text));
                let came = wait_until(TIMEOUT, || {
                    let page = http(self.addresses.http, "GET", &target, b"").body;
                    page.windows(text.len()).any(|window| window == text)
                });
                if came {
                    Vec::new()
                } else {
                    vec![NEVER.to_owned()]
                }
            }
        }
    }

    /// Returns the connection of this name. Opens a new one.
    fn client(&mut self, name: &str) -> &mut C {
        let tcp = self.addresses.tcp;
        self.connections
            .entry(name.to_owned())
            .or_insert_with(|| C::connect(tcp))
    }

    fn send(&mut self, name: &str, sent: &SentBytes) -> Vec<String> {
        let bytes = sent.bytes(&self.words.names);
        // A daemon that has closed the connection has sent the reason, which is read next.
        let _ = self.client(name).try_send(&bytes);
        Vec::new()
    }

    /// Reads `count` frames, or fewer if the connection ends before. Skips heartbeats, because one
    /// may come at any time.
    fn read(&mut self, name: &str, count: usize) -> Vec<String> {
        let mut answers = Vec::new();
        while answers.len() < count {
            self.client(name).set_read_timeout(TIMEOUT);
            match self.frame(name) {
                Next::Frame(frame) => match frame.kind {
                    FrameKind::Heartbeat => {}
                    FrameKind::Ordinary => answers.push(frame.text),
                    FrameKind::Fatal => {
                        answers.push(frame.text);
                        answers.extend(self.read_to_end(name));
                        break;
                    }
                },
                Next::End(text) => {
                    answers.push(text);
                    self.connections.remove(name);
                    break;
                }
            }
        }
        answers
    }

    /// Reads all frames up to the close. Heartbeats are skipped, because one may come just before
    /// the close.
    fn read_to_end(&mut self, name: &str) -> Vec<String> {
        let mut answers = Vec::new();
        self.client(name).set_read_timeout(TIMEOUT);
        loop {
            match self.frame(name) {
                Next::Frame(frame) if frame.kind == FrameKind::Heartbeat => {}
                Next::Frame(frame) => answers.push(frame.text),
                Next::End(text) => {
                    answers.push(text);
                    self.connections.remove(name);
                    return answers;
                }
            }
        }
    }

    fn frame(&mut self, name: &str) -> Next {
        // The connection is opened if it is new.
        self.client(name);
        let client = self.connections.get_mut(name).expect("it is open");
        let end = match client.next_frame(&mut self.words) {
            Ok(Some(frame)) => return Next::Frame(frame),
            Ok(None) => CLOSED.to_owned(),
            Err(error) => match error.kind() {
                // The kernel resets a connection with unread bytes.
                io::ErrorKind::ConnectionReset => CLOSED.to_owned(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NOTHING.to_owned(),
                _ => format!("{BROKEN}{error}"),
            },
        };
        Next::End(end)
    }

    fn http(&self, request: &HttpRequest) -> Vec<String> {
        let HttpRequest {
            method,
            target,
            headers,
            body,
        } = request;
        let target = self.words.names.fill(target);
        let body = body.bytes(&self.words.names);
        let mut head =
            format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        let framed = headers.iter().any(|header| {
            let name = header.to_ascii_lowercase();
            name.starts_with("content-length:") || name.starts_with("transfer-encoding:")
        });
        if !framed && (!body.is_empty() || method != "GET") {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let bytes = [head.as_bytes(), &body].concat();
        self.http_exchange(&bytes, method == "HEAD", Part::WhatWasNotAskedFor)
    }

    fn http_exchange(&self, bytes: &[u8], is_head: bool, part: Part) -> Vec<String> {
        match exchange(self.addresses.http, bytes, part == Part::Everything) {
            Ok(answer) => self.show_http(&answer, is_head, part),
            Err(error) => vec![format!("{BROKEN}{error}")],
        }
    }

    fn show_http(&self, answer: &[u8], is_head: bool, part: Part) -> Vec<String> {
        if answer.is_empty() {
            return vec![CLOSED.to_owned()];
        }
        let response = match parse_http(answer, is_head) {
            Ok(response) => response,
            Err(error) => return vec![format!("{error}: {}", show(answer))],
        };
        let mut head = String::from_utf8_lossy(answer)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        // The order of the headers has no meaning.
        let mut headers = response.headers.clone();
        headers.sort();
        for (name, value) in &headers {
            let is_shown = match (name.as_str(), part) {
                ("date", _) => false,
                // The daemon may choose how to frame a body. `parse` has checked that the body is
                // complete.
                ("content-length" | "transfer-encoding", _) => is_head,
                ("connection", Part::WhatWasNotAskedFor) => value != "close",
                _ => true,
            };
            if is_shown {
                head.push_str(&format!(" | {name}: {value}"));
            }
        }
        let mut answers = vec![(self.words.normal)(&head)];
        for line in response.body.split_inclusive(|byte| *byte == b'\n') {
            answers.push(format!("body {}", self.words.show(line)));
        }
        answers
    }

    /// Ends the input of every connection and reads the rest. An orderly close without further
    /// frames is expected and not reported.
    fn drain(&mut self) -> Vec<String> {
        let names: Vec<String> = self.connections.keys().cloned().collect();
        let mut answers = Vec::new();
        for name in names {
            self.client(&name).close_write();
            let rest = self.read_to_end(&name);
            if rest != [CLOSED] {
                answers.extend(rest.iter().map(|text| format!("at the end {name} {text}")));
            }
        }
        answers
    }
}

/// The part of an HTTP response's head that an answer shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Everything,
    /// Everything except a `Connection: close` that the request asked for.
    WhatWasNotAskedFor,
}

const CLOSED: &str = "closed";
const NOTHING: &str = "nothing";
const NEVER: &str = "never";
const BROKEN: &str = "broken: ";

/// Sends `bytes`, ends the client's side if `is_all`, and reads to the end.
fn exchange(address: SocketAddr, bytes: &[u8], is_all: bool) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // A server may answer before it has read everything (413), so only the answer counts.
    let sent = stream.write_all(bytes);
    if is_all {
        let _ = stream.shutdown(Shutdown::Write); // It may be closed already.
    }
    let mut answer = Vec::new();
    let received = stream.read_to_end(&mut answer);
    if answer.is_empty() {
        match received {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            received => {
                sent?;
                received?;
            }
        }
    }
    Ok(answer)
}
