//! [`run`]: from the consumer to the table, and from the table to the state file.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use program::{log_error, log_info, log_repeated, log_warn};
use ringq_client::Message;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use super::config::{Config, NSQ_FORGET};
use super::distribution::Seconds;
use super::field;
use super::http::{self, Api};
use super::state_file;
use super::table::ForgetTable;
use crate::consuming::Consuming;
use crate::listening::listen;
use crate::stopping::{StopSignals, shut_down};

/// The longest time that HTTP clients may take for their last answers.
const HTTP_STOP: Duration = Duration::from_secs(2);

/// Counts until a signal comes. The error is the text for the user.
pub(super) async fn run(config: &Config, mut signals: StopSignals) -> Result<(), String> {
    let state = match &config.state_file {
        Some(path) => state_file::load(path)?,
        None => Default::default(),
    };
    let table = ForgetTable::new(config.rate, config.limits, state, fastrand::u64(..));
    if let Some(path) = &config.state_file {
        log_info!(
            "the state file {} has {} distributions with {} values",
            path.display(),
            table.distributions(),
            table.bins()
        );
    }
    let api = Api {
        table: Arc::new(Mutex::new(table)),
        distribution: config.distribution.as_str().into(),
        now,
    };
    // A file that cannot be written is found before anything is counted.
    save(config, &api).await?;
    let (listener, address) = listen(&config.http_address, NSQ_FORGET.name)?;
    let client = config.client.clone();
    let consuming = Consuming::start(&config.sources, client, config.dedup.as_ref())?;
    let consumers = consuming
        .connect(&[&config.topic], &config.channel, |builder| builder)
        .await?;
    let mut consumer = consumers
        .into_iter()
        .next()
        .expect("one topic has one consumer");
    log_info!("listening on {address}");
    let (end_http, http_ends) = oneshot::channel::<()>();
    let server = axum::serve(listener, http::router(api.clone())).with_graceful_shutdown(async {
        // A lost sender means the same as a message.
        let _ = http_ends.await;
    });
    let server = tokio::spawn(server.into_future());
    let begin = tokio::time::Instant::now() + config.save_interval;
    let mut saves = interval_at(begin, config.save_interval);
    saves.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = signals.wait() => break,
            _ = saves.tick() => if let Err(why) = save(config, &api).await {
                log_error!("ERROR: {why}");
            },
            message = consumer.next() => match message {
                Some(message) => count(config, &api, &message),
                None => return Err("the connection to the channel has ended without a signal".to_owned()),
            },
        }
    }
    log_info!("stopping");
    let control = consumer.control();
    let drain = async {
        while let Some(message) = consumer.next().await {
            count(config, &api, &message);
        }
    };
    tokio::join!(shut_down([control]), drain);
    // The server takes the end of the sender for its end.
    drop(end_http);
    if timeout(HTTP_STOP, server).await.is_err() {
        log_warn!("ending although HTTP clients are still connected");
    }
    save(config, &api).await
}

/// Counts a message, and finishes it. A message without a value is finished, too: no later delivery
/// would have one.
fn count(config: &Config, api: &Api, message: &Message) {
    match field::parse(message.body()) {
        Ok(json) => {
            let name = match &config.distribution_field {
                Some(place) => place.values(&json).into_iter().next(),
                None => Some(config.distribution.clone()),
            };
            let values = config.field.values(&json);
            let now = now();
            let mut table = api.table();
            match name {
                Some(name) if !values.is_empty() => {
                    for value in values {
                        table.add(&name, &value, 1, now);
                    }
                }
                _ => table.skip(),
            }
        }
        Err(why) => {
            api.table().skip();
            let id = message.id();
            // A topic may have many such messages.
            log_repeated!(
                "not JSON".to_owned(),
                "WARNING: message {id} is not counted - {why}"
            );
        }
    }
    // If the connection is lost, the message comes again and is counted twice.
    drop(message.finish());
}

/// Forgets what is over, and writes the state file, if there is one.
async fn save(config: &Config, api: &Api) -> Result<(), String> {
    let path = config.state_file.clone();
    let api = api.clone();
    let saved = spawn_blocking(move || {
        let mut table = api.table();
        table.forget(now());
        let Some(path) = path else {
            return Ok(());
        };
        let state = table.state();
        drop(table);
        state_file::save(&path, state)
    });
    saved
        .await
        .map_err(|error| format!("the state file was not written - {error}"))?
}

/// Returns the time in seconds since the Unix epoch.
fn now() -> Seconds {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or_default().as_secs_f64()
}
