use ringq_client::Consumer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut consumer = Consumer::builder("orders", "billing").lookupd(lookupd()).connect().await?;
    while let Some(message) = consumer.next().await {
        println!("{} bytes", message.body().len());
        message.finish();
    }
    Ok(())
}
