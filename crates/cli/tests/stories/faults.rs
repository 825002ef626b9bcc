//! Four real agents work at once, and what they depend on is killed, stopped or interrupted in the middle of it. Nothing is lost, done
//! twice, stuck or silent.

use std::fs;

use ensemble_testkit::free_address;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

use crate::ensemble::{Running, User, up_at};
use crate::live::{assert_whole, host_of, log, request, takes, turns, until};
use crate::place::Place;

const AGENTS: [(&str, &[&str]); 4] =
    [("claude", &["claude"]), ("codex", &["codex"]), ("gemini", &["gemini"]), ("opencode", &["agent", "opencode"])];

/// An agent's session, and how many of its turns have ended.
struct Session {
    agent: &'static str,
    id: String,
    turns: usize,
}

impl Session {
    /// The file to which this step of this agent writes.
    fn file(&self, step: &str) -> String {
        format!("{}-{step}", self.agent)
    }
}

struct Scene {
    place: Place,
    listen: String,
    server: Option<Running>,
    sessions: Vec<Session>,
}

impl Scene {
    fn new() -> Self {
        let place = Place::with_agents(&AGENTS.map(|(name, _)| (name, name)));
        let mut scene = Self { place, listen: free_address(), server: None, sessions: Vec::new() };
        scene.start_server();
        let begin = |(agent, words): &(&'static str, &[&str])| {
            let mut all = words.to_vec();
            all.push("[[say ready]]");
            Session { agent, id: scene.place.start(&all), turns: 0 }
        };
        scene.sessions = AGENTS.iter().map(begin).collect();
        scene.ends(1);
        scene
    }

    fn user(&self) -> &User {
        &self.place.user
    }

    /// Each agent asks whether it may run a command that writes `x`, waits for [`Self::release`], and writes `y`.
    fn ask(&self, step: &str) {
        for session in &self.sessions {
            let file = session.file(step);
            let command = format!("echo x >> {file}; until test -e go-{step}; do sleep 0.1; done; echo y >> {file}");
            self.user().succeed(&["prompt", &session.id, &format!("[[run {command}]]")]);
        }
        for session in &self.sessions {
            request(self.user(), &session.id);
        }
    }

    /// Allows the commands, and waits until they run.
    fn allow(&self, step: &str) {
        for session in &self.sessions {
            let asked = request(self.user(), &session.id);
            self.user().succeed(&["answer", &session.id, "allow", "--request", &asked]);
        }
        self.wrote(step, "x\n");
    }

    fn release(&self, step: &str) {
        fs::write(self.place.file(&format!("go-{step}")), "").unwrap();
    }

    #[track_caller]
    fn wrote(&self, step: &str, expected: &str) {
        for session in &self.sessions {
            let file = session.file(step);
            let has = || fs::read_to_string(self.place.file(&file)).ok().filter(|text| text == expected).map(drop);
            until(&format!("{expected:?} in {file}"), has);
        }
    }

    /// Waits until no command of this step runs any more, lets them continue, and sees that none did.
    #[track_caller]
    fn was_ended(&self, step: &str) {
        let mark = format!("go-{step};");
        until("the end of the commands", || (!is_in_arguments(&mark)).then_some(()));
        self.release(step);
        self.wrote(step, "x\n");
    }

    /// Waits until `more` turns of each agent have ended. Returns what was said in the newest of each.
    #[track_caller]
    fn ends(&mut self, more: usize) -> Vec<Vec<Value>> {
        let user = &self.place.user;
        let newest = |session: &mut Session| {
            session.turns += more;
            let all = turns(user, &session.id, session.turns);
            let begins = all.iter().rposition(|body| body["type"] == "turn" && body["state"] == "started").unwrap();
            all[begins..].to_vec()
        };
        self.sessions.iter_mut().map(newest).collect()
    }

