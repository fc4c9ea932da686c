//! [`Dedup`]: the flags `--dedup` and `--dedup-state`, which let a consuming tool recognise messages that it has
//! handled before.
//!
//! ```text
//!   --dedup=KEY[,filter=FILTER][,OPTION=VALUE]...
//!           │            │       └─ settings: those of the filter
//!           │            └─ plan: inverse, forgetful, roaring, memcached
//!           └─ body, json:/pointer
//! ```

mod plan;
mod settings;

use std::path::PathBuf;
use std::time::Duration;

use program::flag::{self, FlagOf};
use program::{Options, log_info, log_warn};
use ringq_client::dedup::{self, JsonPointer, Key, WhenUnavailable};
use tokio::task::spawn_blocking;

use self::plan::{Plan, parse_pointer};
use self::settings::Settings;

/// The recognition of messages that were handled before.
pub const DEDUP: FlagOf<String> = flag::new(
    "dedup",
    "",
    "finish messages that were handled before: body or json:/pointer (what copies have in common), then options such as \
     filter=inverse,slots=1000000 (docs/deduplication.md). filter=forgetful may drop fresh messages",
)
.without_key()
.checked_by(check);

/// The file of the filter.
pub const DEDUP_STATE: FlagOf<String> = flag::new(
    "dedup-state",
    "",
    "path of the file that keeps the filter of --dedup over restarts; written at the end and once per minute",
)
.without_key();

/// The time between two saves of the filter.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// The values of `--dedup` and `--dedup-state`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dedup {
    key: KeyPlace,
    filter: Plan,
    state: Option<PathBuf>,
}

/// The part that two copies of a message have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyPlace {
    Body,
    Json(JsonPointer),
}

impl Dedup {
    /// Reads the flags. `None` without `--dedup`.
    ///
    /// # Errors
    /// A value is wrong. The error is the text for the user.
    pub fn from_options(options: &Options) -> Result<Option<Dedup>, String> {
        let state = Some(options.get(&DEDUP_STATE)).filter(|path| !path.is_empty());
        let value = options.get(&DEDUP);
        // The value of a script's variable may be missing, and the tool must not go on without the filter then.
        if value.is_empty() && options.is_given(DEDUP.name()) {
            return Err(
                "--dedup has no value: write body, or json: and a pointer such as json:/id, or leave the flag out"
                    .to_owned(),
            );
        }
        if state.is_none() && options.is_given(DEDUP_STATE.name()) {
            return Err(
                "--dedup-state has no value: write the path of the filter's file, or leave the flag out"
                    .to_owned(),
            );
        }
        if value.is_empty() {
            return match state {
                Some(_) => Err("--dedup-state needs --dedup".to_owned()),
                None => Ok(None),
            };
        }
        let mut dedup = Dedup::parse(&value).map_err(|why| format!("--dedup: {why}"))?;
        if state.is_some() && matches!(dedup.filter, Plan::Memcached { .. }) {
            return Err(
                "memcached keeps its own state: use --dedup-state only with another filter"
                    .to_owned(),
            );
        }
        dedup.state = state.map(PathBuf::from);
        Ok(Some(dedup))
    }

    /// Reads the value of `--dedup`.
    fn parse(value: &str) -> Result<Dedup, String> {
        let mut parts = value.split(',');
        let key = parse_key(parts.next().unwrap_or_default())?;
        let mut settings = Settings::parse(parts)?;
        let filter = Plan::parse(&mut settings)?;
        settings.end()?;
        let dedup = Dedup {
            key,
            filter,
            state: None,
        };
        if matches!(dedup.filter, Plan::Roaring { .. }) && dedup.key == KeyPlace::Body {
            return Err(
                "filter=roaring compares numbers: use json:/pointer of a number instead of body"
                    .to_owned(),
            );
        }
        Ok(dedup)
    }

