//! What a program asks before an agent works: on a machine that was not used in this directory, and in `bypass`.

use serde_json::json;

use crate::acp::Editor;
use crate::ensemble::{User, up};
use crate::linking::{Dialog, add};

const DO: [&str; 5] = ["do", "x", "--detach", "--provider", "claude"];

fn submits(user: &User, more: &[&str]) {
    let ended = user.run(&[&DO[..], more].concat());
    assert_eq!(ended.code, 0, "{more:?}: {}", ended.err);
}

/// It is refused where there is no terminal, and what it would have asked.
fn asks(user: &User, command: &[&str], more: &[&str]) -> String {
    let ended = user.run(&[command, more].concat());
    assert!(ended.code == 2 && ended.err.contains("Add --yes"), "{} {}", ended.code, ended.err);
    ended.err
}

fn runs(user: &User) -> usize {
    user.json(&["runs"])["runs"].as_array().unwrap().len()
}

#[test]
fn a_machine_that_was_not_used_in_a_directory_is_asked_about_once() {
    let (owner, second) = (User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    owner.succeed(&["machine", "register", "--id", "desk"]);
    add(&owner, &second, &[]);
    let machine = second.json(&["machine", "list"])["machines"][0].clone();
    let name = machine["name"].as_str().unwrap();
    let reference = machine["machine"]["ref"].as_str().unwrap();
    let on = |named, directory| ["--machine", named, "-C", directory];

    let said = asks(&second, &DO, &on(name, "/srv/a"));
    assert!(said.contains("/srv/a") && said.contains(name) && said.contains("by its id"), "{said}");
    asks(&second, &DO, &on(reference, "/srv/a"));
    let json = second.run(&[&["--json"], &DO[..], &on(name, "/srv/a")].concat());
    assert!(json.code == 2 && json.err.contains(r#"{"error":{"detail":"#), "{}", json.err);
    let start = ["session", "start", "--provider", "claude", "--detach"];
    assert!(asks(&second, &start, &on(name, "/srv/a")).contains(name));
    assert_eq!(runs(&second), 0, "nothing was begun");

    submits(&second, &on("desk", "/srv/a"));
    submits(&second, &on(name, "/srv/a"));
    asks(&second, &DO, &on(name, "/srv/b"));
    submits(&second, &[&on(name, "/srv/b")[..], &["--yes"]].concat());
    submits(&second, &on(reference, "/srv/b"));
    let bypass = ["--permission", "bypass"];
    let said = asks(&second, &DO, &[&on(name, "/srv/b")[..], &bypass].concat());
    assert!(said.contains("without asking"), "{said}");
    submits(&second, &[&on(name, "/srv/b")[..], &bypass, &["--yes"]].concat());
    submits(&second, &[&on(name, "/srv/b")[..], &bypass].concat());

    // An id in a plan says which machine is meant, and not that an agent may do everything there.
    let plan = |more: &str| {
        let text =
            format!("{{machineId: desk, tasks: [{{prompt: x, provider: claude, workingDirectory: /srv/c{more}}}]}}");
        std::fs::write(second.home().join("plan.yaml"), text).unwrap();
    };
    plan(", permission: bypass");
    asks(&second, &["run", "plan.yaml", "--detach"], &[]);
    plan("");
    second.succeed(&["run", "plan.yaml", "--detach"]);

    // At a terminal.
    let before = runs(&second);
    let typed = [&DO[..], &on(name, "/srv/d")].concat();
    let mut dialog = Dialog::in_terminal(&second, &typed);
    let question = dialog.until("? [y/N] ");
    assert!(question.contains("/srv/d") && question.contains(name), "{question}");
    dialog.answer("n");
    let (code, said) = dialog.end();
    assert!(code == 1 && said.contains("Nothing was begun"), "{code} {said}");
    assert_eq!(runs(&second), before);
    let mut dialog = Dialog::in_terminal(&second, &typed);
    dialog.until("? [y/N] ");
    dialog.answer("y");
    let (code, said) = dialog.end();
    assert_eq!((code, runs(&second)), (0, before + 1), "{said}");
    let (code, said) = Dialog::in_terminal(&second, &typed).end();
    assert!(code == 0 && !said.contains("[y/N]"), "{code} {said}");
}

#[test]
fn on_this_computer_only_bypass_is_asked_about() {
    let user = User::new(None);
    let (_up, _url) = up(&user, &["--no-runner"]);
    user.succeed(&["machine", "register", "--id", "desk"]);
    submits(&user, &[]);
    submits(&user, &["--permission", "edit"]);
    let said = asks(&user, &DO, &["--permission", "bypass"]);
    assert!(said.contains("this computer") && !said.contains("by its id"), "{said}");
    asks(&user, &["claude", "--mode", "bypass", "--detach"], &["x"]);
    let mut editor = Editor::start(&user, &["--mode", "bypass"], false);
    let refused = editor.refused("session/new", &json!({"cwd": user.home(), "mcpServers": []}));
    assert!(refused["message"].as_str().unwrap().contains("Add --yes"), "{refused}");
    editor.close();
    assert_eq!(runs(&user), 2);
    submits(&user, &["--permission", "bypass", "--yes"]);
    submits(&user, &["--permission", "bypass"]);
}
