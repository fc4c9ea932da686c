//! The nsqlookupds: this node tells them which topics and channels it has, and asks them which channels a new topic has
//! elsewhere.
//!
//! ```text
//!   shards ──announce──► thread "lookup": Registry ──REGISTER, PING──► Peer ──► nsqlookupd (TCP)
//!     ▲                                                                 │
//!     │                                              who can be asked ◄─┘
//!     └──── channels ◄── ThreadPool ◄──ask── shards        GET /channels ──► nsqlookupd (HTTP)
//! ```
//!
//! No message and no shard waits for this thread. An nsqlookupd that cannot be reached costs the thread a
//! second now and then. The changes of that time are then told together. An nsqlookupd that was away is
//! told everything. The end of the process does not wait for the thread: the connections close with the
//! process, which is all that nsqlookupd needs to know.

mod command;
mod inquiry;
mod peer;
mod registry;

use crate::config::Config;
use crate::process::Ports;
use crate::thread_pool::{Bounds, ThreadPool};
use command::Command;
use engine_core::Change;
use inquiry::{Inquiry, LastFailure, Source};
use peer::{Node, Peer, SharedInfo};
use program::http_client::{HttpClient, HttpSettings};
use program::{log_debug, log_error, log_info};
use registry::Registry;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use upgrade::ClientConfig;

/// The time between two PINGs, which tell an nsqlookupd that this node is alive.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// Questions to nsqlookupds at the same time: topics that are created together, times nsqlookupds.
const INQUIRIES_MAX: usize = 16;

/// The bounds of the questions to nsqlookupds. A question beyond them fails, as if the nsqlookupd were away. A
/// topic that is deleted and made again while its question waits adds another one.
const INQUIRIES: Bounds = Bounds {
    threads_max: INQUIRIES_MAX,
    waiting_max: 100_000,
    bytes_max: 0,
};

/// The nsqlookupds of this node.
#[derive(Clone)]
pub(crate) struct LookupPeers {
    shared: Arc<Shared>,
}

struct Shared {
    messages: Sender<Message>,
    /// Is told whether there is an nsqlookupd to ask, each time the list changes.
    tell_has_peers: Box<dyn Fn(bool) + Send + Sync>,
    /// The addresses as they were set last, for `/config` and for [`LookupPeers::begin`].
    addresses: Mutex<Option<Vec<String>>>,
    known: Arc<Mutex<Vec<Known>>>,
    pool: ThreadPool,
    http: Arc<HttpClient>,
}

/// One configured nsqlookupd, as far as it is known.
#[derive(Clone)]
struct Known {
    address: String,
    info: SharedInfo,
    /// The time and reason of its last failure to answer over HTTP.
    failure: Arc<Mutex<LastFailure>>,
}

/// The settings of connections to nsqlookupds.
pub(crate) struct LookupSettings {
    /// The questions over HTTP.
    pub(crate) http: HttpSettings,
    /// The TLS of the connections that register; `None` stands for none.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

enum Message {
    Changes(Vec<Change>),
    /// The list of addresses is another one.
    Addresses,
    Stop,
}

impl LookupPeers {
    /// Starts the threads, which talk to nobody before [`LookupPeers::begin`]. `tell_has_peers` is told whether there
    /// is an nsqlookupd to ask, each time the list changes.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn start(
        config: &Config,
        ports: Ports,
        settings: LookupSettings,
        tell_has_peers: impl Fn(bool) + Send + Sync + 'static,
    ) -> io::Result<LookupPeers> {
        let (messages, queue) = channel();
        let known = Arc::new(Mutex::new(Vec::new()));
        let registrar = Registrar {
            node: Node::new(config, ports, settings.tls),
            registry: Registry::default(),
            peers: Vec::new(),
            known: known.clone(),
        };
        Builder::new()
            .name("lookup".to_owned())
            .spawn(move || registrar.run(&queue))?;
        let http = HttpClient::new(HttpSettings {
            idle_connections_max: INQUIRIES_MAX,
            ..settings.http
        });
        Ok(LookupPeers {
            shared: Arc::new(Shared {
                messages,
                tell_has_peers: Box::new(tell_has_peers),
                addresses: Mutex::new(config.lookupd_tcp_addresses.clone()),
                known,
                pool: ThreadPool::start("lookup-http", INQUIRIES)?,
                http: Arc::new(http),
            }),
        })
    }

