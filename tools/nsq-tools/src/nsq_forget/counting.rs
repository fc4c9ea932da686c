//! [`run`]: from the consumer to the table, and from the table to the state file.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use program::log::Level;
use program::{log_error, log_info, log_repeated, log_warn};
use ringq_client::{Consumer, Message};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout, timeout_at};

use super::config::{Config, NSQ_FORGET};
use super::distribution::Seconds;
use super::field;
use super::http::{self, Api};
use super::state_file::StateFile;
use super::table::{ForgetTable, State};
use crate::consuming::Consuming;
use crate::listening::listen;
use crate::stopping::{STOP_TIME_MAX, StopSignals, drain};

/// The longest time that HTTP clients may take for their last answers.
const HTTP_STOP: Duration = Duration::from_secs(2);

/// The time that the last save has in any case, however long the stop took before.
const SAVE_TIME_MIN: Duration = Duration::from_secs(2);

/// The result of a save, and a save that goes on.
type Saved = Result<(), String>;
type Saving = JoinHandle<Saved>;

/// Counts until a signal comes. The error is the text for the user.
pub(super) async fn run(config: &Config, mut signals: StopSignals) -> Result<(), String> {
    let (state_file, state) = tokio::select! {
        loaded = load(config) => loaded?,
        () = signals.wait() => return Ok(()),
    };
    let table = ForgetTable::new(config.flags.rate, config.limits, state, fastrand::u64(..));
    if let Some(file) = &state_file {
        if let Some(warning) = file.warning() {
            log_warn!("--state-file: {warning}");
        }
        log_info!(
            "the state file {} has {} distributions with {} values",
            file.path.display(),
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
    tokio::select! {
        saved = end_of(save(state_file.clone(), &api)) => saved?,
        () = signals.wait() => return Ok(()),
    }
    let (listener, address) = listen(&config.flags.http_address, NSQ_FORGET.name)?;
    let mut consumer = tokio::select! {
        consumer = connect(config) => consumer?,
        () = signals.wait() => return Ok(()),
    };
    log_info!("listening on {address}");
    let (end_http, http_ends) = oneshot::channel::<()>();
    let server = axum::serve(listener, http::router(api.clone())).with_graceful_shutdown(async {
        // A lost sender means the same as a message.
        let _ = http_ends.await;
    });
    let server = tokio::spawn(server.into_future());
    let begin = Instant::now() + config.flags.save_interval;
    let mut saves = interval_at(begin, config.flags.save_interval);
    saves.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The disk holds up neither the counting nor a signal.
    let mut saving: Option<Saving> = None;
    loop {
        tokio::select! {
            biased;
            () = signals.wait() => break,
            saved = end_of_last(&mut saving) => if let Err(why) = saved {
                log_error!("ERROR: {why}");
            },
            _ = saves.tick(), if saving.is_none() => saving = Some(save(state_file.clone(), &api)),
            message = consumer.next() => match message {
                Some(message) => count(config, &api, &message),
                None => return Err("the connection to the channel has ended without a signal".to_owned()),
            },
        }
    }
    log_info!("stopping");
    let ends_at = Instant::now() + STOP_TIME_MAX;
    drain(&mut consumer, |message| count(config, &api, &message)).await;
    // The server takes the end of the sender for its end.
    drop(end_http);
    if timeout(HTTP_STOP, server).await.is_err() {
        log_warn!("ending although HTTP clients are still connected");
    }
    let last_save = async {
        if saving.is_some() {
            // The last save says if the disk fails.
            drop(end_of_last(&mut saving).await);
        }
        end_of(save(state_file.clone(), &api)).await
    };
    let ends_at = ends_at.max(Instant::now() + SAVE_TIME_MIN);
    let saved = timeout_at(ends_at, last_save).await;
    saved.unwrap_or_else(|_| {
        Err("the state file was not written - the disk does not answer".to_owned())
    })
}

/// Takes and reads the state file, if there is one, on a thread that may block.
async fn load(config: &Config) -> Result<(Option<Arc<StateFile>>, State), String> {
    let Some(path) = config.state_file.clone() else {
        return Ok((None, State::default()));
    };
    let load = || {
        let file = StateFile::take(path)?;
        let state = file.load()?;
        Ok((Some(Arc::new(file)), state))
    };
    let loaded = spawn_blocking(load).await;
    loaded.map_err(|error| format!("the state file was not read - {error}"))?
}

/// Connects the consumer.
async fn connect(config: &Config) -> Result<Consumer, String> {
    let client = config.client.clone();
    let consuming = Consuming::start(&config.sources, client, config.dedup.as_ref()).await?;
    let topics = [&config.flags.topic];
    let connecting = consuming.connect(&topics, &config.flags.channel, |builder| builder);
    let mut consumers = connecting.await?;
    Ok(consumers.pop().expect("one topic has one consumer"))
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
            let mut table = api.table.lock();
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
            api.table.lock().skip();
            let id = message.id();
            // A topic may have many such messages.
            log_repeated!(
                Level::Error,
                "not JSON".to_owned(),
                "ERROR: message {id} is not counted - {why}"
            );
        }
    }
    // If the connection is lost, the message comes again and is counted twice.
    drop(message.finish());
}

/// Forgets what is over, and writes the state file, if there is one, on a thread that may block.
fn save(file: Option<Arc<StateFile>>, api: &Api) -> Saving {
    let api = api.clone();
    spawn_blocking(move || {
        let mut table = api.table.lock();
        table.forget(now());
        let Some(file) = file else {
            return Ok(());
        };
        let state = table.state();
        drop(table);
        file.save(state)
    })
}

/// Waits for the end of a save.
async fn end_of(saving: impl Future<Output = Result<Saved, JoinError>>) -> Saved {
    let saved = saving.await;
    saved.map_err(|error| format!("the state file was not written - {error}"))?
}

/// Waits for the end of the save that goes on, and removes it. Without one, the wait has no end. Dropping the future leaves
/// the save.
async fn end_of_last(saving: &mut Option<Saving>) -> Saved {
    let Some(last) = saving else {
        return pending().await;
    };
    let saved = end_of(last).await;
    *saving = None;
    saved
}

/// Returns the time in seconds since the Unix epoch.
fn now() -> Seconds {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or_default().as_secs_f64()
}
