//! [`Endpoint`]: an HTTP address that gets messages, and what it takes for success.

use bytes::Bytes;
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::request::{Hop, Target, redacted};

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

/// The characters that a form writes as `%XX`. A form writes a space as `+`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b' ')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// A URL in which the message takes the place of `%s`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GetTemplate {
    before: String,
    after: String,
}

impl GetTemplate {
    /// Parses a URL with exactly one `%s`. `%%` stands for a percent sign. Returns `None` for any
    /// other text.
    pub(super) fn parse(text: &str) -> Option<GetTemplate> {
        let mut parts = vec![String::new()];
        let mut characters = text.chars();
        while let Some(c) = characters.next() {
            let part = parts.last_mut()?;
            match c {
                '%' => match characters.next()? {
                    '%' => part.push('%'),
                    's' => parts.push(String::new()),
                    _ => return None,
                },
                _ => part.push(c),
            }
        }
        let [before, after] = <[String; 2]>::try_from(parts).ok()?;
        Some(GetTemplate { before, after })
    }

    /// Returns the URL for a message.
    pub(super) fn url(&self, body: &[u8]) -> String {
        let body = percent_encode(body, ESCAPED).to_string().replace(' ', "+");
        format!("{}{body}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests;
