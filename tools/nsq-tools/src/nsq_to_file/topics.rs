//! [`TopicList`]: the topics that the nsqlookupds know.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use ringq_client::{Config, Lookupd, LookupdError};

use crate::cluster::QueryTimeouts;

/// Asks nsqlookupds for their topics, in the way in which the consumers ask them for nodes.
#[derive(Debug)]
pub(super) struct TopicList(Vec<Lookupd>);

/// The topics of all nsqlookupds that answered, and the reasons why the others did not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) topics: BTreeSet<String>,
    pub(super) errors: Vec<String>,
}

impl TopicList {
    /// Returns the list of these nsqlookupds.
    ///
    /// # Errors
    /// An address, a certificate or the secret cannot be used. The error is the text for the user.
    pub(super) fn new(
        addresses: &[String],
        client: &Config,
        QueryTimeouts { connect, request }: QueryTimeouts,
    ) -> Result<TopicList, String> {
        let lookupds = addresses
            .iter()
            .map(|address| Lookupd::with_timeouts(address, client, connect, request));
        let lookupds: Result<_, LookupdError> = lookupds.collect();
        lookupds.map(TopicList).map_err(|error| error.to_string())
    }

    /// Returns the number of nsqlookupds.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Asks all nsqlookupds at the same time.
    pub(super) async fn ask(&self) -> Answers {
        let mut result = Answers {
            topics: BTreeSet::new(),
            errors: Vec::new(),
        };
        for answer in join_all(self.0.iter().map(Lookupd::topics)).await {
            match answer {
                Ok(topics) => result.topics.extend(topics),
                Err(why) => result.errors.push(why.to_string()),
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use super::*;

    /// Serves one answer. Returns the address, and a thread whose result is the head of the request.
    fn serve(status: &'static str, body: &'static str) -> (String, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head = lines
                .map(Result::unwrap)
                .take_while(|line| !line.is_empty());
            let head: Vec<String> = head.collect();
            let form = "X-NSQ-Content-Type: nsq; version=1.0";
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\n{form}\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .unwrap();
            head.join("\n")
        });
        (address, served)
    }

    async fn ask(lookupds: &[String], client: &Config) -> Answers {
        let limit = Duration::from_secs(30);
        let list = TopicList::new(
            lookupds,
            client,
            QueryTimeouts {
                connect: limit,
                request: limit,
            },
        )
        .unwrap();
        list.ask().await
    }

    #[tokio::test]
    async fn the_topics_of_those_that_answer_count() {
        let lookupds = [
            serve("200 OK", r#"{"topics":["b","a"]}"#),
            serve("500 Internal Server Error", r#"{"message":"no"}"#),
            serve("200 OK", r#"{"topics":["c","a"]}"#),
            serve("200 OK", "none"),
            serve("200 OK", r#"{"topics":null}"#),
            // A proxy that leads nowhere.
            serve("404 Not Found", "<html>no</html>"),
        ]
        .map(|(address, _)| address);
        let answers = ask(&lookupds, &Config::default()).await;
        let topics: Vec<_> = answers.topics.iter().map(String::as_str).collect();
        assert_eq!(topics, ["a", "b", "c"]);
        let expected = [
            format!(r#"nsqlookupd {}: got response 500 "no""#, lookupds[1]),
            format!(
                "nsqlookupd {}: the answer is not understood: expected ident at line 1 column 2",
                lookupds[3]
            ),
        ];
        assert_eq!(answers.errors[..2], expected);
        let [.., error] = &answers.errors[..] else {
            panic!("no error");
        };
        let refused = format!(
            r#"nsqlookupd {}: got response 404 "<html>no</html>""#,
            lookupds[5]
        );
        assert!(error.starts_with(&refused), "{error}");
        assert_eq!(answers.errors.len(), 3);
    }

    /// The list dropped the path and the query of the URL, and sent no secret.
    #[tokio::test]
    async fn the_list_lies_beside_the_page_of_lookups_and_gets_the_secret() {
        let (address, served) = serve("200 OK", r#"{"topics":["a"]}"#);
        let client = Config {
            auth_secret: "hush".to_owned(),
            ..Config::default()
        };
        let url = format!("http://{address}/nsq/lookup?x=1");
        let answers = ask(&[url], &client).await;
        assert!(answers.topics.contains("a"), "{answers:?}");
        let head = served.join().unwrap();
        assert!(head.starts_with("GET /nsq/topics?x=1 HTTP/1.1\n"), "{head}");
        assert!(head.contains("authorization: Bearer hush"), "{head}");
    }
}
