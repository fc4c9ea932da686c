//! [`Server`]: listeners and connections, on tokio and hyper.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use ::http::{Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use program::http::HostNames;
use program::inherited::InheritedSockets;
use program::{log_debug, log_error, log_info, log_warn, version};
use reqwest::redirect::Policy;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep};
use tokio_daemon::listener::{Listener, shake_hands};
use tokio_rustls::TlsAcceptor;
use url::Url;

use crate::access::{Access, BodyReaders, IgnoredUserLog};
use crate::audit::Audit;
use crate::cluster::{Cluster, Refusal};
use crate::collector::Collector;
use crate::config::{Checked, Config, NSQADMIN, not_parsed};
use crate::http::{App, Assets, Body, Graphite, Notifier, Reply, Request};
use crate::tally::Tally;
use crate::upstream::{self, Upstream};

/// Longest head of a request, in bytes. The cookies of a proxy can have some kilobytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A running nsqadmin.
pub struct Server {
    listeners: Vec<Listening>,
    app: Arc<App>,
}

/// A listener.
struct Listening {
    name: &'static str,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens and serves, in tasks of the runtime that this runs on. An inherited socket takes the place of its flag's
    /// address.
    ///
    /// # Errors
    /// The reason why nsqadmin cannot start, for the FATAL line.
    pub async fn start(
        config: Config,
        checked: Checked,
        inherited: InheritedSockets,
    ) -> Result<Server, String> {
        log_info!("{}", version::of_daemon(NSQADMIN.name));
        log_info!("{}", version::of_ringq());
        warn(&config);
        let tls = config
            .tls
            .configure(&[("--https-address", &config.tls.https_address)])?;
        let tls = tls.map(TlsAcceptor::from);
        let app = Arc::new(app(config, checked)?);
        let config = &app.config;
        tell_trusted_proxies(&app.access);
        let [plain, secure] = inherited.assign(config.addresses())?;
        let plain = Listener::open(&config.http_address, plain, NSQADMIN.name).await?;
        let secure = match config.tls.https_address.as_str() {
            "" => None,
            address => Some(Listener::open(address, secure, NSQADMIN.name).await?),
        };
        let serve = |name, listener: Listener, tls| {
            let address = listener.address();
            log_info!("{name}: listening on {address}");
            Listening {
                name,
                address,
                task: tokio::spawn(accept(listener, app.clone(), tls)),
            }
        };
        let mut listeners = vec![serve("HTTP", plain, None)];
        listeners.extend(secure.map(|bound| serve("HTTPS", bound, tls)));
        Ok(Server { listeners, app })
    }

    /// Ends the listeners, writes what the logs have left out, and saves the history. Requests that are under way end with the process, as
    /// in the original.
    pub fn stop(self) {
        for listener in self.listeners {
            listener.task.abort();
            log_info!("{}: closing {}", listener.name, listener.address);
        }
        if let Some(collector) = &self.app.collector {
            collector.save_at_end();
        }
        // The audit log may be on a disk that hangs.
        self.app.notifier.log_unsent();
        self.app.audit.write_left_out();
    }
}

/// Warns about settings that do something else than the operator may expect.
fn warn(config: &Config) {
    for ignored in config.options.ignored() {
        log_warn!("{ignored}");
    }
    if config.admin_users.is_empty() {
        log_warn!(
            "without --admin-user, everybody who reaches this address may delete, empty and pause"
        );
        // The original shows no bodies.
        match config.body_readers {
            BodyReaders::Admins => log_info!(
                "without --admin-user, nobody may read the bodies of messages; --peek-bodies=everybody shows them to \
                 everybody who reaches this address"
            ),
            BodyReaders::Everybody => log_warn!(
                "with --peek-bodies=everybody, everybody who reaches this address may read the bodies of messages"
            ),
            BodyReaders::Nobody => {}
        }
    }
    if config.collection().is_none() && !config.live.file.is_empty() {
        log_warn!(
            "with --live-interval=0, no figures are collected, so --history-file is neither read nor written"
        );
    }
}

/// Says from which addresses the header with the user counts, if the user decides about anything.
fn tell_trusted_proxies(access: &Access) {
    if access.admin_users.is_empty() {
        return;
    }
    let header = &access.header;
    let ranges = access.trusted_proxies.iter().map(ToString::to_string);
    let ranges = ranges.collect::<Vec<_>>().join(", ");
    match (ranges.is_empty(), access.trusts_everybody()) {
        (true, _) => log_warn!(
            "the list trusted_proxy_cidr is empty: the header {header} counts from no address, so nobody may act"
        ),
        (false, false) => {
            log_info!("the header {header} counts from {ranges} only (--trusted-proxy-cidr)")
        }
        (false, true) => log_warn!(
            "with --trusted-proxy-cidr={ranges}, every client that reaches this address can name any user in the \
             header {header}; only the proxy that sets it should reach this address"
        ),
    }
}

