//! [`Address`]: where an nsqd listens.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nsq_http::NodeInfo;
use thiserror::Error;

/// The place where an nsqd listens for clients of protocol V2.
///
/// ```
/// use ringq_client::Address;
///
/// let tcp: Address = "127.0.0.1:4150".parse()?;
/// assert_eq!(tcp, Address::Tcp("127.0.0.1:4150".into()));
/// let unix: Address = "unix:/run/nsqd.sock".parse()?;
/// assert_eq!(unix.to_string(), "/run/nsqd.sock");
/// assert!("127.0.0.1".parse::<Address>().is_err(), "a port is missing");
/// # Ok::<(), ringq_client::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// `host:port`. The host is a name, an IPv4 address, or an IPv6 address in brackets.
    Tcp(String),
    /// The path of a unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Returns the host of a TCP address, without the brackets of an IPv6 address. A unix socket has the host
    /// `localhost`.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Address::Tcp(text) => split(text).map_or(text.as_str(), |(host, _)| host),
            Address::Unix(_) => "localhost",
        }
    }

    /// Returns the address of a node for clients, if it is one: an nsqd may register itself with any text.
    #[must_use]
    pub fn of_node(node: &NodeInfo) -> Option<Address> {
        let text = node.tcp_address();
        let address = text.parse().ok()?;
        (address == Address::Tcp(text)).then_some(address)
    }
}

/// Splits `host:port`, and removes the brackets of an IPv6 address.
fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(inner) => Some((inner.strip_suffix(']')?, port)),
        None if host.contains(':') => None,
        None => Some((host, port)),
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = |fault| AddressError {
            address: text.to_owned(),
            fault,
        };
        if let Some(path) = text.strip_prefix("unix:") {
            // `unix:///path` is the spelling of a URL.
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" => Err(wrong("the path of the unix socket is missing")),
                path => Ok(Address::Unix(path.into())),
            };
        }
        if text.starts_with('/') {
            return Ok(Address::Unix(text.into()));
        }
        if text.contains("://") {
            return Err(wrong("an address is no URL: write host:port"));
        }
        if text.contains(',') {
            return Err(wrong("this is a list: give each address by itself"));
        }
        let (host, port) = split(text).ok_or_else(|| match text.matches(':').count() {
            0 => wrong(
                "missing port: write host:port, as in 127.0.0.1:4150 (nsqd has TCP on port 4150 by default)",
            ),
            _ => wrong("an IPv6 address needs brackets: [::1]:4150"),
        })?;
        if host.is_empty() {
            return Err(wrong("missing host"));
        }
        match port.parse::<u16>() {
            Ok(0) | Err(_) => Err(wrong("the port must be a number from 1 to 65535")),
            Ok(_) => Ok(Address::Tcp(text.to_owned())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(text) => f.pad(text),
            Address::Unix(path) => f.pad(&path.to_string_lossy()),
        }
    }
}

impl From<std::net::SocketAddr> for Address {
    fn from(address: std::net::SocketAddr) -> Address {
        Address::Tcp(address.to_string())
    }
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Address {
        Address::Unix(path.to_owned())
    }
}

impl TryFrom<&str> for Address {
    type Error = AddressError;

    fn try_from(text: &str) -> Result<Address, AddressError> {
        text.parse()
    }
}

impl TryFrom<&String> for Address {
    type Error = AddressError;

    fn try_from(text: &String) -> Result<Address, AddressError> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Address, AddressError> {
        text.parse()
    }
}

/// The nsqds of a builder.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) addresses: Vec<Address>,
    /// The first text that is no address.
    pub(crate) wrong: Option<AddressError>,
}

impl Nodes {
    pub(crate) fn add<A>(&mut self, node: A)
    where
        A: TryInto<Address, Error: Into<AddressError>>,
    {
        match node.try_into().map_err(Into::into) {
            Ok(address) => self.addresses.push(address),
            Err(wrong) => _ = self.wrong.get_or_insert(wrong),
        }
    }
}

/// The reason why a text is no [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("address {address:?}: {fault}")]
pub struct AddressError {
    address: String,
    fault: &'static str,
}

impl From<Infallible> for AddressError {
    fn from(never: Infallible) -> AddressError {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_and_printed() {
        for (text, host) in [
            ("127.0.0.1:4150", "127.0.0.1"),
            ("nsqd-1.example:65535", "nsqd-1.example"),
            ("[::1]:4150", "::1"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address, Address::Tcp(text.into()));
            assert_eq!((address.to_string().as_str(), address.host()), (text, host));
        }
        for text in ["/run/a.sock", "unix:/run/a.sock", "unix:///run/a.sock"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address, Address::Unix("/run/a.sock".into()), "{text}");
        }
    }

    #[test]
    fn a_wrong_address_says_what_is_wrong() {
        for (text, fault) in [
            ("localhost", "missing port"),
            ("::1", "an IPv6 address needs brackets"),
            (":4150", "missing host"),
            ("a:b", "a number from 1 to 65535"),
            ("a:0", "a number from 1 to 65535"),
            ("a:65536", "a number from 1 to 65535"),
            ("http://a:4150", "an address is no URL: write host:port"),
            ("tcp://a:4150/", "an address is no URL: write host:port"),
            (
                "a:4150,b:4150",
                "this is a list: give each address by itself",
            ),
            ("a:4150,b", "this is a list: give each address by itself"),
            ("unix:", "the path of the unix socket is missing"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(fault) && error.contains(text), "{error}");
        }
    }
}
