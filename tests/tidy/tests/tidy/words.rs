//! Words that are not used, because the field has another one or because programs do not do this.

use crate::repository::files;

/// The word, and what to write instead.
const WORDS: &[(&str, &str)] = &[
    ("whoever", "name the caller, the user or the process"),
    ("knock", "connect"),
    ("knocked", "connected"),
    ("doorway", "listener"),
    ("heard", "received"),
    ("hearing", "receiving"),
    ("believed", "trusted, or verified"),
    ("farewell", "name the message"),
    ("patience", "timeout"),
    ("birth", "creation"),
    ("births", "creations"),
    ("lifeline", "name what it protects"),
    ("neighbour", "peer, or the service's name"),
    ("neighbours", "peers, or the services' names"),
];

#[test]
fn texts_use_the_words_of_the_field() {
    let mut found = Vec::new();
    for file in files(&[
        ".rs",
        ".md",
        ".proto",
        ".py",
        ".sh",
        ".yaml",
        ".yml",
        ".mk",
        ".sql",
        ".html",
        "Makefile",
        ".env.example",
    ]) {
        if file.name.starts_with("tests/tidy") {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            for word in lower.split(|letter: char| !letter.is_alphanumeric()) {
                if let Some((_, instead)) = WORDS.iter().find(|(no, _)| *no == word) {
                    found.push(format!("{}:{}: {word} ({instead})", file.name, number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} places:\n{}", found.len(), found.join("\n"));
}
