//! The SRV records of nsqlookupds.

use domain::base::iana::{Rcode, Rtype};
use domain::base::{Message, Name, ParsedName};
use domain::rdata::Srv;
use domain::resolv::StubResolver;
use domain::resolv::stub::conf::ResolvConf;
use std::io;

/// Returns `<name>:<port>` of each SRV record of a service. Every record counts, whatever its priority and weight are. A
/// relative name is searched for in the domains of `/etc/resolv.conf`.
///
/// # Errors
/// The cause: no record was found, or the name servers did not answer.
pub(super) fn srv_names(service: &str) -> io::Result<Vec<String>> {
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
    StubResolver::run_with_conf(conf, ask)
}

/// Returns the full names that a name can stand for, in the order in which they are tried.
fn candidates(service: &str, conf: &ResolvConf) -> io::Result<Vec<Name<Vec<u8>>>> {
    let full = |text: String| text.parse::<Name<Vec<u8>>>().map_err(io::Error::other);
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
}
