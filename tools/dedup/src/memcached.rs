//! [`Memcached`]: the states of messages in memcached, for several consumers of one channel.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_memcached::{AsciiProtocol, Client, Error, Status};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::key::{Fingerprint, KeyHasher};

/// The value in memcached for a message that was handled. A token of a lease never has this value.
const DONE: &str = "done";

/// The longest window: 30 days. memcached takes a longer life as a date, so the longest life is 1 s shorter than this.
const WINDOW_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The shortest lease and window.
const LIFE_MIN: Duration = Duration::from_secs(1);

/// The most tries without an answer that are remembered for certain. A try takes about 50 bytes.
const TRIES_MAX: usize = 10_000;

/// Returns a life in the seconds of memcached: never 0, which means for ever.
///
/// A life that is too short makes duplicates, so it is rounded up, and one second is added: the clock of memcached
/// ticks once per second, and a life of n seconds ends with the nth tick.
fn life(duration: Duration) -> i64 {
    let seconds = duration.as_nanos().div_ceil(1_000_000_000) + 1;
    let longest = u128::from(WINDOW_MAX.as_secs() - 1);
    seconds.clamp(1, longest) as i64
}

/// Returns the address in the form that the library understands in all cases. `None` if it is no address.
///
/// Without a scheme, the library takes the host for one. So it refuses IP addresses, and names with an underscore. It
/// opens no IPv6 sockets.
fn url(address: &str) -> Option<String> {
    if let Some(path) = address.strip_prefix("unix://") {
        return path.starts_with('/').then(|| address.to_owned());
    }
    let address = address.strip_prefix("tcp://").unwrap_or(address);
    let (host, port) = address.rsplit_once(':')?;
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_host = !host.is_empty() && host.bytes().all(is_of_host);
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    (is_host && is_port).then(|| format!("tcp://{address}"))
}

/// The options of a [`Memcached`] store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemcachedOptions {
    /// The address: `host:port` with a name or an IPv4 address, or `unix:///path`.
    pub address: String,
    /// The beginning of all keys, so that several topics and channels can share one memcached. At most 200 bytes,
    /// without spaces and control characters.
    pub prefix: String,
    /// The time after which another consumer may handle a message whose consumer has not answered, at least 1 s.
    /// `None`: the message timeout of the connection, which comes with each check. Rounded up to whole seconds, and one
    /// more.
    pub lease: Option<Duration>,
    /// The time for which a handled message is remembered, from 1 s to 30 days. Rounded up to whole seconds, and one
    /// more.
    pub window: Duration,
    /// The longest time that a request may take.
    pub timeout: Duration,
    /// The most connections that the store opens, and so the most requests at a time.
    pub connections: usize,
    /// The hasher of the keys. All consumers need the same secret.
    pub hasher: KeyHasher,
}

impl MemcachedOptions {
    /// Returns options for this address: leases as long as the message timeout, a window of 1 h, a timeout of 1 s, 8
    /// connections, and a secret of zeros.
    #[must_use]
    pub fn new(address: &str) -> MemcachedOptions {
        MemcachedOptions {
            address: address.to_owned(),
            prefix: "nsq:".to_owned(),
            lease: None,
            window: Duration::from_secs(3600),
            timeout: Duration::from_secs(1),
            connections: 8,
            hasher: KeyHasher::new([0; 16]),
        }
    }
}

/// A request that memcached did not answer. If it was a check, the message is neither fresh nor done: the caller
/// requeues it, or handles it and risks a duplicate.
#[derive(Debug)]
pub enum StoreError {
    /// memcached did not answer in time.
    Timeout(Duration),
    /// The connection failed, or memcached refused the command.
    Failed(Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Timeout(after) => {
                write!(
                    f,
                    "memcached has not answered within {after:?}; check its address and its load"
                )
            }
            StoreError::Failed(error) => write!(f, "memcached cannot be used: {error}"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Failed(error) => Some(error),
            StoreError::Timeout(_) => None,
        }
    }
}

/// An option with which no [`Memcached`] store can be made. The text says which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemcachedOptionError(&'static str);

impl fmt::Display for MemcachedOptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for MemcachedOptionError {}

/// The states of messages in memcached. Several consumers of one channel, on several machines, share them. Clones share
/// the connections.
///
/// ```text
///   begin    add key token, life = lease       stored: Fresh.  Otherwise get: "done" is Done, a token is InProgress
///   commit   set key "done", life = window
///   release  get, and delete if the token is ours: the next copy is fresh
/// ```
///
/// A lost lease, a lost race and a memcached that restarts or evicts make duplicates, and never a loss: a message is
/// done only after a consumer has said so. Like [`InverseBloom`](crate::InverseBloom), the store compares 128-bit
/// fingerprints.
#[derive(Clone, Debug)]
pub struct Memcached {
    shared: Arc<Shared>,
}

struct Shared {
    options: MemcachedOptions,
    /// The address, as the library understands it.
    url: String,
    /// Connections that no request uses. A connection whose request failed or was dropped does not come back.
    idle: Mutex<Vec<Client>>,
    permits: Semaphore,
    /// A random number, which tells the leases of this store from those of other consumers.
    id: u64,
    leases: AtomicU64,
    tries: Mutex<Tries>,
}

