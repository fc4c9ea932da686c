mod cancellation;
mod limits;
mod redirects;

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::address::Address;

/// Answers one request per connection with `answers` in turn. The task returns the heads of the requests.
async fn serve(answers: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let requests = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let byte = stream.read_u8().await.expect("a head");
                head.push(byte);
            }
            requests.push(String::from_utf8(head).expect("a head is text"));
            let done = stream.write_all(answer.as_bytes()).await;
            done.expect("the client reads");
        }
        requests
    });
    (address, requests)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

const CURRENT: &str = "X-NSQ-Content-Type: nsq; version=1.0\r\n";

async fn ask(answer: String) -> Result<Option<Lookup>, String> {
    let (address, requests) = serve(vec![answer]).await;
    let lookupd = Lookupd::new(&address, &Config::default()).expect("an address");
    let found = lookupd.lookup("t").await;
    requests.await.expect("the server ends");
    found.map_err(|error| error.to_string())
}

#[test]
fn addresses_become_urls() {
    let check = |address: &str, expected: &str| {
        let url = parse_address(address).map(|url| with_topic(&url, "T").to_string());
        assert_eq!(url.ok().as_deref(), Some(expected), "{address}");
    };
    check("127.0.0.1:4161", "http://127.0.0.1:4161/lookup?topic=T");
    check("h:80", "http://h/lookup?topic=T");
    check("[::1]:4161", "http://[::1]:4161/lookup?topic=T");
    check("https://h:443", "https://h/lookup?topic=T");
    check(
        "http://h:4161/custom?x=1",
        "http://h:4161/custom?topic=T&x=1",
    );
    check(
        "http://h:4161?z=a%20b",
        "http://h:4161/lookup?topic=T&z=a+b",
    );
    let url = parse_address("http://h:1/lookup").expect("a URL");
    let query = with_topic(&url, "a#ephemeral");
    assert_eq!(query.as_str(), "http://h:1/lookup?topic=a%23ephemeral");
}

#[test]
fn other_endpoints_lie_beside_that_of_lookups() {
    let check = |address: &str, expected: &str| {
        let url = parse_address(address).expect("a URL");
        assert_eq!(beside(&url, "nodes").as_str(), expected);
    };
    check("h:1", "http://h:1/nodes");
    check("http://h:1/nsq/lookup?x=1", "http://h:1/nsq/nodes?x=1");
    check("http://h:1/custom", "http://h:1/nodes");
}

#[test]
fn wrong_addresses_are_refused() {
    let check = |address: &str, expected: &str| {
        let error = Lookupd::new(address, &Config::default()).expect_err(address);
        assert!(error.is_address_wrong(), "{error}");
        assert_eq!(error.to_string(), expected);
    };
    let port = "missing port: write host:port, as in 127.0.0.1:4161 (nsqlookupd has HTTP on port 4161 by default)";
    for address in ["localhost", "http://localhost/lookup", "[::1]"] {
        check(address, &format!("nsqlookupd {address}: {port}"));
        let checked = Lookupd::check_address(address).expect_err(address);
        assert!(checked.to_string().ends_with(port), "{checked}");
    }
    assert!(Lookupd::check_address("h:4161").is_ok());
    check("user:pw@host", &format!("nsqlookupd ***@host: {port}"));
    check(
        "ftp://h:1",
        "nsqlookupd ftp://h:1: \"ftp\" is neither http nor https",
    );
    check(
        "h:x",
        "nsqlookupd h:x: the address is no URL: invalid port number",
    );
}

#[tokio::test]
async fn a_lookup_names_channels_and_nodes() {
    let body = r#"{"channels":["c"],"producers":[{"remote_address":"127.0.0.1:5","hostname":"n",
        "broadcast_address":"n.example","tcp_port":4150,"http_port":4151,"version":"1.3.0","extra":1},
        {"broadcast_address":"::1","tcp_port":7}]}"#;
    let found = ask(answer("200 OK", CURRENT, body))
        .await
        .expect("an answer")
        .expect("a topic");
    assert_eq!(found.channels, ["c"]);
    let addresses: Vec<String> = found.producers.iter().map(NodeInfo::tcp_address).collect();
    assert_eq!(addresses, ["n.example:4150", "[::1]:7"]);
    let first = &found.producers[0];
    let address = Address::Tcp("n.example:4150".into());
    assert_eq!(Address::of_node(first), Some(address));
    assert_eq!((first.http_port, first.version.as_str()), (4151, "1.3.0"));
}

