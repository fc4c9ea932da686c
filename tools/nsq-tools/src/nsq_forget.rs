//! `nsq_forget`: keeps the recent distribution of a field's values in the messages of a topic, and
//! answers over HTTP.
//!
//! ```text
//!   nsqd ─► consumer ─► Field: values ─► ForgetTable ◄─► http ◄─► clients
//!                                             │
//!                                         state file
//! ```
//!
//! Counts fade away: `remaining` in `table.rs` has the formula. The table is a state machine; its time and its random
//! numbers are arguments.

mod config;
mod http;
mod table;

use std::ffi::OsString;
use std::fs::{self, File};
use std::future::pending;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use new_file::FileLock;
use parking_lot::Mutex;
use program::log::Level;
use program::{log_error, log_info, log_repeated, log_warn};
use ringq_client::{Consumer, Message};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout, timeout_at};

use crate::process::{self, STOP_TIME_MAX, StopSignals, drain, listen};
use config::Config;
pub use config::NSQ_FORGET;
use http::Api;
use table::{ForgetTable, Seconds, State};

/// Runs the tool with these arguments, without the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::stop::abort_on_panic();
    process::run_tool(&NSQ_FORGET, args, Config::new, async |config, signals| {
        let end = count_until_stop(&config, signals).await;
        end.map_err(|why| format!("FATAL: {why}"))
    })
}

/// The longest time that HTTP clients may take for their last answers.
const HTTP_STOP: Duration = Duration::from_secs(2);

/// The time that the last save has in any case, however long the stop took before.
const SAVE_TIME_MIN: Duration = Duration::from_secs(2);

/// The result of a save, and a save that goes on.
type Saved = Result<(), String>;
type Saving = JoinHandle<Saved>;

/// Counts until a signal comes. The error is the text for the user.
async fn count_until_stop(config: &Config, mut signals: StopSignals) -> Result<(), String> {
    let (state_file, state) = tokio::select! {
        loaded = load(config) => loaded?,
        () = signals.wait() => return Ok(()),
    };
    let table = ForgetTable::new(config.flags.rate, config.limits, state, fastrand::u64(..));
    if let Some(file) = &state_file {
        if let Some(warning) = file.lock.warning() {
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
    let (topics, channel) = ([&config.flags.topic], &config.flags.channel);
    let connecting = config.consumer.connect(&topics, channel, |builder| builder);
    let mut consumers = connecting.await?;
    Ok(consumers.pop().expect("one topic has one consumer"))
}

/// Counts a message, and finishes it. A message without a value is finished, too: no later delivery
/// would have one.
fn count(config: &Config, api: &Api, message: &Message) {
    match config::parse_message(message.body()) {
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

/// The version of the format.
const VERSION: u32 = 1;

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    #[serde(flatten)]
    state: State,
}

/// The file with the counts. Until it is dropped, no other process can use the file.
#[derive(Debug)]
struct StateFile {
    path: PathBuf,
    lock: FileLock,
}

impl StateFile {
    /// Takes the file. The calling thread may wait for a second.
    ///
    /// # Errors
    /// Another process uses the file, or the lock cannot be taken. The error is the reason for the user.
    fn take(path: PathBuf) -> Result<StateFile, String> {
        let lock = FileLock::take(&path).map_err(|error| format!("--state-file: {error}"))?;
        Ok(StateFile { path, lock })
    }

    /// Reads the state. A file that does not exist is an empty state.
    ///
    /// # Errors
    /// The file cannot be read, or has another format. The error is the reason for the user.
    fn load(&self) -> Result<State, String> {
        let path = &self.path;
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(format!("failed to read {} - {error}", path.display())),
        };
        let content: Content = serde_json::from_slice(&text).map_err(|error| {
            format!(
                "{} is not a state of nsq_forget - {error}; move the file away to begin without counts",
                path.display()
            )
        })?;
        match content.version {
            VERSION => Ok(content.state),
            other => Err(format!(
                "{} is a state file of version {other}, and this nsq_forget reads version {VERSION}; start the nsq_forget that wrote it, or move the file away to begin without counts",
                path.display()
            )),
        }
    }

    /// Replaces the file by this state, which then survives a power failure.
    ///
    /// # Errors
    /// The system refuses a step. The error is the reason for the user. The old file stays as it was.
    fn save(&self, state: State) -> Result<(), String> {
        let content = Content {
            version: VERSION,
            state,
        };
        new_file::replace(&self.path, |file| write(file, &content))
            .map_err(|error| format!("failed to write {} - {error}", self.path.display()))
    }
}

fn write(file: &File, content: &Content) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    serde_json::to_writer(&mut file, content)?;
    file.flush()
}

#[cfg(test)]
mod tests;
