//! An editor drives a live session over the Agent Client Protocol: the official client library on one side, the real server, the real
//! `claude` and a stand-in for its model on the other.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use boon::{Compiler, Schemas};
use ensemble_testkit::free_address;
use serde_json::{Value, json};

use crate::ensemble::{User, up, up_at};
use crate::live::{assert_whole, host_of, kill, log, until};
use crate::place::Place;

/// opencode computes for six seconds before it is ready, and may get a twelfth of a processor.
const SOON: Duration = Duration::from_secs(300);

fn library() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/acp-client").canonicalize().unwrap()
}

/// Says how a value differs from a schema.
type Validator = Box<dyn Fn(&Value) -> Result<(), String>>;

/// Holds what the agent sends against the JSON Schema of the protocol.
fn validator(definition: &str) -> Validator {
    let path = library().join("node_modules/@agentclientprotocol/sdk/schema/v1/schema.json");
    let mut schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let definitions = schema["$defs"].take();
    let wanted = json!({"$ref": format!("#/$defs/{definition}"), "$defs": definitions});
    let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
    compiler.add_resource(definition, wanted).unwrap();
    let index = compiler.compile(definition, &mut schemas).unwrap();
    Box::new(move |value| schemas.validate(value, index).map_err(|error| error.to_string()))
}

/// An editor with `ensemble acp`.
pub(crate) struct Editor {
    child: Child,
    commands: Option<ChildStdin>,
    events: Receiver<Value>,
    tag: u64,
    updates: Validator,
    permissions: Validator,
    /// Updates that were not looked at yet.
    seen: Vec<Value>,
}

