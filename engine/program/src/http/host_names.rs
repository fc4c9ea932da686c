//! [`HostNames`]: the names under which clients reach a server.
//!
//! The owner of a name can let it stand for the address of any server, also for 127.0.0.1 (DNS rebinding). Then the owner's
//! page and the server have the same origin for a browser, and the page can do all that its visitor can. The header `Host`
//! shows it, because no script can set this header.

use std::net::{IpAddr, Ipv6Addr};

/// The names of a server, beside IP addresses and `localhost`. Nobody can let an address or `localhost` stand for another
/// server.
#[derive(Clone, Debug)]
pub struct HostNames(Vec<String>);

impl HostNames {
    /// Returns the names of a server on a machine: the machine's name, also without its domain, and `others`. The case of
    /// letters does not matter.
    pub fn new(hostname: &str, others: impl IntoIterator<Item = String>) -> HostNames {
        let short = hostname.split('.').next().unwrap_or_default();
        let mut names = vec![hostname.to_owned(), short.to_owned()];
        names.extend(others);
        HostNames(names)
    }

    /// Checks the value of `--allowed-host`.
    ///
    /// # Errors
    /// A text is no name. The error is the reason for the operator.
    pub fn check_flag(names: &[String]) -> Result<(), String> {
        let is_name = |name: &&String| {
            let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            !name.is_empty() && name.bytes().all(is_of_name)
        };
        match names.iter().find(|name| !is_name(name)) {
            None => Ok(()),
            Some(wrong) => Err(format!(
                "failed to parse --allowed-host ({wrong}) - a host is a name such as nsq.example.com, without scheme, port \
                 and path"
            )),
        }
    }

    /// Returns the reason why a request with this header `Host` is refused, and what to do if it should not be.
    #[must_use]
    pub fn advice(host: &str) -> String {
        let name = host.split(':').next().unwrap_or_default();
        format!(
            "{name} is no name of this server; if it is one, start the server with --allowed-host={name}"
        )
    }

    /// Returns true if the value of a header `Host` names the server. The port does not matter. An empty value comes from
    /// no browser.
    #[must_use]
    pub fn have(&self, host: &str) -> bool {
        if let Some(bracketed) = host.strip_prefix('[') {
            let address = bracketed.split(']').next().unwrap_or_default();
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = host.split(':').next().unwrap_or_default();
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_own = |own: &String| own.eq_ignore_ascii_case(name);
        name.is_empty()
            || name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.0.iter().any(is_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_known_name() {
        let names = HostNames::new("web1.lan", ["NSQ.example.com".to_owned()]);
        for known in [
            "",
            "localhost",
            "LocalHost:4171",
            "127.0.0.1",
            "10.0.0.7:4171",
            "[::1]",
            "[fd00::7]:4171",
            "web1",
            "web1.:4171",
            "WEB1:80",
            "web1.lan",
            "nsq.example.com",
        ] {
            assert!(names.have(known), "{known}");
        }
        for unknown in [
            "evil.example",
            "evil.example:4171",
            "web1.evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[evil]",
            "evil.localhost",
            "127.1",
            "xnsq.example.com",
        ] {
            assert!(!names.have(unknown), "{unknown}");
        }
    }

    #[test]
    fn a_flag_names_hosts_only() {
        let check = |name: &str| HostNames::check_flag(&["fine".to_owned(), name.to_owned()]);
        assert_eq!(check("nsq-1.example.com"), Ok(()));
        for wrong in ["", "https://a", "a:4171", "*", "a/b", "$(HOST)"] {
            let why = check(wrong).expect_err(wrong);
            assert!(
                why.starts_with(&format!("failed to parse --allowed-host ({wrong}) - ")),
                "{why}"
            );
        }
    }
}
