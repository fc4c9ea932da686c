//! `/pub` and `/mpub`. The checks stand in nsqd's order: clients see which one fails first.

use std::time::Duration;

use diskq::AppendError;
use engine_rules::{Act, Refusal};

use super::bodies::{split_binary, split_lines};
use super::{Bodies, DISK_FULL, DRAINING, EXITING, HttpBroker, STORAGE_FAILED, admin};
use program::http::{Failure, Io, Reply, RequestBody, parse_query};
use program::log::Level;
use program::{log_repeated, log_warn};
use wire::origin::{self, Origin};

const INVALID_TOPIC: Failure = Failure::bad("INVALID_TOPIC");

/// The body is judged before the query, the query before the delay.
pub(super) async fn publish(
    broker: &HttpBroker,
    raw_query: &str,
    body: &mut RequestBody<'_, impl Io>,
) -> Result<Reply, Failure> {
    const TOO_BIG: &str = "MSG_TOO_BIG";
    let bytes_max = broker.info().config.msg_bytes_max;
    if body.announces_more_than(bytes_max) {
        return Err(Failure::too_large(TOO_BIG));
    }
    let received = body.receive(bytes_max).await.complete(TOO_BIG)?;
    if received.is_empty() {
        return Err(Failure::bad("MSG_EMPTY"));
    }
    let query = parse_query(raw_query)?;
    let topic = admin::topic_of(&query, INVALID_TOPIC)?;
    let Some(defer) = parse_defer(query.get("defer"), broker.info().config.req_timeout_max) else {
        // nsqd has created the topic by the time it looks at the delay.
        broker.administer(topic, None, Act::Create).await?;
        return Err(Failure::bad("INVALID_DEFER"));
    };
    let origin = parse_origin(query.get("publisher"), query.get("number"), 1)?;
    hand_over(broker, topic, Bodies::one(received), defer, origin).await
}

/// Serves `/mpub`. A body that is announced as too large is refused before anything else. Then the query is judged
/// before the body, and the topic is created whatever the body is.
pub(super) async fn publish_many(
    broker: &HttpBroker,
    raw_query: &str,
    body: &mut RequestBody<'_, impl Io>,
) -> Result<Reply, Failure> {
    let config = &broker.info().config;
    if body.announces_more_than(config.body_bytes_max) {
        return Err(Failure::too_large("BODY_TOO_BIG"));
    }
    let query = parse_query(raw_query)?;
    let topic = admin::topic_of(&query, INVALID_TOPIC)?;
    let is_binary = match query.get("binary") {
        None | Some("false" | "0") => false,
        Some("true" | "1") => true,
        Some(other) => {
            log_warn!("deprecated value '{other}' used for /mpub binary param");
            true
        }
    };
    let received = body.receive(config.body_bytes_max).await;
    let split = if is_binary { split_binary } else { split_lines };
    match split(received, config) {
        Ok(bodies) if bodies.count() > 0 => {
            let (publisher, number) = (query.get("publisher"), query.get("number"));
            let origin = parse_origin(publisher, number, bodies.count())?;
            hand_over(broker, topic, bodies, None, origin).await
        }
        nothing_to_publish => {
            broker.administer(topic, None, Act::Create).await?;
            nothing_to_publish.map(|_| Reply::text("OK"))
        }
    }
}

async fn hand_over(
    broker: &HttpBroker,
    topic: &str,
    bodies: Bodies,
    defer: Option<Duration>,
    origin: Option<Origin>,
) -> Result<Reply, Failure> {
    match broker.publish(topic, bodies, defer, origin).await {
        Ok(()) => Ok(Reply::text("OK")),
        Err(Refusal::Exiting) => Err(EXITING),
        Err(Refusal::Draining) => Err(DRAINING),
        Err(full @ Refusal::Log(AppendError::Full(_))) => Err(refused(topic, DISK_FULL, &full)),
        Err(other) => Err(refused(topic, STORAGE_FAILED, &other)),
    }
}

/// Returns the failure of a publish that the topic refuses. In nsqd, this answer is the same as the one of a process that ends. The log
/// has an ERROR from the moment when the topic began to refuse, so there are few lines about the single publishes.
fn refused(topic: &str, failure: Failure, why: &Refusal) -> Failure {
    let cause = "a publish is refused".to_owned();
    log_repeated!(
        Level::Warn,
        cause,
        "TOPIC({topic}): a publish is refused - {why}"
    );
    failure.because(why.to_string())
}

/// Parses the publisher of `count` messages and the number of the first message. Both must be given, or neither.
fn parse_origin(
    publisher: Option<&str>,
    number: Option<&str>,
    count: u32,
) -> Result<Option<Origin>, Failure> {
    if publisher.is_none() && number.is_none() {
        return Ok(None);
    }
    let publisher = publisher.and_then(origin::parse_publisher_id);
    let publisher = publisher.ok_or(Failure::bad("INVALID_PUBLISHER"))?;
    let number = number.and_then(|text| origin::parse_number(text.as_bytes()));
    let origin = number.map(|number| Origin {
        publisher,
        number: number.get(),
    });
    match origin.filter(|origin| origin.has_room_for(count)) {
        Some(origin) => Ok(Some(origin)),
        None => Err(Failure::bad("INVALID_NUMBER")),
    }
}

/// Parses a delay in milliseconds, from 0 to `max`. The outer `None` means that the text is no valid delay. The inner
/// `None` means that the message is not deferred.
fn parse_defer(text: Option<&str>, max: Duration) -> Option<Option<Duration>> {
    let Some(text) = text else {
        return Some(None);
    };
    // Rust's grammar for integers is the one that is wanted: a sign, then decimal digits.
    let millis = u64::try_from(text.parse::<i64>().ok()?).ok()?;
    let defer = Duration::from_millis(millis);
    if defer > max {
        return None;
    }
    // Nothing to wait for is not a deferred message.
    Some((!defer.is_zero()).then_some(defer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        let parsed = |publisher, number, count| {
            let parsed = parse_origin(publisher, number, count);
            parsed.map_err(|failure| format!("{failure:?}"))
        };
        let invalid = |text| Err(format!("{:?}", Failure::bad(text)));
        assert_eq!(parsed(None, None, 1), Ok(None));
        let origin = Origin {
            publisher: 0x7f,
            number: 3,
        };
        assert_eq!(parsed(Some("7F"), Some("3"), 9), Ok(Some(origin)));
        for publisher in [None, Some(""), Some("0"), Some("x")] {
            assert_eq!(
                parsed(publisher, Some("3"), 1),
                invalid("INVALID_PUBLISHER")
            );
        }
        for number in [None, Some(""), Some("-1"), Some("x")] {
            assert_eq!(parsed(Some("7f"), number, 1), invalid("INVALID_NUMBER"));
        }
        let last = Some("9223372036854775807");
        assert!(parsed(Some("7f"), last, 1).is_ok());
        assert_eq!(parsed(Some("7f"), last, 2), invalid("INVALID_NUMBER"));
    }
}
