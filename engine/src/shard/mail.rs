//! The mail that a shard gets from other shards, from its keeper and from helper threads: one inbox per shard, many
//! senders.
//!
//! The channel is futures' unbounded one: lock-free, and its waker crosses threads. It needs no
//! bound of its own: a connection has at most `FORWARDED_BYTES_MAX` on the way, a log a handful of
//! jobs, and an HTTP connection one call.

use crate::reactor;
use crate::shard::Shard;
use crate::shard::connection::Moving;
use crate::shard::http_server::MovingHttp;
use diskq::{Reply, Tombstone};
use engine_core::{ForwardBatch, ForwardReply, Refusal, ShardId, TaskId, TopicKey};
use futures_channel::{mpsc, oneshot};
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
    /// An HTTP connection that moves in.
    HttpConnection(Box<MovingHttp>),
    /// A function to be run on the receiving shard, for HTTP requests, auth answers and nsqlookupd.
    Call(Call),
}

/// A function that one shard has another shard run.
type Call = Box<dyn FnOnce(&Rc<Shard>) + Send>;

/// The receiving end of a shard's mail.
pub(crate) type Inbox = mpsc::UnboundedReceiver<Mail>;

/// Sends mail to any shard.
#[derive(Clone)]
pub(crate) struct Post {
    senders: Vec<mpsc::UnboundedSender<Mail>>,
}

impl Post {
    /// The post of `shards` shards, and their inboxes in order.
    pub(crate) fn new(shards: u32) -> (Post, Vec<Inbox>) {
        let (senders, inboxes) = (0..shards).map(|_| mpsc::unbounded()).unzip();
        (Post { senders }, inboxes)
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
}