    /// Makes the filter, which takes its memory now, and logs what it is. A saved filter is restored, on a thread that
    /// may block: a disk that hangs does not keep the tool from its signals.
    ///
    /// # Errors
    /// The sizes make no filter, or the saved filter cannot be used. The error is the text for the user.
    pub async fn start(&self) -> Result<dedup::Dedup, String> {
        let flags = self.clone();
        let made = spawn_blocking(move || flags.make()).await;
        let dedup = made.map_err(|error| format!("--dedup: {error}"))??;
        if let Plan::Memcached {
            when_unavailable, ..
        } = &self.filter
        {
            tokio::spawn(warn_if_unavailable(dedup.clone(), *when_unavailable));
        }
        Ok(dedup)
    }

    fn make(&self) -> Result<dedup::Dedup, String> {
        let filter = self
            .filter
            .make()
            .map_err(|why| format!("--dedup: {why}"))?;
        let mut builder = dedup::Dedup::builder(self.key(), filter);
        if let Some(path) = &self.state {
            builder = builder.state_file(path).save_interval(SAVE_INTERVAL);
        }
        if let Plan::Memcached {
            when_unavailable, ..
        } = &self.filter
        {
            builder = builder.when_store_unavailable(*when_unavailable);
        }
        let dedup = builder
            .build()
            .map_err(|error| format!("--dedup-state: {error}"))?;
        log_info!(
            "deduplication by {}: {}",
            self.key_text(),
            self.describe(&dedup)
        );
        if let Some(warning) = self.filter.warning() {
            log_warn!("{warning}");
        }
        if let Some(warning) = dedup.state_warning() {
            log_warn!("--dedup-state: {warning}");
        }
        Ok(dedup)
    }

    fn key(&self) -> Key {
        let json = "a pointer that was parsed is a pointer";
        match (&self.key, &self.filter) {
            (KeyPlace::Body, _) => Key::body(),
            (KeyPlace::Json(number), Plan::Roaring { source, .. }) => {
                let source = source.as_ref().map(JsonPointer::to_string);
                Key::json_number(source.as_deref(), &number.to_string()).expect(json)
            }
            (KeyPlace::Json(pointer), _) => Key::json(&pointer.to_string()).expect(json),
        }
    }

    fn key_text(&self) -> String {
        match &self.key {
            KeyPlace::Body => "body".to_owned(),
            KeyPlace::Json(pointer) => format!("json:{pointer}"),
        }
    }

    /// Returns the filter, its memory and its file in words.
    fn describe(&self, dedup: &dedup::Dedup) -> String {
        let filter = self.filter.describe();
        if let Plan::Memcached { .. } = self.filter {
            return filter;
        }
        let state = match (&self.state, dedup.is_restored()) {
            (Some(path), true) => format!(", restored from {}", path.display()),
            (Some(path), false) => format!(", new in {}", path.display()),
            (None, _) => String::new(),
        };
        let (now, most) = (dedup.bytes(), dedup.bytes_max());
        let memory = match self.filter.bytes_if_consecutive() {
            None => format!("{most} bytes of memory"),
            Some(usual) => format!(
                "{now} bytes of memory now, at most {usual} if the numbers of each source follow each other, and {most} \
                 otherwise"
            ),
        };
        format!("{filter}, {memory}{state}")
    }
}

/// Logs a warning if memcached is unavailable at the start, before a message needs it.
async fn warn_if_unavailable(dedup: dedup::Dedup, when_unavailable: WhenUnavailable) {
    if let Err(error) = dedup.check_store().await {
        let meanwhile = match when_unavailable {
            WhenUnavailable::Wait => "messages wait",
            WhenUnavailable::Handle => "messages are handled without the filter",
        };
        log_warn!("--dedup: {error}; {meanwhile} until it answers");
    }
}

/// Checks a value of `--dedup`. [`Dedup::from_options`] refuses an empty one: the flag's default is empty, too.
fn check(value: &str) -> Result<(), String> {
    if value.is_empty() {
        Ok(())
    } else {
        Dedup::parse(value).map(drop)
    }
}

fn parse_key(text: &str) -> Result<KeyPlace, String> {
    match (text, text.strip_prefix("json:")) {
        ("body", _) => Ok(KeyPlace::Body),
        (_, Some(pointer)) => Ok(KeyPlace::Json(parse_pointer(pointer)?)),
        _ => Err(format!(
            "the key is {text:?}: begin with body, or with json: and a pointer such as json:/id"
        )),
    }
}

#[cfg(test)]
mod tests;
