//! Who may import whom: between crates, and between the folders of a service.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{dependencies, files, is_test, metadata, reachable, root};

#[test]
fn crates_depend_only_on_those_they_may() {
    let service = ["types", "chassis", "store-kit", "rpc"];
    let mut law: BTreeMap<&str, Vec<&str>> = BTreeMap::from([
        ("types", vec![]),
        ("protocol", vec!["types"]),
        ("chassis", vec!["types"]),
        ("store-kit", vec!["types"]),
        ("rpc", vec!["types", "chassis"]),
        ("agent", vec!["types", "protocol"]),
        ("screen", vec!["types", "protocol"]),
        ("client", vec!["types", "protocol"]),
        ("plan", vec!["types", "protocol"]),
        ("acp", vec!["types", "client", "protocol", "account", "agent"]),
        ("talk", vec!["types", "client", "protocol", "account", "screen"]),
        ("process", vec![]),
        ("git", vec!["types", "process"]),
        ("computer", vec!["types", "client", "process", "agent", "host", "account"]),
        ("host", vec!["types", "client", "protocol", "process", "agent", "git"]),
        ("runner", vec!["types", "client", "protocol", "process", "agent", "host", "git"]),
        ("account", vec!["types", "client", "protocol"]),
        (
            "cli",
            vec![
                "types",
                "account",
                "acp",
                "client",
                "computer",
                "host",
                "plan",
                "runner",
                "all-in-one",
                "protocol",
                "agent",
                "screen",
                "talk",
                "web",
            ],
        ),
        ("web", vec![]),
        ("testkit", vec!["types", "chassis", "store-kit", "rpc", "client"]),
    ]);
    for name in ["identity", "machine-registry", "session-store", "orchestrator", "voice-gateway", "edge-proxy"] {
        law.insert(name, service.to_vec());
    }
    law.entry("edge-proxy").or_default().push("web");
    // Lists of devices are checked where they are stored, too. What is sealed is not: `no_service_can_open_contents`.
    law.entry("identity").or_default().push("protocol");
    let graph = dependencies();
    for (name, may) in law {
        let needs = &graph[&format!("ensemble-{name}")];
        for need in needs.iter().filter_map(|need| need.strip_prefix("ensemble-")) {
            assert!(may.contains(&need), "ensemble-{name} may not depend on ensemble-{need}");
        }
    }
}

/// The server cannot read contents: neither a service nor what it is built on asks for the code that opens them.
#[test]
fn no_service_can_open_contents() {
    let graph = dependencies();
    let is_service =
        |name: &&String| name.strip_prefix("ensemble-").is_some_and(|name| root().join("services").join(name).is_dir());
    let services: Vec<&String> = graph.keys().filter(is_service).collect();
    assert!(services.len() >= 6, "{services:?}");
    let mut parts: BTreeSet<&str> = services.iter().flat_map(|name| reachable(&graph, name)).collect();
    parts.extend(services.iter().map(|name| name.as_str()));
    for package in metadata()["packages"].as_array().unwrap() {
        if !parts.contains(package["name"].as_str().unwrap()) {
            continue;
        }
        for need in package["dependencies"].as_array().unwrap() {
            let seals = need["name"] == "ensemble-protocol"
                && need["kind"].is_null()
                && need["features"].as_array().unwrap().iter().any(|feature| feature == "seal");
            assert!(!seals, "{} can open contents", package["name"]);
        }
    }
}

#[test]
fn clients_and_runners_link_neither_the_server_nor_the_database() {
    let graph = dependencies();
    for name in [
        "ensemble-types",
        "ensemble-account",
        "ensemble-client",
        "ensemble-computer",
        "ensemble-acp",
        "ensemble-plan",
        "ensemble-process",
        "ensemble-host",
        "ensemble-runner",
        "ensemble-protocol",
        "ensemble-agent",
        "ensemble-screen",
        "ensemble-talk",
    ] {
        for heavy in ["actix-web", "diesel", "r2d2"] {
            assert!(!reachable(&graph, name).contains(heavy), "{name} reaches {heavy}");
        }
    }
    assert!(!reachable(&graph, "ensemble-store-kit").contains("actix-web"), "store-kit must not know HTTP");
    assert!(!reachable(&graph, "ensemble-chassis").contains("diesel"), "chassis must not know a database");
}

