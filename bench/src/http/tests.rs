use super::*;

#[test]
fn answers_are_cut_out_of_the_stream() {
    let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOKHTTP/1.1 404";
    for end in 0..whole.len() - 12 {
        assert_eq!(Response::parse(&whole[..end]), Ok(None), "{end}");
    }
    let response = Response::parse(whole).unwrap().unwrap();
    assert_eq!((response.status, response.body), (200, &b"OK"[..]));
    assert_eq!(&whole[response.consumed..], b"HTTP/1.1 404");
    assert!(Response::parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    assert!(Response::parse(b"hello there\r\n\r\n").is_err());
}

#[test]
fn a_request_says_its_length() {
    let mut out = Vec::new();
    request(&mut out, "/pub?topic=t", "h:1", 5);
    let expected = b"POST /pub?topic=t HTTP/1.1\r\nHost: h:1\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(out, expected);
}
