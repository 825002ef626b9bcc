//! What tasks changed: the real `claude`, with a stand-in for its model, in git worktrees and in turns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ensemble_doubles::model::StandIn;
use tempfile::TempDir;

use crate::ensemble::{Finished, Running, User, until, up, wait_for_runner};
use crate::runs::program;

/// A user with a repository in the home directory, the real `claude`, and a model for it.
struct Story {
    user: User,
    _programs: TempDir,
    _model: StandIn,
    _runtime: tokio::runtime::Runtime,
}

impl Story {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let model = runtime.block_on(async { StandIn::start().unwrap() });
        let programs = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\nexport ANTHROPIC_BASE_URL={} ANTHROPIC_API_KEY=stand-in CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 \
             DISABLE_TELEMETRY=1\nexec '{}' \"$@\"\n",
            model.url(),
            claude().display()
        );
        program(programs.path(), "claude", &script);
        let user = User::new(None).with_programs(programs.path());
        fs::create_dir_all(user.files()).unwrap();
        // The agents of this test may run commands.
        fs::write(
            user.files().join("runner.yaml"),
            "providers: {claude: {permissionLimit: bypass}, codex: {enabled: false}, gemini: {enabled: false}}\n",
        )
        .unwrap();
        let story = Self { user, _programs: programs, _model: model, _runtime: runtime };
        fs::create_dir(story.project()).unwrap();
        story.git(&["init", "--quiet", "."]);
        story.write("note", "one\ntwo\n");
        story.git(&["add", "--all"]);
        story.git(&["commit", "--quiet", "-m", "first"]);
        story
    }

    fn project(&self) -> PathBuf {
        self.user.home().join("project")
    }

    fn git(&self, args: &[&str]) -> String {
        let name = ["-c", "user.name=p", "-c", "user.email=p@example.com"];
        let output = Command::new("git").current_dir(self.project()).args(name).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.project().join(path), text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.project().join(path)).unwrap()
    }

    /// Lets the agent run a command in the project.
    fn work(&self, more: &[&str], command: &str) -> Finished {
        let ended = self.say(more, &format!("[[run {command}]]"));
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
        ended
    }

    fn say(&self, more: &[&str], prompt: &str) -> Finished {
        let mut arguments = vec!["do", "-C", "project", "--provider", "claude"];
        arguments.extend(["--permission", "bypass", "--yes", "--model", "claude-sonnet-4-5"]);
        arguments.extend(more);
        arguments.push(prompt);
        self.user.run(&arguments)
    }
}

pub(crate) fn claude() -> PathBuf {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/provider-clis/node_modules/.bin/claude");
    assert!(
        program.exists(),
        "\n\nThe real claude program is not installed, and this test drives it.\n\
         Run `tests/provider-clis/install` (or `make test`, which does) and try again.\n\n"
    );
    program.canonicalize().unwrap()
}

