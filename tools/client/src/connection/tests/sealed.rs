//! A link through TLS, whose stream takes output only when the test says so.

use super::*;

/// Opens a link through TLS. Returns nsqd's side, and the output of the stream, which takes no write from now on.
async fn open_sealed() -> (Connection, TlsStream<DuplexStream>, Arc<Mutex<Output>>) {
    let certificates = Certificates::new();
    let settings = tls_settings(&certificates);
    let (stream, mut server) = duplex(1 << 16);
    let output = Arc::new(Mutex::new(Output::Writes(usize::MAX)));
    let connector = OneStream::new(Some(Gate {
        stream,
        output: Arc::clone(&output),
    }));
    let opening = tokio::spawn(async move {
        let address: Address = "127.0.0.1:1".parse().unwrap();
        Connection::open(&connector, &address, settings)
            .await
            .unwrap()
    });
    agree_on_tls(&mut server).await;
    let mut nsqd = TlsStream::new(server, &certificates);
    // The client's hello, then its end of the handshake.
    nsqd.read().await.unwrap();
    nsqd.read().await.unwrap();
    let mut answer = Vec::new();
    wire::encode::response(&mut answer, b"OK");
    nsqd.send(&answer).await;
    let connection = opening.await.unwrap();
    *output.lock() = Output::Writes(0);
    (connection, nsqd, output)
}

async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// A command waits behind an answer to a heartbeat, which TLS has sealed. The command leaves when the stream has taken
/// the record of the command, and not when the stream has taken the record before.
#[tokio::test(start_paused = true)]
async fn a_command_has_left_when_the_stream_has_its_record() {
    let (connection, mut nsqd, output) = open_sealed().await;
    let outbox = connection.outbox();
    let running = tokio::spawn(run(connection));
    nsqd.send(wire::encode::HEARTBEAT).await;
    settle().await;
    let position = outbox.append(|out| out.extend_from_slice(b"FIN x\n"));
    let sent = tokio::spawn(outbox.sent(position.unwrap()));
    settle().await;
    *output.lock() = Output::Writes(1);
    nsqd.send(wire::encode::HEARTBEAT).await;
    settle().await;
    assert_eq!(nsqd.read().await.unwrap(), b"NOP\n");
    assert!(!sent.is_finished(), "the command is in this process");
    *output.lock() = Output::Writes(1);
    nsqd.send(wire::encode::HEARTBEAT).await;
    settle().await;
    let said = nsqd.read().await.unwrap();
    // The heartbeat was read before the command was taken.
    assert_eq!(said, b"NOP\nFIN x\n");
    sent.await.unwrap().unwrap();
    running.abort();
}

/// The connection breaks while a command is in TLS's hands and not on the stream: nobody can say what nsqd has.
#[tokio::test(start_paused = true)]
async fn a_command_in_the_hands_of_tls_may_have_left() {
    let (connection, mut nsqd, output) = open_sealed().await;
    let outbox = connection.outbox();
    let running = tokio::spawn(run(connection));
    let first = outbox.append(|out| out.extend_from_slice(b"FIN x\n"));
    settle().await;
    let second = outbox.append(|out| out.extend_from_slice(b"FIN y\n"));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(outbox.taken() >= first, "the first may have left");
    assert!(outbox.taken() < second, "the second cannot have left");
    *output.lock() = Output::Writes(1);
    nsqd.send(wire::encode::HEARTBEAT).await;
    settle().await;
    drop(nsqd);
    assert!(running.await.unwrap().0.is_some());
    assert!(outbox.sent(first).await.is_ok());
    assert!(outbox.sent(second).await.is_err());
}
