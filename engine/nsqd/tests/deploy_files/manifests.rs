//! Kubernetes manifests as values.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

/// Returns the objects in a file of tools/deploy.
pub(crate) fn objects(name: &str) -> Vec<Value> {
    let text = super::text(name);
    let documents = serde_norway::Deserializer::from_str(&text);
    let read = documents.map(Value::deserialize);
    let read: Result<Vec<Value>, _> = read.collect();
    read.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The StatefulSet of a file, with one container.
pub(crate) struct StatefulSet {
    pub(crate) object: Value,
}

impl StatefulSet {
    pub(crate) fn read(name: &str) -> StatefulSet {
        let mut objects = objects(name).into_iter();
        let object = objects.find(|object| object["kind"] == "StatefulSet");
        StatefulSet {
            object: object.unwrap_or_else(|| panic!("{name} has no StatefulSet")),
        }
    }

    pub(crate) fn spec(&self) -> &Value {
        &self.object["spec"]
    }

    pub(crate) fn pod(&self) -> &Value {
        &self.spec()["template"]["spec"]
    }

    pub(crate) fn container(&self) -> &Value {
        &self.pod()["containers"][0]
    }

    /// Returns the numbers of the container's ports.
    pub(crate) fn ports(&self) -> Vec<Option<u64>> {
        let ports = self.container()["ports"].as_array().expect("a list");
        let numbers = ports.iter().map(|port| port["containerPort"].as_u64());
        numbers.collect()
    }

    /// Returns the arguments with the values of these variables. The manifest must declare exactly these variables.
    pub(crate) fn args(&self, variables: &[(&str, &str)]) -> Vec<String> {
        let declared = self.container()["env"].as_array().expect("a list").iter();
        let declared: Vec<_> = declared.map(|variable| variable["name"].as_str()).collect();
        let wanted: Vec<_> = variables.iter().map(|(name, _)| Some(*name)).collect();
        assert_eq!(declared, wanted);
        let args = self.container()["args"].as_array().expect("a list").iter();
        let args = args.map(|arg| {
            let mut arg = arg.as_str().expect("arguments are texts").to_owned();
            for (name, value) in variables {
                arg = arg.replace(&format!("$({name})"), value);
            }
            assert!(!arg.contains("$("), "{arg}: an unknown variable");
            arg
        });
        args.collect()
    }

    /// Returns the path of a probe, which asks the port of HTTP.
    pub(crate) fn probed(&self, probe: &str) -> &str {
        let request = &self.container()[probe]["httpGet"];
        assert_eq!(request["port"], "http", "{probe}");
        request["path"].as_str().expect("a path")
    }
}

/// Returns the path of each value that is no object and no list, with the value.
pub(crate) fn leaves(value: &Value) -> BTreeSet<(String, String)> {
    let mut leaves = BTreeSet::new();
    add_leaves(value, "", &mut leaves);
    leaves
}

fn add_leaves(value: &Value, path: &str, leaves: &mut BTreeSet<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                add_leaves(value, &format!("{path}.{name}"), leaves);
            }
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                add_leaves(value, &format!("{path}[{index}]"), leaves);
            }
        }
        leaf => _ = leaves.insert((path.to_owned(), leaf.to_string())),
    }
}
