//! The page, its files ([`Assets`]), and the settings that it needs.

use std::path::{Path, PathBuf};

use ::http::StatusCode;
use ::http::header::IF_NONE_MATCH;
use bytes::Bytes;
use program::http::escape_html;
use program::version::NSQ_VERSION;
use rust_embed::RustEmbed;
use wire::go_json::to_string;
use wire::json_object;
use wire::name::InvalidName;

use super::{App, Reply, Request};
use crate::access::basic_user;

/// The place in the page that stands for the base path, or the way to it. It ends in a slash.
const BASE_MARK: &str = "{{base}}";

/// The rules for browsers: the page loads and asks nothing from elsewhere, has no script or style
/// inside itself, and no other site may show it in a frame.
const POLICY: &str = "default-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; \
                      frame-ancestors 'self'";

/// Returns the page, which is the same for all its addresses but for the base.
pub(super) fn page(app: &App, request: &Request) -> Reply {
    let Some(page) = app.assets.get("index.html") else {
        return not_found();
    };
    let base = match app.config.base_path.as_str() {
        "/" => relative_base(request.path()),
        base => format!("{base}/"),
    };
    let page = String::from_utf8_lossy(&page.content);
    Reply::html(page.replace(BASE_MARK, &escape_html(&base)), POLICY)
}

/// Returns a file of the page.
pub(super) fn asset(app: &App, name: &str, request: &Request) -> Reply {
    let Some(asset) = app.assets.get(name) else {
        return not_found();
    };
    let file = Reply::file(asset.content_type, asset.content);
    match asset.etag {
        Some(etag) if request.header(IF_NONE_MATCH.as_str()).contains(&etag) => {
            Reply::empty(StatusCode::NOT_MODIFIED).with_etag(&etag)
        }
        Some(etag) => file.with_etag(&etag),
        None => file,
    }
}

/// Returns what the page needs to know. The user and the right to act are those of this request.
pub(super) fn settings(app: &App, request: &Request) -> Reply {
    let user = app.user(request);
    let graphite = &app.config.graphite;
    // Otherwise the page offers a field for a name.
    let is_known = !user.is_empty() || !basic_user(request.headers()).is_empty();
    Reply::json(to_string(&json_object! {
        version: NSQ_VERSION,
        base_path: &app.config.base_path,
        user: &user,
        is_user_known: is_known,
        // The page shows the reason, because an admin would look for the buttons otherwise.
        ignored_user: app.ignored_user(request).unwrap_or_default(),
        is_admin: app.access.is_admin(&user),
        may_read_bodies: app.access.may_read_bodies(&user),
        is_lookup_mode: app.cluster.is_lookup_mode(),
        nsqlookupd: app.cluster.lookupds(),
        name_rule: name_rule(),
        live: app.collector.is_some(),
        graph_enabled: app.graphite.forward.is_some(),
        statsd_interval: graphite.interval.as_secs(),
        statsd_counter_format: &graphite.counter_format,
        statsd_gauge_format: &graphite.gauge_format,
        statsd_prefix: &graphite.prefix,
    }))
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

/// The files of `page/`, compiled into the binary.
#[derive(RustEmbed)]
#[folder = "page/"]
struct Embedded;

/// One file.
#[derive(Clone, Debug)]
pub struct Asset {
    /// The content.
    pub content: Bytes,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The value of `ETag`, if the file is one of the binary's.
    pub etag: Option<String>,
}

/// The place of the files.
#[derive(Clone, Debug, Default)]
pub struct Assets {
    directory: Option<PathBuf>,
}

impl Assets {
    /// Returns the files of a directory, or those of the binary if the path is empty.
    pub fn new(dev_static_dir: &str) -> Assets {
        Assets {
            directory: (!dev_static_dir.is_empty()).then(|| PathBuf::from(dev_static_dir)),
        }
    }

    /// Returns a file, or `None` if there is none of this name. A name is a path below the directory, such
    /// as `views/topic.js`.
    pub fn get(&self, name: &str) -> Option<Asset> {
        let is_segment = |segment: &str| {
            !segment.is_empty() && !segment.starts_with('.') && !segment.contains(['\\', '\0'])
        };
        if !name.split('/').all(is_segment) {
            return None;
        }
        let content_type = content_type(name);
        if let Some(directory) = &self.directory {
            // A file that cannot be read is missing, for the developer who sees the page.
            let content = std::fs::read(directory.join(name)).ok()?;
            return Some(Asset {
                content: content.into(),
                content_type,
                etag: None,
            });
        }
        let file = Embedded::get(name)?;
        let hash = file.metadata.sha256_hash();
        let hash = hash.first_chunk().expect("the hash has 32 bytes");
        let hex = format!("{:032x}", u128::from_be_bytes(*hash));
        Some(Asset {
            content: Bytes::from_owner(file.data),
            content_type,
            etag: Some(format!("\"{hex}\"")),
        })
    }
}

/// Returns the type of a file by the end of its name.
fn content_type(name: &str) -> &'static str {
    let end = Path::new(name).extension().and_then(|end| end.to_str());
    match end.unwrap_or_default() {
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "html" => "text/html; charset=utf-8",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "ttf" => "font/ttf",
        "eot" => "application/vnd.ms-fontobject",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_has_the_page() {
        let assets = Assets::new("");
        let page = assets.get("index.html").expect("the page is embedded");
        assert_eq!(page.content_type, "text/html; charset=utf-8");
        assert!(page.etag.is_some_and(|etag| etag.len() == 34));
        let module = assets.get("views/topic.js").expect("the page has modules");
        assert_eq!(module.content_type, "text/javascript; charset=utf-8");
        let outside = [
            "",
            "nope.js",
            "../Cargo.toml",
            ".hidden",
            "views",
            "views/",
            "/style.css",
        ];
        for name in outside
            .into_iter()
            .chain(["views/../style.css", "views//topic.js", "a\\b"])
        {
            assert!(assets.get(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_directory_replaces_the_binarys_files_but_not_more() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("static");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(root.path().join("secret"), "x").unwrap();
        std::fs::write(directory.join("own.woff2"), "font").unwrap();
        let assets = Assets::new(directory.to_str().unwrap());
        let own = assets.get("own.woff2").unwrap();
        assert_eq!(
            (&*own.content, own.content_type),
            (&b"font"[..], "font/woff2")
        );
        assert!(assets.get("index.html").is_none());
        assert!(assets.get("../secret").is_none());
        assert!(assets.get("x/../../secret").is_none());
        assert!(assets.get("..").is_none());
    }
}
