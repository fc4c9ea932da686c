//! Publishes over a connection whose task takes nothing, or only what the test says.

use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::error::ErrorFrame;
use crate::producer::command::Bodies;
use crate::producer::pending::{Answer, Cause};
use crate::producer::unconfirmed::Unconfirmed;

/// A session, and the connection of the moment.
struct Publishing {
    session: Arc<Session>,
    outbox: Outbox,
    connection: ProducerConnection,
    permits: Arc<Semaphore>,
    unconfirmed: Arc<Unconfirmed>,
}

/// Makes the next connection of a session. Nobody sees its end.
fn connect(session: &Arc<Session>) -> (Outbox, ProducerConnection) {
    let outbox = Outbox::new();
    let (_, over) = watch::channel(None);
    let connection =
        ProducerConnection::new(Arc::clone(session), outbox.clone(), Numbers::Counted, over);
    (outbox, connection)
}

impl Publishing {
    fn new() -> Publishing {
        let (_, over) = watch::channel(());
        let limit = Duration::from_secs(30);
        let unconfirmed: Arc<Unconfirmed> = Arc::default();
        let account = Account {
            unconfirmed: Arc::clone(&unconfirmed),
            node: "a:1".parse().unwrap(),
        };
        let session = Arc::new(Session::new(account, Arc::default(), limit, over));
        let (outbox, connection) = connect(&session);
        Publishing {
            session,
            outbox,
            connection,
            permits: Arc::new(Semaphore::new(10)),
            unconfirmed,
        }
    }

    fn publish(&self, topic: &'static str, body: &'static str) -> Answering {
        let command = Command {
            is_resent: true,
            ..Command::new(topic, Bodies::One(body.into()), None).unwrap()
        };
        let permit = Arc::clone(&self.permits).try_acquire_owned().unwrap();
        let queued =
            self.connection
                .publish(&command, Some(Batching::default()), permit, &mut None);
        queued.expect("the connection is open")
    }

    /// Returns what the task of the connection takes now.
    fn take(&self) -> String {
        let mut taken = Vec::new();
        self.outbox
            .take(&mut Context::from_waker(Waker::noop()), &mut taken);
        String::from_utf8_lossy(&taken).replace("\0\0\0\x01", " ")
    }

    /// Ends the connection, and makes the next one.
    fn reconnect(&mut self) {
        self.outbox.lose();
        self.connection.lose(&Arc::new(ConnectionError::Closed));
        (self.outbox, self.connection) = connect(&self.session);
    }
}

const DRAINING: &[u8] = b"E_PUB_FAILED PUB failed draining, publish to another nsqd";

/// The next message of the topic joined the refused command, which had no place among the publishes any more: the
/// publish panicked.
#[test]
fn no_publish_joins_a_command_that_a_drain_has_refused() {
    let mut publishing = Publishing::new();
    let mut refused = publishing.publish("t", "1");
    let draining = ErrorFrame::new(DRAINING);
    assert!(publishing.session.answer(Some(&draining)));
    assert!(matches!(
        refused.try_recv(),
        Ok((Answer::Returned(Cause::Declined(_), _), _))
    ));
    let mut newer = publishing.publish("t", "2");
    assert_eq!(newer.try_recv().unwrap_err(), TryRecvError::Empty);
    publishing.reconnect();
    assert!(matches!(
        newer.try_recv(),
        Ok((Answer::Returned(Cause::NotSent(_), _), _))
    ));
    assert_eq!(publishing.take(), "", "nothing comes again");
}

/// The newer message became a part of a command that waited for the next nsqd, of another topic and with a wrong
/// number.
#[test]
fn no_publish_joins_a_command_that_comes_again_after_a_drain() {
    let mut publishing = Publishing::new();
    let mut waiting = publishing.publish("a", "1");
    assert_eq!(publishing.take(), "PUB a 0\n 1");
    publishing.reconnect();
    let _refused = publishing.publish("b", "2");
    let draining = ErrorFrame::new(DRAINING);
    assert!(publishing.session.answer(Some(&draining)));
    let mut newer = publishing.publish("b", "3");
    publishing.reconnect();
    assert!(matches!(
        newer.try_recv(),
        Ok((Answer::Returned(Cause::NotSent(_), _), _))
    ));
    assert_eq!(publishing.take(), "PUB a 0\n 1");
    assert!(publishing.session.answer(None));
    assert!(matches!(waiting.try_recv(), Ok((Answer::Stored, _))));
}

