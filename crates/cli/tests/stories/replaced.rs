//! An update replaces the file of a program while it runs.

use std::fs;
use std::path::Path;

use crate::acp::Editor;
use crate::ensemble::up;
use crate::place::Place;

#[test]
fn a_program_whose_file_was_replaced_still_hosts_sessions() {
    let mut place = Place::new();
    let (_up, _url) = up(&place.user, &["--no-runner"]);
    let program = Path::new(env!("CARGO_BIN_EXE_ensemble"));
    let folder = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let (installed, update) = (folder.path().join("ensemble"), folder.path().join("update"));
    fs::hard_link(program, &installed).unwrap();
    place.user.runs(&installed);
    let mut editor = Editor::start(&place.user, &[], false);
    fs::write(&update, "").unwrap();
    fs::rename(&update, &installed).unwrap();
    let session = editor.begin(&place.file(""));
    editor.close();
    place.user.runs(program);
    place.user.succeed(&["stop", &session]);
}
