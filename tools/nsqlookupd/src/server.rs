//! [`Server`]: listeners, connections and their end, on tokio.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use program::http::{Awaited, Connection, HttpTimeouts};
use program::{log_debug, log_error, log_info, log_warn, tcp_address, version};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use wire::go_error::system_text;

use crate::config::{Config, NSQLOOKUPD};
use crate::database::{Database, Now};
use crate::event;
use crate::http::Api;
use crate::session::{Effects, Session, identify_answer};
use crate::stream::HttpStream;

/// The backlog of a listener; the kernel's net.core.somaxconn caps it.
const LISTEN_BACKLOG: i32 = 4096;

/// Time for which an address that is in use is tried again: the process that a supervisor has just
/// killed may still be dying.
const BIND_PATIENCE: Duration = Duration::from_secs(1);
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// The wait after a failed accept, doubled each time up to the maximum.
const BACK_OFF: Duration = Duration::from_millis(5);
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

/// Interval of keep-alive probes, as the original's runtime sets it. They are what finds out that a
/// silent peer has gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes per read of a TCP connection. A connection holds a buffer of this size all its life.
const READ_BYTES: usize = 4 * 1024;

/// Time for which input is read and dropped after the last answer. A socket that is closed with
/// unread input is reset, and the reset can overtake the answer.
const LINGER: Duration = Duration::from_millis(500);

/// Longest wait for connections at the end of the process.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A running nsqlookupd.
#[derive(Debug)]
pub struct Server {
    stop: watch::Sender<bool>,
    tcp: JoinHandle<()>,
    http: JoinHandle<()>,
    tcp_address: SocketAddr,
    http_address: SocketAddr,
}

/// The parts that all connections share.
struct Shared {
    database: RwLock<Database>,
    identify_answer: Arc<str>,
    http_timeouts: HttpTimeouts,
    has_old_endpoints: bool,
    stop: watch::Receiver<bool>,
}

