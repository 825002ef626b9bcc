//! `.env.example` names every variable that the programs read, and none that nobody reads.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ensemble_telemetry::{SERVICES, program};

/// What docker-compose.yml sets itself: other values would break it.
const FIXED: &[&str] = &["PUBLIC_LISTEN", "INTERNAL_LISTEN", "DATABASE_URL"];

#[test]
fn the_example_names_what_the_programs_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let compose = read("docker-compose.yml");
    let is_fixed = |name: &str| FIXED.contains(&name) || compose.contains(&format!(" {name}: http://"));
    let told: BTreeSet<String> = SERVICES.iter().flat_map(variables).collect();
    assert!(told.len() > 50, "only {told:?}");
    let example: BTreeSet<String> = read(".env.example").lines().filter_map(assigned).collect();
    let unnamed: Vec<_> = told.iter().filter(|name| !example.contains(*name) && !is_fixed(name)).collect();
    // A secret may come from a file, too; compose gives it one.
    let unnamed: Vec<_> =
        unnamed.into_iter().filter(|name| !compose.contains(&format!("\n      {name}: /secrets/"))).collect();
    assert!(unnamed.is_empty(), "not in .env.example (deploy/compose/env_example.py writes it): {unnamed:?}");
    let idle: Vec<_> =
        example.iter().filter(|name| !told.contains(*name) && !compose.contains(&format!("${{{name}"))).collect();
    assert!(idle.is_empty(), "nobody reads what .env.example names: {idle:?}");
}

/// What a program says that it reads: a name on a line of its own, and its meaning below.
fn variables(service: &&str) -> Vec<String> {
    let told = Command::new(program(service)).arg("config").output().expect("a program that tells its variables");
    assert!(told.status.success(), "{service}: {told:?}");
    let text = String::from_utf8_lossy(&told.stdout);
    text.lines().filter(|line| is_name(line)).map(str::to_owned).collect()
}

/// `#NAME=value`, or without the sign.
fn assigned(line: &str) -> Option<String> {
    let (name, _) = line.trim_start_matches('#').split_once('=')?;
    is_name(name).then(|| name.to_owned())
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}
