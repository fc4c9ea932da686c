//! The URLs of an nsqlookupd's endpoints.

use url::Url;

use super::error::Reason;

/// Parses `host:port` or a URL into the URL of lookups.
pub(super) fn parse(address: &str) -> Result<Url, Reason> {
    let text = if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    // A path or a query may have commas.
    let (_, rest) = text.split_once("://").unwrap_or_default();
    if rest
        .split(['/', '?', '#'])
        .next()
        .is_some_and(|authority| authority.contains(','))
    {
        return Err(Reason::List);
    }
    let mut url = Url::parse(&text).map_err(Reason::Url)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Reason::Scheme(url.scheme().to_owned()));
    }
    if !has_port(&text) {
        return Err(Reason::MissingPort);
    }
    if url.path() == "/" {
        url.set_path("/lookup");
    }
    Ok(url)
}

/// Returns true if the text of a URL has a port. The parsed URL does not tell port 80 from no port.
fn has_port(url: &str) -> bool {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let host_and_port = authority
        .rsplit_once('@')
        .map_or(authority, |(_, rest)| rest);
    // The colons of an IPv6 address are inside brackets.
    let behind = host_and_port
        .rsplit_once(']')
        .map_or(host_and_port, |(_, rest)| rest);
    let port = behind.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty()
}

/// Adds the topic to the query, whose parameters are sorted by name as in Go.
pub(super) fn with_topic(lookup: &Url, topic: &str) -> Url {
    let own = lookup.query_pairs();
    let mut pairs: Vec<(String, String)> = own
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    pairs.push(("topic".to_owned(), topic.to_owned()));
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut url = lookup.clone();
    url.query_pairs_mut().clear().extend_pairs(pairs);
    url
}

/// Returns the URL of an endpoint in the same directory as that of lookups.
pub(super) fn beside(lookup: &Url, endpoint: &str) -> Url {
    let mut url = lookup.clone();
    let directory = match url.path().rsplit_once('/') {
        Some((directory, _)) => directory.to_owned(),
        None => String::new(),
    };
    url.set_path(&format!("{directory}/{endpoint}"));
    url
}
