//! The effects of the keeper's answers.

use diskq_log::{Notice, Reply};

use super::Broker;
use super::output::{Level, Output, Wakeup};
use crate::client::Blocked;
use crate::ids::TopicKey;
use crate::now::Now;
use crate::refusal::Refusal;
use crate::topic::Waiter;

/// Makes an ERROR line about an action that is tried again. `why` ends with the system's error text. The cause leaves
/// out the text before it, because that has file names, which differ between topics.
pub(super) fn repeated_error(what: &str, why: &str, line: String) -> Output {
    let answer = why.rsplit(": ").next().unwrap_or(why);
    let cause = format!("{what}: {answer}");
    Output::Repeated {
        level: Level::Error,
        cause,
        line,
    }
}

/// Makes an ERROR line about the file of a topic's keys.
fn keys_not_saved(topic: &str, cause: &str) -> Output {
    let what = "cannot save the keys of messages";
    let line =
        format!("TOPIC({topic}): {what}, so duplicates may be stored after a crash - {cause}");
    repeated_error(what, cause, line)
}

impl Broker {
    /// Takes the keeper's answer to a job of a topic's log. If the topic was deleted meanwhile, the memory of the
    /// answer goes back to the keeper ([`Output::Free`]).
    pub fn handle_reply(&mut self, now: Now, key: TopicKey, reply: Reply, out: &mut Vec<Output>) {
        self.call(now, out, |broker| {
            let Some(topic) = broker.topics.get_mut(key) else {
                broker.out.extend(reply.into_memory().map(Output::Free));
                return;
            };
            let mut notices = Vec::new();
            topic.log.handle_reply(now.mono, reply, &mut notices);
            broker.follow_health(key);
            for notice in notices {
                broker.handle_notice(key, notice);
            }
            broker.pump_later(key);
        })
    }

    /// Notes whether a topic's log takes messages, and tells when it takes messages again.
    pub(super) fn follow_health(&mut self, key: TopicKey) {
        let topic = &self.topics[key];
        if topic.log.health().is_some() {
            self.unhealthy.insert(key);
        } else if self.unhealthy.remove(&key) {
            let what = "takes messages again";
            self.out.push(Output::Repeated {
                level: Level::Info,
                cause: what.to_owned(),
                line: format!("TOPIC({}): {what}", topic.name),
            });
        }
    }

