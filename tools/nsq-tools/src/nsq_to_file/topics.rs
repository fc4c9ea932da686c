//! [`TopicList`]: the topics that the nsqlookupds know.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use program::http_client::{HttpClient, HttpSettings};
use serde::Deserialize;

/// Asks nsqlookupds for their topics. The requests block.
#[derive(Debug)]
pub(super) struct TopicList {
    client: HttpClient,
    urls: Vec<String>,
}

/// The topics of all nsqlookupds that answered, and the reasons why the others did not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) topics: BTreeSet<String>,
    pub(super) errors: Vec<String>,
}

#[derive(Deserialize)]
struct Answer {
    topics: Option<Vec<String>>,
    /// nsqlookupds before 1.0 put the topics here.
    data: Option<Box<Answer>>,
}

impl TopicList {
    /// Returns the list of these nsqlookupds, each `host:port` or a URL. The limits are those for
    /// connecting and for a whole request.
    pub(super) fn new(lookupds: &[String], limits: (Duration, Duration)) -> TopicList {
        let client = HttpClient::new(HttpSettings {
            connect_timeout: limits.0,
            request_timeout: limits.1,
            idle_connections_max: lookupds.len(),
            authorities: None,
            own_certificate: None,
            needs_tls13: false,
        });
        TopicList {
            client,
            urls: lookupds.iter().map(|address| url(address)).collect(),
        }
    }

    /// Asks all nsqlookupds at the same time.
    pub(super) fn ask(&self) -> Answers {
        let answers: Vec<_> = thread::scope(|scope| {
            let asked = self
                .urls
                .iter()
                .map(|url| scope.spawn(|| self.ask_one(url)));
            let asked: Vec<_> = asked.collect();
            let joined = asked.into_iter().map(thread::ScopedJoinHandle::join);
            joined
                .map(|answer| answer.expect("a request does not panic"))
                .collect()
        });
        let mut result = Answers {
            topics: BTreeSet::new(),
            errors: Vec::new(),
        };
        for answer in answers {
            match answer {
                Ok(topics) => result.topics.extend(topics),
                Err(why) => result.errors.push(why),
            }
        }
        result
    }

    fn ask_one(&self, url: &str) -> Result<Vec<String>, String> {
        let body = self.client.get(url)?;
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|error| format!("the answer of {url} is not a list of topics: {error}"))?;
        let topics = answer.topics.or(answer.data.and_then(|data| data.topics));
        Ok(topics.unwrap_or_default())
    }
}

/// Returns the URL of the list for an address: `host:port`, or a URL whose path is for `/lookup`.
fn url(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    format!("{scheme}://{authority}/topics")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Serves one answer.
    fn serve(status: &'static str, body: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            assert!(request.starts_with("GET /topics HTTP/1.1\r\n"), "{request}");
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all((head + body).as_bytes()).unwrap();
        });
        address
    }

    fn ask(lookupds: &[String]) -> Answers {
        let limit = Duration::from_secs(30);
        TopicList::new(lookupds, (limit, limit)).ask()
    }

    #[test]
    fn the_topics_of_those_that_answer_count() {
        let lookupds = [
            serve("200 OK", r#"{"topics":["b","a"]}"#),
            serve("500 Internal Server Error", r#"{"message":"no"}"#),
            serve(
                "200 OK",
                r#"{"status_code":200,"data":{"topics":["c","a"]}}"#,
            ),
            serve("200 OK", "none"),
            serve("200 OK", r#"{"topics":null}"#),
        ];
        let answers = ask(&lookupds);
        let topics: Vec<_> = answers.topics.iter().map(String::as_str).collect();
        assert_eq!(topics, ["a", "b", "c"]);
        let expected = [
            r#"got response 500 Internal Server Error "{\"message\":\"no\"}""#.to_owned(),
            format!(
                "the answer of http://{}/topics is not a list of topics: expected ident at line 1 column 2",
                lookupds[3]
            ),
        ];
        assert_eq!(answers.errors, expected);
    }

    #[test]
    fn addresses_are_hosts_or_urls() {
        assert_eq!(url("h:4161"), "http://h:4161/topics");
        assert_eq!(url("http://h:4161/custom?x=1"), "http://h:4161/topics");
        assert_eq!(url("https://h?x"), "https://h/topics");
    }
}
