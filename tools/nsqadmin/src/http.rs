//! The HTTP interface: a request in, a response out, without sockets.
//!
//! ```text
//!   Request ──► base path ──► route ──► rights ──► endpoint ──► Cluster
//!                                                     │
//!   Response ◄── gzip, headers ◄── Reply ◄────────────┘
//! ```
//!
//! The routes and their redirects are those of `program::http`. The server below is hyper, because
//! nsqadmin needs the headers of requests and streams of events.

mod act;
mod graphite;
mod live;
mod metrics;
mod notification;
mod options;
mod order;
mod page;
mod reading;
mod reply;
mod request;
mod rights;

use std::time::{Instant, SystemTime};

use ::http::{Method, StatusCode};
use ipnet::IpNet;
use program::go_value::duration_text;
use program::http::{Route, Routed, route};
use program::log_info;

use crate::access::{Access, IgnoredUserLog, cut_off};
use crate::audit::Audit;
use crate::cluster::{Cluster, Refusal};
use crate::collector::Collector;
use crate::config::Config;
use crate::tally::Tally;

use reading::Reading;

pub use graphite::Graphite;
pub use notification::Notifier;
pub use page::Assets;
pub use reply::{Body, Reply};
pub use request::{Request, RequestBody};

/// Most bytes of a request's method and target in its log line. Any client can send a head of 64 KB.
const ASKED_BYTES_MAX: usize = 1024;

/// Returns the method and the pattern of each route, in which `*` stands for any segment.
pub fn routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|(method, path, _)| (*method, *path))
}

/// The endpoints. [`ROUTES`] has their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    /// The page, at each of its addresses.
    Page,
    Ping,
    /// The metrics for Prometheus.
    Metrics,
    /// A file of the page.
    Asset,
    /// What the page needs to know.
    Settings,
    Render,
    Rate,
    Peek,
    // Figures, as the servers answer now.
    Topics,
    Topic,
    Channel,
    Nodes,
    Node,
    Counter,
    Abilities,
    Disk,
    // Live figures.
    Live,
    LiveTopics,
    LiveTopic,
    LiveAttention,
    LiveNodes,
    LiveNode,
    LiveHistory,
    LiveEvents,
    // Acts. Their names in small letters are the actions of refused ones in the audit log.
    Create,
    Delete,
    Act,
    Tombstone,
    Many,
    GetOption,
    PutOption,
}

/// The clients that may use an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// All clients.
    Everybody,
    /// The clients in `--allow-config-from-cidr`.
    ConfigClients,
    /// Admins, on nsqadmin's own page.
    Admins,
}

impl Endpoint {
    /// Returns the clients that may use the endpoint with this method. An endpoint that the first two arms do not
    /// name needs an admin, and so does any endpoint behind another method than theirs.
    fn audience(self, method: &Method) -> Audience {
        use Endpoint::{
            Abilities, Asset, Channel, Counter, Disk, GetOption, Live, LiveAttention, LiveEvents,
            LiveHistory, LiveNode, LiveNodes, LiveTopic, LiveTopics, Metrics, Node, Nodes, Page,
            Peek, Ping, PutOption, Rate, Render, Settings, Topic, Topics,
        };
        match (method.as_str(), self) {
            ("GET", Page | Ping | Asset | Metrics | Settings | Render | Rate | Peek)
            | ("GET", Topics | Topic | Channel | Nodes | Node | Counter | Abilities | Disk)
            | ("GET", Live | LiveTopics | LiveTopic | LiveAttention | LiveNodes | LiveNode)
            | ("GET", LiveHistory | LiveEvents) => Audience::Everybody,
            ("GET", GetOption) | ("PUT", PutOption) => Audience::ConfigClients,
            _ => Audience::Admins,
        }
    }
}

