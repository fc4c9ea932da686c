//! Prints the messages of a topic, and finishes each one: `consume 127.0.0.1:4161 topic channel`. The address is that
//! of an nsqlookupd's HTTP server.

use std::error::Error;

use ringq_client::{Config, Consumer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(lookupd), Some(topic), Some(channel)) = (args.next(), args.next(), args.next())
    else {
        return Err("usage: consume NSQLOOKUPD_ADDRESS TOPIC CHANNEL".into());
    };
    let config = Config {
        max_in_flight: 100,
        ..Config::default()
    };
    let mut consumer = Consumer::builder(topic, channel)
        .config(config)
        .lookupd(lookupd)
        .events(|event| eprintln!("{event}"))
        .connect()
        .await?;
    while let Some(message) = consumer.next().await {
        println!("{}", String::from_utf8_lossy(message.body()));
        if message.finish().await.is_err() {
            eprintln!("the connection is gone: nsqd delivers the message again");
        }
    }
    Ok(())
}
