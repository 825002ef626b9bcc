//! Live sessions with real agents: they talk to the stand-in of the model, and everything else is the real thing.

use std::path::Path;
use std::time::{Duration, Instant};

use ensemble_testkit::free_address;
use serde_json::Value;

use crate::ensemble::{Running, User, up, up_at};
use crate::place::Place;

/// Agents need minutes to start on a busy machine.
const SOON: Duration = Duration::from_secs(300);

/// Looks again until there is an answer.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    crate::ensemble::until(SOON, what, || look().ok_or(()))
}

/// What a person would read.
fn short(log: &[Value]) -> Vec<String> {
    let state = |body: &Value| body["phase"].as_str().unwrap_or_default().to_owned();
    let line = |body: &Value| match body["type"].as_str() {
        Some("state") => format!("state {}", state(body)),
        _ => body.to_string().chars().take(300).collect(),
    };
    log.iter().map(line).collect()
}

/// The transcript, message by message.
pub(crate) fn log(user: &User, session: &str) -> Vec<Value> {
    user.json_lines(&["log", session]).into_iter().map(|line| line["body"].clone()).collect()
}

fn is(body: &Value, name: &str) -> bool {
    body["type"] == name
}

/// Follows the transcript until there is an answer in it. Returns both.
#[track_caller]
pub(crate) fn seen<T>(user: &User, session: &str, what: &str, look: impl Fn(&[Value]) -> Option<T>) -> (T, Vec<Value>) {
    let mut all = log(user, session);
    if let Some(found) = look(&all) {
        return (found, all);
    }
    // What is not in the whole of it comes after it.
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        let known = all.len();
        let mut follower = Running::start(user, &["log", session, "--follow", "--json"]);
        all.clear();
        while let Ok(line) = serde_json::from_str::<Value>(&follower.line()) {
            all.push(line["body"].clone());
            if all.len() > known
                && let Some(found) = look(&all)
            {
                return (found, all);
            }
        }
    }
    panic!("not in time: {what}: {:#?}", short(&all));
}

/// Waits until `count` turns have ended.
#[track_caller]
pub(crate) fn turns(user: &User, session: &str, count: usize) -> Vec<Value> {
    let have_ended = |log: &[Value]| {
        let ended = log.iter().filter(|body| is(body, "turn") && body["state"] == "ended").count();
        (ended >= count).then_some(())
    };
    seen(user, session, "the end of a turn", have_ended).1
}

/// Waits until `count` turns have begun.
#[track_caller]
pub(crate) fn begun(user: &User, session: &str, count: usize) {
    let have_begun = |log: &[Value]| {
        let begun = log.iter().filter(|body| is(body, "turn") && body["state"] == "started").count();
        (begun >= count).then_some(())
    };
    seen(user, session, "the beginning of a turn", have_begun);
}

/// Waits for a request that is open, and returns its id.
#[track_caller]
pub(crate) fn request(user: &User, session: &str) -> String {
    let open = |log: &[Value]| {
        let asked = log.iter().rev().find(|body| is(body, "permission") || is(body, "question"));
        let id = asked.and_then(|asked| asked["requestId"].as_str())?;
        let is_closed = log.iter().any(|body| is(body, "resolved") && body["requestId"] == id);
        (!is_closed).then(|| id.to_owned())
    };
    seen(user, session, "a request", open).0
}

/// Runs a command of a session, and sees what becomes of it at the machine: its outcome, and what is said of it. A busy machine may take it
/// after the command has ended.
#[track_caller]
pub(crate) fn takes(user: &User, arguments: &[&str], (outcome, said): (&str, &str)) {
    let ended = user.run(arguments);
    let all = ended.out + &ended.err;
    if !all.contains("has not taken it yet") {
        assert!(ended.code == i32::from(outcome == "rejected") && all.contains(said), "{arguments:?}: {all}");
        return;
    }
    let newest = |log: &[Value]| {
        let is_command = |body: &&Value| ["prompt", "answer", "control"].iter().any(|name| is(body, name));
        let command = log.iter().rfind(is_command)?;
        log.iter().find(|body| is(body, "receipt") && body["commandId"] == command["localId"]).cloned()
    };
    let receipt = seen(user, arguments[1], "a receipt", newest).0;
    assert!(receipt["outcome"] == outcome && (outcome != "rejected" || receipt["code"] == said), "{receipt}");
}

/// No gap in the host's count, one receipt for each command, and every request is closed.
pub(crate) fn assert_whole(log: &[Value]) {
    let counts: Vec<u64> = log.iter().filter_map(|body| body["n"].as_u64()).collect();
    assert_eq!(counts, (1..=counts.len() as u64).collect::<Vec<_>>(), "the machine's messages");
    let commands = log.iter().filter(|body| ["prompt", "answer", "control"].iter().any(|name| is(body, name)));
    for command in commands {
        let id = &command["localId"];
        let receipts = log.iter().filter(|body| is(body, "receipt") && body["commandId"] == *id).count();
        assert_eq!(receipts, 1, "{command}");
    }
}