#[test]
fn a_change_in_a_worktree_is_shown_applied_and_discarded() {
    let story = Story::new();
    let user = &story.user;
    let (_up, _url) = up(user, &[]);
    wait_for_runner(user);
    story.write("mine", "not committed\n");
    let ended = story.work(&["--worktree"], "echo three >> note; echo new > other");
    assert!(ended.err.contains("1 file here has uncommitted changes. They are not in the worktree."), "{}", ended.err);
    let apply = format!("ensemble apply {} ", user.json(&["show", "last"])["ref"].as_str().unwrap());
    for said in ["changed 2 files, +2 −0, kept in a worktree", "M note  +1 −0", "A other  +1 −0", "\n+three\n", &apply]
    {
        assert!(ended.out.contains(said), "{said}: {}", ended.out);
    }
    assert!(!ended.out.contains("shows the changes"), "they are above: {}", ended.out);
    assert!(user.succeed(&["show", "last"]).contains("shows the changes"));
    assert_eq!(story.read("note"), "one\ntwo\n", "the directory is as it was");
    assert_eq!(story.git(&["status", "--porcelain"]), "?? mine\n");

    let diff = user.succeed(&["diff", "last"]);
    assert!(diff.contains("--- a/note\n+++ b/note\n") && diff.contains("+three\n"), "{diff}");
    assert!(user.succeed(&["diff", "last", "1", "--stat"]).contains("M note  +1 −0"));
    let listed = user.json(&["diff", "last"]);
    assert_eq!(listed["tasks"][0]["changes"]["state"], "kept");
    assert_eq!(listed["tasks"][0]["diff"], diff.as_str());

    // An uncommitted change of the person is never overwritten.
    story.write("note", "mine\n");
    let ended = user.run(&["apply", "last"]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("nothing was changed") && ended.out.contains("\n  note\nIt has "), "{}", ended.out);
    assert_eq!(story.read("note"), "mine\n");
    assert!(!story.project().join("other").exists());
    story.git(&["checkout", "--quiet", "--", "note"]);

    let applied = user.succeed(&["apply", "last"]);
    assert!(applied.contains("✓ task 1: 2 files changed in the repository of"), "{applied}");
    assert_eq!((story.read("note"), story.read("other")), ("one\ntwo\nthree\n".to_owned(), "new\n".to_owned()));
    assert_eq!(story.git(&["status", "--porcelain"]), " M note\n?? mine\n?? other\n", "nothing is staged");
    assert!(user.fail(&["apply", "last"]).contains("applied to "), "they are applied already");

    assert!(story.git(&["branch", "--list", "ensemble/*"]).contains("ensemble/"));
    assert!(user.succeed(&["discard", "last"]).contains("the worktree is removed"));
    assert_eq!(story.git(&["branch", "--list", "ensemble/*"]), "");
    assert_eq!(story.git(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(
        (story.read("note"), story.read("mine")),
        ("one\ntwo\nthree\n".to_owned(), "not committed\n".to_owned())
    );

    let ended = story.work(&[], "echo here >> mine");
    assert!(ended.out.contains("changed 1 file, +1 −0, in "), "{}", ended.out);
    assert!(user.fail(&["apply", "last"]).contains("--worktree"));
    assert!(user.fail(&["discard", "last"]).contains("No task of this run has a worktree"));
    story.work(&["--worktree"], "echo lost > lost");
    assert!(user.fail(&["discard", "last"]).contains("--yes"), "what was not applied would be lost");
    user.succeed(&["discard", "last", "--yes"]);
    assert!(!story.project().join("lost").exists());
}

#[test]
fn what_a_machine_that_is_away_is_to_apply_is_said_and_applied_when_it_is_back() {
    let story = Story::new();
    let user = &story.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let runner = Running::start(user, &["runner"]);
    wait_for_runner(user);
    story.work(&["--worktree"], "echo three >> note");
    drop(runner);

    let waiting = user.run(&["apply", "last"]);
    assert_eq!(waiting.code, 6, "{}{}", waiting.out, waiting.err);
    assert!(
        waiting.out.contains(" is away since ") && waiting.out.contains("applies this when it is back"),
        "{}",
        waiting.out
    );
    let refused = user.run(&["discard", "last"]);
    assert_eq!(refused.code, 6, "{}{}", refused.out, refused.err);
    assert!(
        refused.out.contains("its changes are being applied: ") && refused.out.contains(" is away since "),
        "{}",
        refused.out
    );

    let _back = Running::start(user, &["runner"]);
    until(Duration::from_secs(60), "the machine to apply it", || {
        let task = user.json(&["show", "last"])["tasks"][0].clone();
        if task["changes"]["state"] == "applied" { Ok(()) } else { Err(task) }
    });
    assert_eq!(story.read("note"), "one\ntwo\nthree\n");
    assert!(user.succeed(&["discard", "last"]).contains("the worktree is removed"));
}

#[test]
fn an_applied_change_continues_in_the_same_worktree_and_goes_with_its_run() {
    let story = Story::new();
    let user = &story.user;
    let (_up, _url) = up(user, &[]);
    wait_for_runner(user);
    story.work(&["--worktree"], "echo three >> note");
    user.succeed(&["apply", "last"]);
    let said = user.run(&["say", "last", "[[run echo four >> note; echo new > other]]"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert_eq!(story.read("note"), "one\ntwo\nthree\n", "only what was applied");
    let again = user.json(&["show", "last"])["tasks"][0]["changes"].clone();
    assert_eq!((&again["state"], &again["wasApplied"]), (&"kept".into(), &true.into()));
    user.succeed(&["apply", "last"]);
    assert_eq!((story.read("note"), story.read("other")), ("one\ntwo\nthree\nfour\n".to_owned(), "new\n".to_owned()));
    story.git(&["add", "--all"]);
    story.git(&["commit", "--quiet", "-m", "applied"]);
    user.succeed(&["say", "last", "[[run echo five >> note]]"]);
    user.succeed(&["apply", "last"]);
    assert_eq!(story.read("note"), "one\ntwo\nthree\nfour\nfive\n");
    story.git(&["checkout", "--quiet", "--", "note"]);
    assert!(user.fail(&["apply", "last"]).contains("git merge --squash ensemble/"), "it says how to bring them again");
    user.succeed(&["discard", "last"]);
    assert!(user.succeed(&["show", "last"]).contains(", applied; the worktree is removed"));

    let looked = story.work(&["--worktree"], "cat note");
    assert!(looked.out.contains("Nothing was changed. `ensemble discard "), "{}", looked.out);
    user.succeed(&["discard", "last"]);
    story.work(&["--worktree"], "echo lost > lost");
    user.succeed(&["runs", "delete", "last", "--yes"]);
    assert_eq!(story.git(&["worktree", "list"]).lines().count(), 1);
    assert_eq!(story.git(&["branch", "--list", "ensemble/*"]), "");
}

#[test]
fn two_tasks_in_one_directory_take_turns() {
    let story = Story::new();
    let user = &story.user;
    let (_up, _url) = up(user, &[]);
    wait_for_runner(user);
    // Each one writes twice. The second one begins when the first one has ended, or the lines would be mixed.
    let plan = "\
defaults: {provider: claude, model: claude-sonnet-4-5, workingDirectory: project, permission: bypass}
tasks:
- {key: a, prompt: '[[run echo a >> log; sleep 1; echo a >> log]]'}
- {key: b, prompt: '[[run echo b >> log; sleep 1; echo b >> log]]'}
";
    fs::write(user.home().join("plan.yaml"), plan).unwrap();
    let ended = user.run(&["run", "plan.yaml", "--yes"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let log = story.read("log");
    assert!(log == "a\na\nb\nb\n" || log == "b\nb\na\na\n", "{log}");
    assert!(
        ended.out.contains("a: changed 1 file, +2 −0, in ") && ended.out.contains("b: changed 1 file, +2 −0, in "),
        "{}",
        ended.out
    );
}

#[test]
fn work_that_is_in_no_commit_is_named_and_discarded_only_on_purpose() {
    let story = Story::new();
    let user = &story.user;
    let (_up, _url) = up(user, &[]);
    wait_for_runner(user);
    let ended = story.work(&["--worktree"], "mkdir app; cd app; git init -q; echo precious > work.txt");
    assert!(
        ended.out.contains("is a separate repository") && !ended.out.contains("Nothing was changed"),
        "{}",
        ended.out
    );
    let shown = ended.out.lines().find_map(|line| line.trim().strip_prefix("! The worktree is kept: ")).unwrap();
    let tree = Path::new(shown).to_owned();
    assert_eq!(fs::read_to_string(tree.join("app/work.txt")).unwrap(), "precious\n");
    assert!(user.succeed(&["show", "last"]).contains("is a separate repository"));

    let ended = story.say(&["--worktree"], "[[run echo three >> note; echo x > $(git rev-parse --git-path index)]]");
    assert_eq!(ended.code, 5, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("it is not known what it changed, kept in a worktree"), "{}", ended.out);
    assert!(user.fail(&["apply", "last"]).contains("--unseen"), "what it changed is not known");
    let failed = user.run(&["apply", "last", "--unseen"]);
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    assert!(failed.err.contains("also with what was not shown"), "{}", failed.err);
    assert!(failed.out.contains("nothing was changed. git"), "the reason is said: {}", failed.out);

    assert!(user.fail(&["discard", "--all-ended"]).contains("--yes"), "what was not applied would be lost");
    assert!(tree.exists());
    let discarded = user.succeed(&["discard", "--all-ended", "--yes"]);
    assert_eq!(discarded.matches("the worktree is removed").count(), 2, "{discarded}");
    assert!(!tree.exists());
}

#[test]
fn a_prompt_that_begins_with_a_slash_word_is_a_prompt() {
    let story = Story::new();
    let user = &story.user;
    let (_up, _url) = up(user, &[]);
    wait_for_runner(user);
    for prompt in ["/login returns 500 [[say it is mended]]", "/clear cache on logout [[say it is mended]]"] {
        let ended = story.say(&[], prompt);
        assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
        assert!(ended.out.contains("it is mended"), "{}", ended.out);
    }
    let commands = story.project().join(".claude/commands");
    fs::create_dir_all(&commands).unwrap();
    fs::write(commands.join("mine.md"), "[[say my own command $ARGUMENTS]]\n").unwrap();
    let ended = story.say(&[], "/mine seven");
    assert!(ended.out.contains("my own command seven"), "{}{}", ended.out, ended.err);
}
