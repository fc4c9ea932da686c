use ringq_client::{Config, Consumer, Producer, Requeue};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut consumer = Consumer::builder("orders", "copy")
        .config(Config { max_in_flight: 15, ..Config::default() })
        .lookupd(lookupd_url())
        .connect()
        .await?;
    let producer = Producer::builder().node(nsqd()).build()?;
    while let Some(message) = consumer.next().await {
        match producer.publish("copies", message.body().clone()).await {
            Ok(_receipt) => message.finish(),
            Err(_) => message.requeue(Requeue::Automatic),
        };
    }
    Ok(())
}
