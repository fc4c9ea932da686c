//! Answers that name another place, and the secret, which stays where it belongs.

use super::*;
use crate::tests::tls::{Certificates, TlsStream};

fn secret() -> Config {
    Config {
        auth_secret: "hush".to_owned(),
        ..Config::default()
    }
}

fn moved(to: &str) -> String {
    answer("302 Found", &format!("Location: {to}\r\n"), "")
}

fn nothing() -> String {
    answer("200 OK", CURRENT, "{}")
}

fn has_secret(head: &str) -> bool {
    head.to_lowercase().contains("authorization:") || head.contains("hush")
}

#[tokio::test]
async fn a_redirect_to_the_same_server_keeps_the_secret() {
    let (address, requests) = serve(vec![moved("/other?topic=t"), nothing()]).await;
    let lookupd = Lookupd::new(&address, &secret()).unwrap();
    assert!(lookupd.lookup("t").await.unwrap().is_some());
    let requests = requests.await.unwrap();
    test_support::assert_like(&requests[1], "GET /other?topic=t …");
    assert!(requests.iter().all(|head| has_secret(head)), "{requests:?}");
}

#[tokio::test]
async fn a_redirect_to_another_server_leaves_the_secret_behind_for_good() {
    let (last, last_requests) = serve(vec![nothing()]).await;
    let (other, other_requests) = serve(vec![moved(&format!("http://{last}/back"))]).await;
    let (address, requests) = serve(vec![moved(&format!("http://{other}/x"))]).await;
    let lookupd = Lookupd::new(&address, &secret()).unwrap();
    assert!(lookupd.lookup("t").await.unwrap().is_some());
    assert!(has_secret(&requests.await.unwrap()[0]));
    for requests in [other_requests, last_requests] {
        let requests = requests.await.unwrap();
        assert!(!has_secret(&requests[0]), "{requests:?}");
    }
}

/// One port speaks HTTPS first and then HTTP. So scheme alone tells the redirect from one to the same server.
#[tokio::test]
async fn a_redirect_from_https_to_http_leaves_the_secret_behind() {
    let certificates = Certificates::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = secret();
    config.tls.root_certificates = Some(certificates.authorities());
    let lookupd = Lookupd::new(&format!("https://{address}"), &config).unwrap();
    let serving = tokio::spawn(async move {
        let mut heads = Vec::new();
        let (stream, _) = listener.accept().await.unwrap();
        let mut tls = TlsStream::new(stream, &certificates);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(tls.read().await.expect("a head"));
        }
        heads.push(String::from_utf8(head).unwrap());
        let moved = moved(&format!("http://{address}/lookup?topic=t"));
        tls.send(moved.as_bytes()).await;
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
        heads.push(String::from_utf8(head).unwrap());
        stream.write_all(nothing().as_bytes()).await.unwrap();
        heads
    });
    assert!(lookupd.lookup("t").await.unwrap().is_some());
    let heads = serving.await.unwrap();
    assert!(has_secret(&heads[0]), "{heads:?}");
    assert!(!has_secret(&heads[1]), "{heads:?}");
}

#[tokio::test]
async fn a_circle_of_redirects_ends() {
    let (address, requests) = serve(vec![moved("/lookup"); 100]).await;
    let lookupd = Lookupd::new(&address, &secret()).unwrap();
    let error = lookupd.lookup("t").await.unwrap_err().to_string();
    assert!(error.contains("too many redirects"), "{error}");
    requests.abort();
}
