use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::nsq_to_http::request::Target;

/// The limit of a request that ends long before.
const LONG: Duration = Duration::from_secs(30);

/// Sends one request, with a limit, to a server that reads the request's head and then calls `answer`.
async fn send<F>(limit: Duration, answer: impl FnOnce(TcpStream) -> F) -> Result<StatusCode, String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let hop = Hop::new(Method::GET, Target::parse(&url).unwrap(), Bytes::new());
    let headers = Headers::new(None, Vec::new());
    let client = HttpClient::new(headers, None, Some(limit), false).unwrap();
    let sent = tokio::spawn(async move { client.send(hop).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = [0; 4096];
    assert!(stream.read(&mut head).await.unwrap() > 0);
    let server = tokio::spawn(answer(stream));
    let result = sent.await.unwrap();
    server.abort();
    result
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n";

/// The server had the message, and the message was sent again and again.
#[tokio::test]
async fn a_body_without_end_does_not_take_the_status_back() {
    let stalls = async |mut stream: TcpStream| {
        stream.write_all(HEAD).await.unwrap();
        std::future::pending().await
    };
    let limit = Duration::from_secs(5);
    assert_eq!(send(limit, stalls).await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_goes_on_and_on_is_not_read() {
    let began = time::Instant::now();
    let floods = async |mut stream: TcpStream| {
        stream.write_all(HEAD).await.unwrap();
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        // The client closes the connection.
        while stream.write_all(&chunk).await.is_ok() {}
    };
    assert_eq!(send(LONG, floods).await.unwrap(), StatusCode::OK);
    assert!(began.elapsed() < LONG);
}

#[tokio::test]
async fn a_server_without_an_answer_is_given_up() {
    let is_silent = async |_stream: TcpStream| std::future::pending().await;
    let error = send(Duration::from_secs(2), is_silent).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no answer within 2s (--http-client-request-timeout)"
    );
}

/// The error was "invalid HTTP version parsed".
#[tokio::test]
async fn an_answer_of_nsqds_tcp_port_is_recognised() {
    let refuses = async |mut stream: TcpStream| {
        let frame = b"\0\0\0\x12\0\0\0\x01E_BAD_PROTOCOL";
        stream.write_all(frame).await.unwrap();
        std::future::pending().await
    };
    let error = send(LONG, refuses).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "this address does not speak HTTP: choose the port of an HTTP server (nsqd has HTTP on port 4151 by default, and \
         TCP on port 4150)"
    );
}

/// The server had the message, and the message was sent again and again. Go's client takes such heads.
#[tokio::test]
async fn a_head_may_have_many_and_folded_lines() {
    for lines in [
        "X-Line: 1\r\n".repeat(5_000),
        "X-Folded: 1,\r\n  2\r\n".to_owned(),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n");
        let answers = async move |mut stream: TcpStream| {
            stream.write_all(head.as_bytes()).await.unwrap();
        };
        let status = send(LONG, answers).await;
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
}
