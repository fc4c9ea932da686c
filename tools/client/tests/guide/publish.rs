use std::error::Error;
use std::time::Duration;

use ringq_client::Producer;

async fn publish() -> Result<(), Box<dyn Error>> {
    let producer = Producer::builder()
        .nodes([first_nsqd(), second_nsqd()])
        .publish_timeout(Some(Duration::from_secs(10)))
        .events(|event| eprintln!("{event}"))
        .build()?;
    let receipt = producer.publish("orders", "one").await?;
    println!("stored at {}", receipt.node());
    Ok(())
}
