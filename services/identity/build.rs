//! Rebuilds when a migration changes, because migrations are built in.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
