//! [`HttpServer`]: an HTTP server that records the bytes of its requests and answers as a test says.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use serde_json::Value;

use crate::{TIMEOUT, wait_until};

/// A request, as received.
#[derive(Clone, PartialEq, Eq)]
pub struct Received {
    /// The request line and the headers, each with its line end, without the empty line.
    pub head: String,
    /// The body, which `Content-Length` announces.
    pub body: Vec<u8>,
}

impl Received {
    /// Returns the method of the request line.
    pub fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    /// Returns the value of a header, whose name has any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().skip(1);
        let mut headers = headers.filter_map(|line| line.split_once(": "));
        let found = headers.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Returns the target of the request line.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the target without its query.
    pub fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON. Panics if the body is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.head, self.text())
    }
}

/// The answer of the server.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Further header lines, each `Name: value`.
    pub headers: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns an answer without further headers.
    pub fn new(status: u16, body: impl AsRef<[u8]>) -> Answer {
        Answer {
            status,
            headers: Vec::new(),
            body: body.as_ref().to_vec(),
        }
    }

    /// Returns an answer with this status and a short body.
    pub fn status(status: u16) -> Answer {
        Answer::new(status, "answer")
    }

    /// Returns the answer of NSQ's daemons to an address that they do not know.
    pub fn not_found() -> Answer {
        Answer::new(404, r#"{"message":"NOT_FOUND"}"#)
    }

    /// Returns this answer with a further header line.
    #[must_use]
    pub fn with(mut self, header: impl Into<String>) -> Answer {
        self.headers.push(header.into());
        self
    }
}

impl From<Value> for Answer {
    /// Returns a success with this JSON.
    fn from(body: Value) -> Answer {
        Answer::new(200, body.to_string())
    }
}

impl From<&str> for Answer {
    /// Returns a success with this body.
    fn from(body: &str) -> Answer {
        Answer::new(200, body)
    }
}

/// A connection of a client, perhaps inside TLS.
pub trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// A server on a free port of 127.0.0.1. Its connections stay open for further requests, unless a request
/// says `Connection: close`, and each has a thread. The server runs until the test process ends.
#[derive(Debug)]
pub struct HttpServer {
    /// The address of the server.
    pub address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: Mutex<Vec<Received>>,
    connections: AtomicUsize,
}

impl HttpServer {
    /// Starts a server. `answer` gets each request, and the number of requests before it.
    pub fn start(
        answer: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static,
    ) -> HttpServer {
        HttpServer::start_in(|stream| Ok(Box::new(stream)), answer)
    }

    /// Starts a server whose connections go through `wrap`, for instance for TLS.
    pub fn start_in(
        wrap: impl Fn(TcpStream) -> io::Result<Box<dyn Connection>> + Send + Sync + 'static,
        answer: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static,
    ) -> HttpServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the system has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let state = Arc::new(State::default());
        let shared = Arc::new((wrap, answer));
        let of_server = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                of_server.connections.fetch_add(1, Ordering::Relaxed);
                let (state, shared) = (Arc::clone(&of_server), Arc::clone(&shared));
                thread::spawn(move || {
                    let (wrap, answer) = &*shared;
                    // A client may close the connection at any time.
                    let _ = wrap(stream).and_then(|stream| serve(stream, &state, answer));
                });
            }
        });
        HttpServer { address, state }
    }

    /// Returns `http://`, the address, and `path`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Received> {
        self.state.requests.lock().clone()
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Waits until there are at least `count` requests, and returns all.
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        wait_until(TIMEOUT, || self.state.requests.lock().len() >= count);
        let requests = self.requests();
        assert!(requests.len() >= count, "only {requests:?}");
        requests
    }
}

/// Answers the requests of one connection.
fn serve(
    stream: Box<dyn Connection>,
    state: &State,
    answer: &impl Fn(&Received, usize) -> Answer,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader)? {
        let before = {
            let mut requests = state.requests.lock();
            requests.push(request.clone());
            requests.len() - 1
        };
        let Answer {
            status,
            headers,
            body,
        } = answer(&request, before);
        let mut bytes = format!("HTTP/1.1 {status} Status\r\n").into_bytes();
        for header in headers {
            bytes.extend_from_slice(format!("{header}\r\n").as_bytes());
        }
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(&body);
        reader.get_mut().write_all(&bytes)?;
        reader.get_mut().flush()?;
        if request.head.contains("\r\nConnection: close\r\n") {
            break;
        }
    }
    Ok(())
}

/// Reads one request, or `None` at the end of the connection.
fn read_request(reader: &mut impl BufRead) -> io::Result<Option<Received>> {
    let mut head = String::new();
    loop {
        let start = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        if &head[start..] == "\r\n" {
            head.truncate(start);
            break;
        }
    }
    let mut request = Received {
        head,
        body: Vec::new(),
    };
    let length = request.header("content-length");
    let length = length.and_then(|text| text.trim().parse().ok());
    request.body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut request.body)?;
    Ok(Some(request))
}
