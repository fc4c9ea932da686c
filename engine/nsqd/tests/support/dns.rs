//! A name server of the test: answers questions about A and SRV records over UDP.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use super::namespace::replace_file;

const TYPE_A: u16 = 1;
const TYPE_SRV: u16 = 33;
/// The flags of an answer: the server recurses, and the question wanted that.
const ANSWER: u16 = 0x8180;
const NXDOMAIN: u16 = 3;

/// A name server. It knows no name at first, and answers NXDOMAIN.
#[derive(Clone)]
pub struct Dns {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    records: BTreeMap<(String, u16), Vec<Vec<u8>>>,
    is_silent: bool,
    asked: Vec<String>,
}

impl Dns {
    /// Starts a name server on port 53 of `ip`, and makes it the one of the calling thread, and of everything that the
    /// thread starts. The thread has mounts of its own. `options` are those of `/etc/resolv.conf`, and `hosts` is the
    /// content of `/etc/hosts`. The files are in `directory`.
    pub fn start(ip: Ipv4Addr, options: &str, hosts: &str, directory: &Path) -> Dns {
        let resolv_conf = format!("nameserver {ip}\nsearch example\noptions {options}\n");
        for (path, content) in [
            ("/etc/hosts", hosts),
            ("/etc/resolv.conf", &resolv_conf),
            ("/etc/nsswitch.conf", "hosts: files dns\n"),
        ] {
            // Without nsswitch.conf, the C library does the same.
            if std::fs::exists(path).expect("/etc can be read") {
                replace_file(path, content, directory);
            }
        }
        let socket = UdpSocket::bind((ip, 53)).expect("the network is the test's own");
        let dns = Dns {
            state: Arc::default(),
        };
        let serving = dns.clone();
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((bytes, client)) = socket.recv_from(&mut buffer) {
                if let Some(answer) = serving.answer(&buffer[..bytes]) {
                    // A client that has gone needs no answer.
                    let _ = socket.send_to(&answer, client);
                }
            }
        });
        dns
    }

    /// Sets the IPv4 addresses of a name. No address means that the name is unknown.
    pub fn set_a(&self, name: &str, addresses: &[&str]) {
        let parse = |text: &&str| text.parse::<Ipv4Addr>().expect("an address");
        let records = addresses.iter().map(parse);
        self.set(name, TYPE_A, records.map(|ip| ip.octets().to_vec()));
    }

    /// Sets the SRV records of a name: targets with their ports.
    pub fn set_srv(&self, name: &str, targets: &[(&str, u16)]) {
        let records = targets.iter().map(|(target, port)| {
            let priority_and_weight = [0; 4];
            let mut record = [&priority_and_weight[..], &port.to_be_bytes()].concat();
            for label in target.split('.') {
                record.push(label.len() as u8);
                record.extend(label.as_bytes());
            }
            record.push(0);
            record
        });
        self.set(name, TYPE_SRV, records);
    }

    /// Lets the server answer nothing, or answer again.
    pub fn set_silent(&self, is_silent: bool) {
        self.state.lock().is_silent = is_silent;
    }

    /// Returns the names of all questions so far.
    pub fn asked(&self) -> Vec<String> {
        self.state.lock().asked.clone()
    }

    fn set(&self, name: &str, record_type: u16, records: impl Iterator<Item = Vec<u8>>) {
        let records = records.collect::<Vec<_>>();
        let key = (name.to_owned(), record_type);
        let mut state = self.state.lock();
        if records.is_empty() {
            state.records.remove(&key)
        } else {
            state.records.insert(key, records)
        };
    }

    /// Returns the answer to a question, or `None` while the server is silent.
    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let mut labels = Vec::new();
        let mut at = 12;
        while question[at] != 0 {
            let end = at + 1 + usize::from(question[at]);
            labels.push(String::from_utf8_lossy(&question[at + 1..end]).to_lowercase());
            at = end;
        }
        let name = labels.join(".");
        let record_type = u16::from_be_bytes([question[at + 1], question[at + 2]]);
        let mut state = self.state.lock();
        state.asked.push(name.clone());
        if state.is_silent {
            return None;
        }
        let is_known = state.records.keys().any(|(known, _)| *known == name);
        let flags = if is_known { ANSWER } else { ANSWER | NXDOMAIN };
        let records = state.records.get(&(name, record_type));
        let records = records.map(Vec::as_slice).unwrap_or_default();
        let mut answer = question[..2].to_vec();
        for number in [flags, 1, records.len() as u16, 0, 0] {
            answer.extend(number.to_be_bytes());
        }
        answer.extend(&question[12..at + 5]);
        for record in records {
            // The name of the question, the type, the class IN, a lifetime of 0 s.
            answer.extend([0xc0, 12]);
            answer.extend(record_type.to_be_bytes());
            answer.extend([0, 1, 0, 0, 0, 0]);
            answer.extend((record.len() as u16).to_be_bytes());
            answer.extend(record);
        }
        Some(answer)
    }
}
