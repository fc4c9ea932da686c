//! Consumers whose filter is saved while the disk hangs.

use std::path::Path;

use parking_lot::Condvar;

use super::*;
use crate::dedup::filters::InverseBloom;
use crate::dedup::{Dedup, DedupBuilder, Key};

/// The longest time that a test waits for threads, which have real time.
const REAL_TIMEOUT: Duration = Duration::from_secs(30);

/// A disk that hangs. Each save that begins waits for it.
#[derive(Clone, Default)]
struct Disk(Arc<(Mutex<DiskState>, Condvar)>);

#[derive(Default)]
struct DiskState {
    /// The number of saves that have begun.
    saves: usize,
    answers: bool,
}

impl Disk {
    fn filter(&self, path: &Path) -> DedupBuilder {
        let disk = self.clone();
        let filter = InverseBloom::new(100).expect("slots");
        Dedup::builder(Key::body(), filter)
            .state_file(path)
            .before_save(move || disk.wait())
    }

    fn wait(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        state.saves += 1;
        while !state.answers {
            changed.wait(&mut state);
        }
    }

    /// Lets the disk answer from now on.
    fn answer(&self) {
        let (state, changed) = &*self.0;
        state.lock().answers = true;
        changed.notify_all();
    }

    fn saves(&self) -> usize {
        self.0.0.lock().saves
    }
}

/// Waits for other threads.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + REAL_TIMEOUT;
    while !is_so() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(MS(1));
        tokio::task::yield_now().await;
    }
}

/// Each interval began a further save, although the one before hung, and each held a thread and a snapshot of the
/// filter.
#[tokio::test(start_paused = true)]
async fn saves_do_not_pile_up_while_the_disk_hangs() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let disk = Disk::default();
    let dedup = disk.filter(&path).save_interval(MS(1000)).build();
    let (dedup, log) = (dedup.expect("complete"), Log::default());
    let (_server, mut nsqd, consumer) =
        ready_with(1, |builder| builder.dedup(dedup).events(log.callback())).await;
    for _ in 0..10 {
        tokio::time::advance(MS(1001)).await;
        tokio::task::yield_now().await;
    }
    wait_until("a save begins", || disk.saves() > 0).await;
    assert_eq!(disk.saves(), 1);
    let delayed = "still being written to";
    log.expect(delayed, 1);
    let control = consumer.control();
    let stopping = tokio::spawn(async move { control.shutdown().await });
    close(&mut nsqd).await;
    drop(nsqd);
    disk.answer();
    wait_until("the consumer ends", || stopping.is_finished()).await;
    // The save in between, and the one at the end.
    assert_eq!(disk.saves(), 2);
    assert!(path.exists());
}

/// Each consumer that ended held a thread while it waited for the saves of the others, and then saved the filter again.
#[test]
fn consumers_that_end_share_a_thread_and_a_save() {
    const CONSUMERS: usize = 6;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let disk = Disk::default();
    let dedup = disk.filter(&path).build().expect("complete");
    let log = Log::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .expect("a runtime");
    let is_free = runtime.block_on(async {
        let network = MockNetwork::new();
        let broker = network.broker("n1:4150");
        let mut consumers = Vec::new();
        for _ in 0..CONSUMERS {
            let builder = builder(&network, 1).node(broker.address());
            let builder = builder.dedup(dedup.clone()).events(log.callback());
            consumers.push(builder.connect().await.expect("complete"));
        }
        let stops: Vec<_> = consumers
            .iter()
            .map(|consumer| {
                let control = consumer.control();
                tokio::spawn(async move { control.shutdown().await })
            })
            .collect();
        let ended = "messages were fresh";
        wait_until("all consumers end", || log.count(ended) == CONSUMERS).await;
        wait_until("a save begins", || disk.saves() > 0).await;
        // The application has the other thread.
        let other = timeout(MS(30_000), tokio::task::spawn_blocking(|| ())).await;
        disk.answer();
        for stop in stops {
            stop.await.expect("no panic");
        }
        other.is_ok()
    });
    assert!(is_free, "{:?}", log.lines());
    // One that hung, and one for all consumers that ended meanwhile.
    assert!(disk.saves() <= 2, "{} saves", disk.saves());
    let saved = "the filter is saved in";
    log.expect(saved, CONSUMERS);
    assert!(path.exists());
}

/// The end of the interval was no time, and its computation ended the consumer.
#[tokio::test(start_paused = true)]
async fn a_filter_with_a_very_long_interval_is_saved_at_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("state");
    let disk = Disk::default();
    disk.answer();
    let dedup = disk.filter(&path).save_interval(Duration::MAX).build();
    let network = MockNetwork::new();
    let broker = network.broker("n1:4150");
    broker.publish("t", "a");
    let builder = builder(&network, 1).node(broker.address());
    let builder = builder.dedup(dedup.expect("complete"));
    let mut consumer = connected(builder).await;
    next(&mut consumer).await.finish();
    consumer.control().shutdown().await;
    assert_eq!(disk.saves(), 1);
    assert!(path.exists());
}
