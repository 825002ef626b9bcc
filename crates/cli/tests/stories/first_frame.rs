//! How many requests a person waits for until a session is on the screen: `tests/costs.toml`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ensemble_testkit::costs;

use crate::ensemble::{User, up_at};
use crate::live::until;
use crate::place::Place;
use crate::terminal::Terminal;

/// Passes connections on to a server, and keeps the heads of the requests (RFC 9112).
#[derive(Clone, Default)]
struct Relay {
    url: String,
    target: Arc<Mutex<String>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Relay {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self { url: format!("http://{}", listener.local_addr().unwrap()), ..Self::default() };
        let accepting = relay.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let relay = accepting.clone();
                std::thread::spawn(move || relay.pass_on(client?));
            }
        });
        relay
    }

    fn pass_on(&self, mut client: TcpStream) -> std::io::Result<()> {
        let mut server = TcpStream::connect(&*self.target.lock().unwrap())?;
        let (mut answers, mut reader) = (server.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || {
            let _ended = std::io::copy(&mut answers, &mut client);
            client.shutdown(std::net::Shutdown::Both)
        });
        let (mut unread, mut chunk) = (Vec::new(), [0; 16_384]);
        loop {
            let length = reader.read(&mut chunk)?;
            if length == 0 {
                return server.shutdown(std::net::Shutdown::Both);
            }
            unread.extend_from_slice(&chunk[..length]);
            while let Some(head) = take_request(&mut unread) {
                self.heads.lock().unwrap().push(head);
            }
            server.write_all(&chunk[..length])?;
        }
    }

    /// The lines of the requests of commands, and not of the program that hosts the sessions.
    fn requests(&self) -> Vec<String> {
        let heads = self.heads.lock().unwrap();
        let of_commands = heads.iter().filter(|head| head.contains("\r\nuser-agent: ensemble/"));
        of_commands.filter_map(|head| head.lines().next().map(str::to_owned)).collect()
    }
}

/// Takes a whole request away, and returns its head.
fn take_request(unread: &mut Vec<u8>) -> Option<String> {
    let end = unread.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&unread[..end]).into_owned();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let end = end + length.unwrap_or(0);
    (unread.len() >= end).then(|| {
        unread.drain(..end);
        head
    })
}

/// Begins a session in the terminal. Returns the requests that came before the first frame.
fn begin(relay: &Relay, terminal: &Terminal) -> Vec<String> {
    let before = relay.requests().len();
    terminal.ensemble("", "claude --dir work");
    // The frame is drawn before the session is followed. The account's events are followed at some time around it.
    let mut asked = until("a session that is followed", || {
        let asked = relay.requests().split_off(before);
        let followed = asked.iter().position(|line| line.contains("/messages/stream"))?;
        Some(asked[..followed].to_vec())
    });
    terminal.until("the first frame", |_| terminal.is_taken().0);
    asked.retain(|line| !line.contains(" /v1/events"));
    asked
}

#[test]
fn a_session_of_claude_is_on_the_screen_after_few_requests() {
    let (relay, operator) = (Relay::start(), User::new(None));
    let arguments = ["up", "--listen", "127.0.0.1:0", "--json", "--no-runner", "--public-url", &relay.url];
    let (_up, printed) = up_at(&operator, &arguments);
    *relay.target.lock().unwrap() = printed["url"].as_str().unwrap().replace("http://", "");
    // The first one makes this computer a machine, and starts the program that hosts its sessions.
    let names =
        ["ensemble claude to its first frame, with the start of its host", "ensemble claude to its first frame"];
    let wanted = names.map(|name| costs::requests_of("cli", name));
    let mut least = [const { None::<Vec<String>> }; 2];
    // Timers ask on a busy machine, too, so the round with the fewest requests counts.
    for _ in 0..3 {
        let place = Place::with(&[("ENSEMBLE_SERVER", relay.url.clone().leak())]);
        place.user.succeed(&["login"]);
        let terminal = Terminal::open(&place.user, 100, 30);
        for least in &mut least {
            let asked = begin(&relay, &terminal);
            if least.as_ref().is_none_or(|least| asked.len() < least.len()) {
                *least = Some(asked);
            }
            terminal.key("C-d");
            terminal.is_given_back();
        }
        if least.iter().flatten().zip(wanted).all(|(asked, wanted)| asked.len() as u64 <= wanted) {
            break;
        }
    }
    for ((name, asked), wanted) in names.iter().zip(least.iter().flatten()).zip(wanted) {
        assert_eq!(asked.len() as u64, wanted, "{name}: {asked:#?}\nand tests/costs.toml says {wanted}");
    }
}
