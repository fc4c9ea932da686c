//! [`Address`]: an address of `--lookupd-tcp-address`. [`Target`]: one nsqlookupd that an address stands for.

use program::tcp_address::{fault, split_host_port};
use std::net::SocketAddr;

/// The address of one or several nsqlookupds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// An IP address and a port: one nsqlookupd.
    Ip(SocketAddr),
    /// A name and a port. The name can have several IP addresses.
    Name,
    /// The name of SRV records, which have the ports.
    Srv,
}

impl Address {
    /// Reads an address as the operator wrote it. A malformed one is a [`Address::Name`] that does not resolve.
    pub(super) fn parse(text: &str) -> Address {
        match text.parse() {
            Ok(address) => Address::Ip(address),
            Err(_) if text.starts_with('_') && !text.contains(':') => Address::Srv,
            Err(_) => Address::Name,
        }
    }
}

/// Returns what to do about an address that does not resolve.
pub(super) fn advice(address: &str) -> &'static str {
    let fault = match Address::parse(address) {
        Address::Srv => None,
        Address::Ip(_) | Address::Name => fault(address),
    };
    fault.unwrap_or("check the name and /etc/resolv.conf")
}

/// A name with a port, and the IP addresses that the system has found for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// `<name>:<port>`
    pub(super) name: String,
    /// The IP addresses with the port, in the system's order of preference. There is at least one.
    pub(super) addresses: Vec<SocketAddr>,
}

/// The outcome of the resolution of an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resolution {
    pub(super) hosts: Vec<Host>,
    /// The causes for which hosts are missing.
    pub(super) failures: Vec<String>,
}

/// One nsqlookupd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// The nsqlookupd's name in the log.
    pub(super) label: String,
    /// The name that the nsqlookupd's certificate must have, or its IP address.
    pub(super) host: String,
    /// The IP addresses, which are tried in this order. There is at least one.
    pub(super) addresses: Vec<SocketAddr>,
}

impl Target {
    /// Returns the nsqlookupd at an IP address that is written as `text`.
    pub(super) fn ip(text: &str, address: SocketAddr) -> Target {
        Target {
            label: text.to_owned(),
            host: address.ip().to_string(),
            addresses: vec![address],
        }
    }

    /// Returns the nsqlookupds of a host. Several IP addresses of one family are several nsqlookupds. One IPv4 and one
    /// IPv6 address are two ways to one nsqlookupd. So if there are several of one family and some of the other, the
    /// family that the system prefers is taken.
    pub(super) fn of_host(host: &Host) -> Vec<Target> {
        let Host { name, addresses } = host;
        let (host, _) = split_host_port(name).unwrap_or((name, ""));
        let count = |is_wanted: fn(&SocketAddr) -> bool| {
            let wanted = addresses.iter().filter(|address| is_wanted(address));
            wanted.count()
        };
        if count(SocketAddr::is_ipv4) <= 1 && count(SocketAddr::is_ipv6) <= 1 {
            return vec![Target {
                label: name.clone(),
                host: host.to_owned(),
                addresses: addresses.clone(),
            }];
        }
        let prefers_ipv6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
        let taken = addresses
            .iter()
            .filter(|address| address.is_ipv6() == prefers_ipv6);
        let target = |address: &SocketAddr| Target {
            label: format!("{host}/{address}"),
            host: host.to_owned(),
            addresses: vec![*address],
        };
        taken.map(target).collect()
    }

    /// Returns true if the two have an address in common.
    pub(super) fn overlaps(&self, other: &Target) -> bool {
        let mut addresses = self.addresses.iter();
        addresses.any(|address| other.addresses.contains(address))
    }
}
