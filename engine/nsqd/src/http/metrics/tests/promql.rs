//! The check of a PromQL expression: the syntax and the types of its parts, and each metric and label against the
//! metrics that are served.

use std::collections::{BTreeMap, BTreeSet};

use promql_parser::label::Matchers;
use promql_parser::parser::{self, Expr, LabelModifier, VectorSelector};

/// The labels of each metric that is served, by the name of its samples.
pub(super) struct Served(BTreeMap<String, BTreeSet<String>>);

/// Labels that Prometheus adds to each sample.
const ADDED: [&str; 2] = ["instance", "job"];

impl Served {
    /// Returns the check for these metrics and their labels. `up` is Prometheus' own.
    pub(super) fn new(metrics: impl IntoIterator<Item = (String, String)>) -> Served {
        let split = |labels: &str| {
            let labels = labels.split(", ").filter(|label| !label.is_empty());
            labels
                .map(str::to_owned)
                .chain(ADDED.map(str::to_owned))
                .collect()
        };
        let mut served: BTreeMap<String, BTreeSet<String>> = metrics
            .into_iter()
            .map(|(name, labels)| (name, split(&labels)))
            .collect();
        served.insert("up".to_owned(), split(""));
        Served(served)
    }

    /// Checks an expression, in which Grafana's intervals may be. Returns the labels of its samples before any
    /// grouping, so that texts can be compared with them.
    ///
    /// # Errors
    /// The expression is none, or names a metric or a label that is not served.
    pub(super) fn check(&self, text: &str) -> Result<BTreeSet<String>, String> {
        let plain = text.replace("$__rate_interval", "1m");
        let parsed = parser::parse(&plain).map_err(|why| format!("{text}: {why}"))?;
        self.labels(&parsed).map_err(|why| format!("{text}: {why}"))
    }

    /// Checks the question `label_values(SELECTOR, LABEL)` of a Grafana variable.
    ///
    /// # Errors
    /// The question has another form, or names a metric or a label that is not served.
    pub(super) fn check_label_values(&self, text: &str) -> Result<(), String> {
        let inner = text.strip_prefix("label_values(");
        let inner = inner.and_then(|text| text.strip_suffix(')'));
        let parts = inner.and_then(|text| text.rsplit_once(", "));
        let (selector, label) = parts.ok_or_else(|| format!("{text}: no label_values"))?;
        let labels = self.check(selector)?;
        expect(&labels, [label])
    }

    fn labels(&self, expression: &Expr) -> Result<BTreeSet<String>, String> {
        match expression {
            Expr::VectorSelector(selector) => self.labels_of(selector),
            Expr::MatrixSelector(selector) => self.labels_of(&selector.vs),
            Expr::Aggregate(aggregate) => {
                let labels = self.labels(&aggregate.expr)?;
                match &aggregate.modifier {
                    None => Ok(BTreeSet::new()),
                    Some(LabelModifier::Include(by)) => {
                        expect(&labels, by.labels.iter().map(String::as_str))?;
                        Ok(by.labels.iter().cloned().collect())
                    }
                    Some(LabelModifier::Exclude(without)) => {
                        expect(&labels, without.labels.iter().map(String::as_str))?;
                        let kept = labels
                            .iter()
                            .filter(|label| !without.labels.contains(label));
                        Ok(kept.cloned().collect())
                    }
                }
            }
            Expr::Binary(binary) => {
                let mut labels = self.labels(&binary.lhs)?;
                labels.extend(self.labels(&binary.rhs)?);
                let matching = binary.modifier.as_ref().and_then(|m| m.matching.as_ref());
                if let Some(matching) = matching {
                    let named = matching.labels().labels.iter();
                    expect(&labels, named.map(String::as_str))?;
                }
                Ok(labels)
            }
            Expr::Unary(unary) => self.labels(&unary.expr),
            Expr::Paren(paren) => self.labels(&paren.expr),
            Expr::Subquery(subquery) => self.labels(&subquery.expr),
            Expr::Call(call) => {
                let mut labels = BTreeSet::new();
                for argument in &call.args.args {
                    labels.extend(self.labels(argument)?);
                }
                if call.func.name == "histogram_quantile" {
                    expect(&labels, ["le"])?;
                }
                Ok(labels)
            }
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(BTreeSet::new()),
            Expr::Extension(_) => Err("an extension of the parser".to_owned()),
        }
    }

    fn labels_of(&self, selector: &VectorSelector) -> Result<BTreeSet<String>, String> {
        let name = selector.name.as_ref().ok_or("a selector without a name")?;
        let labels = self.0.get(name);
        let labels = labels.ok_or_else(|| format!("no metric {name}"))?;
        let Matchers {
            matchers,
            or_matchers,
        } = &selector.matchers;
        let all = matchers.iter().chain(or_matchers.iter().flatten());
        expect(labels, all.map(|matcher| matcher.name.as_str()))?;
        Ok(labels.clone())
    }
}

/// Checks that the labels have these ones.
fn expect<'a>(
    labels: &BTreeSet<String>,
    named: impl IntoIterator<Item = &'a str>,
) -> Result<(), String> {
    for label in named {
        if !labels.contains(label) {
            return Err(format!("no label {label} among {labels:?}"));
        }
    }
    Ok(())
}

#[test]
fn a_broken_expression_an_unknown_metric_and_an_unknown_label_are_found() {
    let metrics = [("depth", "topic, channel"), ("bucket", "topic, le")];
    let served = Served::new(metrics.map(|(name, labels)| (name.to_owned(), labels.to_owned())));
    for good in [
        "depth",
        "sum by (topic) (rate(depth{channel=~\"$channel\"}[$__rate_interval])) > 0",
        "max without (channel, job) (depth) and on (topic) up{job=\"nsqd\"} == 1",
        "histogram_quantile(0.9, sum by (topic, le) (rate(bucket[5m])))",
    ] {
        served.check(good).unwrap();
    }
    for (bad, part) in [
        ("sum by (topic) (depth", "depth"),
        ("depth >", "depth"),
        ("rate(depth)", "matrix"),
        ("depth[5m]) > 0", "depth"),
        ("rat(depth[5m])", "rat"),
        ("rate(depth[])", "depth"),
        ("deep > 0", "no metric deep"),
        ("depth{node=\"x\"}", "no label node"),
        ("sum by (node) (depth)", "no label node"),
        (
            "sum by (channel) (sum by (topic) (depth))",
            "no label channel",
        ),
        ("depth / on (shard) depth", "no label shard"),
        ("histogram_quantile(0.9, rate(depth[5m]))", "no label le"),
        ("{job=\"nsqd\"}", "without a name"),
    ] {
        let error = served.check(bad).expect_err(bad);
        assert!(error.contains(part), "{bad}: {error}");
    }
    served
        .check_label_values("label_values(depth{topic=\"a\"}, channel)")
        .unwrap();
    let error = served
        .check_label_values("label_values(depth, le)")
        .unwrap_err();
    assert!(error.contains("no label le"), "{error}");
    served
        .check_label_values("label_value(depth, topic)")
        .unwrap_err();
}
