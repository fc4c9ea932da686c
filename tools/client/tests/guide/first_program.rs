use ringq_client::{Consumer, Producer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let producer = Producer::builder().node(nsqd()).build()?;
    let receipt = producer.publish("orders", "one").await?;
    println!("stored at {}", receipt.node());
    producer.close().await?;

    let mut consumer = Consumer::builder("orders", "billing").node(nsqd()).connect().await?;
    if let Some(message) = consumer.next().await {
        println!("{} bytes", message.body().len());
        message.finish();
    }
    consumer.control().shutdown().await;
    Ok(())
}
