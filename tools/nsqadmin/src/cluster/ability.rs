//! [`Abilities`]: the abilities of an nsqd beyond those of nsqd 1.3.0. That nsqd ignores parameters that it does not know,
//! so it would pause without an end, and empty without an undo.

use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use http::StatusCode;
use reqwest::Method;

use super::{Act, Asked, Cluster, Target, Terms, gather};
use crate::outcome::{Gathered, Refusal, Warnings};
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
        let asked = self.ask_abilities(targets).await;
        warnings.add(&asked.failures);
        asked.data
    }

    async fn ask_abilities(&self, targets: &[Target]) -> Gathered<(Target, Abilities)> {
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
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let asked = self.ask_abilities(targets).await;
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
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanoseconds = since_1970.unwrap_or_default().as_nanos();
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
        // Every nsqd with an undo of channels knows the terms of pauses, too.
        has_pause_terms: has_undo,
        has_undo,
        has_topic_undo,
    })
}

/// Returns true if the body has the word.
fn names(body: &[u8], word: &str) -> bool {
    String::from_utf8_lossy(body).contains(word)
}