fn works_live(place: &Place, agent: &[&str]) {
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    let mut start = agent.to_vec();
    start.push("Say it. [[say Grüße 😀]]");
    let session = place.start(&start);
    let said = turns(user, &session, 1);
    assert!(said.iter().any(|body| is(body, "text") && body["text"] == "Grüße 😀"), "{said:#?}");
    assert!(user.succeed(&["sessions"]).contains(&session));

    // What is allowed is done, and what is refused is not.
    user.succeed(&["prompt", &session, "[[run touch allowed]]"]);
    let asked = request(user, &session);
    let waiting = user.json(&["sessions", "--needs-me"]);
    assert_eq!(waiting["sessions"][0]["session"]["attention"]["kind"], "permission", "{waiting:#}");
    let ended = user.run(&["answer", &session, "allow"]);
    assert!(ended.code == 2 && ended.out.contains(&asked), "without a terminal it names the request: {}", ended.out);
    assert!(!place.file("allowed").exists());
    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    turns(user, &session, 2);
    // codex ends a turn although a long command still runs.
    until("what was allowed", || place.file("allowed").exists().then_some(()));
    assert!(user.fail(&["answer", &session, "allow", "--request", &asked]).contains("is not open"));
    user.succeed(&["prompt", &session, "[[run touch refused]]"]);
    let asked = request(user, &session);
    user.succeed(&["answer", &session, "deny", "--request", &asked]);
    turns(user, &session, 3);
    assert!(!place.file("refused").exists());

    // A turn is interrupted, and the prompt that waits is done after it.
    user.succeed(&["prompt", &session, "[[hang]]"]);
    takes(user, &["prompt", &session, "[[say after it]]"], ("queued", "waits"));
    user.succeed(&["interrupt", &session]);
    let said = turns(user, &session, 5);
    assert!(said.iter().any(|body| is(body, "turn") && body["stopReason"] == "cancelled"), "{said:#?}");
    assert!(said.iter().any(|body| is(body, "text") && body["text"] == "after it"), "{said:#?}");

    takes(user, &["stop", &session], ("done", "ended"));
    takes(user, &["prompt", &session, "more"], ("rejected", "superseded"));
    assert_whole(&log(user, &session));
    let text = user.succeed(&["log", &session]);
    assert!(
        text.contains("Grüße 😀")
            && text.contains("answered: ")
            && text.contains("withdrawn") == text.contains("hidden")
    );
}

#[test]
fn claude_works_live() {
    works_live(&Place::with_agent("claude", "claude"), &["claude"]);
}

/// The others have the one that npm gives to Node.js 20.
#[test]
fn the_newest_claude_works_live() {
    works_live(&Place::with_agent("claude", "newest/claude"), &["claude"]);
}

#[test]
fn codex_works_live() {
    works_live(&Place::with_agent("codex", "codex"), &["codex"]);
}

#[test]
fn gemini_works_live() {
    works_live(&Place::with_agent("gemini", "gemini"), &["gemini"]);
}

#[test]
fn an_agent_that_speaks_acp_works_live() {
    works_live(&Place::with_agent("opencode", "opencode"), &["opencode"]);
}

/// A guest of the owner's server, with an id.
pub(crate) fn guest(url: &str) -> (User, String) {
    let guest = User::new(Some(url));
    guest.succeed(&["login"]);
    let id = guest.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    (guest, id)
}

/// A session of an owner that a guest may see.
pub(crate) struct WithGuest {
    pub(crate) up: Running,
    pub(crate) url: String,
    pub(crate) guest: User,
    pub(crate) guest_id: String,
    pub(crate) session: String,
}

/// A session that was shared at this level after its first turn, on a server that was started with these additional arguments.
pub(crate) fn with_guest(place: &Place, level: &str, more: &[&str]) -> WithGuest {
    let (up, url) = up(&place.user, more);
    let (guest, guest_id) = guest(&url);
    let session = place.start(&["claude", "[[say begin]]"]);
    turns(&place.user, &session, 1);
    place.user.succeed(&["share", "add", &session, &guest_id, "--level", level]);
    WithGuest { up, url, guest, guest_id, session }
}

/// A person's right, as the machine last stated that it obeys it.
pub(crate) fn right_of(log: &[Value], user: &str) -> Option<Value> {
    let state = log.iter().rev().find(|body| is(body, "state"))?;
    state["access"].as_array()?.iter().find(|grant| grant["user"] == user).cloned()
}

/// Whether a person has no right, as the machine last stated.
pub(crate) fn has_no_right(log: &[Value], user: &str) -> Option<()> {
    (right_of(log, user)?["may"] == "none").then_some(())
}

