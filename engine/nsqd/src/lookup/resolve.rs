//! The resolution of names by the system: IP addresses by the C library, SRV records by DNS. Both block, so they belong
//! on a thread of their own.

use super::address::{Address, Host, Resolution};
use super::directory::TARGETS_MAX;
use domain::base::iana::{Rcode, Rtype};
use domain::base::{Message, Name, ParsedName};
use domain::rdata::Srv;
use domain::resolv::StubResolver;
use domain::resolv::stub::conf::ResolvConf;
use program::tcp_address::split_host_port;
use std::io::{self, ErrorKind};
use std::net::ToSocketAddrs;

/// Resolves an address that was written as `text`. Takes as long as the system's resolver: by default 5 s per question
/// about SRV records, and 10 s per name server for IP addresses.
pub(super) fn resolve(text: &str, address: &Address) -> Resolution {
    let mut resolution = Resolution::default();
    let names = match address {
        Address::Ip(_) | Address::Name => vec![text.to_owned()],
        Address::Srv => srv_names(text).unwrap_or_else(|why| {
            resolution.failures.push(format!("lookup {text}: {why}"));
            Vec::new()
        }),
    };
    for name in names_taken(names, &mut resolution.failures) {
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

/// Returns the names to resolve. Each can take seconds, so there are as many as nsqd has use for.
fn names_taken(mut names: Vec<String>, failures: &mut Vec<String>) -> Vec<String> {
    let count = names.len();
    if count > TARGETS_MAX {
        failures.push(format!(
            "there are {count} SRV records, and nsqd takes {TARGETS_MAX} of them"
        ));
        // Name servers rotate their answers.
        names.sort_unstable();
        names.truncate(TARGETS_MAX);
    }
    names
}

/// Returns `<name>:<port>` of each SRV record of a service. Every record counts, whatever its priority and weight are. A
/// relative name is searched for in the domains of `/etc/resolv.conf`.
///
/// # Errors
/// The cause: no record was found, or the name servers did not answer.
fn srv_names(service: &str) -> Result<Vec<String>, String> {
    let conf = ResolvConf::default();
    let names = candidates(service, &conf)?;
    let ask = move |resolver: StubResolver| async move {
        let mut why = Rcode::NXDOMAIN;
        for name in names {
            let answer = resolver.query((&name, Rtype::SRV)).await?.into_message();
            let records = srv_records(&answer)?;
            if !records.is_empty() {
                return Ok(records);
            }
            why = answer.header().rcode();
        }
        Err(match why {
            Rcode::NXDOMAIN => io::Error::other("no such host"),
            Rcode::NOERROR => io::Error::other("the name has no SRV record"),
            code => io::Error::other(format!("the name server answers {code}")),
        })
    };
    StubResolver::run_with_conf(conf, ask).map_err(|error: io::Error| cause(&error))
}

/// Returns the full names that a name can stand for, in the order in which they are tried.
fn candidates(service: &str, conf: &ResolvConf) -> Result<Vec<Name<Vec<u8>>>, String> {
    let full = |text: String| text.parse().map_err(|error| format!("{error}"));
    let mut texts = vec![service.to_owned()];
    if !service.ends_with('.') {
        let suffixes = conf.options.search.as_slice().iter();
        let suffixes = suffixes.filter(|suffix| !suffix.is_root());
        texts.extend(suffixes.map(|suffix| format!("{service}.{suffix}")));
        if service.matches('.').count() < conf.options.ndots {
            texts.rotate_left(1);
        }
    }
    texts.into_iter().map(full).collect()
}

/// Returns `<name>:<port>` of each SRV record in an answer. The root as the name says that there is no such service.
fn srv_records(answer: &Message<impl AsRef<[u8]>>) -> io::Result<Vec<String>> {
    let answer = Message::from_slice(answer.as_slice()).map_err(io::Error::other)?;
    let records = answer.answer().map_err(io::Error::other)?;
    let mut names = Vec::new();
    for record in records.limit_to_in::<Srv<ParsedName<&[u8]>>>() {
        let record = record.map_err(io::Error::other)?;
        let (target, port) = (record.data().target(), record.data().port());
        if !target.is_root() {
            names.push(format!("{target}:{port}"));
        }
    }
    Ok(names)
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

    #[test]
    fn a_relative_name_is_searched_for() {
        let tried = |service: &str, conf: &str| {
            let mut parsed = ResolvConf::new();
            parsed
                .parse(&mut conf.as_bytes())
                .expect("a well-formed file");
            parsed.finalize();
            let names = candidates(service, &parsed).expect("a name");
            let names: Vec<String> = names.iter().map(Name::to_string).collect();
            names.join(" ")
        };
        let conf = "search a.example b.example\noptions ndots:2\n";
        assert_eq!(
            tried("_x._tcp", conf),
            "_x._tcp.a.example _x._tcp.b.example _x._tcp"
        );
        assert_eq!(
            tried("_x._tcp.c", conf),
            "_x._tcp.c _x._tcp.c.a.example _x._tcp.c.b.example"
        );
        assert_eq!(tried("_x._tcp.c.", conf), "_x._tcp.c");
        assert_eq!(tried("_x._tcp", ""), "_x._tcp");
        assert!(candidates(&"_".repeat(64), &ResolvConf::new()).is_err());
    }

    #[test]
    fn very_many_srv_records_are_not_all_resolved() {
        let mut names: Vec<String> = (10..99).map(|number| format!("h{number}:1")).collect();
        let mut failures = Vec::new();
        let taken = names_taken(names.clone(), &mut failures);
        assert_eq!((taken.len(), failures.len()), (TARGETS_MAX, 1));
        names.rotate_left(50);
        assert_eq!(names_taken(names.clone(), &mut failures), taken);
        names.truncate(TARGETS_MAX);
        failures.clear();
        assert_eq!(names_taken(names.clone(), &mut failures), names);
        assert_eq!(failures, [""; 0]);
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
