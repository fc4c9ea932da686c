//! Parses the head of a request: its target and the length of its body. The parser is pure: bytes
//! in, values out.

use std::mem::MaybeUninit;

use http::{Method, Uri};

use super::chunked::Chunked;
use super::host_names::HostNames;
use super::page_marks::PageMarks;
use super::query::percent_decode;
use super::reply::{Exchange, Refusal};

/// Longest head that is accepted, in bytes. This limit and the next one are those of hyper, which
/// served here before. Go's server accepts 1 MiB.
pub const HEAD_BYTES_MAX: usize = 8 * 1024 + 400 * 1024;
const FIELDS_MAX: usize = 100;
const TARGET_BYTES_MAX: usize = 65_534;
/// Upper bound for body lengths. Every limit is lower, and no arithmetic here overflows below this
/// bound.
const BODY_BYTES_MAX: u64 = u64::MAX - 2;

/// The header of a request that a program repeats every second or so. If such a GET succeeds, its log line has level DEBUG: the
/// polls of one nsqadmin would be nine tenths of the log.
pub const POLL: &str = "x-nsq-poll";

/// A request without its body. The head owns its bytes, because the body is read into the memory
/// where the head was.
#[derive(Debug)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The target. Its path can be decoded.
    pub target: Uri,
    pub(super) is_http_11: bool,
    pub(super) expects: Option<Expectation>,
    pub(super) asks_to_close: bool,
    /// True when the connection may continue after the answer.
    pub(super) keeps_alive: bool,
    pub(super) framing: Framing,
    /// True when a browser says that a page of another site sends the request.
    pub(super) is_of_other_site: bool,
    /// True when a program says that it asks again and again.
    pub(super) is_poll: bool,
    /// The header `Host`, if it is no name of the server.
    pub(super) unknown_host: Option<Box<str>>,
}

/// The value of the header `Expect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// The peer waits for "100 Continue" before it sends the body.
    Continue,
    /// An unknown value.
    Unknown,
}

/// The rule that says where a body ends.
#[derive(Debug)]
pub(super) enum Framing {
    /// The body ends after this many bytes.
    Length(u64),
    /// The chunks determine the end.
    Chunked(Chunked),
}

/// Returns the number of bytes of the empty lines in front of a request, which mean nothing.
pub(super) fn empty_lines(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let [b'\n', after @ ..] | [b'\r', b'\n', after @ ..] = rest {
        rest = after;
    }
    bytes.len() - rest.len()
}

/// Returns true when a head may end in the bytes behind the first `seen` bytes.
pub(super) fn may_end(bytes: &[u8], seen: usize) -> bool {
    let new = &bytes[seen.saturating_sub(3)..];
    let has = |end: &[u8]| new.windows(end.len()).any(|window| window == end);
    has(b"\n\r\n") || has(b"\n\n")
}

/// Parses a head. Returns the head and its length, or `None` if the head is not complete. The error
/// is the answer. `names` are the names of the server, if only these may be used.
pub(super) fn parse(
    bytes: &[u8],
    names: Option<&HostNames>,
) -> Result<Option<(Head, usize)>, Refusal> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let count = match request.parse_with_uninit_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(count)) => count,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::LONG_HEAD),
        Err(httparse::Error::Version) if names_a_version(bytes) => return Err(Refusal::VERSION),
        Err(_) => return Err(Refusal::MALFORMED),
    };
    let method = request.method.unwrap_or_default();
    let target = request.path.unwrap_or_default();
    if target.len() > TARGET_BYTES_MAX {
        return Err(Refusal::LONG_TARGET);
    }
    // Clients do not send fragments. Go treats a fragment as part of the rest.
    let uri = if target.as_bytes().contains(&b'#') {
        Uri::try_from(target.replace('#', "%23"))
    } else {
        Uri::try_from(target)
    };
    let mut head = Head {
        method: Method::from_bytes(method.as_bytes()).map_err(|_| Refusal::MALFORMED)?,
        target: uri.map_err(|_| Refusal::MALFORMED)?,
        is_http_11: request.version == Some(1),
        expects: None,
        asks_to_close: false,
        keeps_alive: false,
        framing: Framing::Length(0),
        is_of_other_site: false,
        is_poll: false,
        unknown_host: None,
    };
    let is_path = target.starts_with('/') || target == "*" || head.target.scheme().is_some();
    let is_sound = is_path || head.method == Method::CONNECT;
    if !is_sound || percent_decode(head.target.path().as_bytes()).is_err() {
        return Err(Refusal::MALFORMED);
    }
    head.read_fields(request.headers, names)?;
    Ok(Some((head, count)))
}

/// Returns true when a request line ends in an unsupported version.
fn names_a_version(bytes: &[u8]) -> bool {
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let mut words = line.trim_ascii_end().split(|&byte| byte == b' ').skip(2);
    let is_version = matches!(
        words.next(),
        Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
            if major.is_ascii_digit() && minor.is_ascii_digit()
    );
    is_version && words.next().is_none()
}

