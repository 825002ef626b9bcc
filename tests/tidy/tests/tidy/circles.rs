//! Circles: files of a crate that import each other, each the next one. They can only be understood together.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::{files, is_test, reachable};

/// The most files that a circle may have.
const MOST: usize = 9;
/// Circles that are larger. They may shrink, and not grow.
const LARGER: [(&str, usize); 2] = [("crates/account", 29), ("crates/chassis", 26)];

/// The text of each module of a crate, by its path: `a::b` for `a/b.rs`, and nothing for the root.
type Modules = BTreeMap<String, String>;

#[test]
fn few_files_import_each_other_in_a_circle() {
    let mut crates: BTreeMap<String, Modules> = BTreeMap::new();
    for file in files(&[".rs"]) {
        let Some((place, inside)) = file.name.split_once("/src/") else { continue };
        if !is_test(&file.name) && !inside.ends_with("tests.rs") {
            crates.entry(place.to_owned()).or_default().entry(module(inside)).or_insert(file.text);
        }
    }
    assert!(crates.len() > 20, "only {} crates: the rule checks nothing", crates.len());
    for (place, modules) in &crates {
        let graph = modules.iter().map(|(name, text)| (name.clone(), imports(name, text, modules))).collect();
        let circle = largest_circle(&graph);
        let most = LARGER.iter().find(|(larger, _)| larger == place).map_or(MOST, |(_, most)| *most);
        assert!(circle.len() <= most, "{place}: {} files import each other:\n{}", circle.len(), circle.join("\n"));
    }
}

fn module(inside: &str) -> String {
    let path = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    if ["lib", "main", "mod"].contains(&path) { String::new() } else { path.replace('/', "::") }
}

fn parent(name: &str) -> &str {
    name.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// The modules that a module has `use` lines for. Its own parent does not count: it only holds what its children share.
fn imports(name: &str, text: &str, modules: &Modules) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let found = uses(code).into_iter().flat_map(|tree| paths(&tree)).filter_map(|path| target(name, &path, modules));
    found.filter(|other| other != name && (name.is_empty() || other != parent(name))).collect()
}

/// What stands between `use` and its semicolon.
fn uses(code: &str) -> Vec<String> {
    let begins = |line: &str| {
        let line = line.trim_start();
        let after = line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or("", |(_, rest)| rest));
        after.strip_prefix("use ").map(str::to_owned)
    };
    let mut found = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let Some(mut tree) = begins(line) else { continue };
        while !tree.contains(';') {
            let Some(more) = lines.next() else { break };
            tree.push_str(more.trim());
        }
        found.push(tree.split(';').next().unwrap_or_default().to_owned());
    }
    found
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d` and `a::c::e`.
fn paths(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_owned()];
    };
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in rest.trim_end().trim_end_matches('}').chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if letter != ',' || depth > 0 => part.push(letter),
            _ => parts.push(String::new()),
        }
    }
    // The braces at the end belong to the last part as well.
    if let Some(last) = parts.last_mut() {
        last.push_str(&"}".repeat(depth.try_into().unwrap_or(0)));
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| paths(&format!("{}{part}", before.trim()))).collect()
}

/// The module that an import of this one names, or is in. `None`: one of another crate.
fn target(name: &str, path: &str, modules: &Modules) -> Option<String> {
    let mut parts: Vec<&str> = path.split("::").map(|part| part.trim_start_matches("r#")).collect();
    let mut from = name.to_owned();
    match *parts.first()? {
        "crate" => from.clear(),
        "self" => {}
        "super" => {
            while parts.get(1) == Some(&"super") {
                from = parent(&from).to_owned();
                parts.remove(0);
            }
            from = parent(&from).to_owned();
        }
        first if modules.contains_key(&joined(&from, &[first])) => parts.insert(0, "self"),
        _ => return None,
    }
    let parts = parts.get(1..)?;
    (0..=parts.len()).rev().map(|length| joined(&from, &parts[..length])).find(|name| modules.contains_key(name))
}

fn joined(from: &str, parts: &[&str]) -> String {
    let all = Some(from).filter(|from| !from.is_empty()).into_iter().chain(parts.iter().copied());
    all.collect::<Vec<_>>().join("::")
}

fn largest_circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<&str> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|name| (name.as_str(), reachable(graph, name))).collect();
    let circle = |name: &str| -> Vec<&str> {
        reached[name].iter().copied().filter(|other| reached[other].contains(name)).collect()
    };
    reached.keys().map(|name| circle(name)).max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let names = ["", "a", "a::b", "a::c", "d"];
    let modules: Modules = names.into_iter().map(|name| (name.to_owned(), String::new())).collect();
    let of = |name: &str, text: &str| imports(name, text, &modules).into_iter().collect::<Vec<_>>();
    assert_eq!(of("a::b", "use super::c::{X, y::Z};\nuse super::W;\nuse std::fs;"), ["a::c"]);
    assert_eq!(
        of("a", "pub(crate) use self::b::X;\nuse crate::{\n    a::c::{self, Y},\n    d::Z as W,\n};"),
        ["a::b", "a::c", "d"]
    );
    assert_eq!(of("a", "use b::X;\nuse super::d;\n#[cfg(test)]\nmod tests {\n    use super::c::X;\n}"), ["a::b", "d"]);
    assert_eq!(of("a::b", "use super::super::d::X;\nuse crate::r#d::Y;"), ["d"]);
    let graph = [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["a", "d"]), ("d", vec![])];
    let graph = graph.map(|(from, to)| (from.to_owned(), to.into_iter().map(str::to_owned).collect()));
    assert_eq!(largest_circle(&BTreeMap::from(graph)), ["a", "b", "c"]);
}