    fn handle_notice(&mut self, key: TopicKey, notice: Notice) {
        let topic = &mut self.topics[key];
        let name = topic.name.clone();
        match notice {
            Notice::Room => {
                self.wake_blocked(key);
                self.retry_forwarded(key);
            }
            Notice::RoomRefused { cause, is_new } => {
                // Then the topic is unhealthy until the refused messages would find room. Until then, the metrics count
                // what is refused, and the log is silent.
                if is_new {
                    let what = "failed to write message to backend";
                    let line = format!("TOPIC({name}) ERROR: {what} - {cause}");
                    self.out.push(repeated_error(what, &cause, line));
                }
                // Without the undos, a full disk has more room. Any other failure would stay.
                if self.topics[key].log.is_disk_full() {
                    self.is_disk_full = true;
                    self.drop_all_undos();
                }
                // The blocked clients and tasks publish again, and this time are refused with the reason.
                self.wake_blocked(key);
                self.refuse_forwarded(key, &Refusal::Disk(cause));
            }
            Notice::Loaded(_) => topic.pump_channels_later(),
            Notice::LoadFailed(seqs, cause) => {
                let count = seqs.len();
                let line = format!("TOPIC({name}): cannot read {count} messages back - {cause}");
                self.out
                    .push(repeated_error("cannot read messages back", &cause, line));
                topic.pump_channels_later();
            }
            Notice::SpillFailed(cause) => {
                let what = "a backlog stays in memory";
                let line = format!("TOPIC({name}): {what} - {cause}");
                self.out.push(repeated_error(what, &cause, line));
            }
            Notice::Synced(upto) => {
                topic.save_numbers_if_synced(self.now);
                for waiter in topic.waiters.take_synced(upto) {
                    self.answer(waiter, Ok(()));
                }
            }
            Notice::StateSaved(boundary) => topic.end_save(boundary),
            Notice::StateFailed(boundary, cause) => {
                topic.end_save(boundary);
                let what = "cannot save the numbers of messages";
                let line = format!(
                    "TOPIC({name}): {what}, after a crash messages that are sent again may be stored twice - {cause}"
                );
                self.out.push(repeated_error(what, &cause, line));
            }
            Notice::SyncDelayed(cause) => {
                let what = "sync waits, is tried again";
                let line = format!("TOPIC({name}) ERROR: {what} - {cause}");
                self.out.push(repeated_error(what, &cause, line));
            }
            Notice::SyncFailed(cause) => {
                let line = format!(
                    "TOPIC({name}) ERROR: sync failed, no more messages are taken; \
                     what is stored is still delivered - {cause}"
                );
                self.out.push(Output::error(line));
                topic.mark_sync_failed();
                for id in topic.copy_runs(&mut self.clients) {
                    self.out.push(Output::Close(id));
                }
                let refusal = Refusal::Disk(cause);
                for waiter in topic.waiters.take_all_for_sync() {
                    self.answer(waiter, Err(&refusal));
                }
                self.wake_blocked(key);
                self.refuse_forwarded(key, &refusal);
            }
            Notice::Checkpointed { number, synced } => {
                let kept = topic.mark_recorded(number, synced);
                topic.advance_stop(number);
                for waiter in topic.waiters.take_checkpointed(number) {
                    self.answer(waiter, kept.as_ref().copied());
                }
            }
            Notice::CheckpointFailed { number, cause } => {
                let what = "cannot record progress";
                let line = format!("TOPIC({name}): {what} - {cause}");
                self.out.push(repeated_error(what, &cause, line));
                topic.advance_stop(number);
                let refusal = Refusal::Disk(cause);
                for waiter in topic.waiters.take_checkpointed(number) {
                    self.answer(waiter, Err(&refusal));
                }
            }
            Notice::TopicFileWritten(result) => {
                topic.keys_written(&result, self.now);
                if let Err(cause) = result {
                    self.out.push(keys_not_saved(&name, &cause));
                }
            }
            Notice::TopicFileNotRenamed(cause) => {
                topic.write_keys_again(self.now);
                self.out.push(keys_not_saved(&name, &cause));
            }
            Notice::Damage(damage) => {
                topic.forget_lost_keys(damage.seqs, self.now);
                let line = format!("TOPIC({name}): damaged on disk - {damage}");
                self.out.push(Output::error(line));
            }
        }
    }

    /// Lets the clients and tasks whose publish found no room try again.
    pub(super) fn wake_blocked(&mut self, key: TopicKey) {
        let topic = &mut self.topics[key];
        let clients = std::mem::take(&mut topic.blocked_clients);
        let tasks = std::mem::take(&mut topic.blocked_tasks);
        for id in clients {
            self.resume(id, Blocked::Room(key));
        }
        let tasks = tasks.into_iter();
        self.out
            .extend(tasks.map(|task| Output::Wake(task, Wakeup::Retry)));
    }

    pub(super) fn answer(&mut self, waiter: Waiter, result: Result<(), &Refusal>) {
        match waiter {
            Waiter::Client(id, token) => self.resolve(id, token, result),
            Waiter::Task(task) => {
                self.out.push(Output::Wake(
                    task,
                    Wakeup::Done(result.map_err(Refusal::clone)),
                ));
            }
            Waiter::Forward(id) => self.reply_forward(id, result.map_err(Refusal::clone)),
        }
    }

    /// Refuses everything that waits for a topic, because the topic is being deleted.
    pub(super) fn refuse_all(&mut self, key: TopicKey) {
        let topic = &mut self.topics[key];
        for waiter in topic.waiters.take_all() {
            self.answer(waiter, Err(&Refusal::Exiting));
        }
        self.wake_blocked(key);
        self.wake_retriers(key);
        self.refuse_forwarded(key, &Refusal::Exiting);
    }
}
