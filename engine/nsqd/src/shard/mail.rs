//! The mail that a shard gets from other shards, from its keeper and from helper threads: one inbox per shard, many
//! senders.
//!
//! The channel is futures' unbounded one: lock-free, and its waker crosses threads. It needs no
//! bound of its own: a connection has at most `FORWARDED_BYTES_MAX` on the way, a log a handful of
//! jobs, and an HTTP connection one call.

use crate::net::transport::MovingTransport;
use crate::reactor;
use crate::shard::Shard;
use diskq::{Reply, Tombstone};
use engine_rules::{ForwardBatch, ForwardReply, Refusal, ShardId, TaskId, TopicKey};
use futures_channel::{mpsc, oneshot};
use futures_lite::{StreamExt, future};
use std::future::Future;
use std::rc::Rc;

/// One piece of mail.
pub(crate) enum Mail {
    /// A keeper's answer.
    Keeper(TopicKey, Reply),
    /// A topic's log is deleted, with a tombstone if nsqd.dat may list the topic, or could not be deleted.
    Deleted(Option<TaskId>, Result<Option<Tombstone>, Refusal>),
    /// Publishes to topics of the receiving shard.
    Forwards(ForwardBatch),
    /// Answers to publishes of the receiving shard.
    ForwardReplies(Vec<ForwardReply>),
    /// The disk has no room for messages of another shard.
    DiskFull,
    /// A connection that moves in.
    Connection(Box<Moving>),
    /// A function to be run on the receiving shard, for HTTP, auth answers and nsqlookupd.
    Call(Call),
}

/// A connection on its way to another shard.
pub(crate) struct Moving {
    pub(super) client: engine_rules::Client,
    pub(super) transport: MovingTransport,
    pub(super) input: Vec<u8>,
    pub(super) input_ended: bool,
}

/// A function that one shard has another shard run.
type Call = Box<dyn FnOnce(&Rc<Shard>) + Send>;

/// Each piece of mail costs as much budget as reading 2 KiB, besides its own bytes: 64 pieces use up a poll.
const MAIL_WORK: usize = reactor::BYTES_PER_POLL / 64;

impl Mail {
    /// Returns how much work the mail makes, in bytes that are read from a socket.
    fn work(&self) -> usize {
        let bytes = match self {
            Mail::Forwards(batch) => batch.byte_count(),
            Mail::ForwardReplies(replies) => size_of_val(&replies[..]),
            _ => 0,
        };
        MAIL_WORK + bytes
    }
}

/// The receiving end of a shard's mail.
pub(crate) struct Inbox(pub(super) mpsc::UnboundedReceiver<Mail>);

impl Inbox {
    /// Waits for the next mail. While much mail waits, the shard's other tasks run in between. `None`: no shard can send
    /// mail any more.
    pub(crate) async fn next(&mut self) -> Option<Mail> {
        if reactor::is_budget_spent() {
            future::yield_now().await;
        }
        let mail = self.0.next().await?;
        reactor::count_work(mail.work());
        Some(mail)
    }
}

/// Sends mail to any shard.
#[derive(Clone)]
pub(crate) struct Post {
    senders: Vec<mpsc::UnboundedSender<Mail>>,
}

impl Post {
    /// The post of `shards` shards, and their inboxes in order.
    pub(crate) fn new(shards: u32) -> (Post, Vec<Inbox>) {
        let (senders, receivers): (_, Vec<_>) = (0..shards).map(|_| mpsc::unbounded()).unzip();
        (Post { senders }, receivers.into_iter().map(Inbox).collect())
    }

    /// All shards.
    pub(crate) fn shards(&self) -> impl Iterator<Item = ShardId> + use<> {
        (0..self.senders.len() as u32).map(ShardId)
    }

    /// Sends `mail` to a shard. A shard that has stopped receives nothing more, and nobody waits.
    pub(crate) fn send(&self, to: ShardId, mail: Mail) {
        let _ = self.senders[to.0 as usize].unbounded_send(mail);
    }

    /// Runs a future on another shard and waits for its result. `None`: the shard has stopped.
    pub(crate) async fn call<R, F>(
        &self,
        to: ShardId,
        make: impl FnOnce(Rc<Shard>) -> F + Send + 'static,
    ) -> Option<R>
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let call = move |shard: &Rc<Shard>| {
            let future = make(shard.clone());
            reactor::spawn(async move {
                // The caller may be gone: an HTTP client that hung up.
                let _ = sender.send(future.await);
            })
            .detach();
        };
        self.send(to, Mail::Call(Box::new(call)));
        receiver.await.ok()
    }

    /// Runs a future on each shard, one after the other. Returns their results. A shard that has stopped has none.
    pub(crate) async fn call_all<R, F>(
        &self,
        make: impl FnOnce(Rc<Shard>) -> F + Clone + Send + 'static,
    ) -> Vec<R>
    where
        R: Send + 'static,
        F: Future<Output = R> + 'static,
    {
        let mut results = Vec::new();
        for shard in self.shards() {
            results.extend(self.call(shard, make.clone()).await);
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::Engine;
    use std::cell::Cell;

    /// Mail that waits was handled in one piece. A shard to which many producers publish had no turn meanwhile.
    #[test]
    fn much_mail_leaves_the_other_tasks_their_turn() {
        const COUNT: usize = 1000;
        let worst = reactor::run(Engine::Epoll, async {
            let (post, mut inboxes) = Post::new(1);
            for _ in 0..COUNT {
                post.send(ShardId(0), Mail::DiskFull);
            }
            let handled = Rc::new(Cell::new(0));
            let (counted, mut inbox) = (handled.clone(), inboxes.remove(0));
            let reader = reactor::spawn(async move {
                while counted.get() < COUNT && inbox.next().await.is_some() {
                    counted.set(counted.get() + 1);
                }
            });
            let mut worst = 0;
            while handled.get() < COUNT {
                let before = handled.get();
                future::yield_now().await;
                worst = worst.max(handled.get() - before);
            }
            reader.await;
            worst
        });
        assert_eq!(worst.expect("the engine works"), 64);
    }
}
