//! A key in the content of messages, as `--dedup` and `--duplicate-meter` have it.

use engine_rules::{ContentKey, JsonPointer};

/// Reads `body`, or `json:` and a pointer. `None`: the text is neither. The error is the reason of the refusal.
pub(super) fn parse(text: &str) -> Option<Result<ContentKey, String>> {
    if text == "body" {
        return Some(Ok(ContentKey::Body));
    }
    let pointer = text.strip_prefix("json:")?;
    let parsed = JsonPointer::parse(pointer).map(ContentKey::Json);
    Some(parsed.map_err(|why| format!("the pointer {pointer:?} {why}")))
}
