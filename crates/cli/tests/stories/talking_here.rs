//! `ensemble talk` in the terminal: a real server and a real agent, LiveKit's double, and a room that the test acts. One story has a real
//! room, where LIVEKIT_URL names a LiveKit server.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ensemble_doubles::livekit::{API_KEY, API_SECRET, Double};
use serde_json::{Value, json};

use crate::acted_room::{Acted, Room};
use crate::ensemble::{Running, User, up};
use crate::live::{kill, log, turns, until};
use crate::place::Place;
use crate::terminal::Terminal;

/// Speaks a file into a real room, and writes what comes back: the echo of the reference agent.
#[test]
fn a_person_talks_about_a_session_in_a_real_room() {
    let (Some(livekit), Some(python)) = (std::env::var_os("LIVEKIT_URL"), std::env::var_os("VOICE_AGENT_PYTHON"))
    else {
        eprintln!("skipped: a real room needs LIVEKIT_URL and VOICE_AGENT_PYTHON (make test-livekit)");
        return;
    };
    let text = |value: std::ffi::OsString| -> &'static str { value.into_string().unwrap().leak() };
    let set = |name: &str| text(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")));
    let own: &'static str = format!("terminal{}", std::process::id()).leak();
    let prefix: &'static str = format!("{own}_").leak();
    let livekit = [
        ("LIVEKIT_URL", text(livekit)),
        ("LIVEKIT_API_KEY", set("LIVEKIT_API_KEY")),
        ("LIVEKIT_API_SECRET", set("LIVEKIT_API_SECRET")),
        ("LIVEKIT_AGENT_NAME", own),
    ];
    let voice = [
        ("VOICE_PUBLIC_KEY", "voice-key-of-the-real-room"),
        // Rooms under the prefix of another gateway would be deleted.
        ("VOICE_ROOM_PREFIX", prefix),
        ("VOICE_RECONCILE_SECONDS", "2"),
    ];
    let place = Place::with(&[&livekit[..], &voice[..]].concat());
    let user = &place.user;
    let (_server, _url) = up(user, &["--no-runner"]);
    let session = place.start(&["claude", "[[say It boils.]]"]);
    turns(user, &session, 1);
    let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/voice-agent/agent.py");
    let mut agent = Command::new(python)
        .arg(agent)
        .arg("start")
        .envs(livekit)
        .envs([("VOICE_AGENT_MODE", "echo"), ("VOICE_AGENT_PORT", "0"), ("VOICE_AGENT_LOAD_MAX", "1")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (spoken, back) = (user.home().join("spoken.wav"), user.home().join("back.wav"));
    let speak = Command::new("espeak-ng").arg("-w").arg(&spoken).arg("Please tell me what the kettle does.").status();
    assert!(speak.expect("espeak-ng is not installed").success());
    let (from, to) = (spoken.to_str().unwrap(), back.to_str().unwrap());
    // The library is installed here, by its digests, unless the environment names a Python that has it.
    let talk = user.run(&["talk", &session, "--yes", "--json", "--input", from, "--output", to, "--listen", "20"]);
    let _ended = agent.kill();
    let _ended = agent.wait();
    assert_eq!(talk.code, 0, "{}{}", talk.out, talk.err);
    assert!(talk.out.contains("the voice is here"), "{}", talk.out);
    let loudness = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        let samples = bytes[44..].chunks_exact(2).map(|pair| f64::from(i16::from_le_bytes([pair[0], pair[1]])));
        samples.clone().map(|sample| sample * sample).sum::<f64>()
    };
    // 16 bits at 48 kHz against the file's 22.05 kHz: a whole echo has twice the sum.
    let (spoken, back) = (loudness(&spoken), loudness(&back));
    assert!(back > spoken / 4.0 && spoken > 0.0, "spoken {spoken:e}, came back {back:e}");
}

/// A server with voice, a session with an agent, and a room to act.
struct Stage {
    place: Place,
    server: Running,
    session: String,
    id: String,
    double: Double,
    acted: Acted,
    _runtime: tokio::runtime::Runtime,
}

/// A conversation that has begun.
struct Talk {
    room: Room,
    agent: String,
    /// The room's name at LiveKit.
    name: String,
}

impl Stage {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let guard = runtime.enter();
        let double = Double::start().unwrap();
        drop(guard);
        let url: &'static str = double.url().leak();
        let acted = Acted::new();
        let python: &'static str = acted.program().into_os_string().into_string().unwrap().leak();
        let place = Place::with(&[
            ("VOICE_PUBLIC_KEY", "voice-key-of-the-terminal-story"),
            ("LIVEKIT_URL", url),
            ("LIVEKIT_API_KEY", API_KEY),
            ("LIVEKIT_API_SECRET", API_SECRET),
            ("VOICE_RECONCILE_SECONDS", "1"),
            ("ENSEMBLE_TALK_PYTHON", python),
        ]);
        let (server, url) = up(&place.user, &["--no-runner"]);
        double.send_webhooks_to(format!("{}/hooks/livekit", url.trim_end_matches('/')));
        let session = place.start(&["claude", "--title", "Kettle", "[[say It boils.]]"]);
        turns(&place.user, &session, 1);
        let id = place.user.json(&["sessions"])["sessions"][0]["session"]["id"].as_str().unwrap().to_owned();
        Self { place, server, session, id, double, acted, _runtime: runtime }
    }

    /// The program has joined the room, as the double knows it.
    fn joined(&self) -> Talk {
        let (room, join) = self.acted.joined();
        let identity = self.double.join(join["token"].as_str().unwrap()).unwrap();
        let name = self.double.rooms().into_iter().next().expect("a room").name;
        assert!(!identity.is_empty());
        Talk { room, agent: join["agent"].as_str().unwrap().to_owned(), name }
    }

    /// Talks without a terminal.
    fn begin(&self, more: &[&str]) -> Running {
        let mut all = vec!["talk", &self.session, "--here", "--yes", "--json"];
        all.extend(more);
        Running::start(&self.place.user, &all)
    }

    fn begin_in(&self, terminal: &Terminal) -> Talk {
        terminal.ensemble("NO_COLOR=1", &format!("talk {} --here", self.session));
        terminal.sees("hear and read this session");
        terminal.sees("Agree and talk? [y/N]");
        terminal.line("y");
        self.joined()
    }

    fn log(&self) -> String {
        json!(log(&self.place.user, &self.session)).to_string()
    }

    /// What the voice got to speak.
    fn said(&self, talk: &Talk) -> Vec<String> {
        let received = self.double.received(&talk.name).into_iter().filter(|one| one.name == "voice.say");
        received.map(|one| one.payload["text"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The server has ended the conversation.
    #[track_caller]
    fn is_over(&self, talk: &Talk) {
        until("the end of the room", || self.double.room(&talk.name).is_none().then_some(()));
    }
}

impl Talk {
    /// The agent calls a tool about this session.
    fn call(&mut self, stage: &Stage, method: &str, mut body: Value) -> u64 {
        body["sessionId"] = json!(stage.id);
        self.room.call_by(&self.agent, method, &body)
    }

    fn called(&mut self, stage: &Stage, method: &str, body: Value) -> Result<Value, u64> {
        let call = self.call(stage, method, body);
        self.room.answer(call)
    }
}

/// A message is shown for three seconds, and the machine may stand still for as long. Then it is sent, and another one is tried.
#[track_caller]
fn is_unsent(tries: impl FnMut(&str) -> bool) {
    let mut texts = ["[[say never]]", "[[say nothing]]", "[[say no word]]"].into_iter();
    assert!(texts.any(tries), "each message was sent");
}

#[test]
fn a_person_talks_in_a_terminal_and_only_their_keys_allow() {
    let stage = Stage::new();
    let user = &stage.place.user;
    let terminal = Terminal::open(user, 100, 30);
    let mut talk = stage.begin_in(&terminal);
    terminal.sees("the voice listens");
    assert!(terminal.is_taken().0 && !terminal.has_colours());

    // Words grow, and are put another way.
    talk.room.says(true, "s1", "What does the", false);
    terminal.sees("You    What does the");
    talk.room.says(true, "s1", "What does the kettle do?", true);
    talk.room.says(false, "s2", "I look.", true);
    let lines = terminal.sees("Voice  I look.");
    assert!(lines.iter().any(|line| line.contains("You    What does the kettle do?")), "{lines:#?}");

    let read = talk.called(&stage, "session.read", json!({ "last": 5 })).unwrap();
    assert!(read["messages"].to_string().contains("It boils."), "{read}");
    let other = talk.room.call_by("stranger", "session.read", &json!({ "sessionId": stage.id }));
    assert_eq!(talk.room.answer(other), Err(403));

    // A message is shown, and is sent unless it is taken back.
    let sent = talk.call(&stage, "session.send", json!({ "text": "[[say it came by voice]]" }));
    assert_eq!(talk.room.answer(sent), Ok(json!({ "outcome": "sent" })));
    turns(user, &stage.session, 2);
    terminal.until("no message", |lines| !lines.iter().any(|line| line.contains("in your name")));
    let mut ended = 2;
    is_unsent(|text| {
        let call = talk.call(&stage, "session.send", json!({ "text": text }));
        terminal.until("the message", |lines| {
            let has = |text: &str| lines.iter().any(|line| line.contains(text));
            (has("is sent in your name in") && has("u: undo  m: mute")) || has(&format!("{text}\": sent"))
        });
        terminal.key("u");
        let outcome = talk.room.answer(call).unwrap()["outcome"].clone();
        let is_undone = outcome == "undone";
        assert!(is_undone != stage.log().contains(text) && (is_undone || outcome == "sent"), "{outcome}");
        ended += usize::from(!is_undone);
        is_undone
    });
    assert!(stage.log().contains("it came by voice"));

    // What the agent asks is on the screen, and no tool allows it.
    user.succeed(&["prompt", &stage.session, "[[run touch injected]]"]);
    terminal.sees("command: touch injected");
    let asks = "The coding agent asks for a permission. It is on your screen.";
    until("the news for the voice", || stage.said(&talk).iter().any(|text| text == asks).then_some(()));
    assert_eq!(talk.called(&stage, "permission.allow", json!({})), Err(400));
    let shown = talk.called(&stage, "permission.show", json!({})).unwrap();
    assert_eq!(shown["outcome"], "shown");
    let denied = talk.called(&stage, "permission.deny", json!({ "requestId": shown["requestId"] }));
    assert_eq!(denied, Ok(json!({ "outcome": "denied" })));
    turns(user, &stage.session, ended + 1);
    assert!(!stage.place.file("injected").exists());
    user.succeed(&["prompt", &stage.session, "[[run touch allowed]]"]);
    terminal.until("a card with a key", |lines| {
        let has = |text: &str| lines.iter().any(|line| line.contains(text));
        has("command: touch allowed") && has("  1  Allow once")
    });
    // A key that is pressed as the card appears was meant for something else, and one that another follows at once is text.
    until("what a key allows", || {
        terminal.key("1");
        let pressed = Instant::now();
        while pressed.elapsed() < Duration::from_secs(3) && !stage.place.file("allowed").exists() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        stage.place.file("allowed").exists().then_some(())
    });

    terminal.key("m");
    assert_eq!(talk.room.order("mute")["muted"], true);
    terminal.sees("you are muted");
    terminal.key("q");
    talk.room.order("leave");
    assert!(talk.room.is_left());
    terminal.is_given_back();
    stage.is_over(&talk);
}

#[test]
fn a_script_talks_with_lines() {
    let stage = Stage::new();
    let mut running = stage.begin(&["--no-news", "--keep"]);
    let mut talk = stage.joined();
    let mut line = move || -> Value { serde_json::from_str(&running.line()).unwrap() };
    assert_eq!(line()["event"], "agent");
    talk.room.says(false, "s1", "Good", false);
    talk.room.says(false, "s1", "Good evening.", true);
    assert_eq!(line(), json!({ "event": "said", "by": "voice", "text": "Good evening." }));
    stage.place.user.succeed(&["prompt", &stage.session, "[[say a turn]]"]);
    turns(&stage.place.user, &stage.session, 2);
    talk.called(&stage, "session.read", json!({})).unwrap();
    assert_eq!(line()["event"], "read");
    talk.room.tell(json!({ "is": "left", "why": "closed" }));
    talk.room.order("leave");
    stage.is_over(&talk);
    assert_eq!(stage.said(&talk), Vec::<String>::new(), "no news");
    until("the words", || stage.log().contains("Voice: Good evening.").then_some(()));
}

#[test]
fn what_is_shown_when_one_leaves_is_not_sent() {
    let stage = Stage::new();
    is_unsent(|text| {
        let mut running = stage.begin(&[]);
        let mut talk = stage.joined();
        talk.call(&stage, "session.send", json!({ "text": text }));
        until("the message", || running.line().contains(text).then_some(()));
        assert_eq!(running.interrupt(), 0);
        talk.room.leaves();
        assert!(stage.double.room(&talk.name).is_none(), "the server ends it before the room is left");
        !stage.log().contains(text)
    });
    is_unsent(|text| {
        let terminal = Terminal::open(&stage.place.user, 100, 30);
        let mut talk = stage.begin_in(&terminal);
        terminal.sees("the voice listens");
        talk.call(&stage, "session.send", json!({ "text": text }));
        terminal.sees(text);
        terminal.key("q");
        talk.room.leaves();
        stage.is_over(&talk);
        !stage.log().contains(text)
    });
}

#[test]
fn a_room_program_that_ends_is_said_and_ends_the_conversation() {
    let stage = Stage::new();
    let user = &stage.place.user;
    let arguments = ["talk", &stage.session, "--here", "--yes"];
    let child = user.command(&arguments).spawn().unwrap();
    let talk = stage.joined();
    let name = talk.name.clone();
    drop(talk);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && said.contains("exit status: 3") && said.contains("the room is gone"),
        "{said}"
    );
    until("the end of the room", || stage.double.room(&name).is_none().then_some(()));
}

#[test]
fn a_program_that_is_killed_leaves_an_empty_room() {
    let stage = Stage::new();
    let running = stage.begin(&[]);
    let mut talk = stage.joined();
    kill(running.pid());
    assert!(talk.room.is_left());
}

#[test]
fn a_server_that_stays_away_ends_it() {
    let stage = Stage::new();
    let arguments = ["talk", &stage.session, "--here", "--yes"];
    let child = stage.place.user.command(&arguments).spawn().unwrap();
    let mut talk = stage.joined();
    kill(stage.server.pid());
    talk.room.order("leave");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("The server is away"), "{said}");
}

#[test]
fn what_is_missing_is_said_with_what_to_do() {
    let owner = User::new(None)
        .with_variable("VOICE_PUBLIC_KEY", "voice-key-of-the-missing-story")
        .with_variable("LIVEKIT_URL", "ws://127.0.0.1:9")
        .with_variable("LIVEKIT_API_KEY", API_KEY)
        .with_variable("LIVEKIT_API_SECRET", API_SECRET);
    let (_up, _) = up(&owner, &["--no-runner"]);
    owner.succeed(&["session", "create", "--title", "Talk of it"]);
    let says = |python: Option<&str>, more: &[&str]| {
        let programs = owner.home().join("programs");
        std::fs::create_dir_all(&programs).unwrap();
        let program = programs.join("python3");
        let _none = std::fs::remove_file(&program);
        if let Some(python) = python {
            std::fs::write(&program, format!("#!/bin/sh\n{python}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let all = [&["talk", "last", "--here"], more].concat();
        let mut command = owner.command(&all);
        let output =
            command.env("PATH", format!("{}", programs.display())).env_remove("XDG_DATA_HOME").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(says(None, &[]).contains("Agree to that with --yes"));
    let said = says(None, &["--yes"]);
    assert!(said.contains("there is no python3") && said.contains("--page"), "{said}");
    let said = says(Some("echo 3 9"), &["--yes"]);
    assert!(said.contains("python3 is 3.9"), "{said}");
    let said = says(Some("case \"$3\" in *version*) echo 3 12;; *) exit 1;; esac"), &["--yes"]);
    assert!(said.contains("venv"), "{said}");
    let makes = "case \"$3\" in *version*) echo 3 12;; venv) /bin/mkdir -p \"$4/bin\"; echo '#!/bin/sh\necho no network >&2; exit 1' > \"$4/bin/python\"; \
                 /bin/chmod +x \"$4/bin/python\";; esac";
    let said = says(Some(makes), &["--yes"]);
    assert!(said.contains("could not be installed: no network") && said.contains("--page"), "{said}");
    assert!(says(Some(makes), &["--yes"]).contains("no network"), "what was begun is not taken for done");
}
