use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::producer::command::Bodies;
use crate::producer::permits::Permits;

fn answer(receiver: &mut Answering) -> String {
    match receiver.try_recv() {
        Ok(Answer::Stored) => "stored".into(),
        Ok(Answer::Refused(error)) => error.to_string(),
        Ok(Answer::ResendRefused(error)) => format!("resend refused: {error}"),
        Ok(Answer::Lost(_)) => "lost".into(),
        Ok(Answer::Again(cause, _permit)) => match cause {
            Cause::Declined(error) => format!("declined: {error}"),
            Cause::Alone => "alone".into(),
            Cause::NotSent(_) => "not sent".into(),
            Cause::Skipped => "skipped".into(),
        },
        Err(error) => error.to_string(),
    }
}

fn one(body: &'static str) -> Command<'static> {
    Command::new("t", Bodies::One(body.into()), None).unwrap()
}

/// Commands of one message and 10 bytes each, and the losses of their connections.
struct Publishing {
    pending: Pending,
    permits: Permits,
    receivers: Vec<Answering>,
    began_at: Instant,
    given_back: Vec<u64>,
}

/// The time for which numbered commands stay.
const LIMIT: Duration = Duration::from_secs(10);

impl Publishing {
    /// Begins with so many commands, with numbers or without.
    fn new(count: u64, has_numbers: bool) -> Publishing {
        let mut publishing = Publishing {
            pending: Pending::default(),
            permits: Permits::new(10),
            receivers: Vec::new(),
            began_at: Instant::now(),
            given_back: Vec::new(),
        };
        (0..count).for_each(|number| publishing.push(number, has_numbers));
        publishing
    }

    fn waiter(&mut self) -> Waiter {
        let (answer, receiver) = oneshot::channel();
        self.receivers.push(receiver);
        let permit = self.permits.take().now_or_never().unwrap();
        Waiter { answer, permit }
    }

    fn push(&mut self, number: u64, has_number: bool) {
        let kept = has_number.then(|| Box::new(Kept::new(&one("body"), number)));
        let (place, waiter) = (number * 10..number * 10 + 10, self.waiter());
        self.pending.push(place, waiter, kept);
    }

    fn lose(&mut self, after: u64, taken: u64) {
        let now = self.began_at + Duration::from_secs(after);
        let (error, given_back) = (Arc::new(ConnectionError::Closed), &mut self.given_back);
        let give_back = |topic: &str, numbers| {
            assert_eq!(topic, "t");
            given_back.extend(numbers);
        };
        let (taken, keep) = (Position(taken), Some(now + LIMIT));
        self.pending.lose(&error, taken, keep, now, give_back);
    }

    fn refuse(&mut self, error: &str) {
        let refusal = ErrorFrame::new(error.as_bytes());
        assert!(self.pending.answer(Some(&refusal)));
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
    let mut numbered = Publishing::new(5, true);
    numbered.lose(0, 30);
    assert_eq!(
        numbered.answers(),
        [WAITS, WAITS, WAITS, "not sent", "not sent"]
    );
    assert_eq!(numbered.given_back, [4, 3], "their numbers are used again");
    let resent = "PUB t 0\n bodyPUB t 1\n bodyPUB t 2\n body";
    assert_eq!(numbered.resent(), resent);
    // The next connection is lost before anything has left. What may have left before stays all the same.
    numbered.push(3, true);
    numbered.lose(1, 0);
    assert_eq!(numbered.resent(), resent);
    assert!((0..3).all(|_| numbered.pending.answer(None)));
    let answers = numbered.answers();
    assert_eq!(answers[..3], ["stored", "stored", "stored"]);
    assert_eq!(answers[5], "not sent");
}

#[test]
fn the_time_of_a_command_begins_with_the_first_loss() {
    let mut numbered = Publishing::new(1, true);
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
}

#[test]
fn the_refusal_of_a_second_try_says_nothing_of_the_first_one() {
    let mut numbered = Publishing::new(2, true);
    numbered.lose(0, 20);
    numbered.resent();
    numbered.refuse("E_PUB_FAILED PUB failed exiting");
    assert_eq!(numbered.answers(), [WAITS, WAITS], "the next nsqd decides");
    numbered.refuse("E_BAD_MESSAGE x");
    assert!(numbered.pending.answer(None));
    assert_eq!(
        numbered.answers(),
        ["resend refused: E_BAD_MESSAGE x", "stored"]
    );
}

/// A newer numbered publish is declined, and the older one, which was lost before, waits for the next nsqd.
#[test]
fn a_drain_declines_the_new_commands() {
    let mut numbered = Publishing::new(1, true);
    numbered.lose(0, 10);
    numbered.resent();
    numbered.push(1, true);
    numbered.push(2, true);
    numbered.refuse("E_PUB_FAILED PUB failed exiting");
    let declined = "declined: E_PUB_FAILED PUB failed exiting";
    assert_eq!(numbered.answers(), [WAITS, declined, declined]);
}

#[test]
fn answers_belong_to_the_oldest_command() {
    let mut publishing = Publishing::new(5, false);
    let joining = publishing.waiter();
    publishing.pending.join(55, joining, &one("joining"));
    assert_eq!(publishing.pending.publishes(), 6);
    // The second caller goes away.
    drop(publishing.receivers.remove(1));
    assert!(publishing.pending.answer(None));
    assert!(publishing.pending.answer(None));
    publishing.refuse("E_BAD_TOPIC x");
    // An answer gives its permit back, although its caller has not looked.
    assert_eq!(publishing.permits.available_permits(), 7);
    publishing.lose(0, 40);
    assert_eq!(
        publishing.answers(),
        ["stored", "E_BAD_TOPIC x", "lost", "not sent", "not sent"]
    );
    assert_eq!(publishing.permits.available_permits(), 10);
    assert!(!publishing.pending.answer(None), "nothing is pending");
}

/// The callers still have to send these publishes again, so a flush waits for them.
#[test]
fn a_publish_that_is_sent_again_keeps_its_permit() {
    let mut publishing = Publishing::new(2, false);
    publishing.refuse("E_BAD_BODY MPUB failed to read body");
    publishing.lose(0, 20);
    assert_eq!(publishing.permits.available_permits(), 8);
    assert_eq!(
        publishing.answers(),
        ["declined: E_BAD_BODY MPUB failed to read body", "skipped"]
    );
}
