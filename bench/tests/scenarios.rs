//! Checks the scenario files: they are valid, have the name of their file and describe themselves.
//! Checks that the documentation names every scenario and every flag.

use nsq_bench::scenario::{Patch, Scenario};

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../docs/reference/nsq-bench.md"
);

#[test]
fn every_scenario_file_is_valid_and_documented() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
    let docs = std::fs::read_to_string(PAGE).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = Patch::from_toml(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            .apply(Scenario::default());
        assert_eq!(scenario.check(), Ok(()), "{}", path.display());
        assert_eq!(
            Some(scenario.name.as_str()),
            path.file_stem().unwrap().to_str()
        );
        assert!(!scenario.description.is_empty(), "{}", path.display());
        let documented = docs.contains(&format!("`{}`", scenario.name));
        assert!(
            documented,
            "docs/reference/nsq-bench.md does not name {}",
            scenario.name
        );
        count += 1;
    }
    assert!(count >= 13, "{count} scenarios");
}

#[test]
fn every_flag_is_documented() {
    let docs = std::fs::read_to_string(PAGE).unwrap();
    for command in ["run", "sweep", "find-max", "compare", "sink"] {
        let help = std::process::Command::new(env!("CARGO_BIN_EXE_nsq-bench"))
            .args([command, "--help"])
            .output()
            .unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let flags = help
            .split_whitespace()
            .filter(|word| word.starts_with("--") && *word != "--help");
        let mut count = 0;
        for flag in flags {
            let flag: String = flag
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '-')
                .collect();
            assert!(
                docs.contains(&format!("`{flag}`")),
                "{command} {flag} is not documented"
            );
            count += 1;
        }
        assert!(count >= 8, "{command} has {count} flags");
    }
}
