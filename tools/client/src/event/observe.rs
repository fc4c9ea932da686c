//! Events for `tracing` and `metrics`.

use super::Event;

/// Records the event with the fields `client`, `subscription` and `node`.
#[cfg(feature = "tracing")]
pub(super) fn trace(event: &Event) {
    use super::Level;

    struct Text<'a>(&'a Event);

    impl std::fmt::Display for Text<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.write_text(f)
        }
    }

    let client = event.client().number();
    let subscription = event.client().subscription();
    let node = event.node().map(tracing::field::display);
    let text = Text(event);
    match event.level() {
        Level::Debug => tracing::debug!(client, subscription, node, "{text}"),
        Level::Info => tracing::info!(client, subscription, node, "{text}"),
        Level::Warning => tracing::warn!(client, subscription, node, "{text}"),
        Level::Error => tracing::error!(client, subscription, node, "{text}"),
    }
}

/// Counts the event in `nsq_client_events_total`, by its name.
#[cfg(feature = "metrics")]
pub(super) fn count(event: &Event) {
    metrics::counter!("nsq_client_events_total", "event" => event.name()).increment(1);
}
