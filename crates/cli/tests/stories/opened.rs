//! `ensemble open`: this computer's browser becomes a device without digits, and nothing else does.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ensemble_client::devices::LinkText;
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{BoxKeyPair, LinkCode};
use ensemble_testkit::free_port;
use ensemble_types::devices::{DeviceKind, DeviceLinkRequest};
use ensemble_types::text::{Blob, Text};
use serde_json::json;

use crate::ensemble::{Running, User, up_at};
use crate::live::until;
use crate::own_page::{desktop, is_ready};
use crate::terminal::Terminal;

const PUBLIC: &str = "https://ensemble.example.com";

/// An `ensemble up` of a person on a desktop, whose browser shows nothing by itself.
struct Desk {
    user: User,
    url: String,
    /// The listener for a proxy.
    proxy: String,
    variables: String,
    shown: PathBuf,
    _up: Running,
}

/// `ensemble open` in a terminal.
struct Opening {
    terminal: Terminal,
    file: PathBuf,
    /// What the browser was given.
    address: String,
}

impl Desk {
    fn new() -> Self {
        let user = User::new(None).with_variable("LIMIT_DEVICE_LINK", "100");
        let port = free_port().to_string();
        let start = ["up", "--no-runner", "--json", "--listen", "127.0.0.1:0"];
        let (up, printed) = up_at(&user, &[&start[..], &["--public-url", PUBLIC, "--proxy-port", &port]].concat());
        let text = |name: &str| printed[name].as_str().unwrap().to_owned();
        let (variables, shown) = desktop(&user);
        Self { url: text("url"), proxy: text("forProxy"), variables, shown, _up: up, user }
    }

    fn open(&self) -> Opening {
        let _none = fs::remove_file(&self.shown);
        let terminal = Terminal::open(&self.user, 200, 30);
        terminal.ensemble(&self.variables, "open");
        let (file, address) = given_to_browser(&self.shown);
        Opening { terminal, file, address }
    }

    fn devices(&self) -> Vec<String> {
        let devices = self.user.json(&["devices"])["devices"].clone();
        devices.as_array().unwrap().iter().map(|device| device["role"].as_str().unwrap().to_owned()).collect()
    }

    fn ask_here(&self, code: &LinkCode, kind: DeviceKind) -> u16 {
        ask_here(&self.url, code, kind)
    }
}

/// Asks with a code at this listener, with these fields and body. The status.
fn ask(at: &str, code: &LinkCode, fields: &[&str], body: &str) -> u16 {
    let mut stream = TcpStream::connect(at.trim_start_matches("http://")).unwrap();
    let (id, length, fields) = (&code.id, body.len(), fields.join("\r\n"));
    let head = format!("POST /v1/auth/links/{id}/request HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}");
    write!(stream, "{head}\r\n{fields}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].parse().unwrap()
}

/// As a program of the server's computer does.
pub(crate) fn ask_here(server: &str, code: &LinkCode, kind: DeviceKind) -> u16 {
    let host = format!("Host: {}", server.trim_start_matches("http://"));
    ask(server, code, &[&host, JSON], &request(code, kind))
}

/// The file that the browser was given, and the address in it.
pub(crate) fn given_to_browser(shown: &Path) -> (PathBuf, String) {
    let given = until("the browser", || fs::read_to_string(shown).ok());
    let file = PathBuf::from(given.split_once(' ').unwrap().0.strip_prefix("file://").unwrap());
    let page = fs::read_to_string(&file).unwrap();
    (file, page.split_once("url=").unwrap().1.split_once('"').unwrap().0.to_owned())
}

const JSON: &str = "Content-Type: application/json";
const VISITOR: [&str; 3] = ["Host: ensemble.example.com", "X-Forwarded-For: 192.0.2.1", JSON];

impl Opening {
    fn code(&self) -> LinkCode {
        let (address, name) = self.address.rsplit_once('.').unwrap();
        assert_eq!(name, "", "the account has no name");
        LinkCode::from_address(address).unwrap()
    }

    /// With everything but the secret.
    fn guessed(&self) -> LinkCode {
        let code = self.code();
        LinkCode::new(&code.base, &code.id)
    }

    /// The command has ended, and said this.
    fn ends(&self, said: &str) {
        self.terminal.until(said, |lines| lines.join(" ").contains(said) && is_ready(lines));
        assert!(!self.file.exists(), "the file outlives the link");
    }
}

/// What a new device sends.
fn request(code: &LinkCode, kind: DeviceKind) -> String {
    let (key, blob) = (AccountKey::generate(), |text: String| Blob::new(text).unwrap());
    let mut request = DeviceLinkRequest {
        public_key: blob(key.public_key()),
        box_key: blob(BoxKeyPair::of_device(&key).unwrap().public().to_text()),
        name: Text::new("Browser").unwrap(),
        kind,
        by: None,
        mac: blob("A".repeat(43)),
        signature: Blob::new("A".repeat(86)).unwrap(),
    };
    let text = LinkText::of(&code.base, &code.id, &request);
    request.mac = blob(text.mac(code.secret()).unwrap());
    request.signature = Blob::new(key.sign(text.as_bytes())).unwrap();
    json!(request).to_string()
}

#[test]
fn the_file_is_enough_and_the_first_who_has_it_is_added() {
    let desk = Desk::new();
    // Another device is looked for during three seconds, and the machine may stand still for as long.
    let tried = (1..=5).find(|_| is_said_when_asked_again(&desk)).expect("another device was not reported");
    assert_eq!(desk.devices(), [vec!["primary"], vec!["linked"; tried]].concat());
}

/// Adds a browser, and asks once more with its link. Whether that is said.
fn is_said_when_asked_again(desk: &Desk) -> bool {
    let opening = desk.open();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&opening.file), mode(opening.file.parent().unwrap())), (0o600, 0o700));
    let code = opening.code();
    let secret = code.address().rsplit_once('.').unwrap().1.to_owned();
    assert!(!fs::read_to_string(&desk.shown).unwrap().contains(&secret), "other users see arguments");
    let asked = Instant::now();
    assert_eq!(desk.ask_here(&code, DeviceKind::Web), 200);
    opening.terminal.sees("Added Browser as a linked device.");
    assert_eq!(desk.ask_here(&code, DeviceKind::Web), 409, "a link is used once");
    let is_late = asked.elapsed() > Duration::from_secs(3);
    opening.ends("Added Browser as a linked device.");
    let shown = opening.terminal.lines();
    assert!(!shown.concat().contains(&secret));
    let is_said = shown.join(" ").contains("Another device asked with the same code");
    assert!(is_said || is_late, "{shown:#?}");
    is_said
}