/// The numbers of tries to lease a key that memcached has not answered. It may carry a try out later, so the next try of
/// the same key has the same number, and finds its own lease. The oldest tries are forgotten: their keys stay leased until
/// the leases end.
#[derive(Debug, Default)]
struct Tries {
    recent: HashMap<Fingerprint, u64>,
    older: HashMap<Fingerprint, u64>,
}

impl Tries {
    fn keep(&mut self, key: Fingerprint, number: u64) {
        if self.recent.len() >= TRIES_MAX {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(key, number);
    }

    fn take(&mut self, key: Fingerprint) -> Option<u64> {
        self.recent.remove(&key).or_else(|| self.older.remove(&key))
    }
}

/// A try to lease a key. Without an answer, its number is kept, also if the future of the request is dropped.
struct Try<'a> {
    shared: &'a Shared,
    key: Fingerprint,
    number: u64,
    is_answered: bool,
}

impl Try<'_> {
    fn new(shared: &Shared, key: Fingerprint) -> Try<'_> {
        let kept = shared.tries.lock().take(key);
        Try {
            shared,
            key,
            number: kept.unwrap_or_else(|| shared.leases.fetch_add(1, Ordering::Relaxed)),
            is_answered: false,
        }
    }

    fn token(&self) -> String {
        format!("{:016x}-{:x}", self.shared.id, self.number)
    }
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.tries.lock().keep(self.key, self.number);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The answer of [`Memcached::begin`]. The words mean the same as in [`Begin`](crate::Begin).
#[derive(Debug)]
pub enum SharedBegin {
    /// The caller handles the message, and then commits the lease.
    Fresh(Lease),
    /// A consumer is handling a copy, or has died with it and its lease has not ended.
    InProgress,
    /// A copy was handled.
    Done,
}

impl Memcached {
    /// Makes a store. It connects with the first request.
    ///
    /// # Errors
    /// If an option has no meaning.
    pub fn new(options: MemcachedOptions) -> Result<Memcached, MemcachedOptionError> {
        let wrong = [
            (
                options.lease.is_some_and(|lease| lease < LIFE_MIN),
                "the lease must be at least 1 s",
            ),
            (options.window < LIFE_MIN, "the window must be at least 1 s"),
            (
                options.lease.is_some_and(|lease| options.window < lease),
                "the window must be at least as long as the lease",
            ),
            (
                options.window > WINDOW_MAX,
                "the window must be at most 30 days",
            ),
            (
                options.timeout.is_zero(),
                "the timeout of a request must be above zero",
            ),
            (
                options.connections == 0,
                "the store needs at least one connection",
            ),
            (
                options.prefix.len() > 200,
                "the prefix must have at most 200 bytes",
            ),
            (
                options
                    .prefix
                    .bytes()
                    .any(|byte| byte <= b' ' || byte == 0x7f),
                "the prefix must have no spaces and no control characters",
            ),
        ];
        if let Some((_, what)) = wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            return Err(MemcachedOptionError(what));
        }
        let url = url(&options.address).ok_or(MemcachedOptionError(
            "the address must be host:port with a name or an IPv4 address, or unix:///path",
        ))?;
        let shared = Shared {
            url,
            permits: Semaphore::new(options.connections),
            idle: Mutex::new(Vec::new()),
            id: RandomState::new().build_hasher().finish(),
            leases: AtomicU64::new(0),
            tries: Mutex::default(),
            options,
        };
        Ok(Memcached {
            shared: Arc::new(shared),
        })
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &MemcachedOptions {
        &self.shared.options
    }

    /// Finds out if memcached answers.
    ///
    /// # Errors
    /// If memcached is unavailable.
    pub async fn check(&self) -> Result<(), StoreError> {
        // Nothing has this key.
        let name = format!("{}check", self.shared.options.prefix);
        self.send(&name, Request::Get).await.map(drop)
    }

    /// Asks about the message with this key, and leases the key if the message is fresh. `msg_timeout` is the message
    /// timeout of the connection over which the message came: the lease, unless the options have one. The future may be
    /// dropped: then the key is leased or not. The next call with this key takes such a lease over, and so does the next
    /// call after an error. Otherwise, the lease ends by itself.
    ///
    /// # Errors
    /// If memcached is unavailable.
    pub async fn begin(
        &self,
        key: Fingerprint,
        msg_timeout: Duration,
    ) -> Result<SharedBegin, StoreError> {
        let mut this_try = Try::new(&self.shared, key);
        let begun = self.lease(key, this_try.token(), msg_timeout).await?;
        this_try.is_answered = true;
        Ok(begun)
    }

