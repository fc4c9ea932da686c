//! [`ProducerBuilder`]: the settings of a producer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;

use super::discovery::Plan;
use super::node::{Node, Shared};
use super::numbering::Numbering;
use super::permits::Permits;
use super::pool::{Pool, Spread};
use super::{BuildError, Inner, Producer};
use crate::address::{Address, AddressError, Nodes};
use crate::config::Config;
use crate::connection::Settings;
use crate::connector::{Connector, SystemConnector};
use crate::event::{Callback, Client, Event, Events};
use crate::lookupd::Lookupd;
use crate::publisher_id::PublisherId;

/// The publishes that may be without an answer, by default.
const PERMITS: usize = 10_000;
/// The longest wait for answers at the end, by default.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for which a numbered publish waits for its nsqd, by default.
const RESEND_LIMIT: Duration = Duration::from_secs(30);
/// The most permits that a producer can have.
const PERMITS_MAX: usize = 1 << 29;

/// The numbering that the application asked for.
#[derive(Clone, Copy)]
enum WantedNumbers {
    None,
    Automatic,
    Application(PublisherId),
}

/// Builds a [`Producer`].
#[must_use = "a builder does nothing before `build`"]
pub struct ProducerBuilder {
    nodes: Nodes,
    lookupds: Vec<String>,
    config: Config,
    permits: usize,
    is_batching: bool,
    publish_timeout: Option<Duration>,
    flush_timeout: Duration,
    spread: Spread,
    numbers: WantedNumbers,
    resend_limit: Duration,
    connector: Option<Arc<dyn Connector>>,
    events: Option<Callback>,
}

impl ProducerBuilder {
    pub(crate) fn new() -> ProducerBuilder {
        ProducerBuilder {
            nodes: Nodes::default(),
            lookupds: Vec::new(),
            config: Config::default(),
            permits: PERMITS,
            is_batching: true,
            publish_timeout: None,
            flush_timeout: FLUSH_TIMEOUT,
            spread: Spread::default(),
            numbers: WantedNumbers::None,
            resend_limit: RESEND_LIMIT,
            connector: None,
            events: None,
        }
    }

    /// Adds an nsqd: an [`Address`], a socket address, or a text such as `127.0.0.1:4150`. A text that is no address is
    /// an error of [`build`](ProducerBuilder::build).
    pub fn node<A>(mut self, node: A) -> ProducerBuilder
    where
        A: TryInto<Address, Error: Into<AddressError>>,
    {
        self.nodes.add(node);
        self
    }

    /// Adds nsqds, as [`node`](ProducerBuilder::node) does.
    pub fn nodes<A>(mut self, nodes: impl IntoIterator<Item = A>) -> ProducerBuilder
    where
        A: TryInto<Address, Error: Into<AddressError>>,
    {
        nodes.into_iter().for_each(|node| self.nodes.add(node));
        self
    }

    /// Adds an nsqlookupd: `host:port` of its HTTP server, or a URL. All its nodes become nodes of the producer. The
    /// first publish asks, and then a task asks at each `lookupd_poll_interval`. While the producer has no node, and
    /// after a question that failed, the task asks after about 0.1, 0.2, 0.4 ... s.
    pub fn lookupd(mut self, lookupd: impl Into<String>) -> ProducerBuilder {
        self.lookupds.push(lookupd.into());
        self
    }

    /// Adds nsqlookupds.
    pub fn lookupds<L: Into<String>>(
        mut self,
        lookupds: impl IntoIterator<Item = L>,
    ) -> ProducerBuilder {
        self.lookupds.extend(lookupds.into_iter().map(Into::into));
        self
    }

    /// Sets the configuration.
    pub fn config(mut self, config: Config) -> ProducerBuilder {
        self.config = config;
        self
    }

    /// Sets how many publishes may be without an answer. Default 10,000, at most 2^29. An MPUB counts once. A numbered
    /// publish that waits for its node to come back counts, too.
    pub fn permits(mut self, permits: usize) -> ProducerBuilder {
        self.permits = permits;
        self
    }

    /// Sets whether publishes that gather in the output of a connection become one MPUB, of at most 1000 messages and 256
    /// KiB. This is the default. `false` sends each publish by its own command.
    pub fn batching(mut self, batching: bool) -> ProducerBuilder {
        self.is_batching = batching;
        self
    }

    /// Limits the time of a publish: from the call to the answer. Default `None`: an nsqd that is gone is noticed by
    /// its silence, after `read_timeout`.
    pub fn publish_timeout(mut self, publish_timeout: Option<Duration>) -> ProducerBuilder {
        self.publish_timeout = publish_timeout;
        self
    }

    /// Limits the time that [`Producer::flush`] and [`Producer::close`] wait for nsqd's answers. Default 30 s. A
    /// producer whose last clone is dropped waits as long in the background.
    pub fn flush_timeout(mut self, flush_timeout: Duration) -> ProducerBuilder {
        self.flush_timeout = flush_timeout;
        self
    }

