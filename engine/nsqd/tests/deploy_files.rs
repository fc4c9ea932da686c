//! The files of tools/deploy: the real programs start with the arguments of the manifests and units, answer the probes, and
//! work under the system calls that the seccomp profile and the units permit. systemd and kubectl read the files, where they
//! are installed.

mod calls;
mod manifests;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::ringq_lookupd::Lookupd;
use crate::support::{
    Broker, CONTAINERS_DENY, Confinement, IO_URING, Launch, TIMEOUT, has_io_uring, http, wait_until,
};
use manifests::{StatefulSet, leaves, objects};
use nsqlookupd::config::Config;
use serde_json::{Value, json};

fn file(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tools/deploy");
    directory.join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the output of a program that is not needed elsewhere, or `None` with a notice if it is not installed.
fn output_of(program: &str, args: &[&str]) -> Option<(bool, String)> {
    match Command::new(program).args(args).output() {
        Ok(output) => {
            let texts = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&texts).into_owned();
            Some((output.status.success(), text))
        }
        Err(error) => {
            eprintln!("LEFT OUT: {program} is missing: {error}");
            None
        }
    }
}

#[test]
fn nsqd_starts_and_drains_as_its_manifest_says() {
    let set = StatefulSet::read("kubernetes/nsqd.yaml");
    let mut args = set.args(&[
        ("POD_NAME", "nsqd-2"),
        ("POD_NAMESPACE", "shop"),
        ("POD_INDEX", "2"),
    ]);
    let data_path = args.iter().position(|arg| arg == "--data-path=/data");
    args.remove(data_path.expect("the volume is mounted at /data"));
    let mount = &set.container()["volumeMounts"][0];
    assert_eq!(mount, &json!({"name": "data", "mountPath": "/data"}));
    let claim = &set.spec()["volumeClaimTemplates"][0]["metadata"]["name"];
    assert_eq!(claim, &mount["name"]);

    // There is no nsqlookupd to ask, and the drain would wait for the grace of the topic.
    args.push("--new-topic-grace=0".to_owned());
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut broker = Broker::start(1, &args);
    let config = |key: &str| broker.get(&format!("/config/{key}")).text();
    assert_eq!(config("broadcast_address"), "nsqd-2.nsqd.shop.svc");
    assert_eq!(config("id"), "2");
    assert_eq!(config("nsqlookupd_tcp_addresses"), r#"["nsqlookupd:4160"]"#);
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let path = set.probed(probe);
        let is_good = wait_until(TIMEOUT, || broker.get(path).status == 200);
        assert!(is_good, "{path}");
    }

    // A drain takes the node out of the service of the producers, and does not restart it.
    broker.create("t", "c");
    broker.post("/pub?topic=t", b"last").expect_status(200);
    broker.sigterm();
    let is_unready = wait_until(TIMEOUT, || {
        broker.get(set.probed("readinessProbe")).status == 503
    });
    assert!(is_unready, "{}", broker.log());
    broker.get(set.probed("livenessProbe")).expect_status(200);
    let mut consumer = broker.consumer("t", "c", 1);
    consumer.take();
    assert!(broker.wait().success(), "{}", broker.log());
    let grace = set.pod()["terminationGracePeriodSeconds"].as_u64();
    assert!(grace > Some(4 * 60), "a drain takes 4 minutes at most");
    assert!(args.contains(&"--drain-timeout=240s"));
}

#[test]
fn nsqlookupd_starts_as_its_manifest_says() {
    let set = StatefulSet::read("kubernetes/nsqlookupd.yaml");
    let args = set.args(&[("POD_NAME", "nsqlookupd-0"), ("POD_NAMESPACE", "shop")]);
    let config = Config::from_args(args.iter().map(Into::into)).expect("the flags are good");
    assert_eq!(config.broadcast_address, "nsqlookupd-0.nsqlookupd.shop.svc");
    let lookupd = Lookupd::local(&args);
    for probe in ["readinessProbe", "livenessProbe"] {
        let address = lookupd.server.http_address();
        http(address, "GET", set.probed(probe), b"").expect_status(200);
    }
}

