use ringq_client::Consumer;
use ringq_client::dedup::{AnyFilter, Dedup, Key};

async fn consume(filter: AnyFilter) -> Result<(), Box<dyn std::error::Error>> {
    let dedup = Dedup::builder(Key::json("/order/id")?, filter).build()?;
    let mut consumer = Consumer::builder("orders", "billing").lookupd(lookupd()).dedup(dedup).connect().await?;
    while let Some(message) = consumer.next().await {
        message.finish();
    }
    Ok(())
}
