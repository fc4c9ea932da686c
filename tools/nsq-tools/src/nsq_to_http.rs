//! `nsq_to_http`: makes an HTTP request for each message.
//!
//! ```text
//!   one consumer for each topic
//!   Consumer ─Message─► Delivery ─► Destinations   which address, how long the last requests took
//!                          │
//!                          ├─► Endpoint ─► Hop      the request, and those behind redirects
//!                          └─► HttpClient           connections, TLS, time limits
//! ```

mod config;
mod delivery;
mod endpoint;
mod http_client;
mod request;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ringq_client::{AutoTouch, Consumer, Message};

use crate::consuming::relay;
use crate::process::{self, StopSignals};
use config::Config;
pub use config::NSQ_TO_HTTP;
use delivery::Delivery;
use http_client::HttpClient;

/// The time for which a message is touched beyond the limits of its requests, on a busy machine.
const TOUCH_MARGIN: Duration = Duration::from_secs(60);

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    process::run_tool(&NSQ_TO_HTTP, args, Config::new, send)
}

/// Sends messages until a signal comes. The error is the reason for the user.
async fn send(config: Config, mut signals: StopSignals) -> Result<(), String> {
    let has_tls = config.endpoints.iter().any(|endpoint| endpoint.has_tls());
    let client = HttpClient::new(
        config.headers.clone(),
        config.flags.connect_timeout,
        config.flags.request_timeout,
        has_tls,
    )
    .map_err(|error| format!("cannot use the certificates of the system: {error}"))?;
    let delivery = Arc::new(Delivery::new(&config, client, fastrand::u64(..)));
    let consumers = tokio::select! {
        consumers = connect(&config) => consumers?,
        () = signals.wait() => return Ok(()),
    };
    let deliver = move |message: Message| {
        let delivery = Arc::clone(&delivery);
        async move { delivery.deliver(&message).await }
    };
    let concurrency = config.flags.concurrency;
    relay(consumers, concurrency, deliver, &mut signals, async {}).await;
    Ok(())
}

/// Connects one consumer for each topic. An nsqd that cannot be reached is an error.
async fn connect(config: &Config) -> Result<Vec<Consumer>, String> {
    let (flags, touches) = (&config.flags, touches(config));
    let connecting = config
        .consumer
        .connect(&flags.topics, &flags.channel, |builder| {
            builder.auto_touch(Some(touches))
        });
    connecting.await
}

/// Returns how long a message is touched: as long as the messages before it and its own requests may
/// take.
fn touches(config: &Config) -> AutoTouch {
    let requests = match config.mode {
        Some(_) => 1,
        None => config.endpoints.len(),
    };
    // The messages in flight of all topics are sent in this many rounds.
    let in_flight =
        (config.consumer.client.max_in_flight as usize).saturating_mul(config.flags.topics.len());
    let rounds = in_flight.div_ceil(config.flags.concurrency);
    let count = u32::try_from(requests.saturating_mul(rounds)).unwrap_or(u32::MAX);
    let time = config
        .flags
        .request_timeout
        .map(|time| time.saturating_mul(count));
    AutoTouch {
        limit: time
            .unwrap_or(Duration::MAX / 2)
            .saturating_add(TOUCH_MARGIN),
    }
}