#[test]
fn guests_do_what_the_owner_has_signed() {
    let place = Place::new();
    let owner = &place.user;
    let (_up, url) = up(owner, &[]);
    let ((editor, editor_id), (viewer, viewer_id)) = (guest(&url), guest(&url));
    let session = place.start(&["claude", "[[say begin]]"]);
    turns(owner, &session, 1);
    let added = owner.run(&["share", "add", &session, &editor_id, "--level", "edit"]);
    assert!(added.code == 0 && added.err.contains("The machine takes prompts from them"), "{}{}", added.out, added.err);
    owner.succeed(&["share", "add", &session, &viewer_id]);

    editor.succeed(&["prompt", &session, "[[run touch made]]"]);
    let asked = request(&viewer, &session);
    takes(&editor, &["answer", &session, "allow", "--request", &asked], ("rejected", "not_allowed"));
    assert_ne!(viewer.run(&["prompt", &session, "x"]).code, 0);
    assert!(!place.file("made").exists());
    owner.succeed(&["answer", &session, "allow", "--request", &asked]);
    turns(&editor, &session, 2);
    assert!(place.file("made").exists());

    // Everyone sees the same.
    let all: Vec<Vec<Value>> = [owner, &editor, &viewer].map(|user| log(user, &session)).into();
    assert!(all[0] == all[1] && all[1] == all[2]);
    assert_whole(&all[0]);
    let resolved = all[0].iter().find(|body| is(body, "resolved")).unwrap();
    assert_eq!(resolved["by"], owner.json(&["whoami"])["id"]);

    // With --approve their answers count, and without a share nothing does.
    owner.succeed(&["share", "change", &session, &editor_id, "--level", "edit", "--approve"]);
    editor.succeed(&["prompt", &session, "[[run touch second]]"]);
    let asked = request(&editor, &session);
    editor.succeed(&["answer", &session, "allow", "--request", &asked]);
    turns(owner, &session, 3);
    assert!(place.file("second").exists());
    let removed = owner.run(&["share", "remove", &session, &editor_id]);
    assert!(removed.err.contains("takes no commands"), "{}", removed.err);
    assert_ne!(editor.run(&["prompt", &session, "x"]).code, 0);
    assert_whole(&log(owner, &session));
}

/// The process that hosts the sessions of this user's machine, when it is a separate program.
pub(crate) fn host_of(user: &User) -> Option<u32> {
    let mut hosts = std::fs::read_dir(user.files().join("hosts")).ok()?;
    let pid: u32 = std::fs::read_to_string(hosts.next()?.ok()?.path().join("pid")).ok()?.trim().parse().ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    String::from_utf8_lossy(&command).contains("host").then_some(pid)
}

pub(crate) fn kill(pid: u32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// Whether a process has this text in its environment.
pub(crate) fn runs_in(home: &Path) -> bool {
    let wanted = format!("HOME={}", home.display());
    let agents = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let command = std::fs::read(path.join("cmdline")).ok()?;
        let environment = std::fs::read(path.join("environ")).ok()?;
        let is_agent = String::from_utf8_lossy(&command).contains("--permission-prompt-tool");
        let is_here = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        (is_agent && is_here).then_some(())
    });
    agents.count() > 0
}

#[test]
fn a_host_that_is_killed_takes_its_agent_with_it_and_resumes_later() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let session = place.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    user.succeed(&["prompt", &session, "[[hang]]"]);
    let host = host_of(user).unwrap();
    begun(user, &session, 2);
    assert!(runs_in(user.home()));
    kill(host);
    until("the end of the agent", || (!runs_in(user.home())).then_some(()));

    // The next command starts the host again, which closes the turn and resumes the conversation.
    user.succeed(&["prompt", &session, "[[say second]]"]);
    assert!(host_of(user).is_some_and(|new| new != host));
    let log = turns(user, &session, 3);
    let position = |text: &str| log.iter().position(|body| body["text"] == text);
    assert!(position("first") < position("second"), "{log:#?}");
    let broken = log.iter().find(|body| is(body, "turn") && body["stopReason"] == "error").unwrap();
    assert_eq!(broken["state"], "ended");
    let conversations: std::collections::HashSet<&str> =
        log.iter().filter_map(|body| body["providerSessionId"].as_str()).collect();
    assert_eq!(conversations.len(), 1, "the same conversation");
    assert_whole(&log);
    user.succeed(&["stop", &session]);
}

#[test]
fn nothing_is_lost_while_the_server_is_away() {
    let place = Place::new();
    let user = &place.user;
    let listen = free_address();
    let start = ["up", "--no-runner", "--json", "--listen", &listen];
    let (server, _printed) = up_at(user, &start);
    let session = place.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    user.succeed(&["prompt", &session, "[[run touch made]]"]);
    let asked = request(user, &session);
    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    kill(server.pid());
    drop(server);
    // The agent works on.
    until("the work of the agent", || place.file("made").exists().then_some(()));
    let _again = up_at(user, &start);
    let log = turns(user, &session, 2);
    assert_whole(&log);
    user.succeed(&["prompt", &session, "[[say again]]"]);
    assert_whole(&turns(user, &session, 3));
    user.succeed(&["stop", &session]);
}
