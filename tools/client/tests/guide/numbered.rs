use ringq_client::Producer;

async fn publish() -> Result<(), Box<dyn std::error::Error>> {
    let producer = Producer::builder().node(nsqd()).number_messages().build()?;
    producer.publish("orders", "one").await?;
    Ok(())
}
