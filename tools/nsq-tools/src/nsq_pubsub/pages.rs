//! The requests that are not streams: `/pub`, `/mpub`, `/stats`, `/ping`, and 404 with an empty body
//! for the rest.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use bytes::Bytes;
use program::http::Query;
use program::log_warn;
use ringq_client::{Outcome, PublishError};

use super::request::Refused;
use super::shared::Shared;
use crate::listening::refuse_other_sites;

/// The reason why nothing was published.
enum NotPublished {
    Refused(Refused),
    Empty,
    Body(BytesRejection),
    Publish(PublishError),
}

/// Returns the service.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    let body_bytes_max = shared.config.flags.body_bytes_max;
    Router::new()
        .route("/pub", post(publish))
        .route("/mpub", post(publish_lines))
        .route_layer(from_fn(refuse_other_sites))
        .route("/stats", any(stats))
        .route("/ping", any(async || "OK"))
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(map_response(close))
        .with_state(shared)
}

/// Publishes the body.
async fn publish(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Result<&'static str, NotPublished> {
    let topic = topic(query.as_deref())?;
    let body = body.map_err(NotPublished::Body)?;
    if body.is_empty() {
        return Err(NotPublished::Empty);
    }
    let published = shared.producer.publish(&topic, body).await;
    published.map(|_| "OK").map_err(NotPublished::Publish)
}

/// Publishes each line of the body, but for empty ones.
async fn publish_lines(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Result<&'static str, NotPublished> {
    let topic = topic(query.as_deref())?;
    let body = body.map_err(NotPublished::Body)?;
    let lines = body
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let lines: Vec<Bytes> = lines.map(|line| body.slice_ref(line)).collect();
    if lines.is_empty() {
        return Err(NotPublished::Empty);
    }
    let published = shared.producer.publish_many(&topic, lines).await;
    published.map(|_| "OK").map_err(NotPublished::Publish)
}

fn topic(query: Option<&str>) -> Result<String, NotPublished> {
    let query = Query::parse(query.unwrap_or_default());
    let query = query.map_err(|_| NotPublished::Refused(Refused::InvalidUri))?;
    let topic = query.get_filter("topic");
    topic.ok_or(NotPublished::Refused(Refused::MissingTopic))
}

async fn stats(State(shared): State<Arc<Shared>>) -> String {
    shared.streams.report(Instant::now())
}

/// Ends the connection after the answer: only the first request of a connection can be a stream.
async fn close(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

impl IntoResponse for NotPublished {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            NotPublished::Refused(refused) => (StatusCode::BAD_REQUEST, refused.to_string()),
            NotPublished::Empty => (StatusCode::BAD_REQUEST, "MSG_EMPTY".to_owned()),
            NotPublished::Body(rejection) => {
                let text = match rejection.status() {
                    StatusCode::PAYLOAD_TOO_LARGE => "MSG_TOO_BIG".to_owned(),
                    _ => rejection.body_text(),
                };
                (rejection.status(), text)
            }
            NotPublished::Publish(PublishError::Topic(_)) => {
                (StatusCode::BAD_REQUEST, Refused::InvalidTopic.to_string())
            }
            NotPublished::Publish(PublishError::TooLarge { .. }) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "MSG_TOO_BIG".to_owned())
            }
            NotPublished::Publish(error) => {
                log_warn!("failed to publish - {error}");
                match error.outcome() {
                    Outcome::NotStored => (
                        StatusCode::SERVICE_UNAVAILABLE,
                        format!("NOT_PUBLISHED: {error}"),
                    ),
                    Outcome::Unknown | Outcome::Stored => (
                        StatusCode::GATEWAY_TIMEOUT,
                        format!("PERHAPS_PUBLISHED: {error}"),
                    ),
                }
            }
        };
        (status, text + "\n").into_response()
    }
}
