//! `/topic/*` and `/channel/*`. The words for a bad topic name differ from endpoint to endpoint;
//! nsqadmin and scripts have learned them.

use wire::name::is_valid_name;

use super::route::Endpoint;
use super::{AdminError, Broker, CHANNEL_NOT_FOUND, EXITING, TOPIC_NOT_FOUND};
use program::http::{Failure, Io, Query, Reply, RequestBody, parse_query};
use program::log_error;

/// An administrative endpoint. Panics on another one: the caller matches on the same enum.
pub(super) async fn administer<B: Broker>(
    broker: &B,
    endpoint: Endpoint,
    raw_query: &str,
    body: &mut RequestBody<'_, impl Io>,
) -> Result<Reply, Failure> {
    let query = parse_query(raw_query)?;
    // Every endpoint but `/topic/create` reads the body, as nsqd does, and makes no use of it.
    if endpoint != Endpoint::TopicCreate && !body.read_and_forget().await {
        return Err(Failure::bad("INVALID_REQUEST"));
    }
    let done = match endpoint {
        Endpoint::TopicCreate => {
            let topic = topic_of(&query, Failure::bad("INVALID_TOPIC"))?;
            broker.topic_create(topic).await
        }
        Endpoint::TopicEmpty => {
            let topic = topic_of(&query, Failure::bad("INVALID_TOPIC"))?;
            broker.topic_empty(topic).await
        }
        Endpoint::TopicDelete => {
            let topic = topic_of(&query, TOPIC_NOT_FOUND)?;
            broker.topic_delete(topic).await
        }
        Endpoint::TopicPause(paused) => {
            let topic = topic_of(&query, TOPIC_NOT_FOUND)?;
            broker.topic_pause(topic, paused).await
        }
        Endpoint::ChannelCreate => {
            let (topic, channel) = topic_and_channel_of(&query)?;
            broker.channel_create(topic, channel).await
        }
        Endpoint::ChannelDelete => {
            let (topic, channel) = topic_and_channel_of(&query)?;
            broker.channel_delete(topic, channel).await
        }
        Endpoint::ChannelEmpty => {
            let (topic, channel) = topic_and_channel_of(&query)?;
            broker.channel_empty(topic, channel).await
        }
        Endpoint::ChannelPause(paused) => {
            let (topic, channel) = topic_and_channel_of(&query)?;
            broker.channel_pause(topic, channel, paused).await
        }
        other => unreachable!("{other:?} is no administrative endpoint"),
    };
    done.map(|()| Reply::text("")).map_err(failure_of)
}

/// What clients see of a failure, and what the log sees of it.
pub(super) fn failure_of(error: AdminError) -> Failure {
    match error {
        AdminError::TopicNotFound => TOPIC_NOT_FOUND,
        AdminError::ChannelNotFound => CHANNEL_NOT_FOUND,
        AdminError::Exiting => EXITING,
        AdminError::Backend(why) => {
            log_error!("HTTP: request failed - {why}");
            Failure::INTERNAL
        }
    }
}

/// The topic of a topic endpoint. `invalid` is what a bad name is called there.
fn topic_of<'a>(query: &'a Query<'_>, invalid: Failure) -> Result<&'a str, Failure> {
    let topic = query
        .get("topic")
        .ok_or(Failure::bad("MISSING_ARG_TOPIC"))?;
    if is_valid_name(topic.as_bytes()) {
        Ok(topic)
    } else {
        Err(invalid)
    }
}

fn topic_and_channel_of<'a>(query: &'a Query<'_>) -> Result<(&'a str, &'a str), Failure> {
    let topic = topic_of(query, Failure::bad("INVALID_ARG_TOPIC"))?;
    let channel = query
        .get("channel")
        .ok_or(Failure::bad("MISSING_ARG_CHANNEL"))?;
    if is_valid_name(channel.as_bytes()) {
        Ok((topic, channel))
    } else {
        Err(Failure::bad("INVALID_ARG_CHANNEL"))
    }
}
