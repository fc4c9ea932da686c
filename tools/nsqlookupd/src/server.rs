//! [`Server`]: listeners, connections and their end, on tokio.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use program::http::{Awaited, Connection, HostNames, HttpTimeouts};
use program::inherited::{InheritedSocket, InheritedSockets};
use program::{log_debug, log_error, log_info, log_warn, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout, timeout_at};
use tokio_daemon::listener::{Listener, shake_hands};
use tokio_rustls::TlsAcceptor;
use wire::go_error::system_text;

use crate::config::{Config, NSQLOOKUPD};
use crate::database::{Database, Now};
use crate::event;
use crate::http::Api;
use crate::session::{Effects, Session, identify_answer};
use crate::stream::{HttpStream, Stream};

/// Bytes per read of a TCP connection. A connection holds a buffer of this size all its life.
const READ_BYTES: usize = 4 * 1024;

/// Time that a client may take for its first four bytes. The other limits on silence are those of activity. nsqd ends
/// such clients after the same time.
const MAGIC_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which input is read and dropped after the last answer. A socket that is closed with
/// unread input is reset, and the reset can overtake the answer.
const LINGER: Duration = Duration::from_millis(500);

/// Time that a client of protocol V1 may take for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest wait for connections at the end of the process.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The names of the listeners with TLS, in the log.
const TLS_TCP: &str = "TCP with TLS";
const HTTPS: &str = "HTTPS";

/// A running nsqlookupd.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    listeners: Vec<Listening>,
    tcp_address: SocketAddr,
    http_address: SocketAddr,
}

/// A listener and its connections.
#[derive(Debug)]
struct Listening {
    name: &'static str,
    address: SocketAddr,
    protocol: Protocol,
    task: JoinHandle<()>,
}

/// The protocol that a listener's clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    V1,
    Http,
}

/// The parts that all connections share.
struct Shared {
    database: Arc<RwLock<Database>>,
    identify_answer: Arc<str>,
    http_timeouts: HttpTimeouts,
    host_names: Option<Arc<HostNames>>,
    started: SystemTime,
    stop: watch::Receiver<bool>,
}

impl Server {
    /// Listens and serves, in tasks of the runtime that this runs on. An inherited socket takes the place of its flag's
    /// address.
    ///
    /// # Errors
    /// The reason why an address cannot be listened on, for the FATAL line.
    pub async fn start(config: &Config, inherited: InheritedSockets) -> Result<Server, String> {
        log_info!("{}", version::of_daemon(NSQLOOKUPD.name));
        log_info!("{}", version::of_ringq());
        HostNames::check_flag(&config.allowed_hosts)?;
        for ignored in config.ignored() {
            log_warn!("{ignored}");
        }
        if config.lifetimes.inactive.is_zero() {
            log_warn!(
                "--inactive-producer-timeout=0 hides every nsqd: /lookup and /nodes have no producers"
            );
        }
        let tls = config.listener_tls()?.map(TlsAcceptor::from);
        let [tcp, http, tls_tcp, https] = inherited.assign(config.addresses())?;
        let tcp = listen(&config.tcp_address, tcp).await?;
        let http = listen(&config.http_address, http).await?;
        let (tcp_address, http_address) = (tcp.address(), http.address());
        let tls_tcp = listen_unless_empty(&config.tls_tcp_address, tls_tcp).await?;
        let https = listen_unless_empty(&config.tls.https_address, https).await?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            database: Arc::new(RwLock::new(Database::new(config.lifetimes))),
            identify_answer: identify_answer(
                &config.broadcast_address,
                config.options.hostname(),
                http_address.port(),
                https.as_ref().map(|https| https.address().port()),
                tcp_address.port(),
            ),
            http_timeouts: config.http_timeouts,
            host_names: host_names(config),
            started: SystemTime::now(),
            stop: stopped,
        });
        let serve = |name, protocol, listener: Listener, tls| {
            let address = listener.address();
            log_info!("{name}: listening on {address}");
            Listening {
                name,
                address,
                protocol,
                task: tokio::spawn(accept(listener, shared.clone(), tls, protocol)),
            }
        };
        let mut listeners = vec![serve("TCP", Protocol::V1, tcp, None)];
        listeners.extend(tls_tcp.map(|it| serve(TLS_TCP, Protocol::V1, it, tls.clone())));
        listeners.push(serve("HTTP", Protocol::Http, http, None));
        listeners.extend(https.map(|it| serve(HTTPS, Protocol::Http, it, tls.clone())));
        Ok(Server {
            stop,
            listeners,
            tcp_address,
            http_address,
        })
    }

    /// Returns the address that nsqds connect to.
    pub fn tcp_address(&self) -> SocketAddr {
        self.tcp_address
    }

    /// Returns the address of the HTTP interface.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Returns the address that nsqds connect to over TLS, if there is one.
    pub fn tls_tcp_address(&self) -> Option<SocketAddr> {
        self.address_of(TLS_TCP)
    }

    /// Returns the address of HTTPS, if there is one.
    pub fn https_address(&self) -> Option<SocketAddr> {
        self.address_of(HTTPS)
    }

    fn address_of(&self, name: &str) -> Option<SocketAddr> {
        let found = self.listeners.iter().find(|listener| listener.name == name);
        found.map(|listener| listener.address)
    }

    /// Ends all connections, and waits until the log has their last lines.
    pub async fn stop(self) {
        // Fails only if nobody is left to be told.
        let _ = self.stop.send(true);
        for listener in self.listeners {
            let name = listener.name;
            if listener.protocol == Protocol::Http {
                // Requests that are under way end with the process, as in the original.
                listener.task.abort();
            } else if timeout(STOP_TIMEOUT, listener.task).await.is_err() {
                log_error!("{name}: connections are still open after {STOP_TIMEOUT:?}");
            }
            log_info!("{name}: closing {}", listener.address);
        }
    }
}

