//! Publishes messages as an application does that waits for each answer, and prints the rate and the latencies as JSON:
//!
//!     callers --address=127.0.0.1:4150 [--callers=1] [--connections=1]
//!
//! docs/measure/callers.py compares two brokers with it.

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringq_client::Producer;

const WARM_UP: Duration = Duration::from_millis(500);
const DURATION: Duration = Duration::from_secs(2);
const BODY_BYTES: usize = 200;

/// Publishes one message after the other until `end`. Returns the latencies of those from `start` on.
async fn call(producer: Producer, start: Instant, end: Instant) -> Vec<Duration> {
    let body = Bytes::from(vec![0; BODY_BYTES]);
    let mut latencies = Vec::new();
    loop {
        let began = Instant::now();
        if began >= end {
            return latencies;
        }
        let published = producer.publish("callers", body.clone()).await;
        published.expect("nsqd stores the message");
        if began >= start {
            latencies.push(began.elapsed());
        }
    }
}

/// Returns the value of the flag `name`.
fn flag(name: &str) -> Option<String> {
    std::env::args().find_map(|arg| Some(arg.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address =
        flag("--address").ok_or("usage: callers --address=NSQD [--callers=N] [--connections=N]")?;
    let callers: usize = flag("--callers").as_deref().unwrap_or("1").parse()?;
    let connections: usize = flag("--connections").as_deref().unwrap_or("1").parse()?;
    let producers = (0..connections)
        .map(|_| Producer::builder().node(&*address).build())
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now() + WARM_UP;
    let calling = (0..callers).map(|caller| {
        let producer = producers[caller % connections].clone();
        tokio::spawn(call(producer, start, start + DURATION))
    });
    let calling: Vec<_> = calling.collect();
    let mut latencies = Vec::new();
    for caller in calling {
        latencies.extend(caller.await?);
    }
    latencies.sort_unstable();
    let us_at = |share: f64| {
        let index = (share * (latencies.len() - 1) as f64) as usize;
        latencies[index].as_secs_f64() * 1e6
    };
    println!(
        r#"{{"messages_per_s": {}, "p50_us": {}, "p99_us": {}}}"#,
        latencies.len() as f64 / DURATION.as_secs_f64(),
        us_at(0.5),
        us_at(0.99)
    );
    Ok(())
}