#[tokio::test]
async fn old_and_odd_answers_are_understood() {
    let wrapped =
        r#"{"status_code":200,"status_txt":"OK","data":{"channels":["old"],"producers":null}}"#;
    let channels = async |headers, body| {
        let done = ask(answer("200 OK", headers, body)).await;
        let found = done.expect("an answer");
        found.expect("a topic").channels
    };
    assert_eq!(channels("", wrapped).await, ["old"]);
    // A proxy may remove the header that tells the forms apart.
    assert_eq!(channels("", r#"{"channels":["c"]}"#).await, ["c"]);
    assert_eq!(channels(CURRENT, r#"{"channels":null}"#).await, [""; 0]);
    assert_eq!(channels(CURRENT, "").await, [""; 0]);
}

#[tokio::test]
async fn an_unknown_topic_is_no_error() {
    let body = r#"{"message":"TOPIC_NOT_FOUND"}"#;
    assert_eq!(ask(answer("404 Not Found", CURRENT, body)).await, Ok(None));
}

/// A lookup took a proxy's page for a topic that no node has. The errors of the lists had another text than the answer.
#[tokio::test]
async fn the_404_of_a_proxy_is_an_error() {
    let page = answer("404 Not Found", "", "<html>no</html>");
    let (address, _) = serve(vec![page; 3]).await;
    let lookupd = Lookupd::new(&address, &Config::default()).expect("an address");
    let errors = [
        lookupd.lookup("t").await.map(drop),
        lookupd.topics().await.map(drop),
        lookupd.nodes().await.map(drop),
    ];
    for error in errors {
        let error = error.expect_err("no nsqlookupd").to_string();
        let text = r#"got response 404 "<html>no</html>": this address has no such page"#;
        assert!(error.contains(text), "{error}");
    }
}

#[tokio::test]
async fn refusals_say_what_was_wrong() {
    let error = ask(answer("500 Oh", CURRENT, r#"{"message":"INTERNAL"}"#))
        .await
        .expect_err("500");
    assert!(error.ends_with("got response 500 \"INTERNAL\""), "{error}");
    let done = ask(answer("200 OK", CURRENT, "<html>")).await;
    let error = done.expect_err("no JSON");
    assert!(error.contains("the answer is not understood"), "{error}");
}

/// Five layers of the HTTP library stood before the cause.
#[tokio::test]
async fn a_refused_connection_is_told_in_two_words() {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = free.local_addr().expect("bound").to_string();
    drop(free);
    let lookupd = Lookupd::new(&address, &Config::default()).expect("an address");
    let error = lookupd.lookup("t").await.expect_err("nobody listens");
    let expected = format!("nsqlookupd {address}: connection refused");
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_silent_nsqlookupd_meets_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let config = Config {
        lookupd_poll_timeout: Duration::from_millis(100),
        ..Config::default()
    };
    let lookupd = Lookupd::new(&address, &config).expect("an address");
    let error = lookupd.topics().await.expect_err("no answer").to_string();
    assert!(error.contains("timed out"), "{error}");
}

#[tokio::test]
async fn requests_carry_form_and_secret() {
    let nothing = answer("200 OK", CURRENT, "{}");
    for (authorization, expected) in [(true, true), (false, false)] {
        let (address, requests) = serve(vec![nothing.clone(); 3]).await;
        let config = Config {
            auth_secret: "hush".to_owned(),
            lookupd_authorization: authorization,
            ..Config::default()
        };
        let lookupd = Lookupd::new(&address, &config).expect("an address");
        lookupd.lookup("t").await.expect("an answer");
        assert_eq!(lookupd.topics().await.expect("an answer"), [""; 0]);
        assert_eq!(lookupd.nodes().await.expect("an answer"), []);
        let requests = requests.await.expect("the server ends");
        let targets: Vec<&str> = requests
            .iter()
            .filter_map(|head| head.split(' ').nth(1))
            .collect();
        assert_eq!(targets, ["/lookup?topic=t", "/topics", "/nodes"]);
        for head in &requests {
            test_support::assert_like(head, "…accept: application/vnd.nsq; version=1.0\r\n…");
            assert_eq!(
                head.contains("authorization: Bearer hush\r\n"),
                expected,
                "{head}"
            );
        }
    }
}

#[test]
fn a_secret_that_fits_no_header_is_refused() {
    let config = Config {
        auth_secret: "a\nb".to_owned(),
        ..Config::default()
    };
    let error = Lookupd::new("h:1", &config)
        .expect_err("no header")
        .to_string();
    assert_eq!(
        error,
        "nsqlookupd h:1: auth_secret has characters that a header cannot have"
    );
}
