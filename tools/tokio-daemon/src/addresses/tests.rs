use std::net::TcpListener;

use super::*;

#[test]
fn addresses_are_tried_and_an_occupant_is_told_from_a_daemon() {
    let check = |address: &str, needed_count| {
        let flags = [("http-address", address)];
        super::check("nsqlookupd", flags, needed_count, InheritedSockets::none())
    };
    let state = |address: &str| check(address, 1)[0].1.state;
    assert_eq!(state("127.0.0.1:0"), State::Ok);
    assert_eq!(state("nonsense"), State::Failure);
    assert_eq!(state(""), State::Failure);
    assert!(check("", 0).is_empty());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    for (body, expected) in [
        (r#"{"version":"1.3.0","tcp_port":4150}"#, State::Failure),
        (r#"{"version":"1.3.0"}"#, State::Waiting),
        ("[]", State::Failure),
    ] {
        let state = std::thread::scope(|scope| {
            scope.spawn(|| {
                for body in ["OK", body] {
                    let (mut client, _) = listener.accept().expect("a request");
                    let mut request = [0; 1024];
                    assert_ne!(client.read(&mut request).expect("the request"), 0);
                    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
                    let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                    client.write_all(answer.as_bytes()).expect("sent");
                }
            });
            state(&address)
        });
        assert_eq!(state, expected, "{body}");
    }
}
