use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

/// A task that counts how often it is woken up.
#[derive(Default)]
struct Task(AtomicUsize);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Task {
    fn wakes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn task() -> (Arc<Task>, Waker) {
    let task = Arc::new(Task::default());
    (Arc::clone(&task), Waker::from(task))
}

fn take(outbox: &Outbox, waker: &Waker) -> (Request, Vec<u8>) {
    let mut taken = Vec::new();
    let request = outbox.take(&mut Context::from_waker(waker), &mut taken);
    (request, taken)
}

fn poll(sent: &mut Sent, waker: &Waker) -> Poll<Result<(), ConnectionLost>> {
    Pin::new(sent).poll(&mut Context::from_waker(waker))
}

#[test]
fn many_commands_wake_the_task_once() {
    let outbox = Outbox::new();
    let (task, waker) = task();
    assert_eq!(take(&outbox, &waker), (Request::Open, vec![]));
    for _ in 0..10 {
        outbox
            .append(|out| out.extend_from_slice(b"NOP\n"))
            .unwrap();
    }
    assert_eq!(task.wakes(), 1);
    let (_, taken) = take(&outbox, &waker);
    assert_eq!(taken, b"NOP\n".repeat(10));
}

#[test]
fn a_task_whose_stream_is_full_is_woken_by_a_request_only() {
    let outbox = Outbox::new();
    let (task, waker) = task();
    assert_eq!(
        outbox.watch(&mut Context::from_waker(&waker)),
        Request::Open
    );
    outbox.append(|out| out.push(b'x')).unwrap();
    assert_eq!(task.wakes(), 0);
    outbox.abort();
    assert_eq!(task.wakes(), 1);
    assert_eq!(take(&outbox, &waker).0, Request::Abort);
}

#[test]
fn a_position_is_sent_when_the_stream_took_it() {
    let outbox = Outbox::new();
    let (first, first_waker) = task();
    let (second, second_waker) = task();
    let one = outbox
        .append(|out| out.extend_from_slice(b"12345"))
        .unwrap();
    let two = outbox.append(|out| out.extend_from_slice(b"678")).unwrap();
    let (mut one, mut two) = (outbox.sent(one), outbox.sent(two));
    assert!(poll(&mut one, &first_waker).is_pending());
    assert!(poll(&mut two, &second_waker).is_pending());
    outbox.count_sent(5);
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    assert_eq!(poll(&mut one, &first_waker), Poll::Ready(Ok(())));
    assert!(poll(&mut two, &second_waker).is_pending());
    outbox.lose();
    assert_eq!(second.wakes(), 1);
    assert_eq!(
        poll(&mut two, &second_waker),
        Poll::Ready(Err(ConnectionLost))
    );
    assert_eq!(poll(&mut one, &first_waker), Poll::Ready(Ok(())));
}

#[test]
fn a_closed_outbox_keeps_its_output_and_refuses_more() {
    let outbox = Outbox::new();
    let (_, waker) = task();
    outbox.append(|out| out.push(b'x')).unwrap();
    outbox.close();
    let refused = outbox.append(|_| panic!("a refused command is not written"));
    assert_eq!(refused, Err(ConnectionLost));
    assert_eq!(take(&outbox, &waker), (Request::Close, b"x".to_vec()));
    assert_eq!(take(&outbox, &waker), (Request::Close, vec![]));
}