impl Editor {
    pub(crate) fn start(user: &User, arguments: &[&str], stubborn: bool) -> Self {
        let agent = user.command(&[&["acp"], arguments].concat());
        let mut command = Command::new("node");
        command.arg(library().join("editor.mjs")).arg(agent.get_program()).args(agent.get_args());
        for (name, value) in agent.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if stubborn {
            command.env("STUBBORN", "1");
        }
        command.current_dir(user.home()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (commands, out) = (child.stdin.take(), child.stdout.take().unwrap());
        let (to, events) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = to.send(serde_json::from_str(&line).unwrap());
            }
        });
        let (updates, permissions) = (validator("SessionNotification"), validator("RequestPermissionRequest"));
        let mut editor = Self { child, commands, events, tag: 0, updates, permissions, seen: Vec::new() };
        let client = json!({"name": "editor", "version": "1"});
        let greeting = editor.done("initialize", &json!({"protocolVersion": 1, "clientInfo": client}));
        assert_eq!(greeting["protocolVersion"], 1);
        editor
    }

    pub(crate) fn tell(&mut self, what: &Value) {
        writeln!(self.commands.as_mut().unwrap(), "{what}").unwrap();
    }

    /// Waits for an event. What the agent sends on the way must be as the protocol says.
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, mut look: impl FnMut(&Value) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let left = SOON.saturating_sub(begun.elapsed());
            let event = self.events.recv_timeout(left);
            let event = event.unwrap_or_else(|_| panic!("not in time: {what}: {:#?}", self.seen));
            assert!(event.get("complaint").is_none(), "{event}");
            let line = &event["line"];
            let valid = match line["method"].as_str() {
                Some("session/update") => Some(&self.updates),
                Some("session/request_permission") => Some(&self.permissions),
                _ => None,
            };
            if let Some(Err(error)) = valid.map(|valid| valid(&line["params"])) {
                panic!("{error}: {line:#}");
            }
            if event.get("update").is_some() {
                self.seen.push(event["update"]["update"].clone());
            }
            if let Some(found) = look(&event) {
                return found;
            }
        }
    }

    /// Sends a request. Returns its tag.
    fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.tag += 1;
        let tag = self.tag;
        self.tell(&json!({"request": method, "params": params, "tag": tag}));
        tag
    }

    #[track_caller]
    pub(crate) fn answer(&mut self, tag: u64) -> Result<Value, Value> {
        self.until("an answer", |event| {
            let is_it = event["tag"] == tag;
            is_it.then(|| event.get("error").map_or_else(|| Ok(event["result"].clone()), |error| Err(error.clone())))
        })
    }

    #[track_caller]
    pub(crate) fn done(&mut self, method: &str, params: &Value) -> Value {
        let tag = self.ask(method, params);
        self.answer(tag).unwrap()
    }

    #[track_caller]
    pub(crate) fn refused(&mut self, method: &str, params: &Value) -> Value {
        let tag = self.ask(method, params);
        self.answer(tag).unwrap_err()
    }

    /// Opens a new session. Returns its id.
    #[track_caller]
    pub(crate) fn begin(&mut self, directory: &Path) -> String {
        let opened = self.done("session/new", &json!({"cwd": directory, "mcpServers": []}));
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.ask("session/prompt", &json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]}))
    }

    /// Waits until the agent asks for permission. Returns the number of the request, and what it says.
    #[track_caller]
    pub(crate) fn asked(&mut self) -> (u64, Value) {
        self.until("a request", |event| Some((event["asked"].as_u64()?, event["params"].clone())))
    }

    /// Chooses the first option of this kind.
    pub(crate) fn choose(&mut self, number: u64, asked: &Value, kind: &str) {
        let option = asked["options"].as_array().unwrap().iter().find(|option| option["kind"] == kind).unwrap();
        let outcome = json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}});
        self.tell(&json!({"answer": number, "result": outcome}));
    }

    /// Waits for an update, or takes one that came.
    #[track_caller]
    fn finds(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) {
        if !self.seen.iter().any(&is_it) {
            self.until(what, |event| is_it(&event["update"]["update"]).then_some(()));
        }
    }

    #[track_caller]
    pub(crate) fn sees(&mut self, kind: &str, text: &str) {
        self.finds(text, |update| {
            update["sessionUpdate"] == kind
                && update["content"]["text"].as_str().is_some_and(|said| said.contains(text))
        });
    }

    /// All texts of a kind that came, joined.
    fn said(&self, kind: &str) -> String {
        let of_kind = self.seen.iter().filter(|update| update["sessionUpdate"] == kind);
        of_kind.filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// The editor is closed. Its agent must end well.
    pub(crate) fn close(mut self) {
        drop(self.commands.take());
        self.until("the end", |event| event.get("exit").map(|code| assert_eq!(*code, 0)));
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn acp_lets_an_editor_drive_a_session_that_others_see() {
    let place = Place::new();
    let user = &place.user;
    let (_up, url) = up(user, &[]);
    let mut editor = Editor::start(user, &[], false);
    let opened = editor.done("session/new", &json!({"cwd": place.file(""), "mcpServers": []}));
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(opened["configOptions"][0]["currentValue"], "ask", "{opened:#}");
    let tag = editor.prompt(&session, "Say it. [[split]] [[say Grüße 😀 from the agent]]");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
    assert_eq!(editor.said("agent_message_chunk"), "Grüße 😀 from the agent", "each piece comes once");
    assert_eq!(editor.said("user_message_chunk"), "", "an editor shows its own prompt");

    // What is allowed in the editor is done.
    let tag = editor.prompt(&session, "[[run touch allowed]]");
    let (number, asked) = editor.asked();
    assert!(asked.to_string().contains("touch allowed") && !place.file("allowed").exists(), "{asked:#}");
    let second =
        editor.refused("session/prompt", &json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}));
    assert!(second["message"].as_str().unwrap().contains("is being done"), "{second}");
    editor.choose(number, &asked, "allow_once");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
    assert!(place.file("allowed").exists());
    let call = asked["toolCall"]["toolCallId"].clone();
    let is_done = |update: &Value| update["toolCallId"] == call && update["status"] == "completed";
    assert!(editor.seen.iter().any(is_done), "{:#?}", editor.seen);

    // What another terminal and a guest type appears, and so does its answer.
    user.succeed(&["prompt", &session, "From my terminal. [[say to the terminal]]"]);
    editor.sees("user_message_chunk", "From my terminal.");
    editor.sees("agent_message_chunk", "to the terminal");
    let guest = User::new(Some(&url));
    guest.succeed(&["login", "--name", "Ben"]);
    let id = guest.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    user.succeed(&["share", "add", &session, &id, "--level", "edit"]);
    guest.succeed(&["prompt", &session, "[[say to the guest]]"]);
    editor.sees("user_message_chunk", "**Ben");
    editor.sees("agent_message_chunk", "to the guest");

    // A mode is chosen, and a turn is cancelled.
    editor.done("session/set_mode", &json!({"sessionId": session, "modeId": "plan"}));
    editor.finds("the mode", |update| {
        update["sessionUpdate"] == "current_mode_update" && update["currentModeId"] == "plan"
    });
    editor.done("session/set_config_option", &json!({"sessionId": session, "configId": "mode", "value": "ask"}));
    let tag = editor.prompt(&session, "[[hang]]");
    editor.sees("agent_message_chunk", "I begin");
    editor.tell(&json!({"notify": "session/cancel", "params": {"sessionId": session}}));
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "cancelled");
    editor.close();

    // All of it is there when the session is opened again.
    let mut editor = Editor::start(user, &[], false);
    let listed = editor.done("session/list", &json!({"cwd": place.file("").canonicalize().unwrap()}));
    assert_eq!(listed["sessions"][0]["sessionId"], session, "{listed:#}");
    editor.done("session/load", &json!({"sessionId": session, "cwd": "/", "mcpServers": []}));
    assert!(editor.said("agent_message_chunk").contains("Grüße 😀 from the agent"));
    assert!(editor.said("user_message_chunk").contains("From my terminal."));
    let calls: Vec<&Value> = editor.seen.iter().filter(|update| update["sessionUpdate"] == "tool_call").collect();
    assert_eq!((calls.len(), &calls[0]["status"]), (1, &json!("completed")), "{calls:#?}");
    let tag = editor.prompt(&session, "[[say and on]]");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
    user.succeed(&["stop", &session]);
    editor.sees("agent_message_chunk", "The session has ended.");
    let ended =
        editor.refused("session/prompt", &json!({"sessionId": session, "prompt": [{"type": "text", "text": "x"}]}));
    assert_eq!(ended["data"]["code"], "superseded", "{ended}");
    editor.close();
    assert_whole(&log(user, &session));
}

