use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use super::*;

/// Starts a server that answers each request by its target. An unknown target gets a 404 in the form
/// of NSQ's daemons.
fn server(pages: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            assert!(head.contains("application/vnd.nsq; version=1.0"), "{head}");
            let target = head.split(' ').nth(1).unwrap_or_default();
            let (status, body) = match pages.iter().find(|(known, _)| *known == target) {
                Some((_, body)) => ("200 OK", *body),
                None => ("404 Not Found", r#"{"message":"TOPIC_NOT_FOUND"}"#),
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            // A client that has gone needs no answer.
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address.to_string()
}

fn cluster() -> Cluster {
    Cluster::new(QueryTimeouts {
        connect: Duration::from_secs(30),
        request: Duration::from_secs(30),
    })
}

/// Returns an address on which nothing listens.
fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

const A: &str = r#"{"broadcast_address":"a","http_port":4151,"tcp_port":4150,"version":"1.3.0"}"#;

#[test]
fn topics_and_nodes_are_the_union_of_what_all_say() {
    let one = server(&[
        ("/topics", r#"{"topics":["b","a"]}"#),
        (
            "/lookup?topic=a%23ephemeral",
            r#"{"channels":[],"producers":[{"broadcast_address":"a","http_port":2},{"broadcast_address":"::1","http_port":1}]}"#,
        ),
    ]);
    let two = server(&[
        ("/topics", r#"{"topics":["c","a"]}"#),
        (
            "/lookup?topic=a%23ephemeral",
            r#"{"channels":[],"producers":[{"broadcast_address":"a","http_port":2}]}"#,
        ),
    ]);
    let lookupds = vec![one, two];
    let topics = cluster().topics(&lookupds).unwrap();
    assert!(topics.failures.is_empty());
    assert_eq!(topics.data.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    let sources = Sources::Lookupds(lookupds);
    let nodes = cluster().nodes_of_topic(&sources, "a#ephemeral").unwrap();
    let addresses: Vec<String> = nodes.data.iter().map(NodeInfo::http_address).collect();
    assert_eq!(addresses, ["[::1]:1", "a:2"]);
}

#[test]
fn a_partial_answer_has_data_and_errors() {
    let silent = closed();
    let lookupds = vec![silent.clone(), server(&[("/topics", r#"{"topics":null}"#)])];
    let topics = cluster().topics(&lookupds).unwrap();
    assert!(topics.data.is_empty());
    let [failure] = &topics.failures[..] else {
        panic!("{topics:?}");
    };
    assert_eq!(failure.address, silent);
    let why =
        format!("Get \"http://{silent}/topics\": dial tcp {silent}: connect: connection refused");
    assert_eq!(failure.why, why);
}

#[test]
fn no_answer_is_an_error_with_all_reasons() {
    let lookupd = server(&[]);
    let sources = Sources::Lookupds(vec![lookupd.clone(), lookupd]);
    let error = cluster().nodes_of_topic(&sources, "t").unwrap_err();
    let not_found = r#"got response 404 Not Found "{\"message\":\"TOPIC_NOT_FOUND\"}""#;
    assert_eq!(
        error.to_string(),
        format!("failed to query any nsqlookupd: {not_found}\n{not_found}")
    );
    let error = cluster().stats(&[], "t", "c", false).unwrap_err();
    let nobody = "failed to query any nsqd: no node has the topic";
    assert_eq!(error.to_string(), nobody);
    let odd = server(&[("/topics", "odd")]);
    let error = cluster().topics(std::slice::from_ref(&odd)).unwrap_err();
    let begin = format!(
        "failed to query any nsqlookupd: http://{odd}/topics has answered with something else than \
         expected: "
    );
    assert!(error.to_string().starts_with(&begin), "{error}");
}

#[test]
fn a_tcp_port_in_place_of_the_http_port_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        // nsqd's answer to a magic that it does not know.
        let frame = b"\0\0\0\x12\0\0\0\x01E_BAD_PROTOCOL";
        stream.write_all(frame).unwrap();
    });
    let error = cluster()
        .topics(std::slice::from_ref(&address))
        .unwrap_err();
    let text = error.to_string();
    let advice = "choose the server's HTTP port (nsqd: 4151 by default, nsqlookupd: 4161)";
    assert!(text.ends_with(advice), "{text}");
}

#[test]
fn an_nsqd_says_whether_it_has_the_topic_and_who_it_is() {
    let with = server(&[
        (
            "/stats?format=json&topic=t&include_clients=false",
            r#"{"topics":[{"topic_name":"t","channels":null}],"producers":null}"#,
        ),
        ("/info", A),
    ]);
    let without = server(&[(
        "/stats?format=json&topic=t&include_clients=false",
        r#"{"topics":[]}"#,
    )]);
    let sources = Sources::Nsqds(vec![with, without]);
    let nodes = cluster().nodes_of_topic(&sources, "t").unwrap();
    let [node] = &nodes.data[..] else {
        panic!("{nodes:?}");
    };
    assert_eq!(node.http_address(), "a:4151");
    assert_eq!((node.tcp_port, node.version.as_str()), (4150, "1.3.0"));
}

#[test]
fn statistics_come_in_the_order_of_the_addresses() {
    const QUERY: &str = "/stats?format=json&topic=t&channel=c&include_clients=false";
    let pages = |stats| server(stats);
    let one = pages(&[(QUERY, r#"{"version":"1","topics":null,"health":null}"#)]);
    let two = pages(&[(
        QUERY,
        r#"{"version":"2","topics":[{"topic_name":"t","channels":[{"channel_name":"c","depth":5,"clients":null,
            "e2e_processing_latency":{"count":1,"percentiles":[{"quantile":0.5,"value":1.5}]},"new_field":{}}]}]}"#,
    )]);
    let stats = cluster().stats(&[one, two], "t", "c", false).unwrap();
    let versions: Vec<&str> = stats.data.iter().map(|(_, s)| s.version.as_str()).collect();
    assert_eq!(versions, ["1", "2"]);
    let channel = &stats.data[1].1.topics[0].channels[0];
    assert_eq!((channel.depth, channel.clients.as_ref()), (5, None));
    let percentiles = channel.e2e_processing_latency.percentiles.as_ref();
    assert_eq!(percentiles.map(|all| all[0].value), Some(1.5));
}
