use ringq_client::{Address, Consumer, Producer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nsqd: Address = nsqd().parse()?;
    let producer = Producer::builder().node(nsqd.clone()).build()?;
    let receipt = producer.publish("orders", "one").await?;
    println!("stored at {}", receipt.node());
    producer.close().await?;

    let mut consumer = Consumer::builder("orders", "billing").node(nsqd).connect().await?;
    if let Some(message) = consumer.next().await {
        println!("{} bytes", message.body().len());
        message.finish().await?;
    }
    consumer.control().shutdown().await;
    Ok(())
}
