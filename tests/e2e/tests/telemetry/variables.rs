//! `.env.example` contains exactly the variables that the programs read, and `services.yml` gives each container those of its
//! own program: a secret of one service must not reach another's.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::stack::{SERVICES, program};

/// Variables that docker-compose.yml sets itself. Other values would break it.
const FIXED: &[&str] = &["PUBLIC_LISTEN", "INTERNAL_LISTEN", "DATABASE_URL"];

#[test]
fn the_example_contains_the_variables_of_the_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let compose = read("docker-compose.yml");
    let is_fixed = |name: &str| FIXED.contains(&name) || compose.contains(&format!(" {name}: http://"));
    let printed: BTreeSet<String> = SERVICES.iter().flat_map(variables).collect();
    assert!(printed.len() > 50, "only {printed:?}");
    let example: BTreeSet<String> = read(".env.example").lines().filter_map(assigned).collect();
    let unnamed: Vec<_> = printed.iter().filter(|name| !example.contains(*name) && !is_fixed(name)).collect();
    // A secret may also come from a file, which compose mounts.
    let unnamed: Vec<_> =
        unnamed.into_iter().filter(|name| !compose.contains(&format!("\n      {name}: /secrets/"))).collect();
    assert!(unnamed.is_empty(), "not in .env.example (deploy/compose/env_example.py writes it): {unnamed:?}");
    let unread: Vec<_> =
        example.iter().filter(|name| !printed.contains(*name) && !compose.contains(&format!("${{{name}"))).collect();
    assert!(unread.is_empty(), ".env.example contains variables that no program reads: {unread:?}");
}

#[test]
fn a_container_gets_the_variables_of_its_own_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (compose, passed_on) = (read("docker-compose.yml"), read("deploy/compose/services.yml"));
    assert!(!compose.contains("env_file"), "a file of variables would reach services that do not read them");
    for service in SERVICES {
        let block = passed_on.split_once(&format!("\n  {service}:\n")).expect("a block of each service").1;
        let given: BTreeSet<String> = block
            .lines()
            .take_while(|line| line.starts_with("    "))
            .filter_map(|line| line.trim().strip_suffix(':').filter(|name| is_name(name)).map(str::to_owned))
            .collect();
        let wanted: BTreeSet<String> =
            variables(&service).into_iter().filter(|name| !compose.contains(&format!(" {name}:"))).collect();
        let wanted = wanted.into_iter().filter(|name| !FIXED.contains(&name.as_str())).collect();
        assert_eq!(given, wanted, "{service} (deploy/compose/env_example.py writes services.yml)");
    }
}

/// The variables that a program lists: a name on its own line, and its meaning below.
fn variables(service: &&str) -> Vec<String> {
    let printed = Command::new(program(service)).arg("config").output().expect("a program that lists its variables");
    assert!(printed.status.success(), "{service}: {printed:?}");
    let text = String::from_utf8_lossy(&printed.stdout);
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
