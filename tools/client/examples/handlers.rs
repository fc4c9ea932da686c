//! Prints the messages of a topic by handlers that run at the same time. Ctrl-C stops the consumer in order.
//!
//!     cargo run -p ringq-client --example handlers -- 127.0.0.1:4161 orders billing

use std::error::Error;
use std::io::{Write, stdout};

use ringq_client::{Config, Consumer, Message};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
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
        .events(|event| eprintln!("{event}"))
        .connect()
        .await?;
    let control = consumer.control();
    let running = consumer.run(10, async |message: Message| {
        let mut out = stdout().lock();
        out.write_all(message.body())?;
        out.write_all(b"\n")
    });
    let stopping = async {
        let stopped = tokio::signal::ctrl_c().await;
        control.shutdown().await;
        stopped
    };
    let ((), stopped) = tokio::join!(running, stopping);
    Ok(stopped?)
}
