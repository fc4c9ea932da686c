//! The table of routes.

use ::http::Method;
use program::http::Route;

use super::live::Live;

/// The endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// The page, at each of its addresses.
    Page,
    /// `/ping`
    Ping,
    /// `/metrics`, for Prometheus.
    Metrics,
    /// A file of the page.
    Asset,
    /// `/api/settings`: what the page needs to know.
    Settings,
    /// `/render`
    Render,
    /// `/api/graphite`
    Rate,
    /// An endpoint of live figures.
    Live(Live),
    /// `/api/peek/*` and `/api/peek/*/*`
    Peek,
    /// An endpoint that reads figures.
    Read(Read),
    /// An endpoint that acts.
    Change(Change),
    /// `GET /config/*`
    GetOption,
    /// `PUT /config/*`
    PutOption,
}

/// The endpoints that read figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// `/api/topics`
    Topics,
    /// `/api/topics/*`
    Topic,
    /// `/api/topics/*/*`
    Channel,
    /// `/api/nodes`
    Nodes,
    /// `/api/nodes/*`
    Node,
    /// `/api/counter`
    Counter,
    /// `/api/abilities`
    Abilities,
    /// `/api/disk/*/*`
    Disk,
}

/// The endpoints that act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// `POST /api/topics`
    Create,
    /// `DELETE /api/topics/*` and `DELETE /api/topics/*/*`
    Delete,
    /// `POST /api/topics/*` and `POST /api/topics/*/*`
    Act,
    /// `DELETE /api/nodes/*`
    Tombstone,
    /// `POST /api/acts`
    Many,
}

/// The clients that may use an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
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
    pub(super) fn audience(self, method: &Method) -> Audience {
        use Endpoint::{
            Asset, GetOption, Live, Metrics, Page, Peek, Ping, PutOption, Rate, Read, Render,
            Settings,
        };
        match (method.as_str(), self) {
            ("GET", Page | Ping | Asset | Metrics | Settings) => Audience::Everybody,
            ("GET", Render | Rate | Live(_) | Peek | Read(_)) => Audience::Everybody,
            ("GET", GetOption) | ("PUT", PutOption) => Audience::ConfigClients,
            _ => Audience::Admins,
        }
    }
}

/// All routes.
#[rustfmt::skip]
pub(super) const ROUTES: &[Route<Endpoint>] = &[
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
    ("GET", "/api/topics", Endpoint::Read(Read::Topics)),
    ("GET", "/api/topics/*", Endpoint::Read(Read::Topic)),
    ("GET", "/api/topics/*/*", Endpoint::Read(Read::Channel)),
    ("GET", "/api/nodes", Endpoint::Read(Read::Nodes)),
    ("GET", "/api/nodes/*", Endpoint::Read(Read::Node)),
    ("GET", "/api/counter", Endpoint::Read(Read::Counter)),
    ("GET", "/api/peek/*", Endpoint::Peek),
    ("GET", "/api/peek/*/*", Endpoint::Peek),
    ("GET", "/api/abilities", Endpoint::Read(Read::Abilities)),
    ("GET", "/api/disk/*/*", Endpoint::Read(Read::Disk)),
    ("GET", "/api/live", Endpoint::Live(Live::All)),
    ("GET", "/api/live/topics", Endpoint::Live(Live::Topics)),
    ("GET", "/api/live/topics/*", Endpoint::Live(Live::Topic)),
    ("GET", "/api/live/attention", Endpoint::Live(Live::Attention)),
    ("GET", "/api/live/nodes", Endpoint::Live(Live::Nodes)),
    ("GET", "/api/live/nodes/*", Endpoint::Live(Live::Node)),
    ("GET", "/api/live/history", Endpoint::Live(Live::History)),
    ("GET", "/api/live/events", Endpoint::Live(Live::Events)),
    ("GET", "/api/graphite", Endpoint::Rate),
    ("POST", "/api/topics", Endpoint::Change(Change::Create)),
    ("POST", "/api/topics/*", Endpoint::Change(Change::Act)),
    ("POST", "/api/topics/*/*", Endpoint::Change(Change::Act)),
    ("DELETE", "/api/topics/*", Endpoint::Change(Change::Delete)),
    ("DELETE", "/api/topics/*/*", Endpoint::Change(Change::Delete)),
    ("DELETE", "/api/nodes/*", Endpoint::Change(Change::Tombstone)),
    ("POST", "/api/acts", Endpoint::Change(Change::Many)),
    ("GET", "/config/*", Endpoint::GetOption),
    ("PUT", "/config/*", Endpoint::PutOption),
];

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
