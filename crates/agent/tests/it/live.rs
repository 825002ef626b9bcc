//! A real program with a driver: the least of a host that a test needs.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ensemble_agent::{Command, Driver, Event, Exit, Kind, Line, Lines, Output, Prompt, Reply, Start, driver, launch};
use ensemble_doubles::model::StandIn;
use ensemble_protocol::transcript::words::Mode;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;

use crate::wire::{self, Entry};

/// opencode computes for six seconds before it is ready. While the whole suite runs it has had a twelfth of a processor.
pub(crate) const SOON: Duration = Duration::from_secs(300);

/// An agent's home, its work and its model.
pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// Of the program, in the folder of the installed ones, and of the folder of its recorded wires.
    program: &'static str,
    folder: &'static str,
    home: TempDir,
    pub(crate) model: StandIn,
    _runtime: tokio::runtime::Runtime,
    entries: Vec<Entry>,
    case: &'static str,
}

/// A process with its driver.
pub(crate) struct Live<'a> {
    place: &'a mut Place,
    child: Child,
    output: Receiver<Vec<u8>>,
    lines: Lines,
    driver: Box<dyn Driver>,
    pub(crate) events: Vec<Event>,
    /// The events that a story has looked at.
    seen: usize,
    has_ended: bool,
}

/// Where the agents have their homes. In a folder for temporary files, such as `/tmp`, codex does not make the programs that its sandbox
/// needs, so a clone of the project there must not decide.
const HOMES: &str = "/var/tmp";

impl Place {
    pub(crate) fn new(kind: Kind, case: &'static str) -> Self {
        let name = match kind {
            Kind::Claude => "claude",
            Kind::Codex => "codex",
            Kind::Gemini => "gemini",
            Kind::Opencode | Kind::Acp => "opencode",
        };
        Self::of(kind, (name, name), case)
    }

    /// With the newest claude, where [`Place::new`] has the one that npm gives to Node.js 20.
    pub(crate) fn newest_claude(case: &'static str) -> Self {
        Self::of(Kind::Claude, ("newest/claude", "claude-newest"), case)
    }

    fn of(kind: Kind, (program, folder): (&'static str, &'static str), case: &'static str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let guard = runtime.enter();
        let model = StandIn::start().unwrap();
        drop(guard);
        let home = tempfile::Builder::new().prefix("agent").tempdir_in(HOMES).unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        Self { kind, program, folder, home, model, _runtime: runtime, entries: Vec::new(), case }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.home.path().join("work")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    pub(crate) fn start(&self, mode: Mode) -> Start {
        let model = match self.kind {
            Kind::Claude => "claude-sonnet-4-5",
            Kind::Codex => "gpt-5.5",
            Kind::Gemini => "gemini-2.5-flash",
            Kind::Opencode | Kind::Acp => "stub/stub-model",
        };
        Start {
            directory: self.directory().to_str().unwrap().to_owned(),
            session_id: "01890a5d-ac96-474b-bcce-b302099a8057".to_owned(),
            mode,
            model: Some(model.to_owned()).filter(|_| self.kind != Kind::Opencode),
            resume: None,
            fork: false,
            cost_before: 0.0,
            as_root: nix::unistd::geteuid().is_root(),
            checkpoint: None,
            mcp_servers: Vec::new(),
            private: Some(self.home.path().to_str().unwrap().to_owned()),
            attended: ensemble_agent::Attended::People,
        }
    }

    /// Starts the program and waits until it takes prompts.
    pub(crate) fn begin(&mut self, start: Start) -> Live<'_> {
        let mut live = self.spawn(start);
        live.until("ready", |event| matches!(event, Event::Ready { .. }));
        live
    }

