//! The script: it speaks the Agent Client Protocol (agentclientprotocol.com, version 1) on standard input and output, as an agent does.

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

pub(super) const PROGRAM: &str = "sum.sh";
pub(super) const TEST: &str = "test.sh";
const MISTAKE: &str = "$1 - $2";
const RIGHT: &str = "$1 + $2";

const SESSION: &str = "demo";
/// The calls that are not named by a file.
const CHANGE: &str = "change";
const RUN: &str = "run";
const ALLOW: &str = "allow";
/// JSON-RPC 2.0: the method does not exist.
const NO_METHOD: i64 = -32_601;

const BEGINS: &str = "This is a demonstration: I am a script, not a model, and I need no key and no network. When you leave \
                      (ctrl-d), this session and its directory are deleted. I read the project first.";
const ASKS: &str = "`sum.sh` subtracts, and its test wants a sum. I ask before I change the file. You can answer here, on the page, or on \
                    any other device of yours.";
const REFUSED: &str = "You have not allowed it, so nothing has changed. I would have written `+` for `-` in `sum.sh` and run `sh test.sh`. \
                       Write something to be asked again.";
const PASSED: &str = "That was all that I can do: a real agent does what you write.";
const FAILED: &str = "My script does not expect that. Did you change the project?";
const NOTHING: &str = "There is nothing left for me to do: `sum.sh` adds, as its test wants. `ensemble doctor` says which agents can work on \
                       this computer.";

/// What the request has led to.
enum Answer {
    Allowed,
    Refused,
    /// The turn was interrupted.
    Cancelled,
}

/// Runs the script if the arguments ask for it. Returns the exit code.
pub fn run_if_demo() -> Option<u8> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if args != super::COMMAND {
        return None;
    }
    let mut script =
        Script { input: io::stdin().lock(), output: io::stdout().lock(), directory: PathBuf::new(), turns: 0 };
    match script.play() {
        Ok(()) => Some(0),
        Err(error) => {
            eprintln!("the demonstration cannot continue: {error}");
            Some(1)
        }
    }
}

struct Script<R, W> {
    input: R,
    output: W,
    directory: PathBuf,
    /// How many there were: the ids of calls and requests differ by it.
    turns: u32,
}

impl<R: BufRead, W: Write> Script<R, W> {
    fn play(&mut self) -> io::Result<()> {
        while let Some(message) = self.next()? {
            let (Some(id), Some(method)) = (message.get("id"), message.get("method").and_then(Value::as_str)) else {
                continue;
            };
            let result = match method {
                "initialize" => json!({"protocolVersion": 1, "agentCapabilities": {}}),
                "session/new" => {
                    self.directory = message.pointer("/params/cwd").and_then(Value::as_str).unwrap_or_default().into();
                    json!({"sessionId": SESSION})
                }
                "session/prompt" => json!({"stopReason": self.turn()?}),
                _ => {
                    let error = json!({"code": NO_METHOD, "message": "the script does not do this"});
                    self.send(json!({"jsonrpc": "2.0", "id": id, "error": error}))?;
                    continue;
                }
            };
            self.send(json!({"jsonrpc": "2.0", "id": id, "result": result}))?;
        }
        Ok(())
    }

    /// Does what the script does, whatever the prompt is. Returns why the turn has ended.
    fn turn(&mut self) -> io::Result<&'static str> {
        let path = self.directory.join(PROGRAM);
        let wrong = fs::read_to_string(&path)?;
        if !wrong.contains(MISTAKE) {
            return self.says(NOTHING).map(|()| "end_turn");
        }
        self.turns += 1;
        self.says(BEGINS)?;
        for name in [PROGRAM, TEST] {
            self.did(json!({
                "toolCallId": self.id(name), "title": name, "kind": "read", "status": "completed",
                "locations": [{"path": self.directory.join(name)}],
                "content": [text(&fs::read_to_string(self.directory.join(name))?)],
            }))?;
        }
        self.says(ASKS)?;
        let right = wrong.replace(MISTAKE, RIGHT);
        let diff = json!({"type": "diff", "path": path, "oldText": wrong, "newText": right});
        match self.asks(diff)? {
            Answer::Allowed => {}
            Answer::Refused => {
                self.did(json!({"toolCallId": self.id(CHANGE), "status": "failed"}))?;
                return self.says(REFUSED).map(|()| "end_turn");
            }
            Answer::Cancelled => return Ok("cancelled"),
        }
        fs::write(&path, right)?;
        self.did(json!({"toolCallId": self.id(CHANGE), "status": "completed"}))?;
        let tested = Command::new("sh").arg(TEST).current_dir(&self.directory).output()?;
        let printed = String::from_utf8_lossy(&tested.stdout);
        let (status, said) = if tested.status.success() { ("completed", PASSED) } else { ("failed", FAILED) };
        self.did(json!({
            "toolCallId": self.id(RUN), "title": format!("sh {TEST}"), "kind": "execute", "status": status,
            "content": [text(&printed)],
        }))?;
        self.says(&format!("`sh {TEST}` prints \"{}\". {said}", printed.trim_end())).map(|()| "end_turn")
    }

    fn id(&self, name: &str) -> String {
        format!("{name} {}", self.turns)
    }

    /// Asks for the change and the test, and waits for the answer.
    fn asks(&mut self, diff: Value) -> io::Result<Answer> {
        let call = json!({
            "toolCallId": self.id(CHANGE), "title": format!("Change {PROGRAM} and run {TEST}"), "kind": "edit", "status": "pending",
            "content": [diff],
        });
        let options = json!([
            {"optionId": ALLOW, "name": "Allow once", "kind": "allow_once"},
            {"optionId": "refuse", "name": "Refuse", "kind": "reject_once"},
        ]);
        self.did(call.clone())?;
        let params = json!({"sessionId": SESSION, "toolCall": call, "options": options});
        self.send(
            json!({"jsonrpc": "2.0", "id": self.id(CHANGE), "method": "session/request_permission", "params": params}),
        )?;
        while let Some(message) = self.next()? {
            if message.get("id").and_then(Value::as_str) == Some(&*self.id(CHANGE)) {
                let outcome = |field: &str| message.pointer("/result/outcome")?.get(field)?.as_str();
                return Ok(match (outcome("outcome"), outcome("optionId")) {
                    (Some("selected"), Some(ALLOW)) => Answer::Allowed,
                    (Some("cancelled"), _) => Answer::Cancelled,
                    _ => Answer::Refused,
                });
            }
        }
        Ok(Answer::Cancelled)
    }

    fn says(&mut self, said: &str) -> io::Result<()> {
        let content = json!({"type": "text", "text": said});
        self.update(json!({"sessionUpdate": "agent_message_chunk", "content": content}))
    }

    fn did(&mut self, mut call: Value) -> io::Result<()> {
        let is_new = call.get("title").is_some();
        let what = if is_new { "tool_call" } else { "tool_call_update" };
        if let Some(fields) = call.as_object_mut() {
            fields.insert("sessionUpdate".to_owned(), what.into());
        }
        self.update(call)
    }

    fn update(&mut self, update: Value) -> io::Result<()> {
        let params = json!({"sessionId": SESSION, "update": update});
        self.send(json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))
    }

    fn send(&mut self, message: Value) -> io::Result<()> {
        writeln!(self.output, "{message}")?;
        self.output.flush()
    }

    /// The next message. `None`: there are no more.
    fn next(&mut self) -> io::Result<Option<Value>> {
        let mut line = String::new();
        match self.input.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_str(&line).unwrap_or_default())),
        }
    }
}

