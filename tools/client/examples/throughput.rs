//! Publishes messages in batches and consumes them, and prints the CPU time of this process per message:
//!
//!     throughput 127.0.0.1:4150 [MESSAGES] [BYTES] [BATCH]
//!
//! The default is 4,000,000 messages of 100 bytes in batches of 200, with 8 batches without an answer. Everything runs
//! on one thread. The topic stays.

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ringq_client::{Address, Config, Consumer, Producer};
use rustix::time::{ClockId, clock_gettime};

// An ephemeral topic would drop the messages above nsqd's --mem-queue-size.
const TOPIC: &str = "throughput";
/// The batches without an answer.
const WINDOW: usize = 8;
/// nsqd's default `--max-rdy-count`.
const MAX_IN_FLIGHT: u32 = 2500;

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn publish(producer: Producer, batches: usize, batch: usize, body: Bytes) {
    let mut publishing = tokio::task::JoinSet::new();
    for _ in 0..batches {
        if publishing.len() == WINDOW
            && let Some(done) = publishing.join_next().await
        {
            done.expect("no task panics");
        }
        let (producer, body) = (producer.clone(), body.clone());
        publishing.spawn(async move {
            let bodies = std::iter::repeat_n(body, batch);
            producer
                .publish_many(TOPIC, bodies)
                .await
                .expect("nsqd stores the batch");
        });
    }
    publishing.join_all().await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let node: Address = args
        .first()
        .ok_or("usage: throughput NSQD_ADDRESS [MESSAGES] [BYTES] [BATCH]")?
        .parse()?;
    let number = |index: usize, default: usize| match args.get(index) {
        Some(text) => text.parse::<usize>(),
        None => Ok(default),
    };
    let (messages, bytes, batch) = (number(1, 4_000_000)?, number(2, 100)?, number(3, 200)?);
    let batches = messages.div_ceil(batch);
    let producer = Producer::builder().node(node.clone()).build()?;
    let config = Config {
        max_in_flight: MAX_IN_FLIGHT,
        ..Config::default()
    };
    let mut consumer = Consumer::builder(TOPIC, "c")
        .node(node)
        .config(config)
        .connect()
        .await?;
    let (start, cpu_start) = (Instant::now(), cpu_time());
    let publishing = tokio::spawn(publish(
        producer.clone(),
        batches,
        batch,
        vec![b'x'; bytes].into(),
    ));
    let mut received = 0;
    while received < batches * batch
        && let Some(message) = consumer.next().await
    {
        // Nobody waits until each FIN has left.
        drop(message.finish());
        received += 1;
    }
    publishing.await?;
    let (elapsed, cpu) = (start.elapsed(), cpu_time() - cpu_start);
    consumer.control().shutdown().await;
    producer.close().await?;
    let per_message = cpu.as_nanos() / received as u128;
    println!(
        "{received} messages of {bytes} bytes, batches of {batch}: {:.0} messages/s, {per_message} ns of CPU per message",
        received as f64 / elapsed.as_secs_f64()
    );
    Ok(())
}
