//! The endpoint that shows messages.

use ::http::StatusCode;
use serde_json::{Value, json};

use super::{App, Reply, Request};
use crate::outcome::{Refusal, Warnings};
use crate::peek::{Found, OWN_PARAMETERS, Obstacle, PARAMETERS, Peek};

impl App {
    /// Answers `/api/peek/TOPIC` and `/api/peek/TOPIC/CHANNEL`: the messages of all nodes, or of the node
    /// that `node` names. Who may not read bodies gets everything else.
    pub(super) async fn peek(
        &self,
        segments: &[String],
        request: &Request,
    ) -> Result<Reply, Refusal> {
        let query = request.parsed_query()?;
        let is_known = |name: &str| PARAMETERS.contains(&name) || OWN_PARAMETERS.contains(&name);
        let mut given = url::form_urlencoded::parse(request.query().as_bytes());
        if let Some((name, _)) = given.find(|(name, _)| !is_known(name)) {
            let names = [&PARAMETERS[..], &OWN_PARAMETERS].concat().join(", ");
            return Err(Refusal::bad(format!(
                "UNKNOWN_PARAMETER: {name} is none of {names}"
            )));
        }
        let text = |name: &str| query.get(name).unwrap_or_default().to_owned();
        let peek = Peek {
            topic: segments[0].clone(),
            channel: segments.get(1).cloned().unwrap_or_default(),
            parameters: PARAMETERS.map(|name| (name, text(name))).into(),
            since: text("since"),
        };
        if !peek.has_valid_since() {
            return Err(Refusal::bad(
                "INVALID_ARG_SINCE: with from=published, since is HOST:PORT/ID for each node, separated by commas",
            ));
        }
        let user = self.access.user(request.headers(), request.peer.ip());
        let shows_bodies = self.access.may_read_bodies(&user);
        if !shows_bodies && peek.looks_into_bodies() {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "FORBIDDEN_BODIES"));
        }
        let mut warnings = Warnings::default();
        let node = text("node");
        let answers = self.cluster.peek(&peek, &node, &mut warnings).await?;
        let is_absent = |found: &Found| *found == Found::Nothing(Obstacle::Absent);
        if !answers.is_empty() && answers.iter().all(|answer| is_absent(&answer.found)) {
            let code = if peek.channel.is_empty() {
                "TOPIC_NOT_FOUND"
            } else {
                "CHANNEL_NOT_FOUND"
            };
            return Err(Refusal::not_found(match node.as_str() {
                "" => code.to_owned(),
                node => format!("{code}: the nsqd {node} does not have it"),
            }));
        }
        let mut nodes = Vec::new();
        for mut answer in answers {
            if let Found::Nothing(Obstacle::BadQuestion(why)) = answer.found {
                return Err(Refusal::bad(why));
            }
            if !shows_bodies {
                answer.found.mask();
            }
            let mut node = answer.found.into_json();
            node.insert("node".to_owned(), json!(answer.node.address));
            node.insert("hostname".to_owned(), json!(answer.node.hostname));
            node.insert("url".to_owned(), json!(answer.url));
            nodes.push(Value::Object(node));
        }
        let message = warnings.message();
        let json = json!({ "bodies": shows_bodies, "nodes": nodes, "message": message });
        Ok(Reply::json(json.to_string()))
    }
}
