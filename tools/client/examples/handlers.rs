//! Prints the messages of a topic by handlers that run at the same time. Ctrl-C stops the consumer in order.
//!
//!     cargo run -p ringq-client --example handlers -- 127.0.0.1:4161 orders billing

use std::error::Error;
use std::io::{self, Write, stdout};
use std::time::Duration;

use ringq_client::{Config, Consumer, Message};
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(consume());
    // Does not wait for handlers that block: a write to a pipe that nobody reads never ends.
    runtime.shutdown_background();
    result
}

async fn consume() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [lookupd, topic, channel] = &arguments[..] else {
        return Err("usage: handlers NSQLOOKUPD_ADDRESS TOPIC CHANNEL".into());
    };
    let config = Config {
        max_in_flight: 100,
        ..Config::default()
    };
    let consumer = Consumer::builder(topic, channel)
        .lookupd(lookupd)
        .config(config)
        .drain_limit(Duration::from_secs(5))
        .events(|event| eprintln!("{event}"))
        .connect()
        .await?;
    let control = consumer.control();
    // Blocking work runs elsewhere, so the connections and Ctrl-C go on meanwhile.
    let running = consumer.run(10, async |message: Message| {
        let body = message.body().clone();
        spawn_blocking(move || print(&body)).await?
    });
    let stopping = async {
        let stopped = tokio::signal::ctrl_c().await;
        control.shutdown().await;
        stopped
    };
    tokio::select! {
        () = running => {}
        // A handler that has not ended after the drain limit is dropped. nsqd delivers its message again.
        stopped = stopping => stopped?,
    }
    Ok(())
}

fn print(line: &[u8]) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(line)?;
    out.write_all(b"\n")
}
