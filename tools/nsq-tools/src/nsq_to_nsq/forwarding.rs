//! [`Forwarding`]: filters one message, and publishes it at a destination.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use program::log::Level;
use program::{log_error, log_repeated, log_warn};
use ringq_client::{Address, GivenUp, Message, Producer, PublishError, Requeue};

use super::config::Config;
use super::filter::{Filter, Filtered, Key, Ranking};
use crate::destinations::{Destinations, Pick};

/// The least deliveries of a message without the required field. After these, no delivery helps, so the message is
/// finished.
const LACKING_ATTEMPTS: u16 = 5;

/// The bounds of the random delay of a message that a destination refuses because of its size, in seconds. Somebody has to
/// raise a limit. Each try ends a connection, so messages that were refused together do not come back together.
const REFUSED_DELAY_S: RangeInclusive<u64> = 10 * 60..=20 * 60;

/// The destinations with their state, which the messages of all topics share.
#[derive(Debug)]
pub(super) struct Forwarding {
    producer: Producer,
    addresses: Vec<Address>,
    /// `None` means the topic of the source.
    topic: Option<String>,
    filter: Filter,
    /// The most deliveries of a message without the required field.
    lacking_attempts: u16,
    key: Option<(Key, Ranking)>,
    began: Instant,
    destinations: Mutex<Destinations>,
}

impl Forwarding {
    /// Returns a forwarding to the destinations of the command line, which `producer` has as nodes.
    /// `seed` decides the choices of the mode `epsilon-greedy`.
    pub(super) fn new(config: &Config, producer: Producer, seed: u64) -> Forwarding {
        let names: Vec<String> = config.destinations.iter().map(Address::to_string).collect();
        let key = config.key.clone().map(|key| {
            let ranking = Ranking::new(names.iter().map(String::as_str));
            (key, ranking)
        });
        let destinations = Destinations::new(&names, config.mode, config.status_every, seed);
        Forwarding {
            producer,
            addresses: config.destinations.clone(),
            topic: config.destination_topic.clone(),
            filter: config.filter.clone(),
            lacking_attempts: config.consumer.client.max_attempts.max(LACKING_ATTEMPTS),
            key,
            began: Instant::now(),
            destinations: Mutex::new(destinations),
        }
    }

    /// Publishes a message, unless the filter drops it. `Ok` means that the message is done.
    ///
    /// # Errors
    /// The message is to come again. The error is the reason for the log.
    pub(super) async fn forward(&self, message: &Message) -> Result<(), String> {
        let body = match self.filter.apply(message.body()) {
            Filtered::Forward(body) => body,
            Filtered::Unwanted => return Ok(()),
            Filtered::NotAnObject => {
                let body = String::from_utf8_lossy(message.body());
                log_error!("ERROR: Unable to decode json: {body}");
                return Ok(());
            }
            Filtered::LacksField if message.attempts() > self.lacking_attempts => {
                log_warn!("{}", GivenUp::from(message));
                return Ok(());
            }
            Filtered::LacksField => {
                let why = "missing field to check required value".to_owned();
                log_repeated!(Level::Error, why.clone(), "ERROR: {why}");
                return Err(why);
            }
        };
        let began = Instant::now();
        let pick = self.choose(message.body());
        let result = self.publish(pick.index, message.topic(), body).await;
        let is_message_refused = result.as_ref().is_err_and(PublishError::is_about_message);
        self.report(pick, result.is_ok() || is_message_refused, began.elapsed());
        match result {
            // The destination works, so neither it nor the other messages wait: the producer has sent those behind this one again.
            Err(error) if is_message_refused => {
                let (id, bytes) = (message.id(), message.body().len());
                let cause = format!("{} refuses messages", message.topic());
                log_repeated!(
                    Level::Error,
                    cause,
                    "ERROR: message {id} of {bytes} bytes stays in {}: {error}",
                    message.topic()
                );
                let delay = Duration::from_secs(fastrand::u64(REFUSED_DELAY_S));
                drop(message.requeue_without_backoff(Requeue::After(delay)));
                Ok(())
            }
            result => result.map_err(|error| error.to_string()),
        }
    }

    /// Chooses the destination: by the key of the message, or by the mode if there is no key.
    fn choose(&self, body: &Bytes) -> Pick {
        let ranking = self.key.as_ref().and_then(|(key, ranking)| {
            let key = key.of(body)?;
            Some(ranking.of(&key))
        });
        let now = self.began.elapsed();
        let mut destinations = self.destinations.lock();
        match ranking {
            Some(ranking) => destinations.pool.pick_ranked(&ranking, now),
            None => destinations.pool.pick(now),
        }
    }

    async fn publish(&self, place: usize, topic: &str, body: Bytes) -> Result<(), PublishError> {
        let topic = self.topic.as_deref().unwrap_or(topic);
        let published = self
            .producer
            .publish_on(&self.addresses[place], topic, body);
        published.await.map(drop)
    }

    fn report(&self, pick: Pick, is_success: bool, time: Duration) {
        let now = self.began.elapsed();
        let mut destinations = self.destinations.lock();
        destinations.time_one(pick.index, time);
        destinations.time_all(time);
        let success = is_success.then_some(time);
        destinations.pool.report(pick, success, now);
    }
}