impl Server {
    /// Listens and serves, in tasks of the runtime that this runs on.
    ///
    /// # Errors
    /// The reason why an address cannot be listened on, for the FATAL line.
    pub async fn start(config: &Config) -> Result<Server, String> {
        log_info!("{}", version::of_daemon(NSQLOOKUPD.name));
        if !config.unknown_keys.is_empty() {
            let keys = config.unknown_keys.join(", ");
            log_warn!("keys in the config file that mean nothing, ignored: {keys}");
        }
        let (tcp, tcp_address) = listen(&config.tcp_address).await?;
        let (http, http_address) = listen(&config.http_address).await?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            database: RwLock::new(Database::new(config.lifetimes)),
            identify_answer: identify_answer(
                &config.broadcast_address,
                &config.hostname,
                http_address.port(),
                tcp_address.port(),
            ),
            http_timeouts: config.http_timeouts,
            has_old_endpoints: config.has_old_endpoints,
            stop: stopped,
        });
        log_info!("TCP: listening on {tcp_address}");
        log_info!("HTTP: listening on {http_address}");
        Ok(Server {
            stop,
            tcp: tokio::spawn(accept(tcp, shared.clone(), serve_tcp)),
            http: tokio::spawn(accept(http, shared, serve_http)),
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

    /// Ends all connections, and waits until the log has their last lines.
    pub async fn stop(self) {
        // Fails only if nobody is left to be told.
        let _ = self.stop.send(true);
        if tokio::time::timeout(STOP_PATIENCE, self.tcp).await.is_err() {
            log_error!("TCP: connections are still open after {STOP_PATIENCE:?}");
        }
        log_info!("TCP: closing {}", self.tcp_address);
        // Requests that are under way end with the process, as in the original.
        self.http.abort();
        log_info!("HTTP: closing {}", self.http_address);
    }
}

/// Listens on an address.
async fn listen(address: &str) -> Result<(TcpListener, SocketAddr), String> {
    let refuse = |why: String| format!("listen ({address}) failed - {why}");
    let resolved = tcp_address::resolve(address).map_err(refuse)?;
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match bind(resolved) {
            Ok(bound) => return Ok(bound),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(BIND_PAUSE).await;
            }
            Err(error) => {
                let why = format!("listen tcp {resolved}: bind: {}", system_text(&error));
                return Err(refuse(
                    match tcp_address::bind_hint(&error, NSQLOOKUPD.name) {
                        hint if hint.is_empty() => why,
                        hint => format!("{why} - {hint}"),
                    },
                ));
            }
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(LISTEN_BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = TcpListener::from_std(socket.into())?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Accepts connections until the server stops, and then waits for their ends.
async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    shared: Arc<Shared>,
    serve: impl Fn(TcpStream, SocketAddr, Arc<Shared>) -> F,
) {
    let mut stop = shared.stop.clone();
    let mut connections = JoinSet::new();
    let mut back_off = BACK_OFF;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = stop.changed() => break,
        };
        match accepted {
            Ok((socket, peer)) => {
                back_off = BACK_OFF;
                // A peer that has gone already shows in the first read.
                let _ = set_options(&socket);
                // An IPv4 peer of a listener for both families is shown as IPv4.
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                connections.spawn(serve(socket, peer, shared.clone()));
            }
            Err(error) => {
                log_warn!("temporary Accept() failure - {}", system_text(&error));
                sleep(back_off).await;
                back_off = (back_off * 2).min(BACK_OFF_MAX);
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

fn set_options(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE);
    SockRef::from(socket).set_tcp_keepalive(&keep_alive)
}

/// Serves one client of protocol V1.
async fn serve_tcp(mut socket: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    log_info!("TCP: new client({peer})");
    let address: Arc<str> = peer.to_string().into();
    let mut session = Session::new(address, shared.identify_answer.clone());
    let mut effects = Effects::default();
    let mut stop = shared.stop.clone();
    let is_stopped = tokio::select! {
        () = converse(&mut socket, &mut session, &mut effects, &shared) => false,
        _ = stop.wait_for(|is_stopped| *is_stopped) => true,
    };
    if is_stopped {
        session.stop();
    }
    loop {
        let is_done = session.leave(&mut write(&shared), &mut effects);
        tell(&mut effects);
        if is_done {
            break;
        }
        tokio::task::yield_now().await;
    }
    if !is_stopped {
        close(socket).await;
    }
}

/// Reads, carries out and answers commands until the session is over.
async fn converse(
    socket: &mut TcpStream,
    session: &mut Session,
    effects: &mut Effects,
    shared: &Shared,
) {
    let mut buffer = vec![0; READ_BYTES];
    while !session.is_over() {
        match socket.read(&mut buffer).await {
            Ok(0) => session.end(None, effects),
            Ok(count) => {
                if session.receive(&buffer[..count]) {
                    session.execute(&mut write(shared), now(), effects);
                }
            }
            Err(error) => session.end(Some(&text(socket, "read", &error)), effects),
        }
        tell(effects);
        let sent = socket.write_all(&effects.output).await;
        effects.output.clear();
        if let Err(error) = sent {
            session.end(Some(&text(socket, "write", &error)), effects);
            effects.output.clear();
            tell(effects);
        }
    }
}

/// Ends the output, and drops input for a while.
async fn close(mut socket: TcpStream) {
    // A failure means that the peer has gone.
    if socket.shutdown().await.is_err() {
        return;
    }
    let mut buffer = [0; READ_BYTES];
    let drain = async { while matches!(socket.read(&mut buffer).await, Ok(1..)) {} };
    // Both outcomes have the same meaning: the wait is over.
    let _ = tokio::time::timeout(LINGER, drain).await;
}

fn tell(effects: &mut Effects) {
    event::log(&effects.events);
    effects.events.clear();
}

fn write(shared: &Shared) -> std::sync::RwLockWriteGuard<'_, Database> {
    let guard = shared.database.write();
    // A panic ends the process, so no lock is ever left poisoned.
    guard.unwrap_or_else(PoisonError::into_inner)
}

/// Returns the text of a failed read or write in Go's words.
fn text(socket: &TcpStream, verb: &str, error: &io::Error) -> String {
    let show = |address: io::Result<SocketAddr>| match address {
        Ok(address) => SocketAddr::new(address.ip().to_canonical(), address.port()).to_string(),
        Err(_) => "?".to_string(),
    };
    let (local, peer) = (show(socket.local_addr()), show(socket.peer_addr()));
    format!("{verb} tcp {local}->{peer}: {verb}: {}", system_text(error))
}

/// Serves one HTTP connection.
async fn serve_http(socket: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    let stream = HttpStream::new(socket, shared.http_timeouts);
    let mut connection = Connection::new(stream, b"");
    let api = Api {
        database: &shared.database,
        now,
        has_old_endpoints: shared.has_old_endpoints,
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
