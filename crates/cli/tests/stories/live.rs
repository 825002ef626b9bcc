//! Live sessions with real agents: they talk to the stand-in of the model, and everything else is the real thing.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ensemble_model_stand_in::StandIn;
use serde_json::{Value, json};

use crate::ensemble::{Running, User, up};

/// Agents need seconds to start on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// A user with the real agents, which talk to a model of the tests.
pub(crate) struct Place {
    pub(crate) user: User,
    _model: StandIn,
    _runtime: tokio::runtime::Runtime,
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/provider-clis/node_modules/.bin").canonicalize().unwrap()
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With the newest claude, where the others have the one that npm gives to Node.js 20.
    fn with_newest_claude() -> Self {
        Self::of(&programs().join("newest"), &[])
    }

    /// With these environment variables.
    pub(crate) fn with(variables: &[(&'static str, &'static str)]) -> Self {
        Self::of(&programs(), variables)
    }

    fn of(programs: &Path, variables: &[(&'static str, &'static str)]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let guard = runtime.enter();
        let model = StandIn::start().unwrap();
        drop(guard);
        let url: &'static str = model.url().leak();
        let models = json!({"stub-model": {"name": "stub", "limit": {"context": 100_000, "output": 8_000}}});
        let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "stand-in"});
        let provider = json!({"stub": {"npm": "@ai-sdk/anthropic", "options": options, "models": models}});
        let opencode = json!({"model": "stub/stub-model", "small_model": "stub/stub-model", "provider": provider});
        let user = variables.iter().fold(User::new(None), |user, (name, value)| user.with_variable(name, value));
        let user = user
            .with_programs(programs)
            .with_variable("ANTHROPIC_BASE_URL", url)
            .with_variable("ANTHROPIC_API_KEY", "stand-in")
            .with_variable("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .with_variable("CLAUDE_CODE_MAX_RETRIES", "1")
            .with_variable("DISABLE_TELEMETRY", "1")
            .with_variable("OPENAI_API_KEY", "stand-in")
            .with_variable("GEMINI_API_KEY", "stand-in")
            .with_variable("GOOGLE_GEMINI_BASE_URL", url)
            .with_variable("OPENCODE_CONFIG_CONTENT", opencode.to_string().leak())
            .with_variable("OPENCODE_DISABLE_MODELS_FETCH", "1");
        let gemini = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false},
            "privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false},
        });
        std::fs::create_dir_all(user.home().join(".gemini")).unwrap();
        std::fs::write(user.home().join(".gemini/settings.json"), gemini.to_string()).unwrap();
        let codex = format!(
            "model_providers.standin={{name=\"standin\",base_url=\"{url}/v1\",env_key=\"OPENAI_API_KEY\",\
             wire_api=\"responses\",stream_max_retries=0,request_max_retries=0}}"
        );
        let pass = ["PATH", "HOME", "OPENAI_API_KEY"];
        let file = json!({
            "providers": {"codex": {"args": ["-c", "model_provider=standin", "-c", codex], "passEnv": pass}},
            "agents": {"opencode": {"command": ["opencode", "acp"]}},
        });
        std::fs::create_dir_all(user.files()).unwrap();
        std::fs::write(user.files().join("runner.yaml"), file.to_string()).unwrap();
        std::fs::create_dir(user.home().join("work")).unwrap();
        // Codex makes it itself, but not in a folder for temporary files.
        std::fs::create_dir(user.home().join(".codex")).unwrap();
        Self { user, _model: model, _runtime: runtime }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.user.home().join("work").join(name)
    }

    /// Starts a session in the directory `work`, and returns its ref.
    pub(crate) fn start(&self, words: &[&str]) -> String {
        let mut all = words.to_vec();
        all.extend(["--dir", "work", "--detach"]);
        self.user.succeed(&all).trim().to_owned()
    }
}

impl Drop for Place {
    /// A host in the background goes on without its server.
    fn drop(&mut self) {
        if let Some(host) = host_of(&self.user) {
            kill(host);
        }
    }
}

/// Asks again until there is an answer.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    within(what, || ask().ok_or(()))
}

