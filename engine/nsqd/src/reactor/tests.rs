use super::*;
use crate::net::socket::Stream;
use futures_channel::{mpsc, oneshot};
use futures_lite::{AsyncReadExt, AsyncWriteExt, StreamExt, future};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

/// Starts a task that counts its turns, as long as the task is kept.
pub(crate) fn count_turns() -> (Rc<Cell<usize>>, Task<()>) {
    let turns = Rc::new(Cell::new(0));
    let counted = turns.clone();
    let task = spawn(async move {
        loop {
            counted.set(counted.get() + 1);
            future::yield_now().await;
        }
    });
    (turns, task)
}

thread_local! {
    static ENGINE: Cell<Engine> = const { Cell::new(Engine::Epoll) };
}

/// Makes each function a test of one engine, which is left out where the engine cannot run.
macro_rules! on_engine {
    ($module:ident, $engine:ident: $($test:ident),* $(,)?) => {
        mod $module {
            use crate::preflight::is_usable;

            $(
                #[test]
                fn $test() {
                    if is_usable(super::Engine::$engine) {
                        super::ENGINE.set(super::Engine::$engine);
                        super::$test();
                    }
                }
            )*
        }
    };
}

/// Makes each function a test of each engine.
macro_rules! on_each_engine {
    ($($test:ident),* $(,)?) => {
        #[cfg(target_os = "linux")]
        on_engine!(io_uring, IoUring: $($test),*);
        on_engine!(epoll, Epoll: $($test),*);
        #[cfg(feature = "glommio")]
        on_engine!(glommio, Glommio: $($test),*);
    };
}

on_each_engine! {
    the_result_is_that_of_the_future_and_what_is_left_is_dropped,
    a_task_that_a_foreign_thread_could_still_wake_is_dropped_here,
    sleeping_takes_its_time_and_ends_in_order,
    an_alarm_that_moves_is_one_timer_and_comes_at_its_end,
    other_threads_wake_a_sleeping_one_and_no_wake_up_is_lost,
    more_sockets_than_fit_a_submission_are_all_told,
    a_full_socket_is_waited_for,
    a_socket_wakes_whom_it_was_told_to_once,
    a_task_that_never_rests_leaves_the_others_their_turn,
    those_that_come_last_take_turns_though_others_never_rest,
}

// glommio's ring is io_uring, too, and glommio does not show what it tells.
#[cfg(target_os = "linux")]
on_engine!(rest_on_io_uring, IoUring: a_full_socket_of_a_peer_that_ended_its_side_is_waited_for_at_rest);
on_engine!(rest_on_epoll, Epoll: a_full_socket_of_a_peer_that_ended_its_side_is_waited_for_at_rest);

// glommio looks at its rings after a time, not after so many bytes.
#[cfg(target_os = "linux")]
on_engine!(turns_on_io_uring, IoUring: a_socket_that_always_has_more_leaves_the_others_their_turn);
on_engine!(turns_on_epoll, Epoll: a_socket_that_always_has_more_leaves_the_others_their_turn);

/// Runs a future on the engine that this thread tests.
fn run<T: 'static>(future: impl Future<Output = T> + 'static) -> T {
    super::run(ENGINE.get(), future).expect("the engine works")
}

/// Two ends of a connection.
fn pair() -> (Stream, Stream) {
    let (left, right) = UnixStream::pair().expect("descriptors are left");
    let stream = |end: UnixStream| {
        end.set_nonblocking(true).expect("a socket");
        Stream::adopt(OwnedFd::from(end).into())
    };
    (stream(left), stream(right))
}