/// They serve any program, so what they have to say is a value. Only `computer` starts programs.
#[test]
fn libraries_of_clients_print_nothing_start_nothing_and_read_no_environment() {
    const LIBRARIES: [&str; 5] = ["account", "acp", "computer", "plan", "talk"];
    const STARTS: &str = "process::Command";
    const NEVER: [&str; 9] = [
        "println!",
        "print!(",
        "::stdin()",
        "::stdout()",
        "::stderr()",
        STARTS,
        "env::var",
        "env::args",
        "env::current",
    ];
    let mut checked = BTreeSet::new();
    for file in files(&[".rs"]).iter().filter(|file| !is_test(&file.name)) {
        let of = |name: &&str| file.name.starts_with(&format!("crates/{name}/src/"));
        let Some(library) = LIBRARIES.into_iter().find(of) else { continue };
        checked.insert(library);
        let code = of_program(&file.text).lines();
        for (number, line) in code.enumerate() {
            let is_never = |word: &&&str| line.contains(**word) && (library != "computer" || **word != STARTS);
            let found = NEVER.iter().find(is_never);
            assert!(found.is_none(), "{}:{}: {} is for the program around it", file.name, number + 1, found.unwrap());
        }
    }
    assert_eq!(checked.len(), LIBRARIES.len(), "{checked:?}");
}

/// What stands before the tests at the end of a file.
fn of_program(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// What is signed and sealed is for the account crate, so that every other front end has it, too. A person can give their key, and see
/// which one it is.
#[test]
fn the_command_line_handles_no_keys() {
    const NEVER: [&str; 6] =
        ["ensemble_protocol::seal", "KeyRing", "ContentRing", "BoxKeyPair", "BoxPublicKey", "SignedList"];
    const OF_A_PERSON: [&str; 3] = ["account.rs", "commands/login.rs", "commands/whoami.rs"];
    let mut found = Vec::new();
    for file in files(&[".rs"]).iter().filter(|file| !is_test(&file.name)) {
        let of = |front: &&str| file.name.strip_prefix("crates/")?.strip_prefix(*front)?.strip_prefix("/src/");
        let Some(inside) = ["cli", "acp", "talk", "plan"].iter().find_map(of) else { continue };
        let code = of_program(&file.text).lines();
        for (number, line) in code.enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let is_key = line.contains("AccountKey") && !OF_A_PERSON.contains(&inside);
            // What a plan is to be sealed to.
            let is_plain = line.contains("seal::SessionTask") && file.name.starts_with("crates/plan/");
            if is_key || !is_plain && NEVER.iter().any(|word| line.contains(word)) {
                found.push(format!("{}:{}: {}", file.name, number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "ask ensemble-account for what these do:\n{}", found.join("\n"));
}

/// What the files of a folder in `services/*/src` must not contain, with the reason.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    ("handlers", &["use diesel", "crate::store::"], "handlers translate and call operations"),
    (
        "operations",
        &["use diesel", "StatusCode", "HttpResponse", "crate::handlers"],
        "operations know no HTTP and no SQL",
    ),
    (
        "store",
        &["StatusCode", "HttpResponse", "crate::handlers", "crate::operations", "crate::clients"],
        "a store only asks the database",
    ),
    ("workers", &["use diesel", "StatusCode", "HttpResponse", "crate::handlers"], "workers call operations"),
    (
        "domain",
        &[
            "async fn",
            "crate::store",
            "crate::operations",
            "use diesel",
            "tokio::",
            "actix",
            "reqwest::Client",
            "StatusCode",
            "HttpResponse",
        ],
        "domain is rules without I/O",
    ),
];

#[test]
fn layers_of_a_service_call_in_one_direction() {
    for file in files(&[".rs"]) {
        let inside = file.name.strip_prefix("services/").and_then(|rest| rest.split_once("/src/"));
        let Some((_, inside)) = inside else { continue };
        let layer = inside.split(['/', '.']).next().unwrap();
        for (_, words, why) in FORBIDDEN.iter().filter(|(name, _, _)| *name == layer) {
            for word in *words {
                assert!(!file.text.contains(word), "{}: found {word:?}, but {why}", file.name);
            }
        }
        assert!(
            layer == "store" || !file.text.contains("diesel::"),
            "{}: found diesel, but SQL belongs into store/",
            file.name
        );
    }
}
