//! Publishes over a connection whose task takes nothing, or only what the test says.

use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::error::ErrorFrame;
use crate::producer::command::Bodies;
use crate::producer::pending::{Answer, Cause};
use crate::producer::permits::Permits;

/// A session, and the connection of the moment.
struct Publishing {
    session: Arc<Session>,
    outbox: Outbox,
    connection: ProducerConnection,
    permits: Permits,
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
        let session = Arc::new(Session::new(Arc::default(), limit, over));
        let (outbox, connection) = connect(&session);
        Publishing {
            session,
            outbox,
            connection,
            permits: Permits::new(10),
        }
    }

    fn publish(&self, topic: &'static str, body: &'static str) -> Answering {
        let command = Command::new(topic, Bodies::One(body.into()), None).unwrap();
        let permit = self.permits.take().now_or_never().unwrap();
        let queued = self.connection.publish(&command, true, permit);
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
        Ok(Answer::Again(Cause::Declined(_), _))
    ));
    let mut newer = publishing.publish("t", "2");
    assert_eq!(newer.try_recv().unwrap_err(), TryRecvError::Empty);
    publishing.reconnect();
    assert!(matches!(
        newer.try_recv(),
        Ok(Answer::Again(Cause::NotSent(_), _))
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
        Ok(Answer::Again(Cause::NotSent(_), _))
    ));
    assert_eq!(publishing.take(), "PUB a 0\n 1");
    assert!(publishing.session.answer(None));
    assert!(matches!(waiting.try_recv(), Ok(Answer::Stored)));
}

/// An nsqd that answers a command before it can have it must not make a later publish panic.
#[test]
fn no_publish_joins_a_command_that_was_answered_too_early() {
    let publishing = Publishing::new();
    let mut early = publishing.publish("t", "1");
    assert!(publishing.session.answer(None));
    assert!(matches!(early.try_recv(), Ok(Answer::Stored)));
    let mut newer = publishing.publish("t", "2");
    assert_eq!(newer.try_recv().unwrap_err(), TryRecvError::Empty);
    assert_eq!(publishing.take(), "PUB t 0\n 1PUB t 1\n 2");
}
