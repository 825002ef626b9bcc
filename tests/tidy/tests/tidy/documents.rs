//! Links in documents lead somewhere: to a file of the repository, and to a heading of that file.

use std::path::{Component, Path, PathBuf};

use crate::repository::{files, root};

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for file in files(&[".md"]) {
        for target in links(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { PathBuf::from(&file.name) } else { beside(&file.name, path) };
            let full = root().join(&path);
            if !full.exists() {
                broken.push(format!("{}: {target}: there is no such file", file.name));
            } else if !heading.is_empty() && !has_heading(&full, heading) {
                broken.push(format!("{}: {target}: there is no such heading", file.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The targets of `[text](target)`, without those in code.
fn links(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if !in_code {
            found.extend(line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
        }
    }
    found
}

fn beside(document: &str, target: &str) -> PathBuf {
    let mut path = Path::new(document).parent().unwrap().to_path_buf();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{document}: {target} leaves the repository"),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// Headings become anchors as forges make them: lower case, without punctuation, with hyphens for spaces.
fn has_heading(path: &Path, anchor: &str) -> bool {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| line.starts_with('#')).any(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-") == anchor
    })
}