#[test]
fn without_the_file_no_device_is_added() {
    let desk = Desk::new();
    let refused = "had not seen the code";
    // Another user of this computer, and a visitor who comes through a proxy.
    let opening = desk.open();
    assert_eq!(desk.ask_here(&opening.guessed(), DeviceKind::Web), 200);
    opening.ends(refused);
    let opening = desk.open();
    let body = request(&opening.guessed(), DeviceKind::Web);
    assert_eq!(ask(&desk.proxy, &opening.guessed(), &VISITOR, &body), 200);
    opening.ends(refused);

    // A page of another origin.
    let opening = desk.open();
    let (guessed, port) = (opening.guessed(), desk.url.rsplit_once(':').unwrap().1);
    let body = request(&guessed, DeviceKind::Web);
    let (evil, here) = ("Origin: https://evil.example", format!("Host: 127.0.0.1:{port}"));
    let rebound = format!("Host: evil.example:{port}");
    assert_eq!(ask(&desk.url, &guessed, &[&rebound, JSON], &body), 421);
    // A browser sends these without a question (`no-cors`).
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let kind = format!("Content-Type: {kind}");
        let status = ask(&desk.url, &guessed, &[&here, evil, "Sec-Fetch-Mode: no-cors", &kind], &body);
        assert!((400..500).contains(&status), "{kind}: {status}");
    }
    opening.terminal.sees("Opened in your browser");
    assert_eq!(ask(&desk.url, &guessed, &[&here, evil, JSON], &body), 200, "none of them has used the link");
    opening.ends(refused);
    assert_eq!(desk.devices(), ["primary"]);
}

#[test]
fn what_is_no_browser_of_this_computer_needs_digits() {
    let desk = Desk::new();
    for (what, is_visitor) in [(DeviceKind::Cli, false), (DeviceKind::Runner, false), (DeviceKind::Web, true)] {
        let opening = desk.open();
        let code = opening.code();
        let status = if is_visitor {
            ask(&desk.proxy, &code, &VISITOR, &request(&code, what))
        } else {
            desk.ask_here(&code, what)
        };
        assert_eq!(status, 200, "{what:?}");
        for number in 1..=3 {
            opening.terminal.until("a question", |lines| lines.join(" ").matches("six digits").count() == number);
            opening.terminal.line("none");
        }
        opening.ends("Nothing was added");
    }
    assert_eq!(desk.devices(), ["primary"]);
}

#[test]
fn a_link_that_is_left_has_ended() {
    let desk = Desk::new();
    let opening = desk.open();
    opening.terminal.sees("Opened in your browser");
    opening.terminal.key("C-c");
    opening.ends("The linking was ended");
    assert_eq!(desk.ask_here(&opening.code(), DeviceKind::Web), 409);
    assert_eq!(desk.devices(), ["primary"]);
    // Without a terminal no person could press the button.
    let piped = desk.user.command(&["open"]).env("DISPLAY", ":9").output().unwrap();
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), format!("{}\n", desk.url));
    assert!(fs::read_dir(opening.file.parent().unwrap()).unwrap().next().is_none());
}
