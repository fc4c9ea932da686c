use ringq_client::{Config, ConnectError, Consumer, Requeue};

async fn save(body: &[u8]) -> std::io::Result<()> {
    println!("{} bytes", body.len());
    Ok(())
}

async fn consume(config: Config) -> Result<(), ConnectError> {
    let mut consumer = Consumer::builder("orders", "billing")
        .lookupd(lookupd())
        .config(config)
        .connect()
        .await?;
    while let Some(message) = consumer.next().await {
        match save(message.body()).await {
            Ok(()) => message.finish(),
            Err(_) => message.requeue(Requeue::Automatic),
        };
    }
    Ok(())
}
