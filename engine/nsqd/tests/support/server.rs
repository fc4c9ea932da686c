//! Servers of the test for the broker's requests: an HTTP server, and an nsqlookupd that records
//! its commands and can misbehave.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use test_support::http_server::{Answer, Connection, HttpServer, Received};

use super::{TIMEOUT, wait_until};

/// A port of 127.0.0.1 that the system chooses.
const ANY_PORT: &str = "127.0.0.1:0";

/// Serves HTTP on a free port of 127.0.0.1 until the test ends.
pub fn serve_http(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> SocketAddr {
    HttpServer::start(move |request, _| answer(request)).address
}

/// Serves HTTPS in the same way.
pub fn serve_https(
    config: Arc<ServerConfig>,
    answer: impl Fn(&Received) -> Answer + Send + Sync + 'static,
) -> SocketAddr {
    let wrap = move |stream| -> io::Result<Box<dyn Connection>> {
        let connection = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        Ok(Box::new(StreamOwned::new(connection, stream)))
    };
    HttpServer::start_in(wrap, move |request, _| answer(request)).address
}

/// Serves each connection on a thread that ends with it.
fn listen(
    address: &str,
    serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(address).expect("the address is free");
    let address = listener.local_addr().expect("it is bound");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            // The other side may close the connection at any time.
            thread::spawn(move || serve(stream).ok());
        }
    });
    address
}

/// The reaction of a [`Lookupd`] to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Answers correctly.
    Well,
    /// Closes the connection.
    Closes,
    /// Sends nothing and continues to read.
    Silent,
    /// Announces this many bytes as the answer and sends a few.
    Announces(i32),
    /// Answers every command with this text.
    Says(&'static str),
}

/// An nsqlookupd that records its commands.
pub struct Lookupd {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    http_port: u16,
    told: Mutex<Vec<String>>,
    /// The first word of a command, and the reaction to it.
    manner: Mutex<(&'static str, Manner)>,
    open: Mutex<Vec<TcpStream>>,
}

impl Lookupd {
    /// Starts an nsqlookupd that knows these channels of every topic.
    pub fn start(channels: &[&str]) -> Lookupd {
        let answer = serde_json::json!({ "channels": channels }).to_string();
        let http = serve_http(move |_| Answer::new(200, &answer));
        Lookupd::start_with_http(http.port())
    }

    /// Starts an nsqlookupd whose HTTP another server answers on this port of 127.0.0.1.
    pub fn start_with_http(http_port: u16) -> Lookupd {
        Lookupd::start_at(ANY_PORT, http_port)
    }

    /// Starts an nsqlookupd on an address of this machine.
    pub fn start_at(address: &str, http_port: u16) -> Lookupd {
        let shared = Arc::new(Shared {
            http_port,
            told: Mutex::default(),
            manner: Mutex::new(("", Manner::Well)),
            open: Mutex::default(),
        });
        let serving = shared.clone();
        let address = listen(address, move |stream| {
            serving.open.lock().push(stream.try_clone()?);
            serving.serve(&stream)
        });
        Lookupd { address, shared }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on reacts to commands that start with `command` in this manner, and answers all
    /// others correctly.
    pub fn answers(&self, command: &'static str, manner: Manner) {
        *self.shared.manner.lock() = (command, manner);
    }

    /// Returns everything that was received, over all connections: lines, IDENTIFY with its body,
    /// `connected`.
    pub fn told(&self) -> Vec<String> {
        self.shared.told.lock().clone()
    }

    /// Forgets everything that was received.
    pub fn forget(&self) {
        self.shared.told.lock().clear();
    }

    /// Waits for `line`, for at most the test's timeout.
    pub fn wait_for(&self, line: &str) {
        let is_told = || self.told().iter().any(|told| told == line);
        assert!(
            wait_until(TIMEOUT, is_told),
            "{line} was not received, but: {:#?}",
            self.told()
        );
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().drain(..) {
            // The connection may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut magic = [0; 4];
        reader.read_exact(&mut magic)?;
        assert_eq!(&magic, b"  V1");
        self.note("connected".to_owned());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                self.note("closed".to_owned());
                return Ok(());
            }
            let mut line = line.trim_end().to_owned();
            let mut answer = "OK".to_owned();
            if line == "IDENTIFY" {
                let mut size = [0; 4];
                reader.read_exact(&mut size)?;
                let mut body = vec![0; u32::from_be_bytes(size) as usize];
                reader.read_exact(&mut body)?;
                line = format!("IDENTIFY {}", String::from_utf8_lossy(&body));
                answer = format!(
                    "{{\"broadcast_address\":\"127.0.0.1\",\"hostname\":\"h\",\"http_port\":{},\
                     \"tcp_port\":1,\"version\":\"1.3.0\"}}",
                    self.http_port
                );
            }
            let (command, manner) = *self.manner.lock();
            let is_meant = !command.is_empty() && line.starts_with(command);
            self.note(line);
            let bytes = match if is_meant { manner } else { Manner::Well } {
                Manner::Well => sized(answer.len() as i32, &answer),
                Manner::Closes => {
                    stream.shutdown(Shutdown::Both)?;
                    return Ok(());
                }
                Manner::Silent => continue,
                Manner::Announces(size) => sized(size, "some"),
                Manner::Says(text) => sized(text.len() as i32, text),
            };
            stream.write_all(&bytes)?;
        }
    }

    fn note(&self, line: String) {
        self.told.lock().push(line);
    }
}

fn sized(size: i32, text: &str) -> Vec<u8> {
    [&size.to_be_bytes()[..], text.as_bytes()].concat()
}