/// Sets a flag when it is dropped.
struct Flag(Rc<Cell<bool>>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

fn the_result_is_that_of_the_future_and_what_is_left_is_dropped() {
    let dropped = Rc::new(Cell::new(false));
    let flag = Flag(Rc::clone(&dropped));
    let value = run(async move {
        spawn(async move {
            let _flag = flag;
            future::pending::<()>().await;
        })
        .detach();
        future::yield_now().await;
        spawn(async { 6 }).await * 7
    });
    assert_eq!(value, 42);
    assert!(dropped.get());
    // The thread can run another.
    assert_eq!(run(async { 1 }), 1);
}

fn a_task_that_a_foreign_thread_could_still_wake_is_dropped_here() {
    let (sender, receiver) = oneshot::channel::<()>();
    let dropped = Rc::new(Cell::new(false));
    let flag = Flag(Rc::clone(&dropped));
    run(async move {
        spawn(async move {
            let _flag = flag;
            let _ = receiver.await;
        })
        .detach();
        future::yield_now().await;
    });
    assert!(dropped.get());
    // Nobody is there to be woken, and nothing is touched from there.
    thread::spawn(move || assert!(sender.send(()).is_err()))
        .join()
        .expect("no panic");
}

fn sleeping_takes_its_time_and_ends_in_order() {
    let ended = run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let sleepers: Vec<_> = [300, 100, 200]
            .into_iter()
            .map(|ms| {
                let order = Rc::clone(&order);
                spawn(async move {
                    let start = Instant::now();
                    sleep(Duration::from_millis(ms)).await;
                    assert!(start.elapsed() >= Duration::from_millis(ms));
                    order.borrow_mut().push(ms);
                })
            })
            .collect();
        // One that nobody waits for any more.
        drop(sleep(Duration::from_millis(1)));
        for sleeper in sleepers {
            sleeper.await;
        }
        assert!(current().reactor.timers.borrow().next().is_none());
        order.take()
    });
    assert_eq!(ended, [100, 200, 300]);
}

fn an_alarm_that_moves_is_one_timer_and_comes_at_its_end() {
    run(async {
        let start = Instant::now();
        let mut alarm = Alarm::new();
        let mut looks = 0;
        future::poll_fn(|cx| {
            looks += 1;
            let now = Instant::now();
            if now >= start + Duration::from_millis(40) {
                return Poll::Ready(());
            }
            // Later each time, like the end of a wait that begins again and again.
            for us in 0..1000 {
                let end = now + Duration::from_micros(5000 + us);
                assert!(alarm.poll(cx, now, end).is_pending());
            }
            assert_eq!(current().reactor.timers.borrow().count(), 1);
            Poll::Pending
        })
        .await;
        assert!(
            (2..20).contains(&looks),
            "{looks}: woken by the timer alone"
        );
        // Earlier than it was.
        let start = Instant::now();
        future::poll_fn(|cx| {
            let now = Instant::now();
            let late = alarm.poll(cx, now, start + Duration::from_secs(3600));
            assert!(late.is_pending());
            alarm.poll(cx, now, start + Duration::from_millis(10))
        })
        .await;
        drop(alarm);
        assert_eq!(current().reactor.timers.borrow().count(), 0);
    });
}

fn other_threads_wake_a_sleeping_one_and_no_wake_up_is_lost() {
    // Each round goes to sleep on one side while the other side sends: where a wake-up could fall
    // between looking and sleeping, one of these would.
    const ROUNDS: u32 = 20_000;
    let (to_there, mut there) = mpsc::unbounded::<u32>();
    let (to_here, mut here) = mpsc::unbounded::<u32>();
    let engine = ENGINE.get();
    let other = thread::spawn(move || {
        ENGINE.set(engine);
        run(async move {
            while let Some(number) = there.next().await {
                to_here.unbounded_send(number).expect("waits");
            }
        });
    });
    let sum = run(async move {
        let mut sum = 0;
        for round in 0..ROUNDS {
            to_there.unbounded_send(round).expect("waits");
            sum += u64::from(here.next().await.expect("answers"));
        }
        sum
    });
    assert_eq!(sum, u64::from(ROUNDS) * u64::from(ROUNDS - 1) / 2);
    other.join().expect("ended with its channel");
}

fn more_sockets_than_fit_a_submission_are_all_told() {
    const COUNT: u16 = 300;
    run(async {
        let mut writers = Vec::new();
        let mut readers = Vec::new();
        for index in 0..COUNT {
            let (mut left, right) = pair();
            readers.push(spawn(async move {
                let mut bytes = [0; 2];
                left.read_exact(&mut bytes).await.expect("two bytes");
                assert_eq!(u16::from_le_bytes(bytes), index);
                assert_eq!(left.read(&mut bytes).await.expect("the end"), 0);
            }));
            let mut right = right;
            writers.push(spawn(async move {
                sleep(Duration::from_millis(1)).await;
                right
                    .write_all(&index.to_le_bytes())
                    .await
                    .expect("connected");
                right
            }));
        }
        for writer in writers {
            drop(writer.await);
        }
        for reader in readers {
            reader.await;
        }
        assert_eq!(current().reactor.sources.borrow().len(), 0);
    });
}