    pub(crate) fn spawn(&mut self, start: Start) -> Live<'_> {
        let how = launch(self.kind, &start).unwrap();
        for (path, text) in &how.files {
            std::fs::write(path, text).unwrap();
        }
        let mut process = Process::new(program(self.program));
        process.args(&how.args).args(self.more_args()).env_clear().envs(self.environment()).envs(how.env);
        process.current_dir(self.directory()).process_group(0);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = process.spawn().unwrap();
        let (mut stdout, (sender, output)) = (child.stdout.take().unwrap(), channel());
        std::thread::spawn(move || {
            let mut chunk = vec![0; 64 << 10];
            while let Ok(size @ 1..) = stdout.read(&mut chunk)
                && sender.send(chunk[..size].to_vec()).is_ok()
            {}
        });
        self.entries.push(Entry::Start { kind: self.kind, start: start.clone() });
        let mut driver = driver(self.kind, start);
        let first = driver.begin();
        let (lines, events) = (Lines::default(), Vec::new());
        let mut live = Live { place: self, child, output, lines, driver, events, seen: 0, has_ended: false };
        live.take(first);
        live
    }

    fn more_args(&self) -> Vec<String> {
        if self.kind != Kind::Codex {
            let known = ensemble_agent::known::named(self.program).and_then(|known| known.starts);
            return known.unwrap_or((self.kind, &[])).1.iter().map(|arg| (*arg).to_owned()).collect();
        }
        let provider = format!(
            "model_providers.standin={{name=\"standin\",base_url=\"{}/v1\",env_key=\"OPENAI_API_KEY\",\
             wire_api=\"responses\",stream_max_retries=0,request_max_retries=0}}",
            self.model.url()
        );
        ["-c", "model_provider=standin", "-c", &provider].map(str::to_owned).into()
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let mut set = BTreeMap::from([("PATH".to_owned(), search_path())]);
        let mut put = |name: &str, value: &str| drop(set.insert(name.to_owned(), value.to_owned()));
        let (home, url) = (self.home.path(), self.model.url());
        put("HOME", home.to_str().unwrap());
        match self.kind {
            Kind::Claude => {
                ensemble_doubles::model::claude_has_sessions(home).unwrap();
                put("ANTHROPIC_BASE_URL", &url);
                put("ANTHROPIC_API_KEY", "stand-in");
                put("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
                put("CLAUDE_CODE_MAX_RETRIES", "1");
                put("DISABLE_TELEMETRY", "1");
            }
            Kind::Codex => put("OPENAI_API_KEY", "stand-in"),
            Kind::Gemini => {
                put("GEMINI_API_KEY", "stand-in");
                put("GOOGLE_GEMINI_BASE_URL", &url);
                let settings = json!({
                    "security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false},
                    "privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false},
                });
                std::fs::create_dir_all(home.join(".gemini")).unwrap();
                std::fs::write(home.join(".gemini/settings.json"), settings.to_string()).unwrap();
            }
            Kind::Opencode | Kind::Acp => {
                ensemble_doubles::model::opencode_has_its_packages(home).unwrap();
                let models = json!({"stub-model": {"name": "stub", "limit": {"context": 100_000, "output": 8_000}}});
                let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "stand-in"});
                let provider = json!({"stub": {"npm": "@ai-sdk/anthropic", "options": options, "models": models}});
                let config =
                    json!({"model": "stub/stub-model", "small_model": "stub/stub-model", "provider": provider});
                put("OPENCODE_CONFIG_CONTENT", &config.to_string());
                put("OPENCODE_DISABLE_MODELS_FETCH", "1");
            }
        }
        set
    }
}

impl Drop for Place {
    /// Keeps the wire of a story that went well, when that is wanted.
    fn drop(&mut self) {
        if std::thread::panicking() || !is_recorded() || self.entries.is_empty() {
            return;
        }
        let path = wire::folder().join(self.folder).join(format!("{}.jsonl", self.case));
        let home = self.home.path().to_str().unwrap().to_owned();
        let names = [(home, "/home/ann"), (self.model.url(), "http://model")];
        wire::write(&path, &self.entries, &names);
        std::fs::write(path.with_extension("events"), crate::replay::summaries(&path)).unwrap();
    }
}

/// Whether the wires are recorded again.
pub(crate) fn is_recorded() -> bool {
    std::env::vars().any(|(name, _)| name == "RECORD_WIRES")
}