/// The header fields seen so far that frame the body.
#[derive(Default)]
struct Lengths {
    announced: Option<u64>,
    has_announced: bool,
    has_encoding: bool,
    is_chunked: bool,
}

impl Head {
    /// Returns the properties of the request that determine the form of the answer.
    pub(super) fn exchange(&self) -> Exchange {
        Exchange {
            is_http_11: self.is_http_11,
            is_head: self.method == Method::HEAD,
            keeps_alive: self.keeps_alive,
        }
    }

    fn read_fields(
        &mut self,
        fields: &[httparse::Header<'_>],
        names: Option<&HostNames>,
    ) -> Result<(), Refusal> {
        let mut lengths = Lengths::default();
        let mut host = None;
        let mut asks_to_stay = false;
        let mut marks = PageMarks::default();
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("host") {
                if host.replace(field.value).is_some() {
                    return Err(Refusal::MALFORMED);
                }
                marks.note(field.name, field.value);
            } else if is("content-length") {
                lengths.announce(field.value)?;
            } else if is("transfer-encoding") {
                if !self.is_http_11 {
                    return Err(Refusal::MALFORMED);
                }
                lengths.encode(field.value);
            } else if is("connection") {
                self.asks_to_close |= has_word(field.value, "close");
                asks_to_stay |= has_word(field.value, "keep-alive");
            } else if is("expect") {
                let is_known = has_word(field.value, "100-continue")
                    || self.expects == Some(Expectation::Continue);
                self.expects = Some(if is_known {
                    Expectation::Continue
                } else {
                    Expectation::Unknown
                });
            } else if is(POLL) {
                self.is_poll = true;
            } else {
                marks.note(field.name, field.value);
            }
        }
        self.is_of_other_site = marks.are_of_other_site();
        match host {
            None if self.is_http_11 => return Err(Refusal::NO_HOST),
            Some(host) if !host.iter().all(is_host_byte) => return Err(Refusal::BAD_HOST),
            _ => {}
        }
        if let (Some(names), Some(host)) = (names, host) {
            // Its bytes were checked just now.
            let host = String::from_utf8_lossy(host);
            self.unknown_host = (!names.have(&host)).then(|| host.into());
        }
        // With two lengths, the sender may disagree about where the next request begins.
        let is_ambiguous = lengths.has_encoding && lengths.has_announced;
        self.keeps_alive =
            (self.is_http_11 || asks_to_stay) && !self.asks_to_close && !is_ambiguous;
        self.framing = lengths.framing()?;
        Ok(())
    }
}

impl Lengths {
    fn announce(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.has_announced = true;
        if self.has_encoding {
            // The encoding takes precedence.
            return Ok(());
        }
        let bytes = digits(value).ok_or(Refusal::MALFORMED)?;
        if self.announced.is_some_and(|earlier| earlier != bytes) {
            return Err(Refusal::MALFORMED);
        }
        if bytes > BODY_BYTES_MAX {
            return Err(Refusal::MALFORMED);
        }
        self.announced = Some(bytes);
        Ok(())
    }

    /// Notes an encoding. Only a single `chunked` is understood.
    fn encode(&mut self, value: &[u8]) {
        let is_chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked");
        self.is_chunked = is_chunked && !self.has_encoding;
        self.has_encoding = true;
    }

    fn framing(self) -> Result<Framing, Refusal> {
        match (self.has_encoding, self.is_chunked) {
            (true, true) => Ok(Framing::Chunked(Chunked::default())),
            (true, false) => Err(Refusal::ENCODING),
            (false, _) => Ok(Framing::Length(self.announced.unwrap_or(0))),
        }
    }
}

/// Returns true for a byte that Go's server accepts in a `Host` header: letters, digits and
/// ``!$%&'()*+,-.:;=[]_~``.
fn is_host_byte(byte: &u8) -> bool {
    // These are ranges for speed: each byte of each request passes here.
    matches!(
        byte,
        b'!' | b'$'..=b'.' | b'0'..=b';' | b'=' | b'A'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~'
    )
}

