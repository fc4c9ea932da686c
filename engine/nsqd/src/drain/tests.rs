use super::*;
use futures_lite::future::block_on;
use parking_lot::Mutex;

/// Shards that owe what the test says. Each call is noted.
#[derive(Clone, Default)]
struct Fake {
    owed: Arc<Mutex<u64>>,
    calls: Arc<Mutex<Vec<bool>>>,
}

impl DrainedShards for Fake {
    fn set_draining(&self, is_draining: bool) {
        self.calls.lock().push(is_draining);
    }

    fn owed(&self) -> Option<Owed> {
        let mut owed = Owed::default();
        owed.waiting += *self.owed.lock();
        Some(owed)
    }
}

const LONG: Duration = Duration::from_secs(60);

/// Starts the thread. The receiver hears of the end.
fn start(owed: u64, timeout: Option<Duration>) -> (Fake, DrainSwitch, Receiver<()>) {
    let fake = Fake::default();
    *fake.owed.lock() = owed;
    let (switch, orders) = switch();
    let (sender, ended) = channel();
    let end = move || sender.send(()).expect("the test waits");
    orders.start(fake.clone(), timeout, end).expect("a thread");
    (fake, switch, ended)
}

#[test]
fn a_drain_ends_when_nothing_is_owed() {
    let (fake, switch, ended) = start(1, None);
    block_on(switch.set(true, "test")).expect("it runs");
    assert!(switch.is_draining());
    assert!(ended.recv_timeout(LOOK_EVERY * 4).is_err());
    *fake.owed.lock() = 0;
    ended.recv_timeout(LONG).expect("it ends");
    assert!(block_on(switch.set(false, "test")).is_err(), "too late");
    assert_eq!(*fake.calls.lock(), [true]);
}

#[test]
fn a_drain_is_taken_back() {
    let (fake, switch, ended) = start(1, None);
    for is_draining in [true, true, false, false] {
        block_on(switch.set(is_draining, "test")).expect("it runs");
        assert_eq!(switch.is_draining(), is_draining);
    }
    *fake.owed.lock() = 0;
    assert!(ended.recv_timeout(LOOK_EVERY * 4).is_err());
    assert_eq!(*fake.calls.lock(), [true, false]);
}

#[test]
fn a_drain_ends_when_its_time_is_over() {
    let (_, switch, ended) = start(1, Some(Duration::from_millis(300)));
    block_on(switch.set(true, "test")).expect("it runs");
    ended.recv_timeout(LONG).expect("it ends");
}

#[test]
fn the_thread_ends_without_switches() {
    let (_, switch, ended) = start(0, None);
    drop(switch);
    assert!(ended.recv_timeout(LONG).is_err());
}
