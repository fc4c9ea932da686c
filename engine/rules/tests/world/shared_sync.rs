//! Shared syncs: syncs that wait at the same time are done as one, as in
//! engine/nsqd/src/shard/storage.rs.

use super::keepers::{Job, Thread, Work};
use super::{Mail, ShardWorld, World};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

impl World {
    /// Does the syncs of a keeper that are the first jobs of their topics.
    pub(super) fn sync_together(&mut self, shard: usize) {
        self.observe_all();
        let mut seen = BTreeSet::new();
        let (mut syncs, mut rest) = (Vec::new(), VecDeque::new());
        for job in std::mem::take(&mut self.shards[shard].jobs) {
            let is_next = job.thread == Thread::Keeper && seen.insert(Arc::clone(&job.topic));
            match job {
                Job {
                    topic,
                    work: Work::Log(key, request),
                    pass,
                    ..
                } if is_next && request.is_sync() => syncs.push((topic, request, key, pass)),
                other => rest.push_back(other),
            }
        }
        if syncs.len() > 1 {
            self.reached.note("synced together");
        }
        self.shards[shard].jobs = rest;
        let beside = self.begin_beside(shard, Thread::Keeper);
        let (mut topics, mut requests, mut askers) = (Vec::new(), Vec::new(), Vec::new());
        for (topic, request, key, pass) in syncs {
            topics.push(topic);
            requests.push(request);
            askers.push((key, pass));
        }
        let jobs = topics.iter().map(|topic| &**topic).zip(requests).collect();
        let ShardWorld {
            keeper,
            shared_sync,
            ..
        } = &mut self.shards[shard];
        let replies = keeper.handle_together(shared_sync, jobs);
        let has_failed = shared_sync.take_failure().is_some();
        self.end_beside(shard, &beside, None);
        for ((key, pass), reply) in askers.into_iter().zip(replies) {
            let mail = reply.map(|reply| Mail::Keeper(key, reply, pass));
            self.shards[shard].inbox.extend(mail);
        }
        if has_failed {
            self.reached.note("a shared sync failed");
        }
    }
}
