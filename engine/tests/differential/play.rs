//! Plays one case against one broker and returns its answers in words.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::case::{Action, Case, HttpRequest};
use super::normal::normal;
use super::sent_bytes::{Names, SentBytes, show, unescape};
use super::support::{Client, FrameType, Message, PATIENCE, http, parse_http, wait_until};

/// The time for which the test watches a silent connection.
const QUIET: Duration = Duration::from_millis(300);
/// The largest difference between the timestamp of a message and the test's clock.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(60);
/// Errors that do not end the connection.
const NOT_FATAL: [&[u8]; 3] = [b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED"];

/// The addresses of a broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) tcp: SocketAddr,
    pub(crate) http: SocketAddr,
}

/// Plays the case. Returns the answers of each step. After the last step, the test ends the input.
/// Everything that arrives up to the close belongs to the last step.
pub(crate) fn play(case: &Case, addresses: Addresses) -> Vec<Vec<String>> {
    let mut stage = Stage {
        addresses,
        names: Names {
            topic: case.name.clone(),
            ..Names::default()
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

struct Stage {
    addresses: Addresses,
    names: Names,
    /// The open connections by name.
    connections: BTreeMap<String, Client>,
}

impl Stage {
    fn perform(&mut self, action: &Action) -> Vec<String> {
        match action {
            Action::Raw(name) => {
                let client = Client::connect_without_magic(self.addresses.tcp);
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
                self.client(name).set_read_timeout(PATIENCE);
                vec![self.frame(name).0]
            }
            Action::Quiet(name) => {
                let client = self.client(name);
                client.set_read_timeout(QUIET);
                let (text, is_end) = self.frame(name);
                if is_end && text != NOTHING {
                    self.connections.remove(name);
                }
                vec![text]
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
                let bytes = sent.bytes(&self.names);
                self.http_exchange(&bytes, false, Part::Everything)
            }
            Action::Until(target, text) => {
                let target = self.names.fill(target);
                let text = unescape(&self.names.fill(text));
                let came = wait_until(PATIENCE, || {
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
    fn client(&mut self, name: &str) -> &mut Client {
        let tcp = self.addresses.tcp;
        self.connections
            .entry(name.to_owned())
            .or_insert_with(|| Client::connect(tcp))
    }

    fn send(&mut self, name: &str, sent: &SentBytes) -> Vec<String> {
        let bytes = sent.bytes(&self.names);
        // A broker that has closed the connection has sent the reason, which is read next.
        let _ = self.client(name).try_send(&bytes);
        Vec::new()
    }

    /// Reads `count` frames, or fewer if the connection ends before. Skips heartbeats, because one
    /// may come at any time.
    fn read(&mut self, name: &str, count: usize) -> Vec<String> {
        let mut answers = Vec::new();
        while answers.len() < count {
            self.client(name).set_read_timeout(PATIENCE);
            let (text, is_end) = self.frame(name);
            if text == HEARTBEAT {
                continue;
            }
            let is_fatal = text.starts_with("error ") && !is_end && !self.goes_on(&text);
            answers.push(text);
            if is_fatal {
                answers.extend(self.read_to_end(name));
                break;
            }
            if is_end {
                self.connections.remove(name);
                break;
            }
        }
        answers
    }

    fn goes_on(&self, text: &str) -> bool {
        NOT_FATAL
            .iter()
            .any(|code| text.as_bytes()["error \"".len()..].starts_with(code))
    }

    /// Reads all frames up to the close. Skips heartbeats, because one may come just before the
    /// close.
    fn read_to_end(&mut self, name: &str) -> Vec<String> {
        let mut answers = Vec::new();
        self.client(name).set_read_timeout(PATIENCE);
        loop {
            let (text, is_end) = self.frame(name);
            if text != HEARTBEAT {
                answers.push(text);
            }
            if is_end {
                self.connections.remove(name);
                return answers;
            }
        }
    }

    /// Returns the next frame in words, and true if no frame can follow.
    fn frame(&mut self, name: &str) -> (String, bool) {
        let frame = match self.client(name).try_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => return (CLOSED.to_owned(), true),
            Err(error) => {
                return match error.kind() {
                    // The kernel resets a connection with unread bytes.
                    io::ErrorKind::ConnectionReset => (CLOSED.to_owned(), true),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        (NOTHING.to_owned(), true)
                    }
                    _ => (format!("{BROKEN}{error}"), true),
                };
            }
        };
        let text = match frame.kind {
            FrameType::Response => format!("response {}", self.show(&frame.data)),
            FrameType::Error => format!("error {}", self.show(&frame.data)),
            FrameType::Message => match Message::parse(&frame.data) {
                Some(message) => self.show_message(&message),
                None => format!("message too short {}", show(&frame.data)),
            },
        };
        (text, false)
    }

    fn show(&self, bytes: &[u8]) -> String {
        self.names.hide(&normal(&show(bytes)))
    }

    fn show_message(&mut self, message: &Message) -> String {
        let id = match std::str::from_utf8(&message.id) {
            Ok(id) if id.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) => {
                self.names.name(id)
            }
            _ => format!("bad id {}", show(&message.id)),
        };
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("the clock is set");
        let sent = Duration::from_nanos(message.timestamp.try_into().unwrap_or(0));
        let clock = match now.abs_diff(sent) {
            error if error > CLOCK_ERROR_MAX => " at a wrong time",
            _ => "",
        };
        let attempts = message.attempts;
        let body = self.show(&message.body);
        format!("message {id} attempts={attempts}{clock} {body}")
    }

    fn http(&self, request: &HttpRequest) -> Vec<String> {
        let HttpRequest {
            method,
            target,
            headers,
            body,
        } = request;
        let target = self.names.fill(target);
        let body = body.bytes(&self.names);
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
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
                // The broker may choose how to frame a body. `parse` has checked that the body is
                // complete.
                ("content-length" | "transfer-encoding", _) => is_head,
                ("connection", Part::WhatWasNotAskedFor) => value != "close",
                _ => true,
            };
            if is_shown {
                head.push_str(&format!(" | {name}: {value}"));
            }
        }
        let mut answers = vec![normal(&head)];
        for line in response.body.split_inclusive(|byte| *byte == b'\n') {
            answers.push(format!("body {}", self.show(line)));
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
const HEARTBEAT: &str = "response \"_heartbeat_\"";

/// Sends `bytes`, ends the client's side if `is_all`, and reads to the end.
fn exchange(address: SocketAddr, bytes: &[u8], is_all: bool) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
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
