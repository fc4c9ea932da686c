//! The nsqlookupds that the addresses of `--lookupd-tcp-address` stand for. [`Directory`] is a state machine without
//! sockets and clocks. [`resolve`] asks the system: the C library for IP addresses, and DNS for SRV records. Both block,
//! so they belong on a thread of their own.

#[cfg(feature = "srv")]
use super::srv::srv_names;
use program::tcp_address::{fault, split_host_port};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};

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

/// The configured addresses with their nsqlookupds.
#[derive(Debug, Default)]
pub(super) struct Directory {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The address as the operator wrote it.
    text: String,
    address: Address,
    targets: Vec<Target>,
    /// True while a resolution is under way.
    is_asked: bool,
    /// The causes for which the last resolution failed, or nothing.
    failures: Vec<String>,
}

impl Entry {
    fn new(text: String) -> Entry {
        let address = Address::parse(&text);
        let targets = match address {
            Address::Ip(ip) => vec![Target::ip(&text, ip)],
            Address::Name | Address::Srv => Vec::new(),
        };
        Entry {
            text,
            address,
            targets,
            is_asked: false,
            failures: Vec::new(),
        }
    }
}

impl Directory {
    /// Replaces the list of addresses. The addresses that stay keep their nsqlookupds.
    pub(super) fn set(&mut self, addresses: Vec<String>) {
        let mut before = std::mem::take(&mut self.entries);
        for text in addresses {
            if self.entries.iter().any(|entry| entry.text == text) {
                continue;
            }
            let same = before.iter().position(|entry| entry.text == text);
            let same = same.map(|index| before.swap_remove(index));
            self.entries.push(same.unwrap_or_else(|| Entry::new(text)));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the addresses that are to be resolved now, which are those with a name. An address comes only once until
    /// [`Directory::note`] has its resolution.
    pub(super) fn questions(&mut self) -> Vec<(String, Address)> {
        let names = self.entries.iter_mut();
        let names = names.filter(|entry| !matches!(entry.address, Address::Ip(_)));
        let due = names.filter_map(|entry| {
            let was_asked = std::mem::replace(&mut entry.is_asked, true);
            (!was_asked).then(|| (entry.text.clone(), entry.address.clone()))
        });
        due.collect()
    }

    /// Notes the resolution of an address. If the resolution is not complete, the nsqlookupds that are known stay.
    /// Returns the causes that are new, for the log.
    pub(super) fn note(&mut self, text: &str, resolution: Resolution) -> Vec<String> {
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.text == text) else {
            return Vec::new();
        };
        entry.is_asked = false;
        let Resolution { hosts, failures } = resolution;
        let mut targets: Vec<Target> = hosts.iter().flat_map(Target::of_host).collect();
        let known = std::mem::take(&mut entry.targets);
        if !failures.is_empty() {
            let mut lost: Vec<Target> = known
                .into_iter()
                .filter(|known| !targets.iter().any(|target| target.overlaps(known)))
                .collect();
            targets.append(&mut lost);
        }
        entry.targets = targets;
        let before = std::mem::replace(&mut entry.failures, failures);
        let new = entry.failures.iter().filter(|why| !before.contains(why));
        new.cloned().collect()
    }

    /// Returns true if it is known for which nsqlookupds the addresses stand.
    pub(super) fn is_resolved(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.all(|entry| !entry.targets.is_empty() && entry.failures.is_empty())
    }

    /// Returns the nsqlookupds of all addresses. Two that have an IP address in common are one, and an address that the
    /// operator wrote as an IP address comes before names.
    pub(super) fn targets(&self) -> Vec<Target> {
        let is_ip = |entry: &&Entry| matches!(entry.address, Address::Ip(_));
        let (ips, names): (Vec<&Entry>, Vec<&Entry>) = self.entries.iter().partition(is_ip);
        let mut targets: Vec<Target> = Vec::new();
        for target in ips.iter().chain(&names).flat_map(|entry| &entry.targets) {
            if !targets.iter().any(|known| known.overlaps(target)) {
                targets.push(target.clone());
            }
        }
        targets
    }
}

/// Resolves an address that was written as `text`. Takes as long as the system's resolver: by default 5 s per question
/// about SRV records, and 10 s per name server for IP addresses.
pub(super) fn resolve(text: &str, address: &Address) -> Resolution {
    let mut resolution = Resolution::default();
    let names = match address {
        Address::Ip(_) | Address::Name => vec![text.to_owned()],
        Address::Srv => srv_names(text).unwrap_or_else(|error| {
            let why = cause(&error);
            resolution.failures.push(format!("lookup {text}: {why}"));
            Vec::new()
        }),
    };
    for name in names {
        if split_host_port(&name).is_none() {
            let why = format!("address {name}: missing port in address");
            resolution.failures.push(why);
            continue;
        }
        match name.to_socket_addrs() {
            Ok(addresses) => resolution.hosts.push(Host {
                name,
                addresses: addresses.collect(),
            }),
            Err(error) => {
                let why = cause(&error);
                resolution.failures.push(format!("lookup {name}: {why}"));
            }
        }
    }
    resolution
}

/// Finds no SRV record.
#[cfg(not(feature = "srv"))]
fn srv_names(_service: &str) -> io::Result<Vec<String>> {
    Err(io::Error::other(
        "this program was built without SRV records",
    ))
}

/// Returns the cause of a failure, without the words that the standard library puts before it.
fn cause(error: &io::Error) -> String {
    if error.kind() == ErrorKind::TimedOut {
        return "i/o timeout".to_owned();
    }
    let text = error.to_string();
    text.rsplit(": ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, addresses: &[&str]) -> Host {
        Host {
            name: name.to_owned(),
            addresses: addresses
                .iter()
                .map(|text| text.parse().expect("an address"))
                .collect(),
        }
    }

    fn found(hosts: &[Host]) -> Resolution {
        Resolution {
            hosts: hosts.to_vec(),
            failures: Vec::new(),
        }
    }

    fn failed(why: &str) -> Resolution {
        Resolution {
            hosts: Vec::new(),
            failures: vec![why.to_owned()],
        }
    }

    fn directory(addresses: &[&str]) -> Directory {
        let mut directory = Directory::default();
        directory.set(addresses.iter().map(|&text| text.to_owned()).collect());
        directory
    }

    fn labels(directory: &Directory) -> Vec<String> {
        let targets = directory.targets().into_iter();
        targets.map(|target| target.label).collect()
    }

    #[test]
    fn only_names_are_resolved_and_each_once_at_a_time() {
        let mut directory = directory(&[
            "10.0.0.1:4160",
            "a:4160",
            "[::1]:4160",
            "_x._tcp.b",
            "a:4160",
        ]);
        assert_eq!(labels(&directory), ["10.0.0.1:4160", "[::1]:4160"]);
        let asked = [
            ("a:4160".to_owned(), Address::Name),
            ("_x._tcp.b".to_owned(), Address::Srv),
        ];
        assert_eq!(directory.questions(), asked);
        assert_eq!(directory.questions(), []);
        directory.note("a:4160", failed("no such host"));
        assert_eq!(directory.questions(), asked[..1]);
        // The answer to a question about an address that has left the list.
        directory.set(Vec::new());
        assert_eq!(directory.note("a:4160", failed("late")), [""; 0]);
        assert!(directory.is_empty());
    }

    #[test]
    fn each_address_of_a_name_is_an_nsqlookupd() {
        let mut directory = directory(&["a:4160"]);
        let mut note = |addresses: &[&str]| {
            assert!(
                directory
                    .note("a:4160", found(&[host("a:4160", addresses)]))
                    .is_empty()
            );
            labels(&directory)
        };
        // One of each family is one host.
        assert_eq!(note(&["[::1]:4160", "127.0.0.1:4160"]), ["a:4160"]);
        assert_eq!(note(&["10.0.0.1:4160"]), ["a:4160"]);
        assert_eq!(
            note(&["10.0.0.1:4160", "10.0.0.2:4160"]),
            ["a/10.0.0.1:4160", "a/10.0.0.2:4160"]
        );
        let both = ["[fd::1]:1", "10.0.0.1:1", "[fd::2]:1", "10.0.0.2:1"];
        assert_eq!(note(&both), ["a/[fd::1]:1", "a/[fd::2]:1"]);
    }

    #[test]
    fn the_names_of_one_address_are_one_nsqlookupd() {
        let mut directory = directory(&["a:1", "b:1", "10.0.0.1:1", "_s._tcp.c"]);
        directory.note("a:1", found(&[host("a:1", &["10.0.0.1:1", "10.0.0.2:1"])]));
        directory.note("b:1", found(&[host("b:1", &["10.0.0.2:1", "10.0.0.3:1"])]));
        let srv = [host("d:1", &["10.0.0.3:1"]), host("e:2", &["10.0.0.3:2"])];
        directory.note("_s._tcp.c", found(&srv));
        assert_eq!(
            labels(&directory),
            ["10.0.0.1:1", "a/10.0.0.2:1", "b/10.0.0.3:1", "e:2"]
        );
    }

    #[test]
    fn a_failed_resolution_keeps_what_is_known_and_tells_each_cause_once() {
        let mut directory = directory(&["_s._tcp.c"]);
        let (d, e) = (host("d:1", &["10.0.0.1:1"]), host("e:1", &["10.0.0.2:1"]));
        directory.note("_s._tcp.c", found(&[d.clone(), e.clone()]));
        assert_eq!(directory.note("_s._tcp.c", failed("timeout")), ["timeout"]);
        assert_eq!(directory.note("_s._tcp.c", failed("timeout")), [""; 0]);
        assert_eq!(labels(&directory), ["d:1", "e:1"]);
        // A part of the records leads to hosts: the others may only be unknown for the moment.
        let f = host("f:1", &["10.0.0.3:1"]);
        let partly = Resolution {
            hosts: vec![f, e.clone()],
            failures: vec!["no such host".to_owned()],
        };
        assert_eq!(directory.note("_s._tcp.c", partly), ["no such host"]);
        assert_eq!(labels(&directory), ["f:1", "e:1", "d:1"]);
        directory.note("_s._tcp.c", found(&[e]));
        assert_eq!(labels(&directory), ["e:1"]);
        assert_eq!(directory.note("_s._tcp.c", failed("timeout")), ["timeout"]);
    }

    #[test]
    fn it_says_whether_all_nsqlookupds_are_known() {
        let mut directory = directory(&["10.0.0.1:4160", "lookupd:4160"]);
        assert!(!directory.is_resolved());
        directory.note(
            "lookupd:4160",
            found(&[host("lookupd", &["10.0.0.2:4160"])]),
        );
        assert!(directory.is_resolved());
        directory.note("lookupd:4160", failed("no such host"));
        assert!(!directory.is_resolved());
    }

    #[test]
    fn an_address_without_a_port_says_so() {
        let resolution = resolve("lookup", &Address::Name);
        assert_eq!(
            resolution.failures,
            ["address lookup: missing port in address"]
        );
    }
}