impl Live<'_> {
    pub(crate) fn kind(&self) -> Kind {
        self.place.kind
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.file(name)
    }

    /// What has happened so far is of no interest any more.
    pub(crate) fn forget(&mut self) {
        self.events.drain(..std::mem::take(&mut self.seen));
    }

    pub(crate) fn prompt(&mut self, text: &str) {
        self.send(text, false);
    }

    /// Puts a prompt into the turn that runs.
    pub(crate) fn steer(&mut self, text: &str) {
        self.send(text, true);
    }

    fn send(&mut self, text: &str, steer: bool) {
        // claude takes a prompt with a known id for the same one, so each has another one.
        let number = self.place.entries.iter().filter(|entry| matches!(entry, Entry::Do(_))).count();
        let id = format!("01890a5d-ac96-474b-bcce-b302099b{number:04x}");
        self.command(Command::Prompt(Prompt { id, text: text.to_owned(), attachments: Vec::new(), steer }));
    }

    pub(crate) fn choose(&mut self, request: &str, id: &str) {
        let reply = Reply::Option { id: id.to_owned(), message: None };
        self.command(Command::Answer { request: request.to_owned(), reply });
    }

    pub(crate) fn command(&mut self, command: Command) {
        self.place.entries.push(Entry::Do(command.clone()));
        let output = self.driver.command(command).unwrap();
        self.take(output);
    }

    fn take(&mut self, output: Output) {
        for line in &output.lines {
            self.place.entries.push(Entry::To(serde_json::from_str(line).unwrap()));
            // An agent that has ended reads nothing; its end is noticed by its output.
            let _ = writeln!(self.child.stdin.as_mut().unwrap(), "{line}");
        }
        self.events.extend(output.events);
        if output.close {
            drop(self.child.stdin.take());
        }
    }

    /// Reads until an event that was not looked at yet is the wanted one.
    pub(crate) fn until(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Event {
        let deadline = Instant::now() + SOON;
        loop {
            while let Some(event) = self.events.get(self.seen).cloned() {
                self.seen += 1;
                if wanted(&event) {
                    return event;
                }
            }
            assert!(!self.has_ended, "the program has ended before {what}: {:#?}", self.events);
            self.read(what, deadline);
        }
    }

    /// Reads until claude's own files have the text.
    pub(crate) fn until_stored(&mut self, text: &str) {
        let home = self.place.home.path().to_owned();
        self.until_so(text, || ensemble_doubles::model::claude_has_stored(&home, text));
    }

    pub(crate) fn until_so(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + SOON;
        while !is_so() {
            assert!(Instant::now() < deadline, "no {what} within {SOON:?}: {:#?}", self.events);
            match self.output.recv_timeout(Duration::from_millis(10)) {
                Ok(bytes) => self.feed(&bytes),
                Err(RecvTimeoutError::Disconnected) => panic!("the program has ended: {:#?}", self.events),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut lines = Vec::new();
        self.lines.feed(bytes, |line| lines.push(line));
        lines.into_iter().for_each(|line| self.line(&line));
    }

    fn read(&mut self, what: &str, deadline: Instant) {
        match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(bytes) => self.feed(&bytes),
            Err(RecvTimeoutError::Disconnected) => self.end(),
            Err(RecvTimeoutError::Timeout) => panic!("no {what}, processor {:?}: {:#?}", self.ticks(), self.events),
        }
    }

    /// What the program has computed so far (proc_pid_stat(5)): it distinguishes one that waits from one that gets no processor.
    fn ticks(&self) -> Vec<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.split_whitespace().skip(13).take(2).map(str::to_owned).collect()
    }

    fn line(&mut self, line: &Line) {
        if let Line::Text(text) = line
            && let Ok(value) = serde_json::from_str(text)
        {
            self.place.entries.push(Entry::From(value));
        }
        let output = self.driver.line(line);
        self.take(output);
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.has_ended, true) {
            let exit = Exit { code: self.child.wait().unwrap().code(), stderr: String::new() };
            self.place.entries.push(Entry::Exit(exit.clone()));
            let output = self.driver.exited(&exit);
            self.events.extend(output.events);
        }
    }

    /// Reads what comes until the turn has ended.
    pub(crate) fn turn_ends(&mut self) -> Event {
        self.until("the end of the turn", |event| matches!(event, Event::TurnEnded { .. }))
    }

    /// Kills the whole tree at once, and reads to the end.
    pub(crate) fn kill(self) -> Vec<Event> {
        self.signal(Signal::SIGKILL);
        self.finish()
    }

    /// Ends the agent in good order.
    pub(crate) fn stop(mut self) -> Vec<Event> {
        self.command(Command::Stop);
        // gemini does not end when its input does: a host signals the group then.
        let kind = self.place.kind;
        if matches!(kind, Kind::Gemini | Kind::Opencode | Kind::Acp) {
            self.signal(Signal::SIGTERM);
        }
        self.finish()
    }

    fn finish(mut self) -> Vec<Event> {
        let deadline = Instant::now() + SOON;
        while !self.has_ended {
            self.read("the end of the process", deadline);
        }
        std::mem::take(&mut self.events)
    }

    fn signal(&self, signal: Signal) {
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = killpg(group, signal);
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.signal(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

fn search_path() -> String {
    let inherited = std::env::vars().find(|(name, _)| name == "PATH").map(|(_, value)| value);
    inherited.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".to_owned())
}

pub(crate) fn program(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/provider-clis");
    let program = folder.join("node_modules/.bin").join(name);
    assert!(
        program.exists(),
        "\n\nThe real {name} program is not installed, and this test drives it.\n\
         Run `tests/provider-clis/install` (or `make test`, which does) and try again.\n\n"
    );
    program.canonicalize().unwrap()
}