/// An nsqd that answers a command before it can have it must not make a later publish panic.
#[test]
fn no_publish_joins_a_command_that_was_answered_too_early() {
    let publishing = Publishing::new();
    let mut early = publishing.publish("t", "1");
    assert!(publishing.session.answer(None));
    assert!(matches!(early.try_recv(), Ok((Answer::Stored, _))));
    let mut newer = publishing.publish("t", "2");
    assert_eq!(newer.try_recv().unwrap_err(), TryRecvError::Empty);
    assert_eq!(publishing.take(), "PUB t 0\n 1PUB t 1\n 2");
}

/// A newer publish that nsqd refuses would fail the flush, although the older one is stored.
#[test]
fn no_publish_joins_a_command_that_a_flush_waits_for() {
    let publishing = Publishing::new();
    let _older = publishing.publish("t", "1");
    let _flushing = publishing.session.begin_flush().unwrap();
    let _newer = publishing.publish("t", "2");
    assert_eq!(publishing.take(), "PUB t 0\n 1PUB t 1\n 2");
}

/// Returns the number of publishes that a flush does not confirm.
async fn flushed(publishing: &Publishing, flushing: Flushing) -> usize {
    let limit = Duration::from_secs(1);
    let unconfirmed = publishing.session.flush(flushing, limit).await;
    unconfirmed.map_or(0, |(publishes, _)| publishes)
}

/// The message is to be sent again, and is stored nowhere until then.
#[tokio::test(start_paused = true)]
async fn a_flush_confirms_no_command_that_was_not_sent() {
    let mut publishing = Publishing::new();
    let mut unsent = publishing.publish("t", "1");
    let flushing = publishing.session.begin_flush().unwrap();
    publishing.reconnect();
    assert_eq!(flushed(&publishing, flushing).await, 1);
    let answer = unsent.try_recv();
    assert!(matches!(
        answer,
        Ok((Answer::Returned(Cause::NotSent(_), _), _))
    ));
    let unconfirmed = &publishing.unconfirmed;
    let mark = unconfirmed.mark();
    assert_eq!(unconfirmed.returning_since(&mark)[0].publishes, 1);
    drop(answer);
    assert_eq!(unconfirmed.tell_forgotten(mark)[0].publishes, 1);
}

#[test]
fn a_forgotten_command_that_was_not_sent_is_told() {
    let mut publishing = Publishing::new();
    drop(publishing.publish("t", "1"));
    publishing.reconnect();
    let unconfirmed = &publishing.unconfirmed;
    let forgotten = unconfirmed.tell_forgotten(unconfirmed.mark());
    assert_eq!(forgotten[0].publishes, 1);
    assert_eq!(
        forgotten[0].reason.to_string(),
        "nsqd closed the connection"
    );
}

/// nsqd has skipped the command, which has not left the outbox.
#[tokio::test(start_paused = true)]
async fn a_flush_confirms_no_command_that_a_refusal_kept_from_being_sent() {
    let mut publishing = Publishing::new();
    let mut refused = publishing.publish("t", "1");
    assert_eq!(publishing.take(), "PUB t 0\n 1");
    let mut unsent = publishing.publish("t", "2");
    let flushing = publishing.session.begin_flush().unwrap();
    let refusal = ErrorFrame::new(b"E_BAD_MESSAGE PUB message too big 3 > 2");
    assert!(publishing.session.answer(Some(&refusal)));
    assert!(matches!(refused.try_recv(), Ok((Answer::Refused(_), _))));
    publishing.reconnect();
    assert!(matches!(
        unsent.try_recv(),
        Ok((Answer::Returned(Cause::Skipped, _), _))
    ));
    assert_eq!(flushed(&publishing, flushing).await, 1);
}
