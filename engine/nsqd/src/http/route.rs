//! nsqd's routes.

use super::Action;
use Endpoint::{Channel, Metrics, PeekChannel, PeekTopic, Stats, Topic};
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
    ("GET", "/stats", Stats),
    ("GET", "/metrics", Metrics),
    ("GET", "/topic/peek", PeekTopic),
    ("GET", "/channel/peek", PeekChannel),
    ("GET", "/topics", Endpoint::Topics),
    ("POST", "/pub", Endpoint::Pub),
    ("POST", "/mpub", Endpoint::Mpub),
    ("POST", "/topic/create", Topic(Action::Create)),
    ("POST", "/topic/delete", Topic(Action::Delete)),
    ("POST", "/topic/empty", Topic(Action::Empty)),
    ("POST", "/topic/unempty", Topic(Action::Unempty)),
    ("POST", "/topic/pause", Topic(Action::Pause)),
    ("POST", "/topic/unpause", Topic(Action::Unpause)),
    ("POST", "/channel/create", Channel(Action::Create)),
    ("POST", "/channel/delete", Channel(Action::Delete)),
    ("POST", "/channel/empty", Channel(Action::Empty)),
    ("POST", "/channel/unempty", Channel(Action::Unempty)),
    ("POST", "/channel/pause", Channel(Action::Pause)),
    ("POST", "/channel/unpause", Channel(Action::Unpause)),
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