/// Returns everything that answers need.
pub(crate) fn app(config: Config, checked: Checked) -> Result<App, String> {
    let header = config.acl_http_header.parse();
    let header = header.map_err(|_| {
        let why = "no header can have this name";
        not_parsed("acl-http-header", &config.acl_http_header, why)
    })?;
    let client =
        |redirects| upstream::client(&config.client, checked.client_tls.clone(), redirects);
    let graphite = Graphite::new(&config, client(Policy::default())?)?;
    let notifier_client = client(upstream::with_body())?;
    let tally = Tally::default();
    let upstream = Upstream::new(&config, checked.client_tls.clone(), tally.clone())?;
    let cluster = Cluster::new(upstream, &config, checked.url_map);
    let collection = config.collection();
    let endpoint = config.notification_http_endpoint.clone();
    Ok(App {
        collector: collection
            .map(|collection| Collector::start(&cluster, collection, tally.clone()))
            .transpose()?,
        cluster,
        access: Access {
            header,
            admin_users: config.admin_users.clone(),
            trusted_proxies: checked.trusted_proxies,
            allowed_origins: config.allowed_origins.clone(),
            host_names: host_names(&config),
            body_readers: config.body_readers,
        },
        ignored_user_log: IgnoredUserLog::default(),
        audit: Audit::open(&config.audit_log_file, tally.clone())?,
        notifier: Notifier::start(endpoint, notifier_client, tally.clone()),
        tally,
        started: SystemTime::now(),
        assets: Assets::new(&config.dev_static_dir),
        graphite,
        config_clients: checked.config_clients,
        config,
    })
}

/// Returns the names under which browsers reach nsqadmin.
fn host_names(config: &Config) -> HostNames {
    let origins = config.allowed_origins.iter();
    let of_origins =
        origins.filter_map(|origin| Some(Url::parse(origin).ok()?.host_str()?.to_owned()));
    let allowed = config.allowed_hosts.iter().cloned();
    HostNames::new(&program::hostname(), of_origins.chain(allowed))
}

/// Accepts connections for ever.
async fn accept(mut listener: Listener, app: Arc<App>, tls: Option<TlsAcceptor>) {
    loop {
        let (socket, peer) = listener.accept().await;
        tokio::spawn(serve(socket, peer, app.clone(), tls.clone()));
    }
}

/// Serves one connection, perhaps over TLS.
async fn serve(socket: TcpStream, peer: SocketAddr, app: Arc<App>, tls: Option<TlsAcceptor>) {
    let Some(tls) = tls else {
        return serve_requests(socket, peer, app, false).await;
    };
    let limit = app.config.read_timeout;
    if let Some(stream) = shake_hands(&tls, (socket, peer), limit, "http").await {
        serve_requests(stream, peer, app, true).await;
    }
}

/// Answers a request that acts. The act and its line in the audit log go on if the client closes its connection, so that no
/// half of an act is left undone, and none is hidden.
async fn answer_to_the_end(app: Arc<App>, request: Request) -> Response<Body> {
    let answered = tokio::spawn(async move { app.answer(request).await });
    answered.await.unwrap_or_else(|error| {
        log_error!("an act broke off - {error}");
        Reply::refusal(&Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL_ERROR",
        ))
        .into_response(false)
    })
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    app: Arc<App>,
    is_tls: bool,
) {
    let stream = TokioIo::new(WriteLimited::new(stream, app.config.write_timeout));
    let read_timeout = app.config.read_timeout;
    let service = service_fn(move |request: http::Request<Incoming>| {
        let app = app.clone();
        async move {
            let request = request.map(|body| body.map_err(Into::into).boxed());
            let is_reading = request.method().is_safe();
            let request = Request::new(request, peer, is_tls);
            Ok::<_, Infallible>(if is_reading {
                app.answer(request).await
            } else {
                answer_to_the_end(app, request).await
            })
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .title_case_headers(true)
        .serve_connection(stream, service);
    if let Err(error) = served.await {
        log_debug!("http: connection of {peer} ended - {error}");
    }
}

/// A stream whose writes fail with [`io::ErrorKind::TimedOut`] when one waits too long.
#[derive(Debug)]
struct WriteLimited<S> {
    stream: S,
    limit: Option<Duration>,
    /// The end of the present wait for room.
    wait: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteLimited<S> {
    /// Returns a stream with this limit. `None` is no limit.
    fn new(stream: S, limit: Option<Duration>) -> WriteLimited<S> {
        WriteLimited {
            stream,
            limit,
            wait: None,
        }
    }

    /// Returns the result of a write, or the failure of one that waits for too long.
    fn checked<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let (Poll::Pending, Some(limit)) = (&result, self.limit) else {
            self.wait = None;
            return result;
        };
        let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(limit)));
        match wait.as_mut().poll(cx) {
            Poll::Ready(()) => {
                wait.as_mut().reset(Instant::now() + limit);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.checked(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.checked(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.checked(cx, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn only_a_client_that_takes_nothing_is_cut_off() {
        let limit = Duration::from_secs(10);
        let (near, mut far) = duplex(4);
        let mut near = WriteLimited::new(near, Some(limit));
        let slow = tokio::spawn(async move {
            let mut buffer = [0; 4];
            for _ in 0..3 {
                sleep(Duration::from_secs(9)).await;
                far.read_exact(&mut buffer).await.unwrap();
            }
            // Holds the stream open and reads no more.
            sleep(Duration::from_secs(60)).await;
        });
        near.write_all(&[1; 12]).await.unwrap();
        let error = near.write_all(&[1; 12]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        slow.await.unwrap();
    }
}
