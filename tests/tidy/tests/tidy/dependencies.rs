//! Every dependency that a manifest names is used, and every one says what it is for.

use std::collections::BTreeSet;

use crate::repository::{files, metadata, root};

/// Dependencies that no code names, with the reason why a manifest does.
const ONLY_FEATURES: &[(&str, &str)] = &[
    ("diesel_migrations", "named by the macro ensemble_store_kit::migrations!"),
    ("idna_adapter", "selects the tables that url uses for host names"),
    ("libsqlite3-sys", "selects the bundled SQLite"),
    ("pq-sys", "selects the bundled libpq"),
    ("ensemble-store-kit", "all-in-one selects its feature bundled-libpq"),
];

#[test]
fn every_dependency_of_a_crate_is_used() {
    let sources = files(&[".rs"]);
    let meta = metadata();
    let mut unused = Vec::new();
    for package in meta["packages"].as_array().unwrap() {
        if !package["source"].is_null() {
            continue;
        }
        let manifest = package["manifest_path"].as_str().unwrap();
        let folder = manifest.strip_prefix(root().to_str().unwrap()).unwrap().trim_end_matches("Cargo.toml");
        let folder = folder.trim_start_matches('/');
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            let rust_name = dependency["rename"].as_str().unwrap_or(name).replace('-', "_");
            let is_used = sources.iter().any(|file| file.name.starts_with(folder) && names(&file.text, &rust_name));
            if !is_used && !ONLY_FEATURES.iter().any(|(known, _)| *known == name) {
                unused.push(format!("{folder}Cargo.toml: {name}"));
            }
        }
    }
    assert!(unused.is_empty(), "unused dependencies:\n{}", unused.join("\n"));
}

#[test]
fn every_shared_dependency_is_used_and_says_what_for() {
    let text = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let shared = text.split("[workspace.dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let used: BTreeSet<String> = metadata()["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|package| package["source"].is_null())
        .flat_map(|package| package["dependencies"].as_array().unwrap().clone())
        .map(|dependency| dependency["rename"].as_str().or(dependency["name"].as_str()).unwrap().to_owned())
        .collect();
    for line in shared.lines().filter(|line| line.contains(" = ") && !line.starts_with('#')) {
        let name = line.split(" = ").next().unwrap();
        assert!(used.contains(name), "Cargo.toml: no crate uses {name}");
        assert!(
            name.starts_with("ensemble-") || line.contains(" # "),
            "Cargo.toml: {name} does not say what it is for"
        );
    }
}

/// Each package is built by everyone who builds the program (docs/BUILD.md).
#[test]
fn the_lock_has_at_most_450_packages() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let count = lock.lines().filter(|line| *line == "[[package]]").count();
    assert!(
        count > 100 && count <= 450,
        "{count} packages: which of them can go, or which version shares what is there?"
    );
}

fn names(text: &str, module: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(module).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + module.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// The same rules that `cargo deny check bans licenses sources` holds, read from deny.toml, without the time that it takes to
/// build that tool.
#[test]
fn dependencies_are_allowed_by_deny_toml() {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let (allowed, denied) = (list(&text, "allow"), list(&text, "deny"));
    let mut wrong = Vec::new();
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some(source) = package["source"].as_str() else { continue };
        if !source.starts_with("registry+") {
            wrong.push(format!("{name}: comes from {source}"));
        }
        if denied.contains(&name) {
            wrong.push(format!("{name}: deny.toml forbids it"));
        }
        let license = package["license"].as_str().unwrap_or_default();
        // "A OR B" and the older "A/B" leave the choice; "A AND B" wants both.
        let is_allowed =
            |choice: &str| choice.split(" AND ").all(|one| allowed.contains(&one.trim_matches(['(', ')', ' '])));
        if !license.replace('/', " OR ").split(" OR ").any(is_allowed) {
            wrong.push(format!("{name}: licence {license:?} is not allowed"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The strings of `name = ["…", …]`.
fn list<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("\n{name} = [");
    let inside = text.split(&start).nth(1).and_then(|rest| rest.split(']').next());
    let found: Vec<&str> = inside.unwrap().split('"').skip(1).step_by(2).collect();
    assert!(!found.is_empty(), "deny.toml has no list {name}");
    found
}
