//! Who may import whom, how files begin, how long they may be: rules that a reviewer should not have to remember.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file that git knows, with one of these endings.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let listed =
        Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(root()).output().unwrap();
    let found: Vec<PathBuf> = String::from_utf8(listed.stdout)
        .unwrap()
        .lines()
        .filter(|line| endings.iter().any(|ending| line.ends_with(ending)))
        .map(|line| root().join(line))
        .filter(|path| path.exists())
        .collect();
    assert!(!found.is_empty(), "git ls-files found nothing: the rules would hold for no file");
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// Package name → names of the packages it needs to run (not for its tests or its build).
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let told = Command::new(env!("CARGO"))
        // What other platforms need may not have been downloaded.
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", "host-tuple"])
        .current_dir(root())
        .output()
        .unwrap();
    let meta: Value = serde_json::from_slice(&told.stdout).expect("cargo metadata prints JSON");
    let names: BTreeMap<&str, &str> = meta["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["id"].as_str().unwrap(), p["name"].as_str().unwrap()))
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

fn reach<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, from: &'a str) -> BTreeSet<&'a str> {
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

#[test]
fn rooms_open_only_the_doors_they_may() {
    let service = ["types", "chassis", "store-kit", "rpc"];
    let mut law: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
        ("types", vec![]),
        ("chassis", vec!["types"]),
        ("store-kit", vec!["types"]),
        ("rpc", vec!["types", "chassis"]),
        ("client", vec!["types"]),
        ("runner", vec!["types", "client"]),
        ("cli", vec!["types", "client", "runner", "all-in-one"]),
        ("testkit", vec!["types", "chassis", "store-kit", "rpc", "client"]),
    ]);
    for name in ["identity", "machine-registry", "session-store", "orchestrator", "voice-gateway", "edge-proxy"] {
        law.insert(name, service.to_vec());
    }
    let graph = dependencies();
    for (name, may) in law {
        let needs = &graph[&format!("ensemble-{name}")];
        for need in needs.iter().filter_map(|need| need.strip_prefix("ensemble-")) {
            assert!(may.contains(&need), "ensemble-{name} may not depend on ensemble-{need}");
        }
    }
}

#[test]
fn clients_and_runners_link_neither_the_server_nor_the_database() {
    let graph = dependencies();
    for name in ["ensemble-types", "ensemble-client", "ensemble-runner"] {
        for heavy in ["actix-web", "diesel", "r2d2"] {
            assert!(!reach(&graph, name).contains(heavy), "{name} reaches {heavy}");
        }
    }
    assert!(!reach(&graph, "ensemble-store-kit").contains("actix-web"), "store-kit knows no HTTP");
    assert!(!reach(&graph, "ensemble-chassis").contains("diesel"), "chassis knows no database");
}

#[test]
fn layers_keep_their_distance() {
    for path in files(&[".rs"]) {
        let name = shown(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        let Some(inside) =
            name.strip_prefix("services/").and_then(|rest| rest.split_once("/src/")).map(|(_, inside)| inside)
        else {
            continue;
        };
        let layer = inside.split(['/', '.']).next().unwrap();
        if text.contains("use diesel") {
            assert!(matches!(layer, "store" | "schema"), "{name}: SQL lives in store/");
        }
        if matches!(layer, "domain" | "store" | "workers") {
            assert!(!text.contains("StatusCode") && !text.contains("HttpResponse"), "{name}: only error.rs knows HTTP");
            assert!(!text.contains("crate::handlers"), "{name}: handlers call {layer}, not the other way round");
        }
        if layer == "domain" {
            for no in ["async fn", "crate::store", "use diesel", "tokio::"] {
                assert!(!text.contains(no), "{name}: domain is rules without I/O, found {no:?}");
            }
        }
        if layer == "store" {
            assert!(!text.contains("crate::clients"), "{name}: a store asks nobody but the database");
        }
    }
}

#[test]
fn every_file_says_why_it_exists() {
    for path in files(&[".rs"]) {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} does not open with //!", shown(&path));
    }
}

#[test]
fn files_stay_short_enough_to_read() {
    for path in files(&[".rs"]) {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 600, "{} has {lines} lines; split it by noun", shown(&path));
    }
}

#[test]
fn tests_do_not_sleep_and_are_not_switched_off() {
    for path in files(&[".rs"]) {
        let name = shown(&path);
        if !name.contains("/tests/") || name.starts_with("tests/tidy") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for no in ["thread::sleep", "#[ignore", "todo!("] {
            assert!(!text.contains(no), "{name}: {no}");
        }
    }
}

#[test]
fn the_project_stands_alone() {
    for path in files(&[".rs", ".md", ".toml", ".yaml", ".yml", ".mk", "Makefile", ".py", ".proto"]) {
        if shown(&path).starts_with("tests/tidy") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for no in ["../shared", "../.library", "/work/"] {
            assert!(!text.contains(no), "{} refers to {no}", shown(&path));
        }
    }
}
