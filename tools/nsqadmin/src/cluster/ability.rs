//! [`Abilities`]: the abilities of an nsqd beyond those of nsqd 1.3.0. That nsqd ignores parameters that it does not know,
//! so it would pause without an end, and empty without an undo.

use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use reqwest::Method;

use super::{Act, Asked, Cluster, Target, Terms, gather, query};
use crate::outcome::{Refusal, Warnings};
use crate::upstream::{Failed, Server, Upstream};

/// The abilities of an nsqd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Pauses with an end, a reason and a name.
    pub has_pause_terms: bool,
    /// Emptied messages of channels that come back.
    pub has_undo: bool,
    /// Emptied messages of topics that come back.
    pub has_topic_undo: bool,
}

impl Cluster {
    /// Asks nsqds what they can do. The requests change nothing. A node that does not answer is left out
    /// with a warning.
    pub async fn abilities(
        &self,
        targets: &[Target],
        warnings: &mut Warnings,
    ) -> Vec<(Target, Abilities)> {
        let requests = targets.iter().cloned().map(|target| -> Asked<_> {
            let upstream = self.upstream.clone();
            async move {
                let abilities = abilities_of(&upstream, &target.url).await?;
                Ok((target, abilities))
            }
            .boxed()
        });
        let asked = gather(requests.collect()).await;
        warnings.add(&asked.failures);
        asked.data
    }

    /// Returns the targets that can carry out the action on a topic or channel with these terms. Those that do not say what they
    /// can do are left out with a warning.
    ///
    /// # Errors
    /// 409 if one of them cannot. Nothing has been done yet.
    pub async fn able(
        &self,
        (act, is_of_topic): (Act, bool),
        terms: &Terms,
        targets: &[Target],
        warnings: &mut Warnings,
    ) -> Result<Vec<Target>, Refusal> {
        type Test = fn(&Abilities) -> bool;
        let (code, what, can): (_, _, Test) = match act {
            Act::Pause if !terms.limit.is_empty() => {
                ("LIMIT_UNSUPPORTED", "limit of a pause", |it| {
                    it.has_pause_terms
                })
            }
            Act::Empty if !terms.undo.is_empty() && is_of_topic => {
                ("UNDO_UNSUPPORTED", "undo of emptied topics", |it| {
                    it.has_topic_undo
                })
            }
            Act::Empty if !terms.undo.is_empty() => {
                ("UNDO_UNSUPPORTED", "undo of emptied channels", |it| {
                    it.has_undo
                })
            }
            _ => return Ok(targets.to_vec()),
        };
        let asked = self.abilities(targets, warnings).await;
        let unable = asked.iter().filter(|(_, abilities)| !can(abilities));
        let unable: Vec<&str> = unable
            .map(|(target, _)| &*target.identity.address)
            .collect();
        match unable.is_empty() {
            true => Ok(asked.into_iter().map(|(target, _)| target).collect()),
            false => Err(Refusal::new(
                http::StatusCode::CONFLICT,
                format!(
                    "{code}: nothing was done; no {what} at {}",
                    unable.join(", ")
                ),
            )),
        }
    }
}

async fn abilities_of(upstream: &Upstream, url: &str) -> Result<Abilities, Failed> {
    // No nsqd has this topic. An nsqd that knows the limit refuses the value before it looks for the topic.
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let topic = format!(
        "nsqadmin-asks.{:x}",
        since_1970.unwrap_or_default().as_nanos()
    );
    let pause = query(&[("topic", &topic), ("for", "unknown")]);
    let pause = format!("{url}/topic/pause{pause}");
    let (_, asked) = upstream.answer(Method::POST, Server::Nsqd, &pause).await?;
    let has_pause_terms = names(&asked, "INVALID_FOR");
    // The paths exist for POST only, or they do not exist.
    let [mut has_undo, mut has_topic_undo] = [false; 2];
    for (path, has) in [
        ("/channel/unempty", &mut has_undo),
        ("/topic/unempty", &mut has_topic_undo),
    ] {
        let path = format!("{url}{path}");
        let (_, asked) = upstream.answer(Method::GET, Server::Nsqd, &path).await?;
        *has = names(&asked, "METHOD_NOT_ALLOWED");
    }
    Ok(Abilities {
        has_pause_terms,
        has_undo,
        has_topic_undo,
    })
}

/// Returns true if the body has the word.
fn names(body: &[u8], word: &str) -> bool {
    String::from_utf8_lossy(body).contains(word)
}
