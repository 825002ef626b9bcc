//! The built page in a real Chromium: what its parts do, what hostile contents do, what a browser without cryptography shows, how it is
//! installed, how large it is, and what its voice may do.

use std::path::Path;
use std::process::Command;

#[test]
fn the_page_does_nothing_that_contents_want() {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec", "tests/unit/all.mjs"]).current_dir(web);
    let ended = node.status().expect("node must be installed, and `make web` must have run");
    assert!(ended.success(), "the page has failed; see above");
}
