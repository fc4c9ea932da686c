use ringq_client::testing::{MockConnection, MockNetwork};

use super::*;
use crate::nsq_to_file::tests::config;

/// The timeout of the first message decided, so a message of another nsqd with a shorter one came again.
#[tokio::test(start_paused = true)]
async fn the_smallest_timeout_of_a_group_decides_when_it_is_synced() {
    let network = MockNetwork::new();
    let mut servers = ["n1:4150", "n2:4150"].map(|address| network.server(address));
    let client = ringq_client::Config {
        max_in_flight: 20,
        ..ringq_client::Config::default()
    };
    let builder = Consumer::builder("t", "c")
        .config(client)
        .nodes(servers.each_ref().map(|server| server.address()))
        .connector(network.clone());
    let mut consumer = builder.connect().await.unwrap();
    let mut nsqds: Vec<MockConnection> = Vec::new();
    for (server, msg_timeout) in servers.iter_mut().zip([60_000, 1_000]) {
        let mut nsqd = server.accept().await;
        let answer = format!(r#"{{"max_rdy_count":2500,"msg_timeout":{msg_timeout}}}"#);
        nsqd.handshake_with(&answer).await;
        nsqd.expect("SUB t c").await;
        nsqd.respond("OK").await;
        nsqds.push(nsqd);
    }
    nsqds[0].deliver(1, 1, "the first of its file").await;
    let first = consumer.next().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let output = format!("--output-dir={}", directory.path().display());
    let settings = Arc::new(config(&output).archive);
    let mut topic = Topic {
        archive: Archive::new(OsDisk, settings, "t", "c").unwrap(),
        figures: &Figures::default(),
        consumer,
        sync_by: None,
        leftovers: None,
        looking: None,
        stop: Stop::default(),
    };
    topic.take_group(first, false).unwrap();
    topic.answer();
    assert_eq!(topic.sync_by, None);
    for (nsqd, number) in nsqds.iter_mut().zip([2, 3]) {
        nsqd.deliver(number, 1, "x").await;
        // The clock stands still while a task can run. A new connection gets its RDY after a while.
        time::sleep(Duration::from_millis(400)).await;
    }
    let first = topic.consumer.next().await.unwrap();
    let begin = Instant::now();
    topic.take_group(first, false).unwrap();
    assert_eq!(topic.archive.writer.batch_len(), 2);
    let sync_by = topic.sync_by.unwrap();
    assert!(sync_by < begin + Duration::from_secs(10), "{sync_by:?}");
}
