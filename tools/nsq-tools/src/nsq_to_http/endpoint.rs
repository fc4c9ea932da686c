//! [`Endpoint`]: an HTTP address that gets messages, and what it takes for success.

use bytes::Bytes;
use http::{Method, StatusCode};

use super::get_template::GetTemplate;
use super::hop::{Hop, Target};
use super::redacted::redacted;

/// One address of the command line.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    /// The text of the command line without the password, which log lines contain.
    pub(super) name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Post(Target),
    Get(GetTemplate),
}

impl Endpoint {
    /// Parses the URL of a POST. The error is the reason for the user.
    pub(super) fn post(url: &str) -> Result<Endpoint, String> {
        let target = Target::parse(url)
            .map_err(|why| format!("invalid POST address {:?} - {why}", redacted(url)))?;
        Ok(Endpoint {
            name: redacted(url),
            kind: Kind::Post(target),
        })
    }

    /// Parses the template of a GET. The error is the reason for the user.
    pub(super) fn get(url: &str) -> Result<Endpoint, String> {
        let template = GetTemplate::parse(url).ok_or_else(|| {
            format!(
                "invalid GET address - must be a printf string: {:?} needs exactly one %s, and %% for a percent sign",
                redacted(url)
            )
        })?;
        Target::parse(&template.url(b"x"))
            .map_err(|why| format!("invalid GET address {:?} - {why}", redacted(url)))?;
        Ok(Endpoint {
            name: redacted(url),
            kind: Kind::Get(template),
        })
    }

    /// Returns true for an HTTPS address.
    pub(super) fn has_tls(&self) -> bool {
        self.name.to_ascii_lowercase().starts_with("https:")
    }

    /// Returns the request for a message.
    ///
    /// # Errors
    /// The URL with the message is too long, or no URL.
    pub(super) fn request(&self, body: &Bytes) -> Result<Hop, String> {
        match &self.kind {
            Kind::Post(target) => Ok(Hop::new(Method::POST, target.clone(), body.clone())),
            Kind::Get(template) => {
                let target = Target::parse(&template.url(body))?;
                Ok(Hop::new(Method::GET, target, Bytes::new()))
            }
        }
    }

    /// Returns true if the status means that the server has the message: 200 for a GET, and 200 to
    /// 299 for a POST.
    pub(super) fn accepts(&self, status: StatusCode) -> bool {
        match self.kind {
            Kind::Post(_) => status.is_success(),
            Kind::Get(_) => status == StatusCode::OK,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_get_succeeds_only_with_200() {
        let get = Endpoint::get("http://h/?x=%s").expect("a template");
        let post = Endpoint::post("http://h").expect("a URL");
        let check = |code: u16, expected: [bool; 2]| {
            let status = StatusCode::from_u16(code).expect("a status");
            assert_eq!(
                [get.accepts(status), post.accepts(status)],
                expected,
                "{code}"
            );
        };
        check(200, [true, true]);
        for code in [201, 202, 204, 299] {
            check(code, [false, true]);
        }
        for code in [199, 300, 304, 400, 404, 429, 500, 503] {
            check(code, [false, false]);
        }
    }

    #[test]
    fn a_message_can_be_too_long_for_a_url() {
        let get = Endpoint::get("http://h/?x=%s").expect("a template");
        assert!(get.request(&Bytes::from(vec![b'a'; 65_000])).is_ok());
        // Each of these bytes takes three characters.
        let why = get.request(&Bytes::from(vec![b'&'; 22_000]));
        assert_eq!(why.expect_err("it is too long"), "uri too long");
    }

    #[test]
    fn wrong_addresses_are_refused() {
        let post = |url: &str| Endpoint::post(url).expect_err("it is refused");
        assert!(post("h:80/a").starts_with("invalid POST address \"h:80/a\" - "));
        assert!(post("ftp://h/").contains("http:// or https://"));
        let get = |url: &str| Endpoint::get(url).expect_err("it is refused");
        let start = "invalid GET address - must be a printf string";
        for url in ["http://h/", "http://h/%s%s", "http://h/%d?x=%s"] {
            assert!(get(url).starts_with(start), "{}", get(url));
        }
        assert!(get("h/%s").starts_with("invalid GET address \"h/%s\" - "));
    }
}
