use std::time::Duration;

use tokio::sync::Semaphore;

use super::*;
use crate::producer::command::Bodies;

fn pending() -> Pending {
    Pending::new(Account {
        unconfirmed: Arc::default(),
        node: "a:1".parse().unwrap(),
    })
}

fn waiter(permits: &Arc<Semaphore>) -> (Waiter, Answering) {
    let (answer, receiver) = oneshot::channel();
    let permit = Arc::clone(permits).try_acquire_owned().unwrap();
    let waiter = Waiter {
        answer,
        permit,
        is_resent: true,
    };
    (waiter, receiver)
}

fn answer(receiver: &mut Answering) -> String {
    match receiver.try_recv() {
        Ok((Answer::Stored, _)) => "stored".into(),
        Ok((Answer::Refused(error), _)) => error.to_string(),
        Ok((Answer::Returned(cause, _), _)) => match cause {
            Cause::Declined(error) => format!("declined: {error}"),
            Cause::Alone => "alone".into(),
            Cause::ResendRefused(error) => format!("resend refused: {error}"),
            Cause::NotSent(_) => "not sent".into(),
            Cause::Skipped => "skipped".into(),
            Cause::Lost(_) => "lost".into(),
        },
        Err(error) => error.to_string(),
    }
}

fn one(body: &'static str) -> Command<'static> {
    Command::new("t", Bodies::One(body.into()), None).unwrap()
}

/// Loses a connection that has taken `taken` bytes. Nothing stays.
fn lose(pending: &mut Pending, taken: u64) {
    let (error, now) = (Arc::new(ConnectionError::Closed), Instant::now());
    pending.lose(&error, Position(taken), None, now, |_, _| {
        panic!("there are no numbers")
    });
}

/// Numbered commands of one message and 10 bytes each, and the losses of their connections.
struct Numbered {
    pending: Pending,
    permits: Arc<Semaphore>,
    receivers: Vec<Answering>,
    began_at: Instant,
    given_back: Vec<u64>,
}

/// The time for which commands stay.
const LIMIT: Duration = Duration::from_secs(10);

impl Numbered {
    /// Begins with one command for each item of `resent`, which is true for those that are sent again.
    fn new(resent: &[bool]) -> Numbered {
        let mut numbered = Numbered {
            pending: pending(),
            permits: Arc::new(Semaphore::new(10)),
            receivers: Vec::new(),
            began_at: Instant::now(),
            given_back: Vec::new(),
        };
        for (number, is_resent) in (0..).zip(resent) {
            numbered.push(number, *is_resent);
        }
        numbered
    }

    fn push(&mut self, number: u64, is_resent: bool) {
        let (waiter, receiver) = waiter(&self.permits);
        let kept = Box::new(Kept::new(&one("body"), number));
        let waiter = Waiter {
            is_resent,
            ..waiter
        };
        self.pending
            .push(number * 10..number * 10 + 10, waiter, Some(kept));
        self.receivers.push(receiver);
    }

    fn lose(&mut self, after: u64, taken: u64) {
        let now = self.began_at + Duration::from_secs(after);
        let (error, given_back) = (Arc::new(ConnectionError::Closed), &mut self.given_back);
        self.pending.lose(
            &error,
            Position(taken),
            Some(now + LIMIT),
            now,
            |topic, numbers| {
                assert_eq!(topic, "t");
                given_back.extend(numbers);
            },
        );
    }

    /// Returns the commands that are sent again, as text.
    fn resent(&mut self) -> String {
        let mut out = Vec::new();
        self.pending.resend(&mut out);
        String::from_utf8_lossy(&out).replace("\0\0\0\x04", " ")
    }

    fn answers(&mut self) -> Vec<String> {
        self.receivers.iter_mut().map(answer).collect()
    }
}

const WAITS: &str = "channel empty";

#[test]
fn numbered_commands_that_may_have_left_stay_in_their_order() {
    let mut numbered = Numbered::new(&[true, false, true, true, true]);
    numbered.lose(0, 30);
    assert_eq!(
        numbered.answers(),
        [WAITS, "lost", WAITS, "not sent", "not sent"]
    );
    assert_eq!(numbered.given_back, [4, 3], "their numbers are used again");
    assert_eq!(numbered.resent(), "PUB t 0\n bodyPUB t 2\n body");
    // The next connection is lost before anything has left. What may have left before stays all the same.
    numbered.push(3, true);
    numbered.lose(1, 0);
    assert_eq!(numbered.resent(), "PUB t 0\n bodyPUB t 2\n body");
    assert!(numbered.pending.answer(None) && numbered.pending.answer(None));
    let answers = numbered.answers();
    assert_eq!(
        [&answers[0], &answers[2], &answers[5]],
        ["stored", "stored", "not sent"]
    );
    assert_eq!(numbered.pending.unconfirmed(), 4);
}

#[test]
fn the_time_of_a_command_begins_with_the_first_loss() {
    let mut numbered = Numbered::new(&[true]);
    numbered.lose(0, 10);
    let deadline = Some(numbered.began_at + LIMIT);
    assert_eq!(numbered.pending.deadline(), deadline);
    numbered.resent();
    numbered.push(1, true);
    numbered.lose(9, 20);
    assert_eq!(numbered.pending.deadline(), deadline);
    numbered.pending.expire(numbered.began_at + LIMIT);
    assert_eq!(numbered.answers(), ["lost", WAITS]);
    // A connection that is lost after the deadline ends the command at once.
    numbered.resent();
    numbered.lose(19, 20);
    assert_eq!(numbered.answers()[1], "lost");
    assert!(numbered.pending.is_empty());
    assert_eq!(numbered.pending.unconfirmed(), 2);
}

#[test]
fn the_refusal_of_a_second_try_says_nothing_of_the_first_one() {
    let mut numbered = Numbered::new(&[true, true]);
    numbered.lose(0, 20);
    numbered.resent();
    let exiting = ErrorFrame::new(b"E_PUB_FAILED PUB failed exiting");
    assert!(numbered.pending.answer(Some(&exiting)));
    assert_eq!(numbered.answers(), [WAITS, WAITS], "the next nsqd decides");
    let refusal = ErrorFrame::new(b"E_BAD_MESSAGE x");
    assert!(numbered.pending.answer(Some(&refusal)));
    assert!(numbered.pending.answer(None));
    assert_eq!(
        numbered.answers(),
        ["resend refused: E_BAD_MESSAGE x", "stored"]
    );
    assert_eq!(numbered.pending.unconfirmed(), 1);
}

#[test]
fn a_flush_waits_for_commands_that_stay() {
    let mut numbered = Numbered::new(&[true, true]);
    let mut flush = numbered.pending.flush().unwrap();
    numbered.lose(0, 10);
    numbered.resent();
    numbered.push(1, true);
    assert_eq!(
        flush.flushed.try_recv(),
        Err(oneshot::error::TryRecvError::Empty)
    );
    assert_eq!(numbered.pending.unanswered(2), 1);
    assert!(numbered.pending.answer(None));
    assert_eq!(
        flush.flushed.try_recv(),
        Ok(1),
        "the command that was not sent counts, and the newer one does not"
    );
    // A later flush does not count what was lost before it.
    numbered.lose(0, 20);
    numbered.pending.give_up_all();
    assert_eq!(numbered.pending.unconfirmed(), 2);
    numbered.push(2, true);
    let mut flush = numbered.pending.flush().unwrap();
    numbered.pending.answer(None);
    assert_eq!(flush.flushed.try_recv(), Ok(0));
}

/// Regression: a flush failed for a newer publish that did not leave, although nsqd had stored all that it waited for.
#[test]
fn a_flush_counts_only_the_commands_before_it() {
    let mut numbered = Numbered::new(&[true]);
    let mut flush = numbered.pending.flush().unwrap();
    numbered.push(1, true);
    numbered.lose(0, 10);
    assert_eq!(numbered.answers(), [WAITS, "not sent"]);
    numbered.resent();
    numbered.push(2, true);
    let exiting = ErrorFrame::new(b"E_PUB_FAILED PUB failed exiting");
    assert!(numbered.pending.answer(Some(&exiting)));
    assert!(numbered.answers()[2].starts_with("declined: "));
    assert!(numbered.pending.answer(None));
    assert_eq!(flush.flushed.try_recv(), Ok(0));
    assert_eq!(numbered.pending.unconfirmed(), 2);
}

/// Regression: a flush that timed out told only of the publishes without an answer, or of nothing.
#[test]
fn a_flush_that_is_given_up_counts_all_unconfirmed_publishes() {
    let permits = Arc::new(Semaphore::new(10));
    let mut pending = pending();
    let mut receivers = Vec::new();
    let mut push = |pending: &mut Pending| {
        let (waiter, receiver) = waiter(&permits);
        pending.push(0..10, waiter, None);
        receivers.push(receiver);
    };
    (0..3).for_each(|_| push(&mut pending));
    let flush = pending.flush().unwrap();
    push(&mut pending);
    let exiting = ErrorFrame::new(b"E_PUB_FAILED PUB failed exiting");
    assert!(pending.answer(Some(&exiting)));
    assert!(pending.answer(None));
    assert_eq!(pending.give_up_flush(&flush), Some(2));
    assert_eq!(pending.give_up_flush(&flush), None);
}

#[test]
fn flushes_whose_futures_were_dropped_do_not_pile_up() {
    let mut numbered = Numbered::new(&[true]);
    for _ in 0..5 {
        drop(numbered.pending.flush().unwrap());
    }
    let _waiting = numbered.pending.flush().unwrap();
    assert_eq!(numbered.pending.flushes.len(), 1);
}

/// Regression: a later flush confirmed the publish, whose outcome nobody knew.
#[test]
fn a_forgotten_publish_whose_second_try_is_refused_is_told() {
    let mut numbered = Numbered::new(&[true]);
    numbered.receivers.clear();
    numbered.lose(0, 10);
    numbered.resent();
    let refusal = ErrorFrame::new(b"E_BAD_MESSAGE x");
    assert!(numbered.pending.answer(Some(&refusal)));
    let unconfirmed = &numbered.pending.account.unconfirmed;
    let forgotten = unconfirmed.tell_forgotten(unconfirmed.mark());
    assert_eq!(forgotten[0].publishes, 1);
}

#[test]
fn answers_belong_to_the_oldest_command() {
    let permits = Arc::new(Semaphore::new(10));
    let mut pending = pending();
    let mut receivers = Vec::new();
    for number in 0..5 {
        let (waiter, receiver) = waiter(&permits);
        pending.push(number * 10..number * 10 + 10, waiter, None);
        receivers.push(receiver);
    }
    let (joining, mut joined) = waiter(&permits);
    pending.join(55, joining, &one("joining"));
    // The second caller goes away.
    drop(receivers.remove(1));
    assert!(pending.answer(None));
    assert!(pending.answer(None));
    assert!(pending.answer(Some(&ErrorFrame::new(b"E_BAD_TOPIC x"))));
    assert_eq!(answer(&mut receivers[0]), "stored");
    assert_eq!(answer(&mut receivers[1]), "E_BAD_TOPIC x");
    assert_eq!(
        permits.available_permits(),
        7,
        "three commands are answered"
    );
    lose(&mut pending, 40);
    assert_eq!(answer(&mut receivers[2]), "lost");
    assert_eq!(answer(&mut receivers[3]), "not sent");
    assert_eq!(answer(&mut joined), "not sent");
    assert_eq!(permits.available_permits(), 10);
    assert_eq!(
        pending.unconfirmed(),
        3,
        "one is lost, and two did not leave"
    );
    assert!(!pending.answer(None), "nothing is pending");
}

#[test]
fn a_flush_ends_with_the_commands_before_it() {
    let permits = Arc::new(Semaphore::new(10));
    let mut pending = pending();
    assert!(pending.flush().is_none());
    let (first, _first) = waiter(&permits);
    pending.push(0..1, first, None);
    let mut flush = pending.flush().unwrap();
    let (second, _second) = waiter(&permits);
    pending.push(1..2, second, None);
    let mut later = pending.flush().unwrap();
    assert_eq!(
        flush.flushed.try_recv(),
        Err(oneshot::error::TryRecvError::Empty)
    );
    assert_eq!((pending.unanswered(1), pending.unanswered(2)), (1, 2));
    pending.answer(None);
    assert_eq!((pending.unanswered(1), pending.unanswered(2)), (0, 1));
    assert_eq!(flush.flushed.try_recv(), Ok(0));
    assert_eq!(
        later.flushed.try_recv(),
        Err(oneshot::error::TryRecvError::Empty)
    );
    lose(&mut pending, 0);
    assert_eq!(later.flushed.try_recv(), Ok(1), "the command did not leave");
}