fn text(said: &str) -> Value {
    json!({"type": "content", "content": {"type": "text", "text": said}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::PROJECT;

    /// The project, and what the script answers to these messages after the beginning.
    fn played(folder: &std::path::Path, messages: &[Value]) -> Vec<Value> {
        let begin = [
            json!({"id": 1, "method": "initialize"}),
            json!({"id": 2, "method": "session/new", "params": {"cwd": folder}}),
        ];
        let lines: String = begin.iter().chain(messages).map(|message| format!("{message}\n")).collect();
        let mut output = Vec::new();
        Script { input: lines.as_bytes(), output: &mut output, directory: PathBuf::new(), turns: 0 }.play().unwrap();
        String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn project() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        PROJECT.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    fn sum(folder: &tempfile::TempDir) -> String {
        fs::read_to_string(folder.path().join(PROGRAM)).unwrap()
    }

    fn prompt() -> Value {
        json!({"id": 3, "method": "session/prompt", "params": {"prompt": []}})
    }

    /// To what the first turn asks.
    fn answer(outcome: Value) -> Value {
        json!({"id": "change 1", "result": {"outcome": outcome}})
    }

    fn said(played: &[Value]) -> String {
        played.iter().filter_map(|line| line.pointer("/params/update/content/text")?.as_str()).collect()
    }

    fn stop(played: &[Value]) -> &Value {
        played.last().unwrap().pointer("/result/stopReason").unwrap()
    }

    #[test]
    fn what_is_allowed_is_done_and_tested() {
        let folder = project();
        let allowed = answer(json!({"outcome": "selected", "optionId": "allow"}));
        let played = self::played(folder.path(), &[prompt(), allowed.clone(), prompt(), allowed]);
        assert!(sum(&folder).contains(RIGHT) && !sum(&folder).contains(MISTAKE));
        let run = played.iter().find(|line| line.pointer("/params/update/kind") == Some(&json!("execute"))).unwrap();
        assert_eq!(run.pointer("/params/update/status"), Some(&json!("completed")), "{run}");
        assert!(run.to_string().contains("passed: 2 + 3 is 5"), "{run}");
        assert!(said(&played).contains(PASSED) && said(&played).ends_with(NOTHING), "{}", said(&played));
        assert_eq!(stop(&played), "end_turn");
    }

    #[test]
    fn what_is_refused_or_not_understood_changes_nothing_and_can_be_asked_again() {
        for outcome in [json!({"outcome": "selected", "optionId": "refuse"}), json!({"outcome": "selected"}), json!(7)]
        {
            let folder = project();
            let before = sum(&folder);
            let played = self::played(folder.path(), &[prompt(), json!([]), answer(outcome), prompt()]);
            assert_eq!(sum(&folder), before);
            let asked = played.iter().filter(|line| line["method"] == "session/request_permission").count();
            assert!(asked == 2 && said(&played).contains(REFUSED), "{played:#?}");
        }
    }

    #[test]
    fn an_interrupted_turn_changes_nothing() {
        let folder = project();
        let cancelled = answer(json!({"outcome": "cancelled"}));
        let played = self::played(folder.path(), &[prompt(), json!({"method": "session/cancel"}), cancelled]);
        assert!(sum(&folder).contains(MISTAKE) && !said(&played).contains(REFUSED));
        assert_eq!(stop(&played), "cancelled");
    }

    #[test]
    fn a_test_that_fails_is_reported() {
        let folder = project();
        fs::write(folder.path().join(TEST), "echo broken; exit 1\n").unwrap();
        let allowed = answer(json!({"outcome": "selected", "optionId": "allow"}));
        let played = self::played(folder.path(), &[prompt(), allowed]);
        assert!(said(&played).ends_with(FAILED), "{}", said(&played));
        assert_eq!(
            self::played(folder.path(), &[json!({"id": 9, "method": "x"})]).last().unwrap()["error"]["code"],
            NO_METHOD
        );
    }
}