fn a_full_socket_is_waited_for() {
    run(async {
        let (mut left, mut right) = pair();
        let bytes: Vec<u8> = (0..4_000_000u32).map(|index| index as u8).collect();
        let sent = bytes.clone();
        let writer = spawn(async move {
            left.write_all(&sent).await.expect("connected");
        });
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let mut part = vec![0; 100_000];
            let count = right.read(&mut part).await.expect("connected");
            assert!(count > 0, "the writer is not done");
            got.extend_from_slice(&part[..count]);
        }
        writer.await;
        assert!(got == bytes);
    });
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(std::sync::atomic::AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// io_uring answers each poll of such a socket at once. A thread was busy with that until the peer read.
fn a_full_socket_of_a_peer_that_ended_its_side_is_waited_for_at_rest() {
    run(async {
        let (left, mut right) = pair();
        right.close().await.expect("connected");
        let chunk = [7; 64 * 1024];
        let mut filled = 0;
        while let Some(bytes) = left.send(&[IoSlice::new(&chunk)]).expect("connected") {
            filled += bytes;
        }
        let polls = Rc::new(Cell::new(0));
        let counted = Rc::clone(&polls);
        let writer = spawn(future::poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            match left.send(&[IoSlice::new(b"end")]).expect("connected") {
                Some(bytes) => Poll::Ready(bytes),
                None => {
                    left.wait_writable(cx);
                    Poll::Pending
                }
            }
        }));
        sleep(Duration::from_millis(200)).await;
        assert!(polls.get() <= 30, "{} polls", polls.get());
        let mut bytes = vec![0; filled];
        right.read_exact(&mut bytes).await.expect("connected");
        assert_eq!(writer.await, 3);
    });
}