/// All routes.
#[rustfmt::skip]
const ROUTES: &[Route<Endpoint>] = &[
    ("GET", "/ping", Endpoint::Ping),
    ("GET", "/metrics", Endpoint::Metrics),
    ("GET", "/", Endpoint::Page),
    ("GET", "/topics", Endpoint::Page),
    ("GET", "/topics/*", Endpoint::Page),
    ("GET", "/topics/*/*", Endpoint::Page),
    ("GET", "/peek/*", Endpoint::Page),
    ("GET", "/peek/*/*", Endpoint::Page),
    ("GET", "/nodes", Endpoint::Page),
    ("GET", "/nodes/*", Endpoint::Page),
    ("GET", "/counter", Endpoint::Page),
    ("GET", "/lookup", Endpoint::Page),
    ("GET", "/static/*", Endpoint::Asset),
    ("GET", "/static/*/*", Endpoint::Asset),
    ("GET", "/static/*/*/*", Endpoint::Asset),
    ("GET", "/fonts/*", Endpoint::Asset),
    ("GET", "/render", Endpoint::Render),
    ("GET", "/api/settings", Endpoint::Settings),
    ("GET", "/api/topics", Endpoint::Topics),
    ("GET", "/api/topics/*", Endpoint::Topic),
    ("GET", "/api/topics/*/*", Endpoint::Channel),
    ("GET", "/api/nodes", Endpoint::Nodes),
    ("GET", "/api/nodes/*", Endpoint::Node),
    ("GET", "/api/counter", Endpoint::Counter),
    ("GET", "/api/peek/*", Endpoint::Peek),
    ("GET", "/api/peek/*/*", Endpoint::Peek),
    ("GET", "/api/abilities", Endpoint::Abilities),
    ("GET", "/api/disk/*/*", Endpoint::Disk),
    ("GET", "/api/live", Endpoint::Live),
    ("GET", "/api/live/topics", Endpoint::LiveTopics),
    ("GET", "/api/live/topics/*", Endpoint::LiveTopic),
    ("GET", "/api/live/attention", Endpoint::LiveAttention),
    ("GET", "/api/live/nodes", Endpoint::LiveNodes),
    ("GET", "/api/live/nodes/*", Endpoint::LiveNode),
    ("GET", "/api/live/history", Endpoint::LiveHistory),
    ("GET", "/api/live/events", Endpoint::LiveEvents),
    ("GET", "/api/graphite", Endpoint::Rate),
    ("POST", "/api/topics", Endpoint::Create),
    ("POST", "/api/topics/*", Endpoint::Act),
    ("POST", "/api/topics/*/*", Endpoint::Act),
    ("DELETE", "/api/topics/*", Endpoint::Delete),
    ("DELETE", "/api/topics/*/*", Endpoint::Delete),
    ("DELETE", "/api/nodes/*", Endpoint::Tombstone),
    ("POST", "/api/acts", Endpoint::Many),
    ("GET", "/config/*", Endpoint::GetOption),
    ("PUT", "/config/*", Endpoint::PutOption),
];

/// Everything that answers need.
#[derive(Clone)]
pub struct App {
    /// The servers of the cluster.
    pub cluster: Cluster,
    /// The rules about users and pages.
    pub access: Access,
    /// The addresses that the log has told about because their users do not count.
    pub ignored_user_log: IgnoredUserLog,
    /// The log of acts.
    pub audit: Audit,
    /// The queue of notifications.
    pub notifier: Notifier,
    /// The page's files.
    pub assets: Assets,
    /// The rates and graphs of graphite.
    pub graphite: Graphite,
    /// Clients of `/config`; `None` allows everybody.
    pub config_clients: Option<IpNet>,
    /// The values of the flags.
    pub config: Config,
    /// The live figures, unless they are switched off.
    pub collector: Option<Collector>,
    /// The counts for `/metrics`.
    pub tally: Tally,
    /// The time at which the process started.
    pub started: SystemTime,
}

impl App {
    /// Answers a request.
    pub async fn answer(&self, mut request: Request) -> ::http::Response<Body> {
        let started = Instant::now();
        request.read_timeout = self.config.read_timeout;
        let path = request.path().to_owned();
        self.tell_ignored_user(&request);
        let (reply, is_logged) = match self.misdirected(&request) {
            Some(refusal) => (Reply::refusal(&refusal), true),
            None => {
                self.answer_below(self.below_base(&path), &mut request)
                    .await
            }
        };
        let status = reply.status.as_u16();
        self.tally.count_request(request.method().as_str(), status);
        if is_logged {
            let mut asked = format!("{} {}", request.method(), request.target());
            cut_off(&mut asked, ASKED_BYTES_MAX);
            log_info!(
                "{} {} ({}) {}",
                status,
                asked,
                request.peer,
                duration_text(started.elapsed())
            );
        }
        reply.into_response(request.accepts_gzip())
    }

