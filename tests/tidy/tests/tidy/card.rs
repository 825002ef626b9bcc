//! What the project stands on: each of these packages is a direct dependency of the crates that need it, and used there.

use std::collections::BTreeSet;

use crate::repository::{File, dependencies, files, root};

/// The package, the name in Rust, and the crates (folders) that use it.
const CARD: &[(&str, &str, &[&str])] = &[
    (
        "actix-web",
        "actix_web",
        &["crates/chassis", "services/edge-proxy", "services/session-store", "services/orchestrator"],
    ),
    ("tokio", "tokio", &["crates/chassis", "crates/store-kit", "services/orchestrator", "crates/runner"]),
    ("serde", "serde", &["crates/types", "crates/client"]),
    ("reqwest", "reqwest", &["crates/chassis", "crates/rpc", "crates/client", "services/edge-proxy"]),
    (
        "diesel",
        "diesel",
        &[
            "crates/store-kit",
            "services/session-store",
            "services/orchestrator",
            "services/machine-registry",
            "services/voice-gateway",
            "services/identity",
        ],
    ),
    ("r2d2", "r2d2", &["crates/store-kit"]),
    ("uuid", "uuid", &["crates/types", "crates/store-kit"]),
    ("time", "time", &["crates/types"]),
    ("livekit-api", "livekit_api", &["services/voice-gateway"]),
    ("opentelemetry", "opentelemetry", &["crates/chassis"]),
];

/// What stands at the top of the repository besides files of tools.
const TOP: &[&str] =
    &["Cargo.toml", "crates", "services", "deploy", "docker-compose.yml", "proto", "README.md", "Makefile"];

const SERVICES: &[&str] =
    &["edge-proxy", "identity", "machine-registry", "orchestrator", "session-store", "voice-gateway"];

#[test]
fn each_package_is_a_direct_dependency_and_used() {
    let graph = dependencies();
    let sources = files(&[".rs"]);
    for (package, module, folders) in CARD {
        for folder in *folders {
            let name = folder.rsplit('/').next().unwrap();
            assert!(graph[&format!("ensemble-{name}")].contains(*package), "{folder} does not depend on {package}");
            let src = format!("{folder}/src/");
            let uses = |text: &str| {
                [format!("{module}::"), format!("use {module};")].iter().any(|form| text.contains(form.as_str()))
            };
            let is_used = sources.iter().any(|file| file.name.starts_with(&src) && uses(&file.text));
            assert!(is_used, "{folder} depends on {package} and does not use it");
        }
    }
}

#[test]
fn the_top_of_the_repository_and_its_services_are_as_designed() {
    for name in TOP {
        assert!(root().join(name).exists(), "{name} is missing");
    }
    let found: BTreeSet<String> = std::fs::read_dir(root().join("services"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, SERVICES.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn every_service_has_the_same_shape() {
    for service in SERVICES.iter().filter(|name| **name != "edge-proxy") {
        for part in [
            "README.md",
            "migrations/postgres",
            "migrations/sqlite",
            "src/lib.rs",
            "src/main.rs",
            "src/error.rs",
            "src/routes.rs",
            "src/handlers",
            "src/operations",
            "src/domain",
            "src/store",
            "src/store/schema.rs",
            "tests/api",
        ] {
            assert!(root().join("services").join(service).join(part).exists(), "services/{service} has no {part}");
        }
    }
}

#[test]
fn the_edge_is_thin() {
    let lines: usize = files(&[".rs"])
        .iter()
        .filter(|file| file.name.starts_with("services/edge-proxy/src/") && !file.name.contains("/src/pages"))
        .map(|file| file.text.split("#[cfg(test)]\nmod tests").next().unwrap().lines().count())
        .sum();
    assert!(lines <= 2_000, "the edge has {lines} lines of source without tests; it may have 2,000");
}

/// Tests that no step of a workflow names.
const IN_NO_WORKFLOW: [&str; 3] = [
    // kube-apiserver and etcd come in no package of the machines that run workflows.
    "chart-server-test",
    // It needs a LiveKit server.
    "test-livekit",
    // A part of `make test`.
    "test-voice-local",
];

#[test]
fn each_test_of_the_make_files_is_in_a_workflow() {
    let workflows: Vec<File> =
        files(&[".yml"]).into_iter().filter(|file| file.name.starts_with(".github/workflows/")).collect();
    let steps = workflows.iter().flat_map(|file| file.text.lines());
    let run: BTreeSet<&str> =
        steps.filter_map(|line| line.trim().strip_prefix("- run: make ")).flat_map(str::split_whitespace).collect();
    let makefiles = files(&["Makefile", ".mk"]);
    let described = makefiles.iter().flat_map(|file| file.text.lines()).filter(|line| line.contains("## "));
    let targets = described.filter_map(|line| line.split_once(':')).map(|(target, _)| target);
    let tests: BTreeSet<&str> = targets.filter(|target| target.split('-').any(|word| word == "test")).collect();
    let expected: BTreeSet<&str> = tests.difference(&BTreeSet::from(IN_NO_WORKFLOW)).copied().collect();
    assert!(expected.len() > 5 && expected.is_subset(&run), "{:?}", expected.difference(&run).collect::<Vec<_>>());
}
