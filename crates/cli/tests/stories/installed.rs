//! The ways to install, as `make dist` makes them of small stand-ins, and `ensemble update`. `make dist-test` does the same with the program of a
//! release, and with npm.

use std::path::Path;
use std::process::Command;

#[test]
fn what_installs_and_updates_the_program_checks_it_first() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec"]);
    node.args(
        ["archive", "install", "packages", "shim", "update"].map(|part| format!("deploy/test/dist/{part}.test.mjs")),
    );
    node.current_dir(root).env("ENSEMBLE", env!("CARGO_BIN_EXE_ensemble")).env_remove("PROGRAM");
    assert!(node.status().expect("node must be installed").success(), "a way to install has failed; see above");
}
