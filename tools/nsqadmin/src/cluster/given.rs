//! [`Given`]: the nsqds of direct mode, which the operator has given.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use program::log_warn;
use program::tcp_address::split_host_port;

use crate::node::Node;

/// An nsqd of direct mode that has said what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    /// The nsqd.
    pub(super) node: Node,
    /// The start of the process, in seconds since 1970. 0 if it does not tell.
    pub(super) start_time: i64,
    /// The address that the operator has given.
    pub(super) address: String,
    /// Other such addresses of the same process.
    pub(super) other_addresses: Vec<String>,
}

impl Given {
    /// Names the nsqd by the address that the operator has given.
    pub(super) fn use_given_address(&mut self) {
        if let Some((host, port)) = split_host_port(&self.address) {
            host.clone_into(&mut self.node.broadcast_address);
            self.node.http_port = port.parse().unwrap_or(self.node.http_port);
        }
    }

    /// Returns what tells processes apart. Without a start time, that is the given address.
    fn process(&self) -> (String, String, [i64; 3], String) {
        let node = &self.node;
        let address = if self.start_time > 0 {
            String::new()
        } else {
            self.address.clone()
        };
        (
            node.broadcast_address.clone(),
            node.hostname.clone(),
            [node.http_port, node.tcp_port, self.start_time],
            address,
        )
    }
}

/// Most notes and shared addresses that are remembered. Only nsqds that broadcast other addresses all the time need more.
const NOTES_MAX: usize = 100;

/// The addresses of nsqds that need a note or another name.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The notes that the log has. They are no failures: the figures are whole, and acts count everywhere.
    notes: BTreeSet<String>,
    /// The addresses that several nsqds have broadcast.
    shared: BTreeSet<String>,
}

impl Noted {
    /// Returns each process once, and each with an address of its own. Logs the notes that the log does not have yet. `are_all`
    /// tells that each nsqd has answered.
    pub(super) fn told_apart(&self, nsqds: Vec<Given>, are_all: bool) -> Vec<Given> {
        let mut known = self.0.lock();
        if are_all {
            let mut processes: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
            for nsqd in &nsqds {
                let sharing = processes.entry(nsqd.node.http_address()).or_default();
                sharing.insert(nsqd.process());
            }
            let is_shared = |it: &String| processes.get(it).is_some_and(|it| it.len() > 1);
            known.shared.retain(is_shared);
        }
        let (nsqds, notes) = told_apart(nsqds, &mut known.shared);
        for note in notes {
            if known.notes.len() < NOTES_MAX && known.notes.insert(note.clone()) {
                log_warn!("{note}");
            }
        }
        nsqds
    }
}

/// Returns each process once, and each with an address of its own, and notes about that. Figures are kept by address, so two
/// nsqds with one address would have rates between the counts of different processes. `shared` has the addresses that several
/// nsqds have broadcast: an nsqd keeps its name while the others do not answer.
fn told_apart(nsqds: Vec<Given>, shared: &mut BTreeSet<String>) -> (Vec<Given>, Vec<String>) {
    let mut notes = Vec::new();
    let mut processes: Vec<Given> = Vec::new();
    let mut known = BTreeMap::new();
    for nsqd in nsqds {
        let place = *known.entry(nsqd.process()).or_insert(processes.len());
        match processes.get_mut(place) {
            None => processes.push(nsqd),
            Some(first) => {
                notes.push(format!(
                    "{} and {} are one nsqd, which counts once (--nsqd-http-address)",
                    first.address, nsqd.address
                ));
                first.other_addresses.push(nsqd.address);
            }
        }
    }
    // A given address may be the one that another nsqd broadcasts, so there may be more to do.
    while has_replaced_shared_addresses(&mut processes, shared, &mut notes) {}
    (processes, notes)
}

