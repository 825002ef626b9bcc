//! The keys of `ensemble up`: a person at its terminal adds a browser and a phone, and ends it.

use std::fs;
use std::path::PathBuf;

use ensemble_protocol::seal::LinkCode;
use ensemble_types::devices::DeviceKind;

use crate::ensemble::User;
use crate::linking::join;
use crate::opened::{ask_here, given_to_browser};
use crate::own_page::desktop;
use crate::phone::{Authority, trusting};
use crate::terminal::Terminal;

const FOOT: &str = "p phone · b browser · q quit";

/// A person at the terminal of `ensemble up`.
struct Desk {
    user: User,
    terminal: Terminal,
    variables: String,
    arguments: String,
}

impl Desk {
    /// With a browser of the returned file, unless `variables` has none.
    fn new(user: User, more: &str) -> (Self, PathBuf) {
        let (variables, shown) = desktop(&user);
        let terminal = Terminal::open(&user, 120, 60);
        let arguments = format!("up --listen 127.0.0.1:0 --no-runner {more}");
        (Self { user, terminal, variables, arguments }, shown)
    }

    fn start(&self, more: &str) {
        self.terminal.ensemble(&self.variables, &format!("{} {more}", self.arguments));
    }

    /// The address at which it is up.
    fn url(&self) -> String {
        let lines = self.terminal.sees("Ensemble is up at ");
        lines.iter().find_map(|line| line.strip_prefix("Ensemble is up at ")).unwrap().to_owned()
    }

    /// The line stands below everything that was printed, this included.
    fn rests(&self, printed: &str) -> Vec<String> {
        self.terminal.until(printed, |lines| {
            let last = lines.iter().rfind(|line| !line.is_empty());
            last.is_some_and(|line| line == FOOT) && lines.join(" ").contains(printed)
        })
    }

    fn quits(&self) {
        self.terminal.key("q");
        self.terminal.is_given_back();
    }

    fn kinds(&self, server: &str) -> Vec<String> {
        let devices = self.user.json(&["--server", server, "devices"])["devices"].clone();
        devices.as_array().unwrap().iter().map(|device| device["kind"].as_str().unwrap().to_owned()).collect()
    }
}

/// The code of an address, without the name of the account.
fn code(address: &str) -> LinkCode {
    LinkCode::from_address(address.rsplit_once('.').unwrap().0).unwrap()
}

#[test]
fn the_browser_opens_by_itself_until_the_account_has_one() {
    let (desk, shown) = Desk::new(User::new(None), "");
    desk.start("");
    let (file, address) = given_to_browser(&shown);
    let url = desk.url();
    assert!(address.starts_with(&format!("{url}/link#v1.")), "{address}");
    // It is left, and asked for again.
    desk.terminal.sees("Press “Add this browser” there");
    desk.terminal.key("Escape");
    desk.rests("The linking was ended.");
    assert!(!file.exists(), "the link has ended");
    assert_eq!(ask_here(&url, &code(&address), DeviceKind::Web), 409);
    fs::remove_file(&shown).unwrap();
    desk.terminal.key("b");
    let (file, address) = given_to_browser(&shown);
    assert_eq!(ask_here(&url, &code(&address), DeviceKind::Web), 200);
    desk.rests("Added Browser as a linked device.");
    assert!(!file.exists(), "the link has ended");
    desk.quits();
    fs::remove_file(&shown).unwrap();
    desk.start("");
    desk.rests("1. A browser here   press b, or type `ensemble open`");
    assert_eq!(desk.kinds(&desk.url()), ["cli", "web"]);
    // A key that means nothing does nothing.
    desk.terminal.key("x");
    desk.terminal.key("Up");
    desk.terminal.key("C-c");
    desk.terminal.is_given_back();
    assert!(!shown.exists(), "the account has a browser");
}

#[test]
fn nothing_opens_that_must_not() {
    let (desk, shown) = Desk::new(User::new(None), "");
    desk.start("--no-open");
    let lines = desk.rests("3. Your phone       press p, or type `ensemble phone`");
    assert!(!lines.iter().any(|line| line.contains("Ctrl-C stops it")), "{lines:?}");
    // A phone needs more than there is.
    desk.terminal.key("p");
    desk.rests("A phone needs https");
    desk.quits();
    assert!(!shown.exists());
    // Where a person cannot press anything, nothing is offered.
    desk.terminal.ensemble(&desk.variables, &format!("{} --no-open < /dev/null", desk.arguments));
    let lines = desk.terminal.sees("Ctrl-C stops it.");
    assert!(lines.iter().any(|line| line.ends_with("3. Your phone       `ensemble phone`")), "{lines:?}");
    desk.terminal.key("C-c");
    desk.terminal.is_given_back();
}

#[test]
fn a_phone_is_added_with_digits_that_are_typed_there() {
    let authority = Authority::new();
    let (public, options) = authority.served();
    let (desk, _) = Desk::new(trusting(&authority), &options);
    desk.start("--no-open");
    desk.rests("Ensemble is up at ");
    desk.terminal.key("p");
    let shown = desk.terminal.sees("It is a secret");
    let address = shown.iter().find(|line| line.starts_with(&format!("{public}/link#v1."))).unwrap().clone();
    desk.terminal.sees("Your account depends on one file");
    let phone = trusting(&authority);
    let (asking, digits) = join(&phone, &address);
    desk.terminal.sees("Type the six digits");
    desk.terminal.line("000");
    desk.terminal.sees("These are not the digits. 2 more tries.");
    desk.terminal.types(&format!("{digits}7"));
    desk.terminal.key("BSpace");
    desk.terminal.key("Enter");
    desk.rests("Added ");
    let (code, said) = asking.end();
    assert_eq!(code, 0, "{said}");
    desk.quits();
}
