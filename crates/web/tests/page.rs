//! The built page in a real Chromium: what its parts do, what hostile contents do, what a browser without cryptography shows, how it is
//! installed, and how large it is.

use std::path::Path;
use std::process::Command;

#[test]
fn the_page_does_nothing_that_contents_want() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let tests = ["cards", "hostile", "installed", "missing", "parts", "shown", "size"]
        .map(|name| format!("tests/unit/{name}.test.mjs"));
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec"]).args(tests).current_dir(web);
    let ended = node.status().expect("node must be installed, and `make web` must have run");
    assert!(ended.success(), "the page has failed; see above");
}
