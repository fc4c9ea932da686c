//! [`Abilities`]: the abilities of an nsqd beyond those of nsqd 1.3.0. That nsqd ignores parameters that it does not know,
//! so it would pause without an end, and empty without an undo.

use futures_util::FutureExt;
use http::StatusCode;
use jiff::Timestamp;

use super::{Act, Asked, Cluster, Target, Terms, gather};
use crate::outcome::{Gathered, Refusal, Warnings};
use crate::upstream::{Failed, Server, Upstream};

/// The abilities of an nsqd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Emptied messages of channels that come back. Every nsqd with this undo knows the end, the reason and the name of a
    /// pause, too.
    pub has_undo: bool,
    /// Emptied messages of topics that come back.
    pub has_topic_undo: bool,
}

impl Cluster {
    /// Asks nsqds what they can do. The requests change nothing.
    pub async fn abilities(&self, targets: &[Target]) -> Gathered<(Target, Abilities)> {
        let requests = targets.iter().cloned().map(|target| -> Asked<_> {
            // These questions must not look like acts in the log.
            let upstream = self.upstream.quiet();
            async move {
                let abilities = abilities_of(&upstream, &target.url).await?;
                Ok((target, abilities))
            }
            .boxed()
        });
        gather(requests.collect()).await
    }

    /// Returns the targets that can carry out the action on a topic or channel with these terms. Those that do not say what they
    /// can do are left out with a warning.
    ///
    /// # Errors
    /// 409 if one of them cannot, 400 if the others refuse the terms, and 502 if no target says what it can do. Nothing has
    /// been done yet.
    pub async fn able(
        &self,
        (act, is_of_topic): (Act, bool),
        terms: &Terms,
        targets: &[Target],
        warnings: &mut Warnings,
    ) -> Result<Vec<Target>, Refusal> {
        let (code, what) = match act {
            Act::Pause if !terms.limit.is_empty() => ("LIMIT_UNSUPPORTED", "limit of a pause"),
            Act::Empty if terms.undo.is_empty() => return Ok(targets.to_vec()),
            Act::Empty if is_of_topic => ("UNDO_UNSUPPORTED", "undo of emptied topics"),
            Act::Empty => ("UNDO_UNSUPPORTED", "undo of emptied channels"),
            _ => return Ok(targets.to_vec()),
        };
        let can = |abilities: &Abilities| match act {
            Act::Empty if is_of_topic => abilities.has_topic_undo,
            _ => abilities.has_undo,
        };
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let asked = self.abilities(targets).await;
        let asked = asked.or_refuse(Server::Nsqd, warnings)?;
        let unable = asked.iter().filter(|(_, abilities)| !can(abilities));
        let unable: Vec<&str> = unable
            .map(|(target, _)| &*target.identity.address)
            .collect();
        if unable.is_empty() {
            return Ok(asked.into_iter().map(|(target, _)| target).collect());
        }
        // A value that no node takes is the caller's mistake, whatever the other nodes can do.
        if let Some((target, _)) = asked.iter().find(|(_, abilities)| can(abilities)) {
            self.try_terms((act, is_of_topic), terms, target).await?;
        }
        Err(Refusal::new(
            StatusCode::CONFLICT,
            format!(
                "{code}: nothing was done; no {what} at {}",
                unable.join(", ")
            ),
        ))
    }

    /// Asks a node for its opinion about terms, with an action on a topic that no node has. An nsqd reads the terms before
    /// it looks for the topic.
    ///
    /// # Errors
    /// The node's own words about wrong terms (400).
    async fn try_terms(
        &self,
        (act, is_of_topic): (Act, bool),
        terms: &Terms,
        target: &Target,
    ) -> Result<(), Refusal> {
        let nanoseconds = Timestamp::now().as_nanosecond();
        let topic = format!("nsqadmin-asks.{nanoseconds:x}");
        let request = act.request(&topic, if is_of_topic { "" } else { "c" }, terms);
        let url = format!("{}{request}", target.url);
        let tried = self.upstream.quiet().post(Server::Nsqd, &url).await;
        let refused = tried.err().and_then(|failed| failed.refused);
        match refused.filter(|refused| refused.status == StatusCode::BAD_REQUEST) {
            Some(refused) => Err(Refusal::new(refused.status, refused.text())),
            None => Ok(()),
        }
    }
}

async fn abilities_of(upstream: &Upstream, url: &str) -> Result<Abilities, Failed> {
    // The paths exist for POST only, or they do not exist.
    let has = async |path: &str| {
        let (_, body) = upstream.answer(&format!("{url}{path}")).await?;
        Ok(String::from_utf8_lossy(&body).contains("METHOD_NOT_ALLOWED"))
    };
    Ok(Abilities {
        has_undo: has("/channel/unempty").await?,
        has_topic_undo: has("/topic/unempty").await?,
    })
}
