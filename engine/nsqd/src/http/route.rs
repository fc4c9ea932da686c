//! nsqd's routes.

use super::Action;
use program::http::Route;

/// The purpose of a routed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
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

/// Every route.
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

#[cfg(test)]
mod tests {
    use program::http::{Routed, route};

    use super::*;

    #[test]
    fn routes_of_the_specification() {
        let check = |method: &str, path: &str, expected: Routed<Endpoint>| {
            assert_eq!(route(ROUTES, method, path), expected, "{method} {path}");
        };
        let allow = |text: &str| text.to_string();
        let found = |endpoint| Routed::Found(endpoint, Vec::new());
        let redirect = |path: &str| Routed::Redirect(path.to_string());
        check("GET", "/ping", found(Endpoint::Ping));
        check("GET", "/%70ing", found(Endpoint::Ping));
        check(
            "POST",
            "/topic/unpause",
            found(Endpoint::Topic(Action::Unpause)),
        );
        for path in [
            "/ping/",
            "/PING",
            "//ping",
            "/a/../ping",
            "/ping%2f",
            "/./Ping/",
            "/../ping",
        ] {
            check("GET", path, redirect("/ping"));
        }
        check("POST", "/PUB", redirect("/pub"));
        check("POST", "/Topic/Create/", redirect("/topic/create"));
        for path in ["/topic/create/", "/", "/nope", "/ping/x", "/put", "/pingx"] {
            check("GET", path, Routed::NotFound);
        }
        check("HEAD", "/ping/", Routed::NotFound);
        check("PUT", "/PING", Routed::NotFound);
        check("HEAD", "/ping", Routed::WrongMethod(allow("GET, OPTIONS")));
        check("BREW", "/pub", Routed::WrongMethod(allow("OPTIONS, POST")));
        check("GET", "/pub", Routed::WrongMethod(allow("OPTIONS, POST")));
        check(
            "OPTIONS",
            "/pub",
            Routed::Options(Some(allow("OPTIONS, POST"))),
        );
        check("OPTIONS", "/PUB", Routed::NotFound);
        check("OPTIONS", "*", Routed::Options(None));
        check(
            "GET",
            "*",
            Routed::WrongMethod(allow("GET, OPTIONS, POST, PUT")),
        );
        let option = |endpoint, name: &str| Routed::Found(endpoint, vec![name.to_string()]);
        check("GET", "/config/Foo", option(Endpoint::ConfigGet, "Foo"));
        check("PUT", "/config/a%20b", option(Endpoint::ConfigPut, "a b"));
        check("GET", "/CONFIG/Foo", redirect("/config/Foo"));
        check("GET", "/Config//Id/", redirect("/config/Id"));
        check("PUT", "/config/a%20b/", redirect("/config/a%20b"));
        for path in [
            "/config/",
            "/config/a/b",
            "/config/a%2fb",
            "/debug",
            "/debug/pprof/mutex",
        ] {
            check("GET", path, Routed::NotFound);
        }
        check(
            "POST",
            "/config/x",
            Routed::WrongMethod(allow("GET, OPTIONS, PUT")),
        );
        check("GET", "/debug/pprof/", found(Endpoint::PprofIndex));
        check("GET", "/debug/pprof", redirect("/debug/pprof/"));
        check("POST", "/debug/freememory/", redirect("/debug/freememory"));
        let all = Some(allow("GET, OPTIONS, POST"));
        check("OPTIONS", "/debug/pprof/symbol", Routed::Options(all));
        // nsqd before 1.0.
        for path in [
            "/put",
            "/mput",
            "/create_topic",
            "/delete_channel",
            "/empty_channel",
        ] {
            check("POST", path, Routed::NotFound);
        }
    }
}
