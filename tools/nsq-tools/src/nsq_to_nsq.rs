//! `nsq_to_nsq`: publishes messages of topics to other nsqds.
//!
//! ```text
//!   Consumer ─Message─► Filter ─body─► Destinations ─place─► Producer ─PUB, MPUB─► nsqd
//!      ▲                                    ▲                   │
//!      └── FIN or REQ ──────────────────────┴── OK or error ◄───┘
//! ```
//!
//! A source message is finished after a destination has confirmed it. So no message is lost between
//! them, and a message may be copied twice.

mod config;
mod filter;
mod forwarding;
mod json;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::future::join_all;
use program::log_warn;
use ringq_client::{Address, Message, Producer};

use crate::consuming::{log_event, relay};
use crate::process::{self, StopSignals, close, within_stop_time};
use config::Config;
pub use config::NSQ_TO_NSQ;
use forwarding::Forwarding;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::run_tool(&NSQ_TO_NSQ, args, Config::new, copy)
}

/// Forwards messages until a signal comes. The error is the reason for the user.
async fn copy(config: Config, mut signals: StopSignals) -> Result<(), String> {
    let producer = Producer::builder()
        .nodes(config.destinations.iter().cloned())
        .config(config.producer.clone())
        .events(|event| log_event(&event))
        .build()
        .map_err(|error| error.to_string())?;
    let forwarding = Arc::new(Forwarding::new(
        &config,
        producer.clone(),
        fastrand::u64(..),
    ));
    tokio::spawn(warn_of_unreachable(
        producer.clone(),
        config.destinations.clone(),
    ));
    let (topics, channel) = (&config.flags.topics, &config.flags.channel);
    let consumers = tokio::select! {
        consumers = config.consumer.connect(topics, channel, |builder| builder) => consumers?,
        () = signals.wait() => return Ok(()),
    };
    // Each message in flight has a handler, so the publishes are as many as the messages.
    let concurrency = config.consumer.client.max_in_flight as usize;
    let forward = move |message: Message| {
        let forwarding = Arc::clone(&forwarding);
        async move { forwarding.forward(&message).await }
    };
    let end = within_stop_time(close(&producer));
    relay(consumers, concurrency, forward, &mut signals, end).await;
    Ok(())
}

/// Connects to the destinations before a message comes, and logs a warning for each that cannot be reached. The first message
/// may come hours later.
async fn warn_of_unreachable(producer: Producer, destinations: Vec<Address>) {
    let looks = destinations.iter().map(async |destination| {
        if let Err(error) = producer.ping_on(destination).await {
            log_warn!(
                "the destination {destination} cannot be reached now, and its messages come again until it can: {error}"
            );
        }
    });
    join_all(looks).await;
}