#[test]
fn the_manifests_belong_together() {
    for name in ["kubernetes/nsqd.yaml", "kubernetes/nsqlookupd.yaml"] {
        let set = StatefulSet::read(name);
        let labels = &set.spec()["template"]["metadata"]["labels"];
        assert_eq!(&set.spec()["selector"]["matchLabels"], labels);
        let ports: Vec<_> = set.ports();
        let mut kinds = Vec::new();
        for object in objects(name) {
            let spec = &object["spec"];
            match object["kind"].as_str().expect("each object has a kind") {
                "Service" => {
                    assert_eq!(&spec["selector"], labels);
                    let served = spec["ports"].as_array().expect("a list").iter();
                    let served: Vec<_> = served.map(|port| port["port"].as_u64()).collect();
                    assert_eq!(served, ports);
                    if object["metadata"]["name"] == set.spec()["serviceName"] {
                        assert_eq!(spec["clusterIP"], "None");
                        assert_eq!(spec["publishNotReadyAddresses"], true);
                        kinds.push("the pods' names");
                    }
                }
                "PodDisruptionBudget" => {
                    assert_eq!(&spec["selector"]["matchLabels"], labels);
                    kinds.push("budget");
                }
                "StatefulSet" => kinds.push("set"),
                other => panic!("{other}"),
            }
        }
        kinds.sort_unstable();
        assert_eq!(kinds, ["budget", "set", "the pods' names"]);
        let program = set.container()["command"][0].as_str();
        assert!(matches!(program, Some("nsqd" | "nsqlookupd")));
    }
}

/// kubectl decodes the object into its own types, and drops the fields that it does not know.
#[test]
fn kubectl_knows_every_field_of_the_sets() {
    for name in ["kubernetes/nsqd.yaml", "kubernetes/nsqlookupd.yaml"] {
        let set = StatefulSet::read(name);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("set.json");
        fs::write(&path, set.object.to_string()).expect("the directory is the test's");
        let path = path.display().to_string();
        let container = set.container()["name"].as_str().expect("it has a name");
        let image = format!("{container}=another");
        let args = ["set", "image", "--local", "-o", "json", "-f", &path, &image];
        let Some((is_good, output)) = output_of("kubectl", &args) else {
            return;
        };
        assert!(is_good, "{output}");
        let known: Value = serde_json::from_str(&output).expect("it is JSON");
        let (ours, known) = (leaves(&set.object), leaves(&known));
        let missing: Vec<_> = ours.difference(&known).map(|(path, _)| path).collect();
        // kubectl prints only what changes.
        assert_eq!(missing, [".spec.template.spec.containers[0].image"]);
    }
}