#[test]
fn acp_withdraws_a_request_that_another_person_has_answered() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    // An editor that does not know how requests are withdrawn, and answers anyhow.
    let mut editor = Editor::start(user, &[], true);
    let session = editor.begin(&place.file(""));
    let tag = editor.prompt(&session, "[[run touch refused]]");
    let (number, asked) = editor.asked();
    let request = crate::live::request(user, &session);
    user.succeed(&["answer", &session, "deny", "--request", &request]);
    editor.until("the withdrawal", |event| (event["withdrawn"] == number).then_some(()));
    editor.choose(number, &asked, "allow_once");
    editor.sees("agent_message_chunk", "superseded");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
    assert!(!place.file("refused").exists());
    editor.close();
    assert_whole(&log(user, &session));
    user.succeed(&["stop", &session]);
}

#[test]
fn acp_drives_one_session_or_begins_one_on_another_machine() {
    let place = Place::new();
    let user = &place.user;
    let (_up, _url) = up(user, &[]);
    crate::ensemble::wait_for_runner(user);
    let session = place.start(&["claude", "[[say what was said before]]"]);
    crate::live::turns(user, &session, 1);
    let mut editor = Editor::start(user, &["--session", &session], false);
    let id = editor.begin(Path::new("/"));
    editor.sees("agent_message_chunk", "what was said before");
    let tag = editor.prompt(&id, "[[say more]]");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
    assert_eq!(log(user, &session), log(user, &id));
    editor.close();
    user.succeed(&["stop", &session]);

    let machine = user.json(&["machine", "list"])["machines"][0]["machine"]["ref"].as_str().unwrap().to_owned();
    let work = place.file("").canonicalize().unwrap();
    let named = ["--machine", &machine, "--dir", work.to_str().unwrap(), "--provider", "claude"];
    let mut editor = Editor::start(user, &named, false);
    let session = editor.begin(Path::new("/"));
    let tag = editor.prompt(&session, "[[run touch there]]");
    let (number, asked) = editor.asked();
    editor.choose(number, &asked, "allow_once");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
    assert!(place.file("there").exists());
    editor.close();
    user.succeed(&["stop", &session]);
}

