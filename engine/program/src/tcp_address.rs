//! Addresses to listen on, as operators write them: parsed and resolved like Go's `net` package.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use socket2::SockAddr;

/// Resolves `<host>:<port>` to the address that a listener binds. The port may be the name of a
/// service. May block while the system resolves a name.
///
/// # Errors
/// Go's text: `listen tcp: address 4150: missing port in address`.
pub fn resolve(address: &str) -> Result<SocketAddr, String> {
    let (host, port) = split_host_port(address)
        .ok_or_else(|| format!("listen tcp: address {address}: {}", missing_port(address)))?;
    let port = parse_port(port).map_err(|why| format!("listen tcp: {why}"))?;
    resolve_host(host, port)
        .and_then(|found| found.ok_or_else(|| "no such host".to_string()))
        .map_err(|why| format!("listen tcp: lookup {host}: {why}"))
}

/// Returns the remedy for a failed bind, or an empty text. `program` is the program's own name.
pub fn bind_hint(error: &io::Error, program: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another process listens there, perhaps another {program} (see: ss -ltnp); stop it, or \
             choose another port"
        ),
        io::ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address".to_string()
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need privileges (CAP_NET_BIND_SERVICE); choose a higher one"
                .to_string()
        }
        _ => String::new(),
    }
}

/// Returns what is wrong with the form of `<host>:<port>`, or the remedy. `None`: it has a host, a port and nothing else.
pub fn fault(address: &str) -> Option<&'static str> {
    if has_variable(address) {
        Some("a variable was not replaced")
    } else if address.contains([',', '/']) {
        Some("write one <host>:<port> in each flag, without a scheme and a path")
    } else if split_host_port(address).is_none_or(|(_, port)| port.is_empty()) {
        Some("missing port in address: write <host>:<port>")
    } else {
        None
    }
}

/// Returns true if a value has a variable of a manifest or a shell that nobody has replaced, such as `$(POD_IP)`.
pub fn has_variable(value: &str) -> bool {
    value.contains("$(") || value.contains("${")
}

/// Returns the address of a socket as Go shows it, also that of a unix socket.
pub fn text(address: &SockAddr) -> String {
    if let Some(address) = address.as_socket() {
        return address.to_string();
    }
    if let Some(path) = address.as_pathname() {
        return path.display().to_string();
    }
    let name = address.as_abstract_namespace().unwrap_or_default();
    format!("@{}", String::from_utf8_lossy(name))
}

/// Splits an address like Go's `net.SplitHostPort`: an IPv6 address needs brackets. Returns `None`
/// for a text without a port.
pub fn split_host_port(address: &str) -> Option<(&str, &str)> {
    let (host, port) = address.rsplit_once(':')?;
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?;
        return (!inner.contains(['[', ']'])).then_some((inner, port));
    }
    (!host.contains([':', '[', ']']) && !port.contains(['[', ']'])).then_some((host, port))
}

/// Says why an address has no port: in Go's words, unless it is more than one address.
fn missing_port(address: &str) -> &'static str {
    let fault = fault(address).filter(|_| address.contains([',', '/']));
    fault.unwrap_or("missing port in address")
}

/// Parses a number or the name of a service. The error is Go's text.
fn parse_port(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        return Ok(0);
    }
    if let Ok(port) = text.parse::<i64>() {
        return u16::try_from(port).map_err(|_| format!("address {text}: invalid port"));
    }
    let services = std::fs::read_to_string("/etc/services").unwrap_or_default();
    find_service(&services, text).ok_or_else(|| format!("lookup tcp/{text}: unknown port"))
}

/// Returns the TCP port of a service, by name or alias.
///
/// ```text
///   http    80/tcp   www    # WorldWideWeb HTTP
/// ```
fn find_service(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let (service, port) = (words.next()?, words.next()?);
        let port = port.strip_suffix("/tcp")?;
        let mut names = std::iter::once(service).chain(words);
        names
            .any(|known| known.eq_ignore_ascii_case(name))
            .then(|| port.parse().ok())?
    })
}

/// Returns the address to bind. A wildcard is both families on one socket, as in NSQ's programs, or
/// IPv4 alone where the system has no IPv6. A name gives one address, IPv4 if it has one: NSQ's
/// programs also listen on only one of several.
fn resolve_host(host: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    if matches!(host, "" | "0.0.0.0" | "::") {
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        return Ok(Some(if has_ipv6() { any6 } else { any4 }));
    }
    let found = (host, port).to_socket_addrs().map_err(|error| {
        // The C library's text, behind the standard library's own words.
        let text = error.to_string();
        text.rsplit(": ")
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    })?;
    Ok(found.min_by_key(SocketAddr::is_ipv6))
}

fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_name_and_alias() {
        let services = "# comment\nhttp\t\t80/tcp\twww # web\ndomain 53/udp\ndomain 53/tcp\n";
        assert_eq!(find_service(services, "http"), Some(80));
        assert_eq!(find_service(services, "WWW"), Some(80));
        assert_eq!(find_service(services, "domain"), Some(53));
        assert_eq!(find_service(services, "web"), None);
        assert_eq!(find_service("", "http"), None);
    }

    #[test]
    fn addresses_split_as_go_splits_them() {
        let check = |address: &str, expected: Option<(&str, &str)>| {
            assert_eq!(split_host_port(address), expected, "{address}");
        };
        check("127.0.0.1:4150", Some(("127.0.0.1", "4150")));
        check(":4150", Some(("", "4150")));
        check("[::1]:4150", Some(("::1", "4150")));
        check("/run/a:b", Some(("/run/a", "b")));
        check("4150", None);
        check("localhost", None);
        check("", None);
        check("::1:4150", None);
        check("[::1]", None);
        check("[::1", None);
        check("/run/nsqd.sock", None);
    }
}
