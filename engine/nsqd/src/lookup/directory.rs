//! [`Directory`]: the configured addresses, and the nsqlookupds that they stand for as far as they are resolved. A state
//! machine without sockets and clocks.

use super::address::{Address, Resolution, Target};

/// The most nsqlookupds that one address can stand for. One thread talks to all of them, and one that does not answer
/// takes a second. So more of them could keep this node from telling the others in time that it is alive.
pub(super) const TARGETS_MAX: usize = 32;

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
        let Resolution {
            hosts,
            mut failures,
        } = resolution;
        let mut targets: Vec<Target> = hosts.iter().flat_map(Target::of_host).collect();
        let known = std::mem::take(&mut entry.targets);
        if targets.len() > TARGETS_MAX {
            // Name servers rotate their answers. Without this order, each answer would lead to other nsqlookupds.
            targets.sort_by_key(|target| !known.iter().any(|known| known.overlaps(target)));
            failures.push(format!(
                "the name stands for more than {TARGETS_MAX} nsqlookupds, and nsqd takes {TARGETS_MAX} of them"
            ));
        }
        if !failures.is_empty() {
            let mut lost: Vec<Target> = known
                .into_iter()
                .filter(|known| !targets.iter().any(|target| target.overlaps(known)))
                .collect();
            targets.append(&mut lost);
        }
        targets.truncate(TARGETS_MAX);
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

#[cfg(test)]
mod tests {
    use super::super::address::Host;
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

    /// Regression: a name with thousands of addresses made as many connections, each of which could take a second. The
    /// other nsqlookupds heard nothing from this node meanwhile.
    #[test]
    fn a_name_with_very_many_addresses_stands_for_some_of_them_only() {
        let mut directory = directory(&["a:1"]);
        let texts: Vec<String> = (0..=255).map(|last| format!("10.0.0.{last}:1")).collect();
        let mut addresses: Vec<&str> = texts.iter().map(String::as_str).collect();
        let why = "the name stands for more than 32 nsqlookupds, and nsqd takes 32 of them";
        assert_eq!(
            directory.note("a:1", found(&[host("a:1", &addresses)])),
            [why]
        );
        let first = labels(&directory);
        assert_eq!((first.len(), directory.is_resolved()), (32, false));
        addresses.rotate_left(100);
        assert_eq!(
            directory.note("a:1", found(&[host("a:1", &addresses)])),
            [""; 0]
        );
        assert_eq!(labels(&directory), first);
        // The known ones are lost one after another, and the bound still counts.
        addresses.truncate(60);
        directory.note("a:1", found(&[host("a:1", &addresses)]));
        assert_eq!(labels(&directory).len(), 32);
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
}