#[test]
fn acp_continues_when_the_server_or_the_host_is_back() {
    let place = Place::new();
    let user = &place.user;
    let listen = free_address();
    let start = ["up", "--no-runner", "--json", "--listen", &listen];
    let (server, _printed) = up_at(user, &start);
    let mut editor = Editor::start(user, &[], false);
    let session = editor.begin(&place.file(""));
    let tag = editor.prompt(&session, "[[run touch made]]");
    let (number, asked) = editor.asked();
    kill(server.pid());
    drop(server);
    editor.sees("agent_message_chunk", "connection to the server is lost");
    let _again = up_at(user, &start);
    editor.sees("agent_message_chunk", "connection to the server is back");
    editor.choose(number, &asked, "allow_once");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
    assert!(place.file("made").exists());
    // Each loss is said once, and so is its end.
    let said = editor.said("agent_message_chunk");
    let changes: Vec<&str> = said.split("server is ").skip(1).filter_map(|rest| rest.get(..4)).collect();
    assert!(changes.chunks(2).all(|pair| pair == ["lost", "back"]), "{said}");

    // The next prompt starts a host that was killed.
    kill(host_of(user).unwrap());
    until("the end of the host", || host_of(user).is_none().then_some(()));
    let tag = editor.prompt(&session, "[[say after it]]");
    assert_eq!(editor.answer(tag).unwrap()["stopReason"], "end_turn");
    editor.sees("agent_message_chunk", "after it");
    editor.close();
    assert_whole(&log(user, &session));
    user.succeed(&["stop", &session]);
}

/// What `ensemble acp` prints for this input.
fn printed(user: &User, input: &str) -> Vec<Value> {
    let ended = user.run_with_input(&["acp"], input);
    assert_eq!(ended.code, 0, "{}", ended.err);
    ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn acp_answers_bad_input_with_an_error() {
    let user = User::new(Some("http://127.0.0.1:9"));
    let greet = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#;
    let new = r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#;
    let fly = r#"{"jsonrpc":"2.0","id":2,"method":"session/fly"}"#;
    let stranger = r#"{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"x","prompt":[]}}"#;
    let long = "x".repeat(50 << 20);
    let half = r#"{"jsonrpc":"2.0","id":4,"meth"#;
    let all = printed(&user, &format!("{greet}\ngarbage\n{long}\n[1]\n{fly}\n{stranger}\n{half}"));
    let codes: Vec<i64> = all.iter().filter_map(|answer| answer["error"]["code"].as_i64()).collect();
    assert_eq!(codes, [-32_700, -32_600, -32_600, -32_601, -32_002, -32_700], "{all:#?}");
    assert_eq!(all[0]["result"]["agentCapabilities"]["loadSession"], true);

    // A person who is not signed in reads what to do.
    let mut editor = Editor::start(&user, &[], false);
    let refused = editor.refused("session/new", &json!({"cwd": "/", "mcpServers": []}));
    assert_eq!(refused["code"], -32_000, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("ensemble"), "{refused}");
    editor.close();
    assert_eq!(printed(&user, &format!("{new}\n"))[0]["error"]["code"], -32_600, "the first request is initialize");

    // A reader that has gone ends it.
    let mut child = user.command(&["acp"]).stdin(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    until("the end", || {
        let _ = writeln!(input, "{greet}");
        child.try_wait().unwrap().map(|status| assert!(status.success()))
    });
}
