//! The page, its files, the settings that it needs, and the proxy for its graphs.

use ::http::StatusCode;
use ::http::header::{CONTENT_TYPE, IF_NONE_MATCH};
use bytes::Bytes;
use program::log_error;
use program::version::NSQ_VERSION;
use wire::go_json::to_string;
use wire::json_object;
use wire::name::InvalidName;

use super::{App, Reply, Request};
use crate::access::basic_user;
use crate::outcome::Refusal;
use crate::upstream;

/// The place in the page that stands for the base path, or the way to it. It ends in a slash.
const BASE_MARK: &str = "{{base}}";

/// The rules for browsers: the page loads and asks nothing from elsewhere, has no script or style
/// inside itself, and no other site may show it in a frame.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; \
                      frame-ancestors 'self'";

impl App {
    /// Returns the page, which is the same for all its addresses but for the base.
    pub(super) fn page(&self, request: &Request) -> Reply {
        let Some(page) = self.assets.get("index.html") else {
            return not_found();
        };
        let base = match self.config.base_path.as_str() {
            "/" => relative_base(request.path()),
            base => format!("{base}/"),
        };
        let page = String::from_utf8_lossy(&page.content);
        Reply::html(page.replace(BASE_MARK, &escape_html(&base)), POLICY)
    }

    /// Returns a file of the page.
    pub(super) fn asset(&self, name: &str, request: &Request) -> Reply {
        let Some(asset) = self.assets.get(name) else {
            return not_found();
        };
        let content = match asset.content {
            std::borrow::Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            std::borrow::Cow::Owned(bytes) => Bytes::from(bytes),
        };
        let file = Reply::file(asset.content_type, content);
        match asset.etag {
            Some(etag) if request.header(IF_NONE_MATCH.as_str()).contains(&etag) => {
                Reply::empty(StatusCode::NOT_MODIFIED).with_etag(&etag)
            }
            Some(etag) => file.with_etag(&etag),
            None => file,
        }
    }

    /// Returns what the page needs to know. The user and the right to act are those of this request.
    pub(super) fn settings(&self, request: &Request) -> Reply {
        let user = self.access.user(request.headers(), request.peer.ip());
        let graphite = &self.config.graphite;
        // Otherwise the page offers a field for a name.
        let is_known = !user.is_empty() || !basic_user(request.headers()).is_empty();
        Reply::json(to_string(&json_object! {
            version: NSQ_VERSION,
            base_path: &self.config.base_path,
            user: &user,
            is_user_known: is_known,
            // The page shows the reason, because an admin would look for the buttons otherwise.
            ignored_user: self.ignored_user(request).unwrap_or_default(),
            is_admin: self.access.is_admin(&user),
            may_read_bodies: self.access.may_read_bodies(&user),
            is_lookup_mode: self.cluster.is_lookup_mode(),
            nsqlookupd: self.cluster.lookupds(),
            name_rule: name_rule(),
            live: self.collector.is_some(),
            graph_enabled: self.forward.is_some(),
            statsd_interval: graphite.interval.as_secs(),
            statsd_counter_format: &graphite.counter_format,
            statsd_gauge_format: &graphite.gauge_format,
            statsd_prefix: &graphite.prefix,
        }))
    }

    /// Answers `/render`: asks graphite in the browser's place.
    pub(super) async fn render(&self, request: &Request) -> Result<Reply, Refusal> {
        let forward = self.forward.as_ref();
        let forward = forward.ok_or_else(|| Refusal::not_found("NOT_FOUND"))?;
        let url = forward.url(request.query());
        let peer = request.peer.ip().to_string();
        let headers = forward.headers(request.headers(), &peer);
        let failed = |why: String| {
            log_error!("failed to proxy to graphite - {why}");
            Refusal::upstream(format!("graphite: {why}"))
        };
        let sent = self.graphite_client.get(&url).headers(headers).send().await;
        let response = sent.map_err(|error| failed(upstream::reason(&url, &error)))?;
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE).cloned();
        let body = read_up_to(response, self.config.answer_bytes_max).await;
        Ok(Reply::forwarded(
            status,
            content_type.as_ref(),
            body.map_err(failed)?,
        ))
    }
}

/// Returns the way from an address to nsqadmin's root, such as `../` from `/topics/orders`. The browser's address may have a prefix
/// that a proxy has removed and nsqadmin does not know.
fn relative_base(path: &str) -> String {
    match path.matches('/').count().saturating_sub(1) {
        0 => "./".to_owned(),
        depth => "../".repeat(depth),
    }
}

/// Returns the rule for names of topics and channels, in the words of all programs.
fn name_rule() -> String {
    let text = InvalidName("").to_string();
    text.trim_start_matches("\"\" is not ").to_owned()
}

fn not_found() -> Reply {
    Reply::plain(StatusCode::NOT_FOUND, "NOT_FOUND")
}

/// Reads the body of an answer.
///
/// # Errors
/// The body breaks off, or has more than `bytes_max` bytes.
pub(super) async fn read_up_to(
    mut response: reqwest::Response,
    bytes_max: usize,
) -> Result<Bytes, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
        if body.len() + chunk.len() > bytes_max {
            return Err(format!(
                "the answer has more than {bytes_max} bytes (--max-answer-size)"
            ));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Bytes::from(body))
}

fn escape_html(text: &str) -> String {
    let escape = |c| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&#34;".to_owned(),
        '\'' => "&#39;".to_owned(),
        c => String::from(c),
    };
    text.chars().map(escape).collect()
}
