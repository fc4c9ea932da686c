//! Checks with a real memcached on the same machine, over a unix socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use divan::Bencher;
use divan::counter::ItemsCount;
use ringq_dedup::{Memcached, MemcachedOptions, SharedBegin};
use test_support::memcached::Memcached as Server;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::{MESSAGES, WINDOW, of_body};

/// Messages of one run. Each takes two requests to memcached.
const CHECKS: u64 = 10_000;
/// Memory that holds all messages, so that memcached evicts none.
const MEMORY_MIB: u32 = 1024;

/// A memcached that remembers `MESSAGES` messages.
struct Full {
    server: Server,
    /// The bytes that it takes for them.
    bytes: u64,
}

/// Starts and fills a memcached. `None`: the machine has none.
fn full() -> Option<Full> {
    let server = Server::with_memory(MEMORY_MIB)?;
    let mut stream = UnixStream::connect(server.socket()).expect("memcached listens");
    let mut commands = String::new();
    for number in 0..MESSAGES {
        let key = of_body(number).0;
        commands += &format!("set nsq:{key:032x} 0 3600 4 noreply\r\ndone\r\n");
        if commands.len() > 1 << 16 {
            stream.write_all(commands.as_bytes()).expect("it reads");
            commands.clear();
        }
    }
    // memcached ends the connection when it has carried out all commands.
    commands += "quit\r\n";
    stream.write_all(commands.as_bytes()).expect("it reads");
    stream.read_to_end(&mut Vec::new()).expect("it ends");
    assert_eq!(server.stat("curr_items"), MESSAGES, "none was evicted");
    let bytes = server.stat("bytes");
    Some(Full { server, bytes })
}

/// Returns the bytes that memcached takes for the messages.
pub(super) fn bytes() -> Option<u64> {
    Some(full()?.bytes)
}

async fn check(store: &Memcached, number: u64) {
    let begun = store.begin(of_body(number), WINDOW).await;
    if let SharedBegin::Fresh(lease) = begun.expect("memcached answers") {
        lease.commit().await.expect("memcached answers");
    }
}

/// Measures with this number of checks at a time.
#[divan::bench(args = [1, 8, 64])]
fn memcached(bencher: Bencher<'_, '_>, at_a_time: u64) {
    let Some(Full { server, .. }) = full() else {
        return;
    };
    let runtime: Runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let options = MemcachedOptions {
        connections: at_a_time as usize,
        ..MemcachedOptions::new(&server.address())
    };
    let store = Memcached::new(options).expect("valid options");
    let mut next = MESSAGES;
    bencher.counter(ItemsCount::new(CHECKS)).bench_local(|| {
        let from = next;
        next += CHECKS;
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for task in 0..at_a_time {
                let store = store.clone();
                tasks.spawn(async move {
                    for number in (from..from + CHECKS)
                        .skip(task as usize)
                        .step_by(at_a_time as usize)
                    {
                        let is_copy = number.is_multiple_of(10);
                        check(&store, if is_copy { number - 5 } else { number }).await;
                    }
                });
            }
            tasks.join_all().await;
        });
    });
}
