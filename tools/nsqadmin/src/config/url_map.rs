//! [`UrlMap`]: where to reach nsqds whose broadcast address cannot be reached from here.

use std::collections::BTreeMap;

use url::Url;

use super::not_parsed;

/// The URLs of some nsqds, by `<broadcast address>:<http port>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlMap(BTreeMap<String, String>);

impl UrlMap {
    /// Parses the values of `--nsqd-url-map`.
    ///
    /// # Errors
    /// The reason for the operator.
    pub fn parse(entries: &[String]) -> Result<UrlMap, String> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let failed = |why: &str| {
                let form = "<broadcast address>:<http port>=<URL>, such as nsqd-1:4151=http://10.0.0.5:4151";
                not_parsed("nsqd-url-map", entry, format!("{why}; an entry is {form}"))
            };
            let (node, url) = entry
                .split_once('=')
                .ok_or_else(|| failed("there is no ="))?;
            let has_port = program::tcp_address::split_host_port(node)
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
            if !has_port {
                return Err(failed("the part before = is not host:port"));
            }
            let parsed = Url::parse(url).map_err(|error| failed(&error.to_string()))?;
            if !matches!(parsed.scheme(), "http" | "https") {
                return Err(failed("the URL does not begin with http:// or https://"));
            }
            if parsed.query().is_some() || parsed.fragment().is_some() {
                return Err(failed("the URL has a query or a fragment"));
            }
            let url = url.trim_end_matches('/').to_owned();
            if map.insert(node.to_owned(), url).is_some() {
                return Err(failed("the node has an entry already"));
            }
        }
        Ok(UrlMap(map))
    }

    /// Returns the URL of a node without a slash at its end. `node` is `host:port` of its HTTP
    /// interface. A node without an entry is reached at that address.
    pub fn url(&self, node: &str) -> String {
        match self.0.get(node) {
            Some(url) => url.clone(),
            None => format!("http://{node}"),
        }
    }

    /// Returns true if the node has an entry.
    pub fn has(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[&str]) -> Result<UrlMap, String> {
        let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
        UrlMap::parse(&entries)
    }

    #[test]
    fn mapped_nodes_have_their_url_and_others_their_address() {
        let map = map(&["n1:4151=https://10.0.0.5:4152/", "[::1]:4151=http://h:1/x"]).unwrap();
        assert_eq!(map.url("n1:4151"), "https://10.0.0.5:4152");
        assert_eq!(map.url("[::1]:4151"), "http://h:1/x");
        assert_eq!(map.url("n2:4151"), "http://n2:4151");
        assert!(map.has("n1:4151") && !map.has("n2:4151"));
    }

    #[test]
    fn wrong_entries_are_refused_with_a_reason() {
        let check = |entries: &[&str], why: &str| {
            let error = map(entries).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        check(&["n1:4151"], "there is no =");
        check(&["n1=http://h:1"], "is not host:port");
        check(&["n1:4151=h:1"], "does not begin with http://");
        check(&["n1:4151=http://h:1?x"], "has a query");
        check(
            &["n1:1=http://h:1", "n1:1=http://h:2"],
            "has an entry already",
        );
    }
}