#[track_caller]
fn within<T, E: std::fmt::Debug>(what: &str, mut ask: impl FnMut() -> Result<T, E>) -> T {
    let begun = Instant::now();
    loop {
        match ask() {
            Ok(found) => return found,
            Err(last) => assert!(begun.elapsed() < SOON, "not in time: {what}: {last:#?}"),
        }
    }
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

/// Waits until so many turns have ended.
#[track_caller]
pub(crate) fn turns(user: &User, session: &str, count: usize) -> Vec<Value> {
    within("the end of a turn", || {
        let log = log(user, session);
        let ended = log.iter().filter(|body| is(body, "turn") && body["state"] == "ended").count();
        if ended >= count { Ok(log) } else { Err(short(&log)) }
    })
}

/// Waits for a request that is open, and returns its id.
#[track_caller]
pub(crate) fn request(user: &User, session: &str) -> String {
    within("a request", || {
        let log = log(user, session);
        let asked = log.iter().rev().find(|body| is(body, "permission") || is(body, "question"));
        let id = asked.and_then(|asked| asked["requestId"].as_str()).unwrap_or_default();
        let is_closed = log.iter().any(|body| is(body, "resolved") && body["requestId"] == id);
        if id.is_empty() || is_closed { Err(short(&log)) } else { Ok(id.to_owned()) }
    })
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
    assert!(place.file("allowed").exists());
    assert!(user.fail(&["answer", &session, "allow", "--request", &asked]).contains("is not open"));
    user.succeed(&["prompt", &session, "[[run touch refused]]"]);
    let asked = request(user, &session);
    user.succeed(&["answer", &session, "deny", "--request", &asked]);
    turns(user, &session, 3);
    assert!(!place.file("refused").exists());

    // A turn is interrupted, and the prompt that waits is done after it.
    user.succeed(&["prompt", &session, "[[hang]]"]);
    assert!(user.succeed(&["prompt", &session, "[[say after it]]"]).contains("waits"));
    user.succeed(&["interrupt", &session]);
    let said = turns(user, &session, 5);
    assert!(said.iter().any(|body| is(body, "turn") && body["stopReason"] == "cancelled"), "{said:#?}");
    assert!(said.iter().any(|body| is(body, "text") && body["text"] == "after it"), "{said:#?}");

    assert!(user.succeed(&["stop", &session]).contains("ended"));
    assert!(user.fail(&["prompt", &session, "more"]).contains("superseded"));
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
    works_live(&Place::new(), &["claude"]);
}

#[test]
fn the_newest_claude_works_live() {
    works_live(&Place::with_newest_claude(), &["claude"]);
}

#[test]
fn codex_works_live() {
    works_live(&Place::new(), &["codex"]);
}

#[test]
fn gemini_works_live() {
    works_live(&Place::new(), &["gemini"]);
}

#[test]
fn an_agent_that_speaks_acp_works_live() {
    works_live(&Place::new(), &["agent", "opencode"]);
}

/// A guest of the owner's server, with an id.
pub(crate) fn guest(url: &str) -> (User, String) {
    let guest = User::new(Some(url));
    guest.succeed(&["login"]);
    let id = guest.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    (guest, id)
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
    let refused = editor.fail(&["answer", &session, "allow", "--request", &asked]);
    assert!(refused.contains("not_allowed"), "{refused}");
    assert_ne!(viewer.run(&["prompt", &session, "x"]).code, 0);
    assert!(!place.file("made").exists());
    owner.succeed(&["answer", &session, "allow", "--request", &asked]);
    turns(&editor, &session, 2);
    assert!(place.file("made").exists());

    // Everybody sees the same.
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

/// The process that hosts the sessions of this user's machine, when it is a program of its own.
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
fn a_host_that_is_killed_takes_its_agent_with_it_and_goes_on_later() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &["--no-runner"]);
    let session = place.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    user.succeed(&["prompt", &session, "[[hang]]"]);
    let host = host_of(user).unwrap();
    until("the second turn", || {
        let begun = log(user, &session).iter().filter(|body| is(body, "turn") && body["state"] == "started").count();
        (begun == 2).then_some(())
    });
    assert!(runs_in(user.home()));
    kill(host);
    let killed = Instant::now();
    until("the end of the agent", || (!runs_in(user.home())).then_some(()));
    assert!(killed.elapsed() < Duration::from_secs(5 * 10), "{:?}", killed.elapsed());

    // The next command starts the host again, which closes the turn and goes on with the conversation.
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
    let (server, url) = up(user, &["--no-runner"]);
    let port = url.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let session = place.start(&["claude", "[[say first]]"]);
    turns(user, &session, 1);
    user.succeed(&["prompt", &session, "[[run touch made]]"]);
    let asked = request(user, &session);
    user.succeed(&["answer", &session, "allow", "--request", &asked]);
    kill(server.pid());
    drop(server);
    // The agent works on.
    until("the work of the agent", || place.file("made").exists().then_some(()));
    let _again = Running::start(user, &["up", "--no-runner", "--json", "--listen", &format!("127.0.0.1:{port}")]);
    until("the server", || (user.run(&["status"]).code == 0).then_some(()));
    let log = turns(user, &session, 2);
    assert_whole(&log);
    user.succeed(&["prompt", &session, "[[say again]]"]);
    assert_whole(&turns(user, &session, 3));
    user.succeed(&["stop", &session]);
}
