//! Reads the repository: its files, and the dependency graph that cargo reports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file with its path below the root and its text.
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Every text file that git tracks, or would track, with one of these endings.
pub(crate) fn files(endings: &[&str]) -> Vec<File> {
    let listed =
        Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(root()).output().unwrap();
    let found: Vec<File> = String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter(|name| endings.iter().any(|ending| name.ends_with(ending)))
        .filter_map(|name| {
            let text = std::fs::read_to_string(root().join(name)).ok()?;
            Some(File { name: name.to_owned(), text })
        })
        .collect();
    assert!(!found.is_empty(), "git ls-files found no {endings:?}: the rule would check nothing");
    found
}

/// Whether a Rust file is a test or a program for tests.
pub(crate) fn is_test(name: &str) -> bool {
    name.starts_with("tests/") || name.contains("/tests/") || name.starts_with("crates/testkit/")
}

/// Package name → names of the packages that it needs to run (not those of its tests or its build script).
pub(crate) fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let meta = metadata();
    let names: BTreeMap<&str, &str> = meta["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package["name"].as_str().unwrap()))
        .collect();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in meta["resolve"]["nodes"].as_array().unwrap() {
        let needs = node["deps"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|dep| dep["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null()));
        let entry = found.entry(names[node["id"].as_str().unwrap()].to_owned()).or_default();
        entry.extend(needs.map(|dep| names[dep["pkg"].as_str().unwrap()].to_owned()));
    }
    found
}

/// The output of `cargo metadata`.
pub(crate) fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        // Crates of other platforms may not have been downloaded.
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", "host-tuple"])
        .current_dir(root())
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Every package that `from` needs, directly or not.
pub(crate) fn reachable<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for next in graph.get(at).into_iter().flatten() {
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    seen
}