/// Returns the calls that the profile permits, without conditions on their arguments.
fn permitted() -> BTreeSet<String> {
    let profile: Value = serde_json::from_str(&text("seccomp.json")).expect("it is JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut permitted = BTreeSet::new();
    for group in profile["syscalls"].as_array().expect("a list") {
        let names = group["names"].as_array().expect("a list").iter();
        let names = names.map(|name| name.as_str().expect("a name").to_owned());
        match group["action"].as_str() {
            Some("SCMP_ACT_ALLOW") => permitted.extend(names),
            // The tests' filters answer this call in the same way.
            Some("SCMP_ACT_ERRNO") => {
                assert_eq!(names.collect::<Vec<_>>(), ["clone3"]);
                assert_eq!(group["errnoRet"], libc::ENOSYS);
            }
            other => panic!("{other:?}"),
        }
    }
    permitted
}

fn numbers(names: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<i64> {
    let names = names.into_iter();
    names
        .filter_map(|name| calls::number(name.as_ref()))
        .collect()
}

/// Starts a broker with these calls only, and uses it: messages, a restart, names, TLS.
fn expect_work_with(calls: Vec<i64>) {
    let calls: &'static [i64] = calls.leak();
    for io in ["io_uring", "epoll"] {
        if io == "io_uring" && !has_io_uring() {
            continue;
        }
        let flags = [&format!("--io={io}"), "--lookupd-tcp-address=localhost:1"];
        let mut broker = Launch::new(2, &flags.map(|flag| flag as &str))
            .confined(Confinement::PermitOnly(calls))
            .start();
        let mut client = broker.consumer("t", "c", 1);
        broker.post("/mpub?topic=t", b"1\n2").expect_status(200);
        assert_eq!(client.message().body, b"1");
        broker.get("/stats?format=json").expect_status(200);
        assert!(broker.sigterm_and_wait().success(), "{}", broker.log());
        broker.restart();
        let depth = broker.channel("t", "c")["depth"].clone();
        assert_eq!(depth, 2, "{}", broker.log());
        assert!(broker.sigterm_and_wait().success(), "{}", broker.log());
        assert!(
            !broker.log().contains("Operation not permitted"),
            "{}",
            broker.log()
        );
    }
}

#[test]
fn nsqd_works_under_the_seccomp_profile() {
    let permitted = permitted();
    // A call that a table lacks would never be tried. Old calls are not on every architecture.
    #[cfg(target_arch = "x86_64")]
    for name in &permitted {
        assert!(calls::number(name).is_some(), "{name} is not in calls.rs");
    }
    let numbers = numbers(&permitted);
    for denied in CONTAINERS_DENY {
        assert!(!numbers.contains(&denied), "containers deny call {denied}");
    }
    for call in IO_URING {
        assert!(
            numbers.contains(&call),
            "call {call} of io_uring is missing"
        );
    }
    expect_work_with(numbers);
}

#[test]
fn systemd_accepts_the_units() {
    let directory = tempfile::tempdir().expect("a directory");
    let verify = |name: &str, unit: &str| {
        let path = directory.path().join(name);
        fs::write(&path, unit).expect("the test's directory");
        let args = ["verify", "--man=no", path.to_str().expect("a plain path")];
        if let Some((is_good, output)) = output_of("systemd-analyze", &args) {
            assert!(is_good && output.is_empty(), "{name}: {output}");
        }
    };
    for name in ["nsqd", "nsqlookupd", "nsqadmin"] {
        let unit = text(&format!("systemd/{name}.service"));
        // The program is not installed here.
        let installed = format!("/usr/local/bin/{name}");
        assert!(unit.contains(&format!("ExecStart={installed} ")));
        verify(
            &format!("{name}.service"),
            &unit.replace(&installed, "/bin/true"),
        );
        // The sockets take the places of the addresses in the configuration file. systemd finds the service beside them.
        let config = text(&format!("systemd/{name}.toml"));
        let lines = config
            .lines()
            .filter_map(|line| line.split_once("_address = \""));
        for (socket, address) in lines.filter(|(socket, _)| ["tcp", "http"].contains(socket)) {
            let address = address.trim_end_matches('"').replace("0.0.0.0:", "");
            let file = format!("{name}-{socket}.socket");
            let unit = text(&format!("systemd/{file}"));
            for line in [
                format!("ListenStream={address}"),
                format!("FileDescriptorName={socket}"),
                format!("Service={name}.service"),
            ] {
                assert!(unit.lines().any(|it| it == line), "{file}: {line}");
            }
            verify(&file, &unit);
        }
    }
}

/// Returns the calls in a group of systemd.
fn group(name: &str) -> Option<BTreeSet<String>> {
    let (is_good, output) = output_of("systemd-analyze", &["syscall-filter", name])?;
    assert!(is_good, "{name}: {output}");
    let mut calls = BTreeSet::new();
    for word in output.lines().skip(1).map(str::trim) {
        match word.chars().next() {
            Some('@') => calls.extend(group(word)?),
            Some('#') | None => {}
            Some(_) => _ = calls.insert(word.to_owned()),
        }
    }
    Some(calls)
}

#[test]
fn nsqd_works_with_the_calls_that_its_unit_permits() {
    let unit = text("systemd/nsqd.service");
    let filters = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let mut permitted = BTreeSet::new();
    for filter in filters {
        let (denies, names) = match filter.strip_prefix('~') {
            Some(names) => (true, names),
            None => (false, filter),
        };
        for name in names.split(' ') {
            let Some(calls) = group(name) else { return };
            if denies {
                permitted.retain(|call| !calls.contains(call))
            } else {
                permitted.extend(calls)
            }
        }
    }
    assert!(permitted.contains("io_uring_setup"));
    // Calls that calls.rs does not know stay denied, so this is stricter than the unit. systemd runs the program itself.
    permitted.insert("execve".to_owned());
    expect_work_with(numbers(&permitted));
}

#[test]
fn the_configuration_files_of_the_units_are_good() {
    let lookupd = file("systemd/nsqlookupd.toml");
    let config = Config::from_args([format!("--config={}", lookupd.display()).into()]);
    let config = config.expect("the file is good");
    assert_eq!(config.ignored(), [""; 0]);
    // The examples in comments count, too.
    let directory = tempfile::tempdir().expect("a directory");
    let with_examples = directory.path().join("nsqd.toml");
    let lines = text("systemd/nsqd.toml");
    let lines = lines.lines().map(|line| match line.strip_prefix("# ") {
        Some(example) if example.contains(" = ") => example,
        _ => line,
    });
    let content = lines.collect::<Vec<_>>().join("\n");
    fs::write(&with_examples, content).expect("the test's directory");
    let broker = Broker::start(1, &[&format!("--config={}", with_examples.display())]);
    assert!(!broker.log().contains("ignored"), "{}", broker.log());
    let lookupds = broker.get("/config/nsqlookupd_tcp_addresses").json();
    assert_eq!(lookupds.as_array().map(Vec::len), Some(2));
}
