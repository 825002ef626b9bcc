//! Commands of documents that install something name only what the project owns, as `deploy/release/names` has it. Under any other name
//! a stranger could publish a program of theirs.

use std::collections::BTreeMap;

use crate::repository::{files, root};

/// The names of the file. An empty one is not owned yet.
fn names() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(root().join("deploy/release/names")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once('=').unwrap()).map(|(name, is)| (name.to_owned(), is.to_owned())).collect()
}

#[test]
fn documents_install_only_what_the_project_owns() {
    let names = names();
    let known: Vec<&str> = names.keys().map(String::as_str).collect();
    assert_eq!(known, ["homebrew_tap", "image", "npm_scope", "releases", "signer"]);
    let mut found = Vec::new();
    for file in files(&[".md"]) {
        // A command may have several lines.
        let text = file.text.replace("\\\n", "  ");
        for (number, line) in text.lines().enumerate() {
            let strange = installed(line).into_iter().filter(|(way, name)| !is_owned(&names[*way], name));
            found.extend(strange.map(|(way, name)| format!("{}:{}: {name} is not in {way}", file.name, number + 1)));
        }
    }
    assert!(found.is_empty(), "deploy/release/names does not have:\n{}", found.join("\n"));
}

/// What a line would install of ours: the way, and the name there.
fn installed(line: &str) -> Vec<(&'static str, &str)> {
    let words: Vec<&str> =
        line.split_whitespace().map(|word| word.trim_matches(['`', '"', '\'', ',', '.', '$', '(', ')'])).collect();
    let mut found = Vec::new();
    for (at, program) in words.iter().enumerate() {
        let what = words.get(at + 1).copied().unwrap_or_default();
        let way = match (*program, what) {
            ("npm" | "pnpm" | "bun" | "yarn", "install" | "i" | "add" | "exec" | "x") | ("npx" | "bunx", _) => {
                "npm_scope"
            }
            ("brew", "install" | "tap") => "homebrew_tap",
            ("docker" | "podman", "run" | "pull") => "image",
            ("curl" | "wget", _) => "releases",
            _ => continue,
        };
        let command = words[at + 1..].iter().take_while(|word| !["&&", "|", "#", ";"].contains(word));
        let is_name = |word: &&&str| match way {
            "releases" => word.ends_with("install.sh"),
            // A volume is no image.
            _ => word.contains("ensemble") && !word.contains(":/") && !word.starts_with('-'),
        };
        found.extend(command.filter(is_name).map(|name| (way, *name)));
    }
    found
}

fn is_owned(own: &str, name: &str) -> bool {
    let rest = (!own.is_empty()).then(|| name.strip_prefix(own)).flatten();
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '@']))
}

#[test]
fn commands_that_install_are_found() {
    let image = "docker run -p 127.0.0.1:8080:8080 -v ensemble:/data registry.example.com/ensemble:1 up";
    for (line, names) in [
        ("npm install -g @x/ensemble # the command", vec![("npm_scope", "@x/ensemble")]),
        ("`npx ensemble claude`", vec![("npm_scope", "ensemble")]),
        ("brew install x/tap/ensemble && ensemble up", vec![("homebrew_tap", "x/tap/ensemble")]),
        (image, vec![("image", "registry.example.com/ensemble:1")]),
        ("curl -fsSL https://x.example/install.sh | sh", vec![("releases", "https://x.example/install.sh")]),
        ("npm install --package-lock-only", vec![]),
        ("curl http://127.0.0.1:8080/v1/version", vec![]),
    ] {
        assert_eq!(installed(line), names, "{line}");
    }
    for (own, name, is) in [
        ("", "@x/ensemble", false),
        ("@x", "@x/ensemble", true),
        ("@x", "@xy/ensemble", false),
        ("r.example/ensemble", "r.example/ensemble:1", true),
    ] {
        assert_eq!(is_owned(own, name), is, "{own} {name}");
    }
}
