//! The end of a tool whose threads still work.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nsq_tools::process::run_with_log;
use program::log::{Level, Style};
use tokio::runtime::Handle;
use tokio::time::interval;

/// Regression: the runtime shut down when the work was over. A thread of nsq_to_file that still used its timers panicked,
/// which aborts the process, while the filter's save hung at a disk.
#[test]
fn a_thread_that_still_uses_timers_does_not_panic() {
    let (sender, receiver) = channel();
    let style = Style::of_daemon("a tool");
    run_with_log(Level::Info, style, async |_| {
        let handle = Handle::current();
        // A disk that hangs.
        handle.spawn_blocking(|| thread::sleep(Duration::from_secs(5)));
        let busy = thread::spawn(move || {
            handle.block_on(async {
                let mut ticks = interval(Duration::from_millis(1));
                loop {
                    ticks.tick().await;
                }
            })
        });
        sender.send(busy).map_err(|error| error.to_string())
    });
    let busy: thread::JoinHandle<()> = receiver.recv().expect("the work sent it");
    thread::sleep(Duration::from_millis(500));
    assert!(!busy.is_finished(), "it panicked");
}