/// Names the nsqds that broadcast the same address by the addresses that the operator has given. Returns true if one of them
/// has another name now.
fn has_replaced_shared_addresses(
    nsqds: &mut [Given],
    shared: &mut BTreeSet<String>,
    notes: &mut Vec<String>,
) -> bool {
    let mut by_address: BTreeMap<String, Vec<&mut Given>> = BTreeMap::new();
    for nsqd in nsqds {
        let address = nsqd.node.http_address();
        by_address.entry(address).or_default().push(nsqd);
    }
    let mut has_replaced = false;
    for (address, nsqds) in &mut by_address {
        let is_alone = nsqds.len() == 1;
        if is_alone && !shared.contains(address) {
            continue;
        }
        let given: Vec<&str> = nsqds.iter().map(|nsqd| nsqd.address.as_str()).collect();
        let text = format!(
            "the nsqds {} broadcast the same address {address}, so they have the addresses of \
             --nsqd-http-address here: give each its own --broadcast-address and port",
            given.join(", ")
        );
        let mut is_new = false;
        for nsqd in nsqds {
            nsqd.use_given_address();
            is_new |= nsqd.node.http_address() != *address;
        }
        if is_new && !is_alone {
            notes.push(text);
            if shared.len() < NOTES_MAX {
                shared.insert(address.clone());
            }
        }
        has_replaced |= is_new;
    }
    has_replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nsqd(address: &str, broadcast: &str, start_time: i64) -> Given {
        let node = Node {
            broadcast_address: broadcast.to_owned(),
            http_port: 4151,
            ..Node::default()
        };
        Given {
            node,
            start_time,
            address: address.to_owned(),
            other_addresses: Vec::new(),
        }
    }

    fn names(nsqds: Vec<Given>) -> (Vec<String>, String) {
        let (nsqds, notes) = told_apart(nsqds, &mut BTreeSet::new());
        let names = nsqds.iter().map(|nsqd| nsqd.node.http_address());
        (names.collect(), notes.join("\n"))
    }

    #[test]
    fn nsqds_with_addresses_of_their_own_keep_them() {
        let (found, warnings) = names(vec![nsqd("a:1", "x", 1), nsqd("b:1", "y", 1)]);
        assert_eq!(found, ["x:4151", "y:4151"]);
        assert_eq!(warnings, "");
    }

    /// Their rates were differences between the counts of two processes, for ever.
    #[test]
    fn nsqds_that_broadcast_the_same_address_have_those_that_were_given() {
        let (found, warnings) = names(vec![
            nsqd("a:1", "x", 1),
            nsqd("[::1]:2", "x", 2),
            nsqd("c:3", "y", 3),
        ]);
        assert_eq!(found, ["a:1", "[::1]:2", "y:4151"]);
        assert!(
            warnings.starts_with("the nsqds a:1, [::1]:2 broadcast the same address x:4151"),
            "{warnings}"
        );
        // The given address of one is the address that another broadcasts.
        let (found, _) = names(vec![
            nsqd("y:4151", "x", 1),
            nsqd("b:2", "x", 2),
            nsqd("c:3", "y", 3),
        ]);
        assert_eq!(found, ["y:4151", "b:2", "c:3"]);
    }

    /// While one of them did not answer, the other had the shared address as its name. Its past was that of another node.
    #[test]
    fn an_nsqd_keeps_its_name_while_the_one_with_the_same_address_is_silent() {
        let noted = Noted::default();
        let (a, b) = (nsqd("a:1", "x", 1), nsqd("b:1", "x", 2));
        let other = nsqd("c:3", "y", 3);
        for answering in [
            vec![a.clone(), b.clone()],
            vec![b, other.clone()],
            vec![a.clone(), other],
        ] {
            let given: Vec<String> = answering.iter().map(|it| it.address.clone()).collect();
            let found = noted.told_apart(answering, false);
            let names = found.iter().map(|it| it.node.http_address());
            let expected = given.iter().map(|it| it.replace("c:3", "y:4151"));
            assert_eq!(names.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
        // The other one has got an address of its own.
        let found = noted.told_apart(vec![a, nsqd("b:1", "z", 4)], true);
        let names: Vec<String> = found.iter().map(|it| it.node.http_address()).collect();
        assert_eq!(names, ["x:4151", "z:4151"]);
    }

    #[test]
    fn a_process_with_two_addresses_counts_once() {
        let both = vec![nsqd("localhost:1", "x", 7), nsqd("127.0.0.1:1", "x", 7)];
        let (found, notes) = told_apart(both, &mut BTreeSet::new());
        assert_eq!(
            (found.len(), &*found[0].other_addresses),
            (1, &["127.0.0.1:1".to_owned()][..])
        );
        assert_eq!(
            notes,
            ["localhost:1 and 127.0.0.1:1 are one nsqd, which counts once (--nsqd-http-address)"]
        );
        // A program that tells no start may be another one.
        let (found, _) = names(vec![nsqd("a:1", "x", 0), nsqd("b:1", "x", 0)]);
        assert_eq!(found, ["a:1", "b:1"]);
        // Twice the same address, without a start.
        let (found, _) = names(vec![nsqd("a:1", "x", 0), nsqd("a:1", "x", 0)]);
        assert_eq!(found, ["x:4151"]);
    }
}
