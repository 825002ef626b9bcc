//! Runs every file of the corpus and mutations of it through its target. The mutations are limited and the same on
//! every run.

#![cfg(test)]

pub mod targets;

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::targets::TARGETS;

const MUTATIONS_OF_EACH: usize = 2_000;

#[test]
fn the_corpus_and_its_mutations_break_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, target) in TARGETS {
        let folder = root.join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{} has no corpus: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has an empty corpus");
        let mut random = StdRng::seed_from_u64(7);
        for file in files {
            let seed = std::fs::read(&file).unwrap();
            target(&seed);
            for _ in 0..MUTATIONS_OF_EACH {
                target(&mutated(&seed, &mut random));
            }
        }
    }
}

fn mutated(seed: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..random.gen_range(1..4) {
        let at = random.gen_range(0..=data.len());
        match random.gen_range(0..4) {
            0 if at < data.len() => data[at] = random.r#gen(),
            1 if at < data.len() => {
                data.remove(at);
            }
            2 => {
                let other = random.gen_range(0..=data.len());
                let piece = data[at.min(other)..at.max(other)].to_vec();
                data.splice(at..at, piece);
            }
            _ => data.insert(at, *b"\r\n\0:;,/.%\"{}[]eE-+ \xff".get(random.gen_range(0..20)).unwrap()),
        }
        data.truncate(64 << 10);
    }
    data
}