    /// Returns the path without the base path. Any other path stays as it is: a proxy has removed the base path, or a probe asks
    /// nsqadmin itself.
    fn below_base<'a>(&self, path: &'a str) -> &'a str {
        if &*self.config.base_path == "/" {
            return path;
        }
        match path.strip_prefix(&*self.config.base_path) {
            Some("") => "/",
            Some(below) if below.starts_with('/') => below,
            _ => path,
        }
    }

    async fn answer_below(&self, path: &str, request: &mut Request) -> (Reply, bool) {
        let method = request.method().clone();
        match route(ROUTES, method.as_str(), path) {
            Routed::Found(endpoint, mut segments) => {
                // The page puts a ~ in front of the names that browsers remove from addresses.
                for segment in &mut segments {
                    if matches!(segment.as_str(), "~." | "~..") {
                        segment.remove(0);
                    }
                }
                let answered = self.answer_at(endpoint, &segments, request).await;
                let reply = answered.unwrap_or_else(|refusal| Reply::refusal(&refusal));
                (reply, true)
            }
            Routed::Redirect(path) => {
                let base = self.config.base_path.trim_end_matches('/');
                let query = request.query();
                let separator = if query.is_empty() { "" } else { "?" };
                let location = format!("{base}{path}{separator}{query}");
                let is_get = method == Method::GET;
                (Reply::redirect(is_get, &location), false)
            }
            Routed::Options(allow) => (Reply::options(allow), false),
            Routed::WrongMethod(allow) => (Reply::wrong_method(&allow), true),
            Routed::NotFound => (self.not_found(path, request), true),
        }
    }

    /// Answers a path that no route has. A browser gets the page, which says so. Programs get JSON, and so does whoever asks
    /// for something that is no page.
    fn not_found(&self, path: &str, request: &Request) -> Reply {
        let first = path.split('/').nth(1).unwrap_or_default();
        let is_page = !["api", "config", "static", "fonts"].contains(&first);
        if is_page && *request.method() == Method::GET && request.accepts_html() {
            page::page(self, request).with_status(StatusCode::NOT_FOUND)
        } else {
            Reply::refusal(&Refusal::not_found("NOT_FOUND"))
        }
    }

    async fn answer_at(
        &self,
        endpoint: Endpoint,
        segments: &[String],
        request: &mut Request,
    ) -> Result<Reply, Refusal> {
        self.admit(endpoint, segments, request).await?;
        match endpoint {
            Endpoint::Page => Ok(page::page(self, request)),
            Endpoint::Ping => Ok(Reply::plain(StatusCode::OK, "OK")),
            Endpoint::Asset => Ok(page::asset(self, &segments.join("/"), request)),
            Endpoint::Metrics => Ok(metrics::metrics(self)),
            Endpoint::Settings => Ok(page::settings(self, request)),
            Endpoint::Render => self.graphite.render(request).await,
            Endpoint::Rate => self.graphite.rate(request).await,
            Endpoint::GetOption => options::option(self, &segments[0]),
            Endpoint::PutOption => options::put_option(self, &segments[0], request).await,
            Endpoint::Create
            | Endpoint::Delete
            | Endpoint::Act
            | Endpoint::Tombstone
            | Endpoint::Many => self.change(endpoint, segments, request).await,
            reading => Reading::new(self, segments, request).answer(reading).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A route with another method needs no word about rights to be closed.
    #[test]
    fn an_endpoint_behind_another_method_than_its_own_needs_an_admin() {
        for (_, path, endpoint) in ROUTES {
            for method in [Method::POST, Method::DELETE, Method::PATCH, Method::HEAD] {
                let audience = endpoint.audience(&method);
                assert_eq!(audience, Audience::Admins, "{method} {path}");
            }
        }
        let put = Endpoint::Page.audience(&Method::PUT);
        assert_eq!(put, Audience::Admins);
        let put = Endpoint::PutOption.audience(&Method::PUT);
        assert_eq!(put, Audience::ConfigClients);
    }
}
