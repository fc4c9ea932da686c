//! [`Delivery`]: sends one message to one address, or to all addresses.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use parking_lot::Mutex;
use program::log_warn;
use ringq_client::{Address, Message, MessageId};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::config::Config;
use super::endpoint::Endpoint;
use super::http_client::HttpClient;
use crate::destinations::{Destinations, Mode};

/// The most messages of a multicast that are remembered because only some addresses have them. A
/// message takes about 200 bytes.
const PARTIAL_MAX: usize = 10_000;

/// The time without an answer after which a line of the log tells of a request. Usual requests take milliseconds.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// The addresses with their state, which the messages of all topics share.
#[derive(Debug)]
pub(super) struct Delivery {
    client: HttpClient,
    endpoints: Vec<Endpoint>,
    is_multicast: bool,
    /// A permit for each message that may be sent at the same time.
    slots: Semaphore,
    sample: f64,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    destinations: Destinations,
    /// The messages that some addresses have and others refused.
    accepted: Accepted<MessageName>,
    random: Rng,
    /// For each address, true if its last request that was told of or answered was slow.
    is_slow: Vec<bool>,
}

/// The id of a message is unique within its topic on one nsqd.
type MessageName = (Address, String, MessageId);

impl Delivery {
    /// Returns a delivery to the addresses of the command line. `seed` decides the sample, and the
    /// choices of the mode `epsilon-greedy`.
    pub(super) fn new(config: &Config, client: HttpClient, seed: u64) -> Delivery {
        let names: Vec<String> = config.endpoints.iter().map(|e| e.name.clone()).collect();
        let mut random = Rng::with_seed(seed);
        let mode = config.mode.unwrap_or(Mode::RoundRobin);
        let destinations = Destinations::new(&names, mode, config.status_every, random.u64(..));
        Delivery {
            client,
            endpoints: config.endpoints.clone(),
            is_multicast: config.mode.is_none(),
            slots: Semaphore::new(config.flags.concurrency.min(Semaphore::MAX_PERMITS)),
            sample: config.flags.sample,
            began: Instant::now(),
            state: Mutex::new(State {
                destinations,
                accepted: Accepted::new(PARTIAL_MAX),
                random,
                is_slow: vec![false; names.len()],
            }),
        }
    }

    /// Sends a message, unless the sample leaves it out.
    ///
    /// # Errors
    /// The message is to come again: one address does not have it. The error is the reason for the log.
    pub(super) async fn deliver(&self, message: &Message) -> Result<(), String> {
        if self.sample < 1.0 && self.state.lock().random.f64() > self.sample {
            return Ok(());
        }
        // Nobody closes the semaphore, so each message gets its permit. Those that wait longest get permits first.
        let _permit = self.slots.acquire().await.ok();
        let began = Instant::now();
        if self.is_multicast {
            self.send_to_all(message).await?
        } else {
            self.send_to_one(message, began).await?
        }
        let took = began.elapsed();
        self.state.lock().destinations.time_all(took);
        Ok(())
    }

    async fn send_to_one(&self, message: &Message, began: Instant) -> Result<(), String> {
        let now = self.began.elapsed();
        let pick = self.state.lock().destinations.pool.pick(now);
        let place = pick.index;
        let result = self.send(place, message.body()).await;
        let now = self.began.elapsed();
        let took = result.is_ok().then(|| began.elapsed());
        let destinations = &mut self.state.lock().destinations;
        destinations.pool.report(pick, took, now);
        if let Some(took) = took {
            destinations.time_one(place, took);
        }
        result
    }

    /// Sends the message to all addresses in order, except those that have it from an earlier
    /// delivery. A failure does not keep the message from the addresses behind it.
    async fn send_to_all(&self, message: &Message) -> Result<(), String> {
        let name = (
            message.node().clone(),
            message.topic().to_owned(),
            message.id(),
        );
        let mut have = match message.attempts() {
            1 => Vec::new(),
            _ => self.state.lock().accepted.take(&name),
        };
        let mut result = Ok(());
        for place in 0..self.endpoints.len() {
            if have.contains(&place) {
                continue;
            }
            let start = Instant::now();
            match self.send(place, message.body()).await {
                Ok(()) => {
                    have.push(place);
                    let took = start.elapsed();
                    self.state.lock().destinations.time_one(place, took);
                }
                // The first failure is the one that is logged.
                Err(error) => result = result.and(Err(error)),
            }
        }
        if result.is_err() {
            self.state.lock().accepted.put(name, have);
        }
        result
    }

    async fn send(&self, place: usize, body: &Bytes) -> Result<(), String> {
        let endpoint = &self.endpoints[place];
        let address = &endpoint.name;
        let request = endpoint.request(body);
        let request = request
            .map_err(|why| format!("{address}: the URL with the message is invalid: {why}"))?;
        let status = self.watched(place, self.client.send(request)).await;
        let status = status.map_err(|error| format!("{address}: {error}"))?;
        if endpoint.accepts(status) {
            Ok(())
        } else {
            Err(format!(
                "got status code {} from {address}",
                status.as_u16()
            ))
        }
    }

    /// Waits for the end of a request. The first request to an address that is slow has a line in the log, and so has the
    /// first one that is slow after a quick one.
    async fn watched<T>(&self, place: usize, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        if let Ok(result) = timeout(SLOW_AFTER, &mut request).await {
            self.state.lock().is_slow[place] = false;
            return result;
        }
        let was_slow = std::mem::replace(&mut self.state.lock().is_slow[place], true);
        if !was_slow {
            let address = &self.endpoints[place].name;
            let limit = match self.client.timeout {
                Some(limit) => format!("the request fails after {limit:?}"),
                None => "the request has no limit".to_owned(),
            };
            log_warn!(
                "{address}: no answer to a request for {SLOW_AFTER:?}; {limit} (--http-client-request-timeout)"
            );
        }
        request.await
    }
}

/// For each message of a multicast that failed in part, the places of the addresses that have it.
///
/// When the message comes again, only the other addresses get it. The memory is bounded: if it is
/// full, the oldest message is forgotten, and all addresses get that message again.
///
/// Invariant: `order` has each key of `places` once.
#[derive(Debug)]
pub(super) struct Accepted<K> {
    places: HashMap<K, Vec<usize>>,
    order: VecDeque<K>,
    messages_max: usize,
}

impl<K: Clone + Eq + Hash> Accepted<K> {
    /// Returns an empty memory for at most `messages_max` messages.
    pub(super) fn new(messages_max: usize) -> Accepted<K> {
        Accepted {
            places: HashMap::new(),
            order: VecDeque::new(),
            messages_max,
        }
    }

    /// Removes and returns the places that have the message.
    pub(super) fn take(&mut self, message: &K) -> Vec<usize> {
        let Some(places) = self.places.remove(message) else {
            return Vec::new();
        };
        self.order.retain(|key| key != message);
        places
    }

    /// Remembers the places that have a message, for its next delivery.
    pub(super) fn put(&mut self, message: K, places: Vec<usize>) {
        if places.is_empty() {
            return;
        }
        if self.places.insert(message.clone(), places).is_none() {
            self.order.push_back(message);
        }
        if self.order.len() > self.messages_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
