//! The forms of answers: as they are since NSQ 1.0, and in the envelope of older versions.

use serde::Deserialize;
use serde::de::{self, DeserializeOwned};

use crate::lenient::lenient;

/// The value of the header `Accept` that asks for answers without the envelope. The oldest versions ignore it.
pub const ACCEPT: &str = "application/vnd.nsq; version=1.0";

/// The keys of the envelope, of which an answer in an envelope begins with one.
const ENVELOPE: [&str; 3] = ["\"status_code\"", "\"status_txt\"", "\"data\""];

/// Reads an answer, with or without the envelope.
///
/// # Errors
/// The answer is not JSON, a field has a wrong type, or the envelope has a status other than 200.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    #[derive(Deserialize)]
    struct Envelope<T> {
        status_code: Option<u16>,
        #[serde(default)]
        status_txt: String,
        data: Option<T>,
    }
    // Go replaces bytes that are not UTF-8.
    let text = String::from_utf8_lossy(body);
    let object = text.trim_start().strip_prefix('{').unwrap_or_default();
    let has_envelope = ENVELOPE
        .iter()
        .any(|key| object.trim_start().starts_with(key));
    if !has_envelope {
        return serde_json::from_str(&text);
    }
    let envelope: Envelope<T> = serde_json::from_str(&text)?;
    match (envelope.status_code, envelope.data) {
        (Some(code), _) if code != 200 => {
            let text = envelope.status_txt;
            Err(de::Error::custom(format!("status_code {code}: {text}")))
        }
        (_, Some(data)) => Ok(data),
        (_, None) => serde_json::from_str(&text),
    }
}

lenient! {
    /// The words with which nsqd or nsqlookupd refuses a request.
    #[derive(Eq)]
    pub struct Refusal {
        /// The code, such as `TOPIC_NOT_FOUND`. The envelope of old versions has it under another name.
        #[serde(alias = "status_txt")]
        pub message: String,
        /// The reason, or an empty text. Only ringq's daemons give reasons.
        pub reason: String,
    }
}

impl Refusal {
    /// Reads the body of an answer whose status is no success. The texts are empty if other words, such as those of a proxy,
    /// refuse the request.
    #[must_use]
    pub fn read(body: &[u8]) -> Refusal {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