/// Parses digits without any other character.
fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Returns true when a list of words has this word, without regard to case.
fn has_word(value: &[u8], word: &str) -> bool {
    value
        .split(|&byte| byte == b',')
        .any(|given| given.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        let (head, count) = parse(text.as_bytes(), None).unwrap().unwrap();
        assert_eq!(count, text.len());
        head
    }

    fn length(fields: &str) -> Result<Option<u64>, Refusal> {
        let text = format!("POST /pub HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        match parse(text.as_bytes(), None)? {
            Some((head, _)) => Ok(match head.framing {
                Framing::Length(bytes) => Some(bytes),
                Framing::Chunked(_) => None,
            }),
            None => panic!("{text:?} is complete"),
        }
    }

    #[test]
    fn bodies_have_one_length() {
        assert_eq!(length(""), Ok(Some(0)));
        assert_eq!(length("content-LENGTH: 7\r\n"), Ok(Some(7)));
        let twice = "Content-Length: 7\r\nContent-Length: 07\r\n";
        assert_eq!(length(twice), Ok(Some(7)));
        for bad in ["+7", "-7", "", "7, 7", "0x7", "7 7", "18446744073709551616"] {
            assert_eq!(
                length(&format!("Content-Length: {bad}\r\n")),
                Err(Refusal::MALFORMED)
            );
        }
        assert_eq!(
            length("Content-Length: 18446744073709551615\r\n"),
            Err(Refusal::MALFORMED)
        );
        assert_eq!(
            length("Content-Length: 7\r\nContent-Length: 8\r\n"),
            Err(Refusal::MALFORMED)
        );
        assert_eq!(length("Transfer-Encoding: Chunked\r\n"), Ok(None));
        for other in ["gzip , chunked", "chunked, gzip", "gzip", ""] {
            let encoding = format!("Transfer-Encoding: {other}\r\n");
            assert_eq!(length(&encoding), Err(Refusal::ENCODING), "{other}");
        }
        let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(length(twice), Err(Refusal::ENCODING));
        let both = "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(length(both), Ok(None));
        assert!(!head(&format!("POST /pub HTTP/1.1\r\nHost: x\r\n{both}\r\n")).keeps_alive);
        let old = b"POST /pub HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse(old, None).unwrap_err(), Refusal::MALFORMED);
    }

    #[test]
    fn connections_stay_or_end() {
        let check = |version: &str, fields: &str, keeps_alive: bool, asks_to_close: bool| {
            let head = head(&format!(
                "GET /ping HTTP/{version}\r\nHost: x\r\n{fields}\r\n"
            ));
            let got = (head.keeps_alive, head.asks_to_close);
            assert_eq!(got, (keeps_alive, asks_to_close), "{version} {fields}");
        };
        check("1.1", "", true, false);
        check("1.1", "Connection: foo, Close\r\n", false, true);
        check("1.1", "Connection: closed\r\n", true, false);
        check("1.0", "", false, false);
        check("1.0", "Connection: Keep-Alive\r\n", true, false);
        let both = "Connection: close\r\nConnection: keep-alive\r\n";
        check("1.0", both, false, true);
        check("1.1", both, false, true);
    }

    #[test]
    fn invalid_requests_are_refused() {
        let check = |text: &str, expected: Refusal| {
            let refused = parse(text.as_bytes(), None).unwrap_err();
            assert_eq!(refused, expected, "{}", &text[..text.len().min(60)]);
        };
        let get = |rest: &str| format!("GET /ping HTTP/1.1\r\n{rest}\r\n");
        for malformed in [
            "nonsense\r\n\r\n",
            "GET /ping\r\n\r\n",
            "GET  HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET ping HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
            "G@T /ping HTTP/1.1\r\nHost: x\r\n\r\n",
            &get("Host x\r\n"),
            &get("Host : x\r\n"),
            &get("Host: x\r\n folded\r\n"),
            &get("Host: x\r\nHost: x\r\n"),
        ] {
            check(malformed, Refusal::MALFORMED);
        }
        check("GET /ping HTTP/2.0\r\n\r\n", Refusal::VERSION);
        check("GET /ping HTTP/0.9\r\n\r\n", Refusal::VERSION);
        check(&get(""), Refusal::NO_HOST);
        check("GET http://any/ping HTTP/1.1\r\n\r\n", Refusal::NO_HOST);
        for byte in 1..=u8::MAX {
            let mut text = get("Host: ab?c\r\n").into_bytes();
            let at = text
                .iter()
                .position(|&byte| byte == b'?')
                .expect("it is there");
            text[at] = byte;
            let is_good = byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte);
            assert_eq!(parse(&text, None).is_ok(), is_good, "{byte:#x}");
        }
        check(&get("Host: a b\r\n"), Refusal::BAD_HOST);
        head(&get("Host:\r\n"));
        head("CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n");
        let long = "x".repeat(TARGET_BYTES_MAX);
        let long = format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n");
        check(&long, Refusal::LONG_TARGET);
        let many = "a: b\r\n".repeat(FIELDS_MAX);
        check(&get(&format!("Host: x\r\n{many}")), Refusal::LONG_HEAD);
        let most = "a: b\r\n".repeat(FIELDS_MAX - 1);
        head(&get(&format!("Host: x\r\n{most}")));
    }

    #[test]
    fn the_end_is_seen_however_the_head_comes() {
        for text in [
            "GET / HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\nHost: b\n\n",
        ] {
            for seen in 1..text.len() {
                assert!(may_end(text.as_bytes(), seen), "{seen} of {text:?}");
                let cut = &text.as_bytes()[..seen];
                assert!(parse(cut, None).unwrap().is_none());
                assert!(!may_end(cut, seen.saturating_sub(1)), "{seen} of {text:?}");
            }
        }
        assert_eq!(empty_lines(b"\r\n\n\r\nGET"), 5);
        assert_eq!(empty_lines(b"\r\r\nGET"), 0);
    }
}
