use ringq_client::{Producer, PublisherId};

async fn publish_row() -> Result<(), Box<dyn std::error::Error>> {
    let id: PublisherId = "9f86d081884c7d65".parse()?;
    let producer = Producer::builder().node(nsqd()).publisher_id(id).build()?;
    producer.publish_numbered("orders", 17, "row 17").await?;
    Ok(())
}