/// Listens on an address.
async fn listen(address: &str, inherited: Option<InheritedSocket>) -> Result<Listener, String> {
    Listener::open(address, inherited, NSQLOOKUPD.name).await
}

/// Listens on an address, if there is one.
async fn listen_unless_empty(
    address: &str,
    inherited: Option<InheritedSocket>,
) -> Result<Option<Listener>, String> {
    match address {
        "" => Ok(None),
        address => listen(address, inherited).await.map(Some),
    }
}

/// Accepts connections until the server stops, and then waits for their ends.
async fn accept(
    mut listener: Listener,
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    protocol: Protocol,
) {
    let mut stop = shared.stop.clone();
    let mut connections = JoinSet::new();
    loop {
        let (socket, peer) = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.changed() => break,
        };
        let (shared, tls) = (shared.clone(), tls.clone());
        match protocol {
            Protocol::V1 => connections.spawn(serve_tcp(socket, peer, shared, tls)),
            Protocol::Http => connections.spawn(serve_http(socket, peer, shared, tls)),
        };
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves one client of protocol V1, perhaps over TLS.
async fn serve_tcp(
    socket: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
) {
    log_info!("TCP: new client({peer})");
    let ends = Ends::of(&socket, peer);
    let Some(tls) = tls else {
        return serve_v1(socket, ends, &shared).await;
    };
    let mut stop = shared.stop.clone();
    let secured = tokio::select! {
        secured = shake_hands(&tls, (socket, peer), Some(HANDSHAKE_TIMEOUT), "TCP") => secured,
        _ = stop.wait_for(|is_stopped| *is_stopped) => None,
    };
    if let Some(stream) = secured {
        serve_v1(stream, ends, &shared).await;
    }
}

async fn serve_v1(mut stream: impl Stream, ends: Ends, shared: &Shared) {
    let address: Arc<str> = ends.peer.to_string().into();
    let mut session = Session::new(address, shared.identify_answer.clone());
    let mut effects = Effects::default();
    let mut stop = shared.stop.clone();
    let is_stopped = tokio::select! {
        () = converse(&mut stream, &ends, &mut session, &mut effects, shared) => false,
        _ = stop.wait_for(|is_stopped| *is_stopped) => true,
    };
    if is_stopped {
        session.stop();
    }
    loop {
        let is_done = session.leave(&mut shared.database.write(), &mut effects);
        tell(&mut effects);
        if is_done {
            break;
        }
        tokio::task::yield_now().await;
    }
    if !is_stopped {
        close(stream).await;
    }
}

/// Reads, carries out and answers commands until the session is over.
async fn converse(
    stream: &mut impl Stream,
    ends: &Ends,
    session: &mut Session,
    effects: &mut Effects,
    shared: &Shared,
) {
    let mut buffer = vec![0; READ_BYTES];
    let magic_end = tokio::time::Instant::now() + MAGIC_TIMEOUT;
    while !session.is_over() {
        let read = stream.read(&mut buffer);
        let read = if session.awaits_magic() {
            match timeout_at(magic_end, read).await {
                Ok(read) => read,
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        } else {
            read.await
        };
        match read {
            Ok(0) => session.end(None, effects),
            Ok(count) => {
                if session.receive(&buffer[..count]) {
                    session.execute(&mut shared.database.write(), now(), effects);
                }
            }
            Err(error) => session.end(Some(&ends.text("read", &error)), effects),
        }
        tell(effects);
        let sent = send(stream, &effects.output).await;
        effects.output.clear();
        if let Err(error) = sent {
            session.end(Some(&ends.text("write", &error)), effects);
            effects.output.clear();
            tell(effects);
        }
    }
}

async fn send(stream: &mut impl Stream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    // TLS has its own buffer.
    stream.flush().await
}

/// Ends the output, and drops input for a while.
async fn close(mut socket: impl Stream) {
    let mut buffer = [0; READ_BYTES];
    let end = async {
        // The end of TLS is a message, for which a peer that does not read leaves no room. A failure means that the
        // peer has gone.
        if socket.shutdown().await.is_ok() {
            while matches!(socket.read(&mut buffer).await, Ok(1..)) {}
        }
    };
    // Both outcomes have the same meaning: the wait is over.
    let _ = timeout(LINGER, end).await;
}

fn tell(effects: &mut Effects) {
    event::log(&effects.events);
    effects.events.clear();
}

/// The addresses of both ends of a connection.
struct Ends {
    local: Option<SocketAddr>,
    peer: SocketAddr,
}

impl Ends {
    fn of(socket: &TcpStream, peer: SocketAddr) -> Ends {
        let local = socket.local_addr().ok();
        let local = local.map(|local| SocketAddr::new(local.ip().to_canonical(), local.port()));
        Ends { local, peer }
    }

    /// Returns the text of a failed read or write in Go's words.
    fn text(&self, verb: &str, error: &io::Error) -> String {
        let local = self
            .local
            .map_or("?".to_string(), |local| local.to_string());
        format!(
            "{verb} tcp {local}->{}: {verb}: {}",
            self.peer,
            system_text(error)
        )
    }
}

/// Serves one HTTP connection, perhaps over TLS.
async fn serve_http(
    socket: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
) {
    match tls {
        None => serve_requests(socket, peer, &shared).await,
        Some(tls) => {
            let limit = shared.http_timeouts.read;
            if let Some(stream) = shake_hands(&tls, (socket, peer), limit, "http").await {
                serve_requests(stream, peer, &shared).await;
            }
        }
    }
}

/// Returns the names under which HTTP clients reach nsqlookupd. `None`: any name.
fn host_names(config: &Config) -> Option<Arc<HostNames>> {
    let mut others = config.allowed_hosts.clone();
    (!others.is_empty()).then(|| {
        others.push(config.broadcast_address.clone());
        Arc::new(HostNames::new(config.options.hostname(), others))
    })
}

async fn serve_requests(stream: impl Stream, peer: SocketAddr, shared: &Shared) {
    let stream = HttpStream::new(stream, shared.http_timeouts);
    let mut connection = Connection::new(stream, b"");
    let api = Api {
        started: shared.started,
        database: shared.database.clone(),
        now,
        host_names: shared.host_names.clone(),
    };
    // A timer of tokio counts from the moment when it is made.
    let linger = async { sleep(LINGER).await };
    program::http::serve_connection(&mut connection, &peer, &api, linger).await;
    match connection.stream().missed() {
        Some(Awaited::Request) => log_debug!("http: closed idle {peer}"),
        Some(awaited) => log_info!("http: closed {peer} - i/o timeout {awaited}"),
        None => {}
    }
}

/// Returns the present time.
fn now() -> Now {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Now {
        monotonic: START.elapsed(),
        unix_nanos: i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests;
