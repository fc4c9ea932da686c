use std::time::Duration;

use ringq_client::{Config, Consumer, Message, Producer, PublishError, Requeue};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config { max_in_flight: 100, ..Config::default() };
    let producer = Producer::builder().node(nsqd()).config(config.clone()).build()?;
    let consumer = Consumer::builder("orders", "billing")
        .config(config)
        .lookupd(lookupd())
        .events(|event| eprintln!("{event}"))
        .connect()
        .await?;
    let control = consumer.control();
    let running = consumer.run(10, async |message: Message| {
        if message.body().is_empty() {
            return Ok(());
        }
        if producer.publish("invoices", message.body().clone()).await.is_err() {
            message.requeue(Requeue::After(Duration::from_secs(30)));
        }
        Ok::<(), PublishError>(())
    });
    let stopping = async {
        let interrupted = tokio::signal::ctrl_c().await;
        control.shutdown().await;
        interrupted
    };
    tokio::select! {
        () = running => {}
        // A handler that has not ended after `drain_limit` is dropped.
        interrupted = stopping => interrupted?,
    }
    producer.close().await?;
    Ok(())
}
