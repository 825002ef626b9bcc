//! The programs of ten lines in the READMEs of the packages for accounts: they open an account, follow a session and prompt it.

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

/// The README shows what comes after the arguments are read.
#[test]
fn ten_lines_of_rust_follow_a_session() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../account");
    let readme = fs::read_to_string(package.join("README.md")).unwrap();
    let shown = readme.split_once("<!-- ten lines -->\n```rust\n").unwrap().1.split_once("```\n").unwrap().0;
    let program = fs::read_to_string(package.join("examples/ten_lines.rs")).unwrap();
    let program = program
        .replace("next()?.into()", "directory")
        .replace("builder(next()?)", "builder(server)")
        .replace("next()?.parse()?", "session");
    let plain = |text: &str| text.split_whitespace().collect::<String>();
    assert!(plain(&program).contains(&plain(shown)), "{shown}");
    let is_line = |line: &&str| !matches!(line.trim(), "" | "}");
    assert!(shown.lines().filter(is_line).count() <= 10, "{shown}");

    let example = Path::new(env!("CARGO_BIN_EXE_ensemble")).parent().unwrap().join("examples/ten_lines");
    let (user, _programs) = scripted::user();
    let (_up, server) = up(&user, &[]);
    let session = user.succeed(&["claude", "begin", "--detach"]).trim().to_owned();
    turns(&user, &session, 1);
    let id = user.json(&["session", "show", &session])["session"]["id"].as_str().unwrap().to_owned();
    let output = Command::new(example).args([user.files().as_os_str(), server.as_ref(), id.as_ref()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "said How far are you?\n");
    turns(&user, &session, 2);
}
