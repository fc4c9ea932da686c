//! Publishes each line of standard input as a message: `publish 127.0.0.1:4150 topic`.

use std::error::Error;
use std::io::BufRead;

use ringq_client::{Outcome, Producer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(node), Some(topic)) = (args.next(), args.next()) else {
        return Err("usage: publish NSQD_ADDRESS TOPIC".into());
    };
    let producer = Producer::builder()
        .node(node)
        .events(|event| eprintln!("{event}"))
        .build()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        match producer.publish(&topic, line.clone()).await {
            Ok(receipt) => println!("{line}: stored at {}", receipt.node()),
            Err(error) if error.outcome() == Outcome::Unknown => {
                println!("{line}: perhaps stored, so another try may make a duplicate: {error}");
            }
            Err(error) => return Err(error.into()),
        }
    }
    producer.close().await?;
    Ok(())
}
