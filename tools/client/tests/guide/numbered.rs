use ringq_client::{Address, Producer};

async fn publish() -> Result<(), Box<dyn std::error::Error>> {
    let producer = Producer::builder().node(nsqd().parse::<Address>()?).number_messages().build()?;
    producer.publish("orders", "one").await?;
    Ok(())
}