    async fn lease(
        &self,
        key: Fingerprint,
        token: String,
        msg_timeout: Duration,
    ) -> Result<SharedBegin, StoreError> {
        let name = self.name(key);
        let life = life(self.shared.options.lease.unwrap_or(msg_timeout));
        // A state may end between the two requests. Then the key is free, and one more try takes it.
        for _ in 0..2 {
            let state = match self.send(&name, Request::Add(&token, life)).await {
                Ok(_) => Some(token.clone().into_bytes()),
                Err(StoreError::Failed(Error::Protocol(Status::NotStored))) => {
                    self.send(&name, Request::Get).await?
                }
                Err(error) => return Err(error),
            };
            match state {
                Some(state) if state == DONE.as_bytes() => return Ok(SharedBegin::Done),
                // This also happens if the connection ended after the lease was stored, and the request was sent again, or
                // if memcached has carried out an earlier try that it had not answered.
                Some(state) if state == token.as_bytes() => {
                    return Ok(SharedBegin::Fresh(Lease {
                        store: self.clone(),
                        name,
                        token,
                    }));
                }
                Some(_) => return Ok(SharedBegin::InProgress),
                None => {}
            }
        }
        Ok(SharedBegin::InProgress)
    }

    fn name(&self, key: Fingerprint) -> String {
        format!("{}{:032x}", self.shared.options.prefix, key.0)
    }

    /// Sends a request about a key over an idle connection. If there is none, or if it breaks, sends it over a new one.
    /// Returns the value, if the request asks for one.
    async fn send(&self, name: &str, request: Request<'_>) -> Result<Option<Vec<u8>>, StoreError> {
        let shared = &*self.shared;
        let limit = shared.options.timeout;
        let sent = timeout(limit, async {
            let permit = shared.permits.acquire().await;
            let _permit = permit.expect("the semaphore is never closed");
            // A client whose request was not answered whole is closed.
            if let Some(mut idle) = shared.take_idle() {
                let answer = request.put(&mut idle, name).await;
                if !idle.is_closed() {
                    shared.give_back(idle);
                    return answer;
                }
                // memcached, or a firewall, has ended the connection since its last request.
            }
            let mut new = Client::new(&shared.url).await?;
            let answer = request.put(&mut new, name).await;
            if !new.is_closed() {
                shared.give_back(new);
            }
            answer
        });
        match sent.await {
            Ok(answer) => answer.map_err(StoreError::Failed),
            Err(_) => Err(StoreError::Timeout(limit)),
        }
    }
}

/// A request about a key, with the value and its life in seconds. Sent twice, a request has the same effect as once.
#[derive(Clone, Copy, Debug)]
enum Request<'a> {
    Add(&'a str, i64),
    Set(&'a str, i64),
    Get,
    Delete,
}

impl Request<'_> {
    async fn put(self, client: &mut Client, name: &str) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Request::Add(value, life) => client.add(name, value, Some(life), None).await?,
            Request::Set(value, life) => client.set(name, value, Some(life), None).await?,
            Request::Get => return Ok(client.get(name).await?.and_then(|value| value.data)),
            Request::Delete => client.delete(name).await?,
        }
        Ok(None)
    }
}

impl Shared {
    fn take_idle(&self) -> Option<Client> {
        self.idle.lock().pop()
    }

    fn give_back(&self, client: Client) {
        self.idle.lock().push(client);
    }
}

/// The claim on one key in memcached, until the lease ends.
///
/// A lease that is dropped without [`commit`](Lease::commit) or [`release`](Lease::release) ends by itself, after the
/// time of the lease. Until then, copies of the message are in progress.
#[derive(Debug)]
pub struct Lease {
    store: Memcached,
    name: String,
    token: String,
}

impl Lease {
    /// Records that the message was handled. Call it after the work is done, and before the FIN.
    ///
    /// # Errors
    /// If memcached is unavailable. Then a copy of the message is handled again.
    pub async fn commit(self) -> Result<(), StoreError> {
        let life = life(self.store.shared.options.window);
        let done = Request::Set(DONE, life);
        self.store.send(&self.name, done).await.map(drop)
    }

    /// Releases the key: the next copy of the message is fresh.
    ///
    /// # Errors
    /// If memcached is unavailable. Then the lease ends by itself.
    pub async fn release(self) -> Result<(), StoreError> {
        // The lease may have ended, and another consumer may have the message. Its state stays.
        let state = self.store.send(&self.name, Request::Get).await?;
        if state.as_deref() != Some(self.token.as_bytes()) {
            return Ok(());
        }
        match self.store.send(&self.name, Request::Delete).await {
            Err(StoreError::Failed(Error::Protocol(Status::NotFound))) => Ok(()),
            other => other.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_tries_are_forgotten() {
        let mut tries = Tries::default();
        let key = |number: u64| Fingerprint(number.into());
        for number in 0..3 * TRIES_MAX as u64 {
            tries.keep(key(number), number);
        }
        assert_eq!(tries.take(key(0)), None);
        for number in [TRIES_MAX as u64, 3 * TRIES_MAX as u64 - 1] {
            assert_eq!(tries.take(key(number)), Some(number));
            assert_eq!(tries.take(key(number)), None);
        }
        assert!(tries.recent.len() + tries.older.len() < 2 * TRIES_MAX);
    }
}