    /// The commands of this step were done once, and each turn ended as one that nothing disturbed.
    #[track_caller]
    fn are_done_once(&mut self, step: &str) {
        self.wrote(step, "x\ny\n");
        for said in self.ends(1) {
            let end = said.iter().find(|body| body["type"] == "turn" && body["state"] == "ended").unwrap();
            assert_eq!(end["stopReason"], "end_turn", "{said:#?}");
        }
    }

    fn kill_server(&mut self) {
        let server = self.server.take().unwrap();
        crate::live::kill(server.pid());
    }

    fn start_server(&mut self) {
        let start = ["up", "--no-runner", "--json", "--listen", &self.listen];
        self.server = Some(up_at(&self.place.user, &start).0);
    }

    fn signal_host(&self, signal: Signal) {
        let host = host_of(self.user()).unwrap();
        nix::sys::signal::kill(Pid::from_raw(host.cast_signed()), signal).unwrap();
    }

    /// The turn that was open is closed as failed, and the next prompt is answered.
    #[track_caller]
    fn continue_after_a_failed_turn(&mut self, word: &str) {
        for session in &self.sessions {
            self.user().succeed(&["prompt", &session.id, &format!("[[say {word}]]")]);
        }
        self.ends(2);
        for session in &self.sessions {
            let all = log(self.user(), &session.id);
            let ends: Vec<&Value> =
                all.iter().filter(|body| body["type"] == "turn" && body["state"] == "ended").collect();
            let [.., broken, last] = ends.as_slice() else { panic!("{ends:#?}") };
            assert_eq!((&broken["stopReason"], &last["stopReason"]), (&"error".into(), &"end_turn".into()), "{all:#?}");
            assert!(all.iter().any(|body| body["type"] == "text" && body["text"] == word), "{all:#?}");
        }
    }
}

/// Whether a process has this text in its arguments.
fn is_in_arguments(text: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|process| fs::read(process.path().join("cmdline")).ok())
        .any(|command| String::from_utf8_lossy(&command).contains(text))
}

#[test]
fn four_agents_lose_nothing() {
    let mut scene = Scene::new();

    // The server is killed while commands run, and they end meanwhile.
    scene.ask("server-command");
    scene.allow("server-command");
    scene.kill_server();
    scene.release("server-command");
    scene.wrote("server-command", "x\ny\n");
    scene.start_server();
    scene.are_done_once("server-command");

    // The server is killed while each agent asks.
    scene.ask("server-request");
    scene.kill_server();
    scene.start_server();
    scene.allow("server-request");
    scene.release("server-request");
    scene.are_done_once("server-request");

    // The machine's process stands still while the commands end.
    scene.ask("frozen");
    scene.allow("frozen");
    scene.signal_host(Signal::SIGSTOP);
    scene.release("frozen");
    scene.wrote("frozen", "x\ny\n");
    scene.signal_host(Signal::SIGCONT);
    scene.are_done_once("frozen");

    // A person interrupts the commands.
    scene.ask("interrupt");
    scene.allow("interrupt");
    for session in &scene.sessions {
        scene.user().succeed(&["interrupt", &session.id]);
    }
    scene.was_ended("interrupt");
    for said in scene.ends(1) {
        let end = said.iter().find(|body| body["type"] == "turn" && body["state"] == "ended").unwrap();
        assert_eq!(end["stopReason"], "cancelled", "{said:#?}");
    }

    // The machine's process is killed while commands run.
    scene.ask("killed-command");
    scene.allow("killed-command");
    scene.signal_host(Signal::SIGKILL);
    scene.was_ended("killed-command");
    scene.continue_after_a_failed_turn("after the command");

    // It is killed while each agent asks. What was asked is not done.
    scene.ask("killed-request");
    scene.signal_host(Signal::SIGKILL);
    scene.continue_after_a_failed_turn("after the request");
    for session in &scene.sessions {
        assert!(!scene.place.file(&session.file("killed-request")).exists());
    }

    for session in &scene.sessions {
        takes(scene.user(), &["stop", &session.id], ("done", "ended"));
        assert_whole(&log(scene.user(), &session.id));
    }
}
