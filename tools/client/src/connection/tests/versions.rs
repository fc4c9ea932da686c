//! A link through each version of TLS.

use super::*;

/// Opens a link to an nsqd that speaks `version` only, and sends a command and a heartbeat through it. Returns the
/// version of the session.
async fn speak(version: &'static rustls::SupportedProtocolVersion) -> u16 {
    let certificates = Certificates::new();
    let settings = tls_settings(&certificates);
    let (client, mut server) = duplex(1 << 16);
    let connector = OneStream::new(Some(client));
    let opening = tokio::spawn(async move {
        let address: Address = "127.0.0.1:1".parse().unwrap();
        Connection::open(&connector, &address, settings)
            .await
            .unwrap()
    });
    agree_on_tls(&mut server).await;
    let mut nsqd = TlsStream::over(server, certificates.server_of(version));
    while nsqd.version().is_none() {
        nsqd.read().await.expect("the client shakes hands");
    }
    let mut answer = Vec::new();
    wire::encode::response(&mut answer, b"OK");
    nsqd.send(&answer).await;
    let connection = opening.await.unwrap();
    let outbox = connection.outbox();
    let running = tokio::spawn(run(connection));
    let sent = outbox.append(|out| out.extend_from_slice(b"FIN x\n"));
    outbox.sent(sent.unwrap()).await.unwrap();
    assert_eq!(nsqd.read().await.unwrap(), b"FIN x\n");
    nsqd.send(wire::encode::HEARTBEAT).await;
    assert_eq!(nsqd.read().await.unwrap(), b"NOP\n");
    running.abort();
    nsqd.version().expect("the handshake is over")
}

#[tokio::test(start_paused = true)]
async fn both_versions_of_tls_carry_commands() {
    assert_eq!(speak(&rustls::version::TLS12).await, 0x0303);
    assert_eq!(speak(&rustls::version::TLS13).await, 0x0304);
}