    /// The addresses of the nsqlookupds as they were set last; `None`: to `null`, which is none.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        lock(&self.shared.addresses).clone()
    }

    /// Replaces the list of nsqlookupds, at once: those not in `addresses` are left, new ones are connected
    /// to in the order of the list, the others notice nothing. Never waits.
    pub(crate) fn set_addresses(&self, addresses: Option<Vec<String>>) {
        *lock(&self.shared.addresses) = addresses.clone();
        self.replace_peers(addresses.unwrap_or_default());
    }

    /// Connects to the nsqlookupds of the configuration, or to those that an operator has set since the shards listen.
    pub(crate) fn begin(&self) {
        self.replace_peers(self.addresses().unwrap_or_default());
    }

    fn replace_peers(&self, addresses: Vec<String>) {
        let has_peers = !addresses.is_empty();
        let mut known = lock(&self.shared.known);
        let mut before = std::mem::take(&mut *known);
        for address in addresses {
            if known.iter().any(|peer| peer.address == address) {
                continue;
            }
            let same = before.iter().position(|peer| peer.address == address);
            let same = same.map(|index| before.swap_remove(index));
            known.push(same.unwrap_or_else(|| Known {
                address,
                info: SharedInfo::default(),
                failure: Arc::default(),
            }));
        }
        drop(known);
        self.send(Message::Addresses);
        (self.shared.tell_has_peers)(has_peers);
    }

    /// Tells every nsqlookupd what came or went, soon. Never waits.
    pub(crate) fn announce(&self, changes: Vec<Change>) {
        self.send(Message::Changes(changes));
    }

    /// Asks every nsqlookupd for the channels of a topic that is new here. Never waits. `answer` gets all channels that
    /// are not ephemeral, on another thread. If nobody can be asked or too many questions wait, this call may run
    /// `answer` itself.
    pub(crate) fn ask(&self, topic: &str, answer: impl FnOnce(Vec<String>) + Send + 'static) {
        let known = lock(&self.shared.known);
        let is_configured = !known.is_empty();
        let sources = known.iter().filter_map(|peer| {
            Some(Source {
                url: peer.info.http_url()?,
                failure: peer.failure.clone(),
            })
        });
        let sources: Vec<Source> = sources.collect();
        drop(known);
        if sources.is_empty() {
            if is_configured {
                log_error!(
                    "no available nsqlookupd to query for channels to pre-create for topic {topic}"
                );
            }
            return answer(Vec::new());
        }
        let (pool, http) = (&self.shared.pool, &self.shared.http);
        Inquiry::start(pool, http, topic, sources, answer);
    }

    /// Ends the connections.
    pub(crate) fn stop(&self) {
        log_info!("LOOKUP: closing");
        self.send(Message::Stop);
    }

    fn send(&self, message: Message) {
        // The thread ends after `stop` only, and then nobody is to be told anything.
        let _ = self.shared.messages.send(message);
    }
}

/// Tells every nsqlookupd what this node has, on a thread of its own.
struct Registrar {
    node: Node,
    registry: Registry,
    peers: Vec<Peer>,
    known: Arc<Mutex<Vec<Known>>>,
}

impl Registrar {
    fn run(mut self, messages: &Receiver<Message>) {
        let mut next_ping = Instant::now() + PING_INTERVAL;
        loop {
            let timeout = match self.peers.is_empty() {
                true => Duration::MAX,
                false => next_ping.saturating_duration_since(Instant::now()),
            };
            match messages.recv_timeout(timeout) {
                Ok(first) => {
                    // All messages that have gathered are told together, so a peer that is away costs one try.
                    let gathered = std::iter::once(first).chain(messages.try_iter());
                    if !self.take(gathered) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            if now >= next_ping {
                next_ping = now + PING_INTERVAL;
                self.ping();
            }
        }
    }

    /// Returns false when that was all.
    fn take(&mut self, messages: impl Iterator<Item = Message>) -> bool {
        let mut commands = Vec::new();
        let mut is_list_new = false;
        for message in messages {
            match message {
                Message::Changes(changes) => {
                    for change in changes {
                        commands.extend(self.registry.apply(change));
                    }
                }
                Message::Addresses => is_list_new = true,
                Message::Stop => return false,
            }
        }
        if !commands.is_empty() {
            for peer in &mut self.peers {
                for command in &commands {
                    log_info!("LOOKUPD({}): {} {command}", peer.address, command.subject());
                }
                peer.tell(&self.node, &self.registry, &commands);
            }
        }
        if is_list_new {
            self.follow_list();
        }
        true
    }

    fn ping(&mut self) {
        for peer in &mut self.peers {
            log_debug!("LOOKUPD({}): sending heartbeat", peer.address);
            peer.tell(&self.node, &self.registry, &[Command::Ping]);
        }
    }

    /// Ends the connections to peers that are no longer on the list, and connects to new ones.
    fn follow_list(&mut self) {
        let known = lock(&self.known);
        let wanted: Vec<Known> = known.iter().cloned().collect();
        drop(known);
        self.peers.retain(|peer| {
            let stays = wanted
                .iter()
                .any(|known| peer.is_of(&known.address, &known.info));
            if !stays {
                log_info!("LOOKUP({}): removing peer", peer.address);
            }
            stays
        });
        for Known { address, info, .. } in wanted {
            if self.peers.iter().any(|peer| peer.is_of(&address, &info)) {
                continue;
            }
            log_info!("LOOKUP({address}): adding peer");
            let mut peer = Peer::new(address, info);
            // Like nsqd, silently: the next ping says why.
            let _ = peer.connect(&self.node, &self.registry);
            self.peers.push(peer);
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
