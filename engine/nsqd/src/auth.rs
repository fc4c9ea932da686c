//! Auth servers: threads beside the shards ask them over HTTP what a client may do.
//!
//! ```text
//!   shard: Output::Authorize ──► AuthServers::ask ──► ThreadPool: one server after the other ──► HTTP
//!     ▲                                                  │
//!     └───────────────── Broker::handle_grants ◄─────────┘
//! ```
//!
//! Any client that can connect can cause a question to an auth server. So the queues are bounded. Clients whose
//! grants have expired have a queue and threads of their own: new clients do not delay them. Questions are asked in the
//! order of their commands, and those that have waited too long are not asked: their clients have probably gone.

use crate::config::Config;
use crate::thread_pool::{Bounds, Full, ThreadPool};
use engine_rules::{AuthQuery, Authorization, Grants, Random};
use nsq_http::push_query_value;
use parking_lot::Mutex;
use program::http_client::{HttpClient, HttpSettings};
use regex::Regex;
use serde_json::{Map, Value};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::error::quote;
use wire::go_json::{self, Object, array, bytes, field, integer, object, string, text, to_string};

/// The bounds for the questions of new clients. The questions of clients whose grants have expired have the
/// same bounds of their own. Clients beyond `threads_max` wait for one another; no other client waits for them.
const QUESTIONS: Bounds = Bounds {
    threads_max: 64,
    // All clients of a busy node come back at once after its restart: a connection waits with its secret and
    // a few hundred bytes more.
    waiting_max: 10_000,
    bytes_max: 16 * 1024 * 1024,
};

/// The longest wait of a question for a thread. A slow auth server would otherwise be asked for clients that have
/// given up and come again, and the queue would never become shorter.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The first bytes of a secret, up to this number, do not count. So clients with long secrets do not block
/// clients with ordinary ones.
const SECRET_BYTES_FREE: usize = 4 * 1024;

/// The auth servers of this node.
#[derive(Clone)]
pub(crate) struct AuthServers {
    servers: Arc<Servers>,
    strangers: ThreadPool,
    renewals: ThreadPool,
}

struct Servers {
    /// The configured addresses, at least one.
    addresses: Vec<String>,
    is_post: bool,
    http: HttpClient,
    /// Chooses the server that a question goes to first, so that the servers share the work.
    random: Mutex<Random>,
}

impl AuthServers {
    /// Starts the threads that ask the configured auth servers. `None` if no server is configured.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(config: &Config, http: HttpSettings) -> io::Result<Option<AuthServers>> {
        if config.auth_http_addresses.is_empty() {
            return Ok(None);
        }
        let seed = RandomState::new().hash_one(std::process::id());
        Ok(Some(AuthServers {
            servers: Arc::new(Servers {
                addresses: config.auth_http_addresses.clone(),
                is_post: config.auth_http_request_method == "post",
                http: HttpClient::new(http),
                random: Mutex::new(Random::new(seed)),
            }),
            strangers: ThreadPool::start("auth", QUESTIONS)?,
            renewals: ThreadPool::start("auth-renewal", QUESTIONS)?,
        }))
    }

    /// Asks one server after the other until one answers. `answer` gets the grants, or the reasons why no server
    /// answered, for the log. `answer` runs on another thread. Never waits.
    ///
    /// # Errors
    /// Too many questions wait; `answer` is dropped.
    pub(crate) fn ask(
        &self,
        query: AuthQuery,
        answer: impl FnOnce(Result<Grants, String>) + Send + 'static,
    ) -> Result<(), Full> {
        let pool = if query.is_renewal {
            &self.renewals
        } else {
            &self.strangers
        };
        let bytes = query.secret.len().saturating_sub(SECRET_BYTES_FREE);
        let servers = self.servers.clone();
        let asked_at = Instant::now();
        pool.give(
            bytes,
            Box::new(move || answer(servers.ask_in_time(&query, asked_at.elapsed()))),
        )
    }
}

impl Servers {
    /// Asks if the question has not waited too long.
    fn ask_in_time(&self, query: &AuthQuery, waited: Duration) -> Result<Grants, String> {
        if waited > WAIT_MAX {
            return Err(format!(
                "no auth server was asked: {} s passed before one was free",
                waited.as_secs()
            ));
        }
        self.ask(query)
    }

