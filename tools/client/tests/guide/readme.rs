use ringq_client::{Consumer, Producer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let producer = Producer::builder().node(nsqd()).build()?;
    producer.publish("orders", "one").await?;

    let mut consumer = Consumer::builder("orders", "billing").lookupd(lookupd()).connect().await?;
    while let Some(message) = consumer.next().await {
        println!("{} bytes", message.body().len());
        message.finish();
    }
    Ok(())
}
