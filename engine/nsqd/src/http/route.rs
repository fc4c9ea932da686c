//! nsqd's routes.

use super::Action;
use program::http::Route;

/// The purpose of a routed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Ping,
    Ready,
    Info,
    Stats,
    Metrics,
    PeekTopic,
    PeekChannel,
    Topics,
    Pub,
    Mpub,
    Topic(Action),
    Channel(Action),
    ConfigGet,
    ConfigPut,
    PprofIndex,
    PprofCommandLine,
    PprofSymbol,
    Pprof,
    SetBlockRate,
    FreeMemory,
}

impl Endpoint {
    /// Returns whether the endpoint gets the parsed query, and makes no use of the body. All other endpoints read what they
    /// need themselves, in nsqd's order.
    pub(super) fn reads_only_query(self) -> bool {
        use Endpoint::{Channel, Metrics, PeekChannel, PeekTopic, Stats, Topic};
        matches!(
            self,
            Stats | Metrics | PeekTopic | PeekChannel | Topic(_) | Channel(_)
        )
    }
}

/// Every route. The answers to other paths and methods are recorded (`tests/differential/http_routing.case`).
pub(super) const ROUTES: &[Route<Endpoint>] = &[
    ("GET", "/ping", Endpoint::Ping),
    ("GET", "/ready", Endpoint::Ready),
    ("GET", "/info", Endpoint::Info),
    ("GET", "/stats", Endpoint::Stats),
    ("GET", "/metrics", Endpoint::Metrics),
    ("GET", "/topic/peek", Endpoint::PeekTopic),
    ("GET", "/channel/peek", Endpoint::PeekChannel),
    ("GET", "/topics", Endpoint::Topics),
    ("POST", "/pub", Endpoint::Pub),
    ("POST", "/mpub", Endpoint::Mpub),
    ("POST", "/topic/create", Endpoint::Topic(Action::Create)),
    ("POST", "/topic/delete", Endpoint::Topic(Action::Delete)),
    ("POST", "/topic/empty", Endpoint::Topic(Action::Empty)),
    ("POST", "/topic/unempty", Endpoint::Topic(Action::Unempty)),
    ("POST", "/topic/pause", Endpoint::Topic(Action::Pause)),
    ("POST", "/topic/unpause", Endpoint::Topic(Action::Unpause)),
    ("POST", "/channel/create", Endpoint::Channel(Action::Create)),
    ("POST", "/channel/delete", Endpoint::Channel(Action::Delete)),
    ("POST", "/channel/empty", Endpoint::Channel(Action::Empty)),
    (
        "POST",
        "/channel/unempty",
        Endpoint::Channel(Action::Unempty),
    ),
    ("POST", "/channel/pause", Endpoint::Channel(Action::Pause)),
    (
        "POST",
        "/channel/unpause",
        Endpoint::Channel(Action::Unpause),
    ),
    ("GET", "/config/*", Endpoint::ConfigGet),
    ("PUT", "/config/*", Endpoint::ConfigPut),
    ("GET", "/debug/pprof/", Endpoint::PprofIndex),
    ("GET", "/debug/pprof/cmdline", Endpoint::PprofCommandLine),
    ("GET", "/debug/pprof/symbol", Endpoint::PprofSymbol),
    ("POST", "/debug/pprof/symbol", Endpoint::PprofSymbol),
    ("GET", "/debug/pprof/profile", Endpoint::Pprof),
    ("GET", "/debug/pprof/heap", Endpoint::Pprof),
    ("GET", "/debug/pprof/goroutine", Endpoint::Pprof),
    ("GET", "/debug/pprof/block", Endpoint::Pprof),
    ("GET", "/debug/pprof/threadcreate", Endpoint::Pprof),
    ("PUT", "/debug/setblockrate", Endpoint::SetBlockRate),
    ("POST", "/debug/freememory", Endpoint::FreeMemory),
];
