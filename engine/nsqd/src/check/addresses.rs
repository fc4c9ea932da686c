//! The addresses to listen on: free, and different from each other.

use std::net::SocketAddr;

use super::Finding;
use crate::config::Config;
use crate::net::address::ListenAddress;
use crate::preflight;

/// Tries each address, and gives it back at once: an nsqd that starts meanwhile must get its addresses. A start holds
/// all of them, and so finds out that two are equal. Here their comparison does. Each finding has the flag's name.
pub(super) fn check(config: &Config) -> Vec<(&'static str, Finding)> {
    let mut free: Vec<(&str, Place)> = Vec::new();
    let mut findings = Vec::new();
    for (name, address, kind) in preflight::addresses_asked_for(config) {
        if address.is_empty() && name != "tcp-address" {
            continue;
        }
        let reserved = preflight::reserve(address, kind, config.unix_socket_mode.0);
        let place = reserved.map(|found| Place::new(address, &found.address()));
        let finding = match place {
            Err(finding) => finding,
            Ok(place) => {
                let finding = judge(address, &place, &free);
                free.push((name, place));
                finding
            }
        };
        findings.push((name, finding));
    }
    findings
}

/// `free` are the addresses before this one.
fn judge(address: &str, place: &Place, free: &[(&str, Place)]) -> Finding {
    match free.iter().find(|(_, other)| place.is_in_the_way_of(other)) {
        None => Finding::ok(format!("{address} is free")),
        Some((other, _)) => Finding::failure(
            format!("{address} cannot be listened on: --{other} has it already"),
            "choose another port, or another path of a unix socket, for one of the two",
        ),
    }
}

/// The address or path that a listener takes for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Tcp(SocketAddr),
    /// The system picks a port that nobody has.
    AnyPort,
    /// The text that log lines show.
    Unix(String),
}

impl Place {
    /// `found` is what a start would listen on if `address` is asked for.
    fn new(address: &str, found: &ListenAddress) -> Place {
        let port = address.rsplit(':').next().unwrap_or_default();
        match found {
            ListenAddress::Unix(_) => Place::Unix(found.to_string()),
            ListenAddress::Tcp(_) if port.trim_matches('0').is_empty() => Place::AnyPort,
            ListenAddress::Tcp(address) => Place::Tcp(*address),
        }
    }

    /// Returns whether only one of the two can be listened on. A wildcard includes all addresses, those of both
    /// families.
    fn is_in_the_way_of(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Tcp(one), Place::Tcp(other)) => {
                let (ip, other_ip) = (one.ip(), other.ip());
                let has_same_ip =
                    ip == other_ip || ip.is_unspecified() || other_ip.is_unspecified();
                one.port() == other.port() && has_same_ip
            }
            (Place::Unix(one), Place::Unix(other)) => one == other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;
    use std::ffi::OsString;
    use std::net::TcpListener;
    use std::time::Duration;

    fn config(tcp: &str, http: &str) -> Config {
        let args = [
            format!("--tcp-address={tcp}"),
            format!("--http-address={http}"),
        ];
        Config::from_args(args.map(OsString::from)).unwrap()
    }

    #[test]
    fn only_one_of_two_overlapping_addresses_can_be_listened_on() {
        let tcp = |text: &str| Place::Tcp(text.parse().unwrap());
        let unix = |path: &str| Place::Unix(path.to_owned());
        let check = |one: &Place, other: &Place, expected| {
            assert_eq!(one.is_in_the_way_of(other), expected, "{one:?} {other:?}");
            assert_eq!(other.is_in_the_way_of(one), expected, "{other:?} {one:?}");
        };
        check(&tcp("127.0.0.1:4150"), &tcp("127.0.0.1:4150"), true);
        check(&tcp("127.0.0.1:4150"), &tcp("127.0.0.1:4151"), false);
        check(&tcp("127.0.0.1:4150"), &tcp("127.0.0.2:4150"), false);
        check(&tcp("[::]:4150"), &tcp("127.0.0.2:4150"), true);
        check(&tcp("0.0.0.0:4150"), &tcp("127.0.0.2:4150"), true);
        check(&unix("/a"), &unix("/a"), true);
        check(&unix("/a"), &unix("/b"), false);
        check(&unix("/a"), &tcp("127.0.0.1:4150"), false);
        check(&Place::AnyPort, &Place::AnyPort, false);
    }

    #[test]
    fn a_port_that_the_system_picks_is_nobody_elses() {
        let found = ListenAddress::Tcp(([127, 0, 0, 1], 4150).into());
        for address in ["127.0.0.1:0", "127.0.0.1:"] {
            assert_eq!(Place::new(address, &found), Place::AnyPort, "{address}");
        }
        let expected = Place::Tcp(([127, 0, 0, 1], 4150).into());
        for address in ["127.0.0.1:4150", "localhost:04150"] {
            assert_eq!(Place::new(address, &found), expected, "{address}");
        }
        let findings = check(&config("127.0.0.1:0", "127.0.0.1:0"));
        assert!(
            findings
                .iter()
                .all(|(_, finding)| finding.state == State::Ok)
        );
    }

    /// A start at the time of a check failed. Opened by a check that held each free address until it had tried all of
    /// them, which takes a second for one that is taken.
    #[test]
    fn a_free_address_is_given_back_before_the_next_is_tried() {
        let was_free = || {
            let taken = TcpListener::bind("127.0.0.1:0").unwrap();
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let [taken_address, free_address] =
                [&taken, &free].map(|one| one.local_addr().unwrap());
            drop(free);
            let config = config(&free_address.to_string(), &taken_address.to_string());
            let checking = std::thread::spawn(move || check(&config));
            let mut is_free = false;
            while !is_free && !checking.is_finished() {
                std::thread::sleep(Duration::from_millis(100));
                is_free = TcpListener::bind(free_address).is_ok() && !checking.is_finished();
            }
            let findings = checking.join().unwrap();
            assert_eq!(findings[1].1.state, State::Failure, "{findings:?}");
            is_free
        };
        // Another process may take the address, or this thread may stand still for as long as the check.
        assert!(
            (0..5).any(|_| was_free()),
            "the address was held to the end"
        );
    }
}
