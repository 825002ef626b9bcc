//! The generated code belongs to the contracts. A build does not generate it, because that needs a parser of `.proto` files and
//! a generator. So this test does not either: it says whether a contract, the generator or the code has changed since
//! `make proto`, which wrote the digests of all three.

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files below a folder, by their paths below the root.
fn files(folder: &Path, ending: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found =
        entries.flat_map(|path| if path.is_dir() { files(&path, ending) } else { BTreeSet::from([name(&path)]) });
    found.filter(|name| name.ends_with(ending)).collect()
}

fn name(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn nothing_has_changed_since_make_proto() {
    let sums = std::fs::read_to_string(root().join("crates/rpc/src/generated/SHA256SUMS")).unwrap();
    let mut listed = BTreeSet::new();
    for line in sums.lines() {
        let (digest, name) = line.split_once("  ").unwrap();
        let found = format!("{:x}", Sha256::digest(std::fs::read(root().join(name)).unwrap()));
        assert_eq!(found, digest, "{name} has changed since the code was generated: make proto");
        listed.insert(name.to_owned());
    }
    let mut there = files(&root().join("proto/ensemble"), ".proto");
    there.extend(files(&root().join("crates/rpc/src/generated"), ".rs"));
    there.extend(["proto/generate/Cargo.lock".to_owned(), "proto/generate/src/main.rs".to_owned()]);
    assert_eq!(listed, there, "a file is new or gone: make proto");
}
