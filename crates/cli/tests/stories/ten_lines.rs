//! The program of ten lines in the README of the TypeScript client, run as it stands there: it opens an account, follows a session and
//! prompts it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::ensemble::up;
use crate::live::turns;
use crate::scripted;

const PAGE: &str = include_str!("../../../../clients/typescript/README.md");
const BEGIN: &str = "<!-- ten lines -->\n```js\n";

#[test]
fn ten_lines_of_typescript_follow_a_session() {
    let (_, rest) = PAGE.split_once(BEGIN).unwrap();
    let (program, _) = rest.split_once("```\n").unwrap();
    // Its imports and the end of a block are no lines of it.
    let lines = program.lines().filter(|line| !line.is_empty() && !line.starts_with("import ") && *line != "}").count();
    assert!(lines <= 10, "{lines} lines: {program}");

    // The package as it is installed elsewhere. Other tests build its own `dist` at the same time.
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/typescript");
    let folder = client.join("build/ten-lines");
    let package = folder.join("node_modules/@ensemble/client");
    fs::create_dir_all(&package).unwrap();
    fs::copy(client.join("package.json"), package.join("package.json")).unwrap();
    fs::write(folder.join("ten-lines.mjs"), program).unwrap();
    let node = |arguments: &[&Path]| {
        let output =
            Command::new("node").args(arguments).current_dir(&client).output().expect("this test needs Node.js");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        printed
    };
    node(&["scripts/types.mjs".as_ref()]);
    let dist = package.join("dist");
    node(&["node_modules/typescript/bin/tsc".as_ref(), "--outDir".as_ref(), &dist]);

    let (user, _programs) = scripted::user();
    let (_up, server) = up(&user, &[]);
    let session = user.succeed(&["claude", "begin", "--detach"]).trim().to_owned();
    turns(&user, &session, 1);
    let key = user.files().join("account.key");
    let printed = node(&[&folder.join("ten-lines.mjs"), &key, server.as_ref(), session.as_ref()]);
    assert_eq!(printed, "said How far are you?\n");
    turns(&user, &session, 2);
}