    /// Sets how publishes are spread over several nodes.
    pub fn spread(mut self, spread: Spread) -> ProducerBuilder {
        self.spread = spread;
        self
    }

    /// Numbers the messages, so that nsqd recognises those that come again. If a connection is lost before nsqd
    /// has answered, the producer connects to the same nsqd again, and sends the messages with the same numbers. So a
    /// publish fails with an unknown outcome only after [`resend_limit`](ProducerBuilder::resend_limit).
    ///
    /// nsqd needs a rule `--dedup=TOPIC=publisher`. An nsqd without any such rule, and the original, get messages
    /// without numbers: all is as without this setting. A topic without a rule, at an nsqd that has a rule for another
    /// one, stores a message that comes again.
    ///
    /// The producer draws an id for each node. So a later run of the program has other ids, and nsqd does not recognise
    /// messages of an earlier run: [`publisher_id`](ProducerBuilder::publisher_id) is for this. The later of both calls
    /// counts.
    pub fn number_messages(mut self) -> ProducerBuilder {
        self.numbers = WantedNumbers::Automatic;
        self
    }

    /// Sets the id under which the application numbers its messages. Every message needs a number, with
    /// [`publish_numbered`](Producer::publish_numbered) and the like. Messages are sent again as with
    /// [`number_messages`](ProducerBuilder::number_messages).
    pub fn publisher_id(mut self, id: PublisherId) -> ProducerBuilder {
        self.numbers = WantedNumbers::Application(id);
        self
    }

    /// Sets the time for which a numbered publish with an unknown outcome waits for a new connection to its nsqd. The
    /// time begins with the loss of the first connection. Default 30 s. With 0, such a publish fails at once, as one
    /// without a number does.
    pub fn resend_limit(mut self, resend_limit: Duration) -> ProducerBuilder {
        self.resend_limit = resend_limit;
        self
    }

    /// Sets how connections are made. Default: [`SystemConnector`].
    pub fn connector(mut self, connector: impl Connector) -> ProducerBuilder {
        self.connector = Some(Arc::new(connector));
        self
    }

    /// Sets what is called with each event. The callback must not block. Without a callback, and without a subscriber
    /// of `tracing` (feature `tracing`), warnings and errors are written to standard error.
    pub fn events(mut self, events: impl Fn(Event) + Send + Sync + 'static) -> ProducerBuilder {
        self.events = Some(Arc::new(events));
        self
    }

    /// Builds the producer. Connections are made when publishes need them.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn build(self) -> Result<Producer, BuildError> {
        if let Some(wrong) = self.nodes.wrong {
            return Err(BuildError::Address(wrong));
        }
        let nodes = self.nodes.addresses;
        if nodes.is_empty() && self.lookupds.is_empty() {
            return Err(BuildError::NoNodes);
        }
        if !(1..=PERMITS_MAX).contains(&self.permits) {
            return Err(BuildError::Permits(self.permits));
        }
        let config = self.config;
        let settings = Settings::new(&config, None)?;
        let lookupds = self
            .lookupds
            .iter()
            .map(|address| Lookupd::new(address, &config))
            .collect::<Result<Vec<_>, _>>()?;
        let connector = self.connector;
        let connector =
            connector.unwrap_or_else(|| SystemConnector::from_address(config.local_addr));
        let numbering = match self.numbers {
            WantedNumbers::None => Numbering::Off,
            WantedNumbers::Automatic => {
                Numbering::automatic(PublisherId::random().map_err(BuildError::Randomness)?)
            }
            WantedNumbers::Application(id) => Numbering::Application(id),
        };
        let shared = Arc::new(Shared {
            events: Events::new(Client::producer(), self.events),
            settings: Arc::new(settings),
            connector,
            flush_timeout: self.flush_timeout,
            numbering,
            resend_limit: self.resend_limit,
            given_up: Mutex::default(),
        });
        let mut pool = Pool::new(self.spread);
        for address in &nodes {
            pool.add(address, || {
                Arc::new(Node::new(address.clone(), Arc::clone(&shared)))
            });
        }
        let plan = (!lookupds.is_empty()).then(|| Plan {
            lookupds,
            fixed: nodes,
            interval: config.lookupd_poll_interval,
            jitter: config.lookupd_poll_jitter,
        });
        Ok(Producer(Arc::new(Inner {
            shared,
            pool: Mutex::new(pool),
            permits: Permits::new(self.permits),
            is_batching: self.is_batching,
            publish_timeout: self.publish_timeout,
            bytes_max: (config.max_msg_size > 0).then_some(config.max_msg_size as usize),
            discovery: Mutex::new(None),
            plan,
            is_closed: AtomicBool::new(false),
        })))
    }
}
