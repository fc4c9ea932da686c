//! The files of the page: those in the binary, or those of `--dev-static-dir`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use rust_embed::RustEmbed;

/// The files of `page/`, compiled into the binary.
#[derive(RustEmbed)]
#[folder = "page/"]
struct Embedded;

/// One file.
#[derive(Clone, Debug)]
pub struct Asset {
    /// The content.
    pub content: Cow<'static, [u8]>,
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
                content: Cow::Owned(content),
                content_type,
                etag: None,
            });
        }
        let file = Embedded::get(name)?;
        let hash = file.metadata.sha256_hash();
        let hash = hash.first_chunk().expect("the hash has 32 bytes");
        let hex = format!("{:032x}", u128::from_be_bytes(*hash));
        Some(Asset {
            content: file.data,
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
