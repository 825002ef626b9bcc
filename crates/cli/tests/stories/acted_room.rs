//! The room as a test acts it: what `ensemble talk` tells the program that joins a room comes here, and what is said here it takes for what
//! happens in the room.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::live::until;

/// Agents and servers need seconds on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// In place of a Python with LiveKit's library: it passes lines on, in both directions, and ends with the first side that does.
const PROGRAM: &str = r#"#!/usr/bin/env python3
import os, socket, sys, threading
room = socket.socket(socket.AF_UNIX)
room.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket"))
def pass_on():
    for line in room.makefile("rb"):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    print("the room is gone", file=sys.stderr)
    os._exit(3)
threading.Thread(target=pass_on, daemon=True).start()
for line in sys.stdin.buffer:
    room.sendall(line)
os._exit(0)
"#;

/// Where the program is that acts a room.
pub(crate) struct Acted {
    folder: TempDir,
    listener: UnixListener,
}

/// A room that a program has come to.
pub(crate) struct Room {
    orders: BufReader<UnixStream>,
    calls: u64,
}

impl Acted {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let acted = Self { folder, listener };
        std::fs::write(acted.program(), PROGRAM).unwrap();
        std::fs::set_permissions(acted.program(), std::fs::Permissions::from_mode(0o755)).unwrap();
        acted
    }

    /// For `ENSEMBLE_TALK_PYTHON`.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path().join("python")
    }

    /// Waits for the program. It opens its devices, and joins the room.
    pub(crate) fn joined(&self) -> (Room, Value) {
        let mut room = self.opened();
        let join = room.order("join");
        room.tell(json!({ "is": "joined" }));
        room.tell(json!({ "is": "agent", "state": "listening" }));
        (room, join)
    }

    /// Waits for the program. It opens its devices.
    pub(crate) fn opened(&self) -> Room {
        let (stream, _) = until("a program that joins", || self.listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut room = Room { orders: BufReader::new(stream), calls: 0 };
        room.order("open");
        room.tell(json!({ "is": "open" }));
        room
    }
}

impl Room {
    /// Something happens.
    pub(crate) fn tell(&mut self, event: Value) {
        writeln!(self.orders.get_mut(), "{event}").unwrap();
    }

    pub(crate) fn says(&mut self, is_me: bool, segment: &str, text: &str, is_final: bool) {
        self.tell(json!({ "is": "said", "segment": segment, "me": is_me, "text": text, "final": is_final }));
    }

    /// The next order, which has to be this one.
    pub(crate) fn order(&mut self, name: &str) -> Value {
        let order = self.next();
        assert_eq!(order["do"], name, "{order}");
        order
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.orders.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The program leaves the room, perhaps after it has answered calls.
    pub(crate) fn leaves(&mut self) {
        let order = std::iter::from_fn(|| Some(self.next())).find(|order| order["do"] != "answer").unwrap();
        assert_eq!(order["do"], "leave", "{order}");
    }

    /// Whether the program has ended without another order.
    pub(crate) fn is_left(&mut self) -> bool {
        let mut line = String::new();
        match self.orders.read_line(&mut line) {
            Ok(read) => read == 0,
            // What it had not read when it was killed.
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    /// A participant calls a tool.
    pub(crate) fn call_by(&mut self, caller: &str, method: &str, body: &Value) -> u64 {
        self.calls += 1;
        let (id, payload) = (self.calls, body.to_string());
        self.tell(
            json!({ "is": "call", "id": id, "method": method, "caller": caller, "isAgent": true, "payload": payload }),
        );
        id
    }

    /// The answer to a call: what it says, or the code of its refusal.
    pub(crate) fn answer(&mut self, call: u64) -> Result<Value, u64> {
        let answer = self.order("answer");
        assert_eq!(answer["id"], call, "{answer}");
        match answer["code"].as_u64() {
            Some(code) => Err(code),
            None => Ok(serde_json::from_str(answer["text"].as_str().unwrap()).unwrap()),
        }
    }
}
