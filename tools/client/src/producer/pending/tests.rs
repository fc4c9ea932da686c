use tokio::sync::Semaphore;

use super::*;

type Receiver = oneshot::Receiver<(Answer, OwnedSemaphorePermit)>;

fn waiter(permits: &Arc<Semaphore>) -> (Waiter, Receiver) {
    let (answer, receiver) = oneshot::channel();
    let permit = Arc::clone(permits).try_acquire_owned().unwrap();
    (Waiter { answer, permit }, receiver)
}

fn answer(receiver: &mut Receiver) -> String {
    match receiver.try_recv() {
        Ok((Answer::Stored, _)) => "stored".into(),
        Ok((Answer::Refused { error, is_alone }, _)) => format!("{error} {is_alone}"),
        Ok((Answer::NotSent(_), _)) => "not sent".into(),
        Ok((Answer::Lost(_), _)) => "lost".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn answers_belong_to_the_oldest_command() {
    let permits = Arc::new(Semaphore::new(10));
    let mut pending = Pending::default();
    let mut receivers = Vec::new();
    for number in 0..5 {
        let (waiter, receiver) = waiter(&permits);
        pending.push(number * 10..number * 10 + 10, waiter);
        receivers.push(receiver);
    }
    let (joining, mut joined) = waiter(&permits);
    pending.join(55, joining);
    // The second caller goes away.
    drop(receivers.remove(1));
    assert!(pending.answer(None));
    assert!(pending.answer(None));
    assert!(pending.answer(Some(&ErrorFrame::new(b"E_BAD_TOPIC x"))));
    assert_eq!(answer(&mut receivers[0]), "stored");
    assert_eq!(answer(&mut receivers[1]), "E_BAD_TOPIC x true");
    assert_eq!(
        permits.available_permits(),
        7,
        "three commands are answered"
    );
    pending.lose(&Arc::new(ConnectionError::Closed), Position(40));
    assert_eq!(answer(&mut receivers[2]), "lost");
    assert_eq!(answer(&mut receivers[3]), "not sent");
    assert_eq!(answer(&mut joined), "not sent");
    assert_eq!(permits.available_permits(), 10);
    assert_eq!(pending.unknown(), 1, "the others certainly did not leave");
    assert!(!pending.answer(None), "nothing is pending");
}

#[test]
fn a_flush_ends_with_the_commands_before_it() {
    let permits = Arc::new(Semaphore::new(10));
    let mut pending = Pending::default();
    assert!(pending.flush().is_none());
    let (first, _first) = waiter(&permits);
    pending.push(0..1, first);
    let mut flush = pending.flush().unwrap();
    let (second, _second) = waiter(&permits);
    pending.push(1..2, second);
    let mut later = pending.flush().unwrap();
    assert_eq!(flush.1.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    assert_eq!(
        (pending.unanswered(flush.0), pending.unanswered(later.0)),
        (1, 2)
    );
    pending.answer(None);
    assert_eq!(
        (pending.unanswered(flush.0), pending.unanswered(later.0)),
        (0, 1)
    );
    assert_eq!(flush.1.try_recv(), Ok(0));
    assert_eq!(later.1.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    pending.lose(&Arc::new(ConnectionError::Closed), Position(0));
    assert_eq!(later.1.try_recv(), Ok(0));
}
