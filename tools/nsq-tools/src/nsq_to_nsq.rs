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
mod key;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::future::join_all;
use program::log::Level;
use program::{log_info, log_warn};
use ringq_client::{Address, Consumer, Message, Producer};
use tokio::task::JoinSet;

use crate::consuming::{Consuming, log_event};
use crate::process;
use crate::progress::{self, Figures};
use crate::stopping::{StopSignals, close, shut_down, within_stop_time};
use config::Config;
pub use config::NSQ_TO_NSQ;
use forwarding::Forwarding;

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::run_tool(
        Config::from_args(args),
        |config| (Level::Info, &config.log_style),
        relay,
    )
}

/// Forwards messages until a signal comes. The error is the reason for the user.
async fn relay(config: Config, mut signals: StopSignals) -> Result<(), String> {
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
    if let Some(warning) = forwarding.warning() {
        log_info!("{warning}");
    }
    tokio::spawn(warn_of_unreachable(
        producer.clone(),
        config.destinations.clone(),
    ));
    let consumers = tokio::select! {
        consumers = connect(&config) => consumers?,
        () = signals.wait() => return Ok(()),
    };
    let controls: Vec<_> = consumers.iter().map(Consumer::control).collect();
    // Each message in flight has a handler, so the publishes are as many as the messages.
    let concurrency = config.consumer.max_in_flight as usize;
    let mut topics = JoinSet::new();
    for consumer in consumers {
        let forwarding = Arc::clone(&forwarding);
        topics.spawn(consumer.run(concurrency, move |message: Message| {
            let forwarding = Arc::clone(&forwarding);
            async move { forwarding.forward(&message).await }
        }));
    }
    let until_stop = async {
        signals.wait().await;
        // The topics end with their consumers, unless a publish takes longer than the stop may take.
        tokio::select! {
            _ = topics.join_all() => {}
            () = shut_down(controls.clone()) => {}
        }
        within_stop_time(close(&producer)).await;
    };
    progress::beside(until_stop, || Figures::of_consumers(&controls)).await;
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

/// Connects one consumer for each topic. An nsqd that cannot be reached is an error.
async fn connect(config: &Config) -> Result<Vec<Consumer>, String> {
    let consumer = config.consumer.clone();
    let consuming = Consuming::start(&config.sources, consumer, config.dedup.as_ref()).await?;
    consuming
        .connect(&config.flags.topics, &config.flags.channel, |builder| {
            builder
        })
        .await
}