    fn ask(&self, query: &AuthQuery) -> Result<Grants, String> {
        let count = self.addresses.len();
        let start = self.random.lock().below(count as u64) as usize;
        let mut failures = Vec::new();
        for address in self.addresses.iter().cycle().skip(start).take(count) {
            match self.ask_one(address, query) {
                Ok(grants) => return Ok(grants),
                Err(why) => failures.push(format!("failed to auth against {address} - {why}")),
            }
        }
        Err(failures.join("; "))
    }

    fn ask_one(&self, address: &str, query: &AuthQuery) -> Result<Grants, String> {
        let url = if address.contains("://") {
            address.to_owned()
        } else {
            format!("http://{address}/auth")
        };
        let body = if self.is_post {
            self.http.post_json(&url, &post_body(query))?
        } else {
            // The query is also put behind a URL that has one already: auth servers for nsqd are used to that.
            self.http.get(&format!("{url}?{}", get_query(query)))?
        };
        decode(&body)
    }
}

/// The parameters, in the order of their names.
fn parameters(query: &AuthQuery) -> [(&'static str, &[u8]); 4] {
    let (tls, common_name): (&[u8], _) = match &query.tls {
        Some(session) => (b"true", session.common_name.as_str()),
        None => (b"false", ""),
    };
    [
        ("common_name", common_name.as_bytes()),
        ("remote_ip", query.remote_ip.as_bytes()),
        ("secret", &query.secret),
        ("tls", tls),
    ]
}

fn get_query(query: &AuthQuery) -> String {
    let mut text = String::new();
    for (name, value) in parameters(query) {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(name);
        text.push('=');
        push_query_value(&mut text, value);
    }
    text
}

/// nsqd encodes Go's map of lists.
fn post_body(query: &AuthQuery) -> String {
    let lists = parameters(query).map(|(name, value)| (name, [bytes(value)]));
    to_string(&Object(&lists))
}

/// Decodes the answer of a server. The error is for the log.
fn decode(body: &[u8]) -> Result<Grants, String> {
    let value = go_json::parse(body)?;
    let nothing = Map::new();
    let fields = object(&value, "auth.State")?.unwrap_or(&nothing);
    let ttl = integer(fields, "ttl")?;
    check_expires(fields)?;
    let mut grants = Grants {
        ttl: Duration::from_secs(u64::try_from(ttl).unwrap_or(0)),
        identity: string(fields, "identity")?,
        identity_url: string(fields, "identity_url")?,
        authorizations: Vec::new(),
    };
    for value in array(fields, "authorizations")? {
        let fields = object(value, "auth.Authorization")?.unwrap_or(&nothing);
        grants.authorizations.push(authorization(fields)?);
    }
    if ttl > 0 {
        Ok(grants)
    } else {
        Err(format!("invalid TTL {ttl} (must be >0)"))
    }
}

/// Checks the field `expires`. nsqd does not use its value, but refuses an answer in which the value is no time.
fn check_expires(fields: &Map<String, Value>) -> Result<(), String> {
    match field(fields, "expires") {
        None => Ok(()),
        Some(value) => {
            let time = text(value, "expires")?;
            let parsed = time.parse::<jiff::Timestamp>();
            parsed
                .map(drop)
                .map_err(|why| format!("parsing time {} - {why}", quote(time.as_bytes())))
        }
    }
}

fn authorization(fields: &Map<String, Value>) -> Result<Authorization, String> {
    let topic = string(fields, "topic")?;
    let channels = array(fields, "channels")?.iter();
    let channels: Vec<&str> = channels
        .map(|channel| text(channel, "channels"))
        .collect::<Result<_, String>>()?;
    let (mut may_subscribe, mut may_publish) = (false, false);
    for permission in array(fields, "permissions")? {
        match text(permission, "permissions")? {
            "subscribe" => may_subscribe = true,
            "publish" => may_publish = true,
            other => return Err(format!("unknown permission {other}")),
        }
    }
    let channels = channels.into_iter();
    Ok(Authorization {
        topic: compile("topic", &topic)?,
        channels: channels
            .map(|channel| compile("channel", channel))
            .collect::<Result<_, String>>()?,
        may_subscribe,
        may_publish,
    })
}

fn compile(of: &str, pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| {
        let why = error.to_string();
        // The lines before the last one only mark the place in the pattern.
        let why = why.lines().last().unwrap_or_default();
        let why = why.trim_start_matches("error: ");
        let pattern = quote(pattern.as_bytes());
        format!("unable to compile {of} {pattern} error parsing regexp: {why}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::http_client::HttpTls;

    fn query() -> AuthQuery {
        AuthQuery {
            secret: b"se cret&=%/\xff\""[..].into(),
            is_renewal: false,
            remote_ip: "127.0.0.1".to_owned(),
            tls: None,
        }
    }

    /// A slow server would be asked for clients that have gone.
    #[test]
    fn a_question_that_has_waited_too_long_is_not_asked() {
        let servers = Servers {
            addresses: vec!["127.0.0.1:1".to_owned()],
            is_post: false,
            http: HttpClient::new(HttpSettings {
                connect_timeout: Duration::from_secs(1),
                request_timeout: Duration::from_secs(1),
                idle_connections_max: 0,
                tls: HttpTls::System { only_tls13: false },
            }),
            random: Mutex::new(Random::new(1)),
        };
        let why = |waited| servers.ask_in_time(&query(), waited).unwrap_err();
        assert!(why(WAIT_MAX).contains("failed to auth against 127.0.0.1:1"));
        let late = "no auth server was asked: 31 s passed before one was free";
        assert_eq!(why(WAIT_MAX + Duration::from_secs(1)), late);
    }

    /// Captured from nsqd.
    #[test]
    fn questions_are_nsqds() {
        assert_eq!(
            get_query(&query()),
            "common_name=&remote_ip=127.0.0.1&secret=se+cret%26%3D%25%2F%FF%22&tls=false"
        );
        assert_eq!(
            post_body(&query()),
            r#"{"common_name":[""],"remote_ip":["127.0.0.1"],"secret":["se cret\u0026=%/\ufffd\""],"tls":["false"]}"#
        );
        assert!(!format!("{:?}", query()).contains("cret&"));
    }

    #[test]
    fn answers_are_read_as_go_does() {
        let shown = |body: &str| match decode(body.as_bytes()) {
            Err(why) => why,
            Ok(grants) => {
                let authorizations = grants.authorizations.iter().map(|a| {
                    format!(
                        " {} {:?} {}{}",
                        a.topic,
                        a.channels.iter().map(Regex::as_str).collect::<Vec<_>>(),
                        if a.may_subscribe { 's' } else { '-' },
                        if a.may_publish { 'p' } else { '-' },
                    )
                });
                let authorizations: String = authorizations.collect();
                let (ttl, identity) = (grants.ttl.as_secs(), grants.identity);
                format!("{ttl} {identity} {}{authorizations}", grants.identity_url)
            }
        };
        for (body, expected) in [
            (
                r#"{"ttl":3600,"identity":"bob","identity_url":"u","authorizations":[{"topic":"^orders$","channels":["^bill.*$"],"permissions":["subscribe","publish"]}]}"#,
                r#"3600 bob u ^orders$ ["^bill.*$"] sp"#,
            ),
            (r#"{"TTL":1,"Identity":"x","more":[{}]}"#, "1 x "),
            (r#"{"ttl":1,"authorizations":null,"expires":null}"#, "1  "),
            (r#"{"ttl":1,"authorizations":[{}]}"#, "1    [] --"),
            (r#"{"ttl":1,"expires":"2026-01-02T03:04:05Z"}"#, "1  "),
            (r#"{"ttl":9223372036854775807}"#, "9223372036854775807  "),
            ("null", "invalid TTL 0 (must be >0)"),
            (
                r#"{"status_code":200,"data":{"ttl":1}}"#,
                "invalid TTL 0 (must be >0)",
            ),
            (r#"{"ttl":-1}"#, "invalid TTL -1 (must be >0)"),
            (
                r#"{"ttl":"1"}"#,
                "json: cannot unmarshal string into ttl of type int",
            ),
            (
                r#"{"ttl":1.5}"#,
                "json: cannot unmarshal number 1.5 into ttl of type int",
            ),
            ("", "unexpected end of JSON input"),
            (
                r#"{"ttl":1,"authorizations":[{"permissions":["admin"]}]}"#,
                "unknown permission admin",
            ),
            (
                r#"{"ttl":0,"authorizations":[{"topic":"("}]}"#,
                r#"unable to compile topic "(" error parsing regexp: unclosed group"#,
            ),
            (
                r#"{"ttl":1,"authorizations":[{"channels":[".*","[z-a]"]}]}"#,
                r#"unable to compile channel "[z-a]" error parsing regexp: invalid character class range, the start must be <= the end"#,
            ),
        ] {
            assert_eq!(shown(body), expected, "{body}");
        }
        assert!(shown(r#"{"ttl":1,"expires":"soon"}"#).starts_with("parsing time \"soon\" - "));
    }
}