fn a_socket_wakes_whom_it_was_told_to_once() {
    run(async {
        let (mut left, right) = pair();
        let count = Arc::new(Count::default());
        let woken = || count.0.load(std::sync::atomic::Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let mut bytes = [0; 10];
        for round in 1..=3 {
            assert!(right.poll_read(&cx, &mut bytes).is_pending());
            for _ in 0..3 {
                // Nobody waits when the second comes.
                left.write_all(b"x").await.expect("connected");
                sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(woken(), round);
            let read = right.poll_read(&cx, &mut bytes);
            assert!(matches!(read, Poll::Ready(Ok(3))), "{read:?}");
        }
        drop(left);
        assert!(right.poll_read(&cx, &mut bytes).is_pending());
        sleep(Duration::from_millis(5)).await;
        assert_eq!(woken(), 4, "the end is told, too");
        let read = right.poll_read(&cx, &mut bytes);
        assert!(matches!(read, Poll::Ready(Ok(0))), "{read:?}");
    });
}

/// Is always ready, until `is_done`.
async fn never_rest(is_done: Rc<Cell<bool>>) {
    while !is_done.get() {
        future::yield_now().await;
    }
}

fn a_task_that_never_rests_leaves_the_others_their_turn() {
    run(async {
        let is_done = Rc::new(Cell::new(false));
        let restless = spawn(never_rest(Rc::clone(&is_done)));
        let (mut left, mut right) = pair();
        let reader = spawn(async move {
            let mut byte = [0];
            right.read_exact(&mut byte).await.expect("one byte");
        });
        sleep(Duration::from_millis(2)).await;
        left.write_all(b"x").await.expect("connected");
        reader.await;
        is_done.set(true);
        restless.await;
    });
}

const CHUNK: usize = 64 * 1024;

/// The pause of a reader after each read.
#[derive(Clone, Copy)]
enum Pause {
    No,
    Yields,
    ComesLast,
}

/// Returns the most bytes that are read of a socket that always has more, before a byte of another one is seen.
fn read_before_others(pause: Pause) -> usize {
    let (flood, source) = UnixStream::pair().expect("descriptors are left");
    // Ends with an error when the other end is closed.
    let writer = thread::spawn(move || while (&source).write_all(&[7; CHUNK]).is_ok() {});
    let worst = run(async move {
        flood.set_nonblocking(true).expect("a socket");
        let mut flood = Stream::adopt(OwnedFd::from(flood).into());
        let (mut near, mut far) = pair();
        let seen = Rc::new(Cell::new(0));
        let count = Rc::clone(&seen);
        spawn(async move {
            let mut byte = [0];
            while far.read_exact(&mut byte).await.is_ok() {
                count.set(count.get() + 1);
            }
        })
        .detach();
        let mut buffer = vec![0; CHUNK];
        let mut worst = 0;
        for number in 1..=20 {
            near.write_all(&[1]).await.expect("room for a byte");
            let mut bytes = 0;
            while seen.get() < number {
                bytes += flood.read(&mut buffer).await.expect("more");
                match pause {
                    Pause::No => {}
                    Pause::Yields => future::yield_now().await,
                    Pause::ComesLast => come_last().await,
                }
            }
            worst = worst.max(bytes);
        }
        worst
    });
    writer.join().expect("no panic");
    worst
}

fn a_socket_that_always_has_more_leaves_the_others_their_turn() {
    let worst = read_before_others(Pause::Yields);
    // The read that was under way, and the task that comes before the look.
    assert!(worst <= BYTES_PER_LOOK + 3 * CHUNK, "{worst} bytes");
    let worst = read_before_others(Pause::ComesLast);
    // The piece before the look that sees it.
    assert!(worst <= CHUNK, "{worst} bytes");
    let worst = read_before_others(Pause::No);
    // Two polls: the one that was under way, and the one before the look.
    assert!(worst <= 2 * (BYTES_PER_POLL + CHUNK), "{worst} bytes");
}

fn those_that_come_last_take_turns_though_others_never_rest() {
    run(async {
        let is_done = Rc::new(Cell::new(false));
        let restless = spawn(never_rest(Rc::clone(&is_done)));
        // Is gone before its turn.
        drop(spawn(come_last()));
        let cancelled = spawn(come_last());
        future::yield_now().await;
        let counts = [(); 3].map(|()| Rc::new(Cell::new(0)));
        let tasks = counts.clone().map(|count| {
            spawn(async move {
                while count.get() < 100 {
                    come_last().await;
                    count.set(count.get() + 1);
                }
            })
        });
        drop(cancelled);
        let watched = counts.clone();
        let watcher = spawn(async move {
            while watched[0].get() < 100 {
                let seen = watched.each_ref().map(|count| count.get());
                let least = seen.iter().min().expect("three");
                assert!(seen.iter().all(|count| count - least <= 1), "{seen:?}");
                future::yield_now().await;
            }
        });
        for task in tasks {
            task.await;
        }
        watcher.await;
        is_done.set(true);
        restless.await;
        // Nobody else is ready: nothing keeps it from its turn, and nothing wakes the ring.
        come_last().await;
    });
}

#[test]
fn a_wake_up_before_the_sleep_prevents_it() {
    let notify = Driver::new(Engine::Epoll).expect("descriptors are left").1;
    assert!(notify.announce_sleep());
    notify.announce_awake();
    notify.wake_by_ref();
    assert!(!notify.announce_sleep(), "there was a wake-up");
    notify.announce_awake();
    assert!(notify.announce_sleep(), "it was seen");
}

#[test]
fn timers_come_up_by_time_once_each() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut timers = Timers::default();
    let waker = Waker::noop();
    let late = timers.set(at(20), waker.clone());
    timers.set(at(10), waker.clone());
    timers.set(at(10), waker.clone());
    assert_eq!(timers.next(), Some(at(10)));
    assert!(timers.take_due(at(9)).is_none());
    assert!(timers.take_due(at(10)).is_some());
    assert!(timers.take_due(at(10)).is_some());
    assert!(timers.take_due(at(19)).is_none());
    timers.remove(late);
    assert!(timers.take_due(at(100)).is_none());
    assert_eq!(timers.next(), None);
}

#[test]
fn a_task_has_a_turn_after_much_work_that_is_no_read() {
    super::run(Engine::Epoll, async {
        for _ in 0..2 {
            assert!(!is_budget_spent());
            count_work(BYTES_PER_POLL - 1);
            assert!(!is_budget_spent());
            count_work(1);
            assert!(is_budget_spent());
            future::yield_now().await;
        }
    })
    .expect("the engine works");
}

/// A sleep overran the timer. Opened by a spin that took longer than its window, because another thread had the
/// processor.
#[test]
fn a_sleep_ends_at_the_timer_however_long_the_spin_took() {
    let start = Instant::now();
    let ms = Duration::from_millis;
    let timer = Some(start + ms(10));
    assert_eq!(time_left(timer, Some(false), start + ms(8)), Some(ms(2)));
    assert_eq!(time_left(timer, Some(false), start + ms(11)), Some(ms(0)));
    assert_eq!(time_left(timer, None, start), Some(ms(10)));
    assert_eq!(time_left(None, Some(false), start + ms(8)), None);
    for timer in [timer, None] {
        assert_eq!(
            time_left(timer, Some(true), start),
            Some(ms(0)),
            "an answer is there"
        );
    }
}
