//! A person joins a session by a link, without an account and without comparing a fingerprint.

use std::fs;

use serde_json::{Value, json};

use crate::ensemble::{User, up, up_at};
use crate::linking::{Dialog, shows};
use crate::page::tell_with;
use crate::place::Place;

/// `ensemble share add --invite` and the address that it shows.
fn invited(owner: &User, session: &str, more: &[&str]) -> (Dialog, String) {
    shows(Dialog::start(owner, &[&["share", "add", session, "--invite"], more].concat()), "/join#v1.")
}

fn session(owner: &User) -> String {
    owner.json(&["session", "create", "--title", "Plans"])["session"]["ref"].as_str().unwrap().to_owned()
}

/// `ensemble join` with this address.
fn joins(guest: &User, address: &str) -> Dialog {
    let mut joining = Dialog::start(guest, &["join", "--name", "Bob"]);
    joining.answer(address);
    joining
}

#[track_caller]
fn ends(dialog: Dialog, code: i32) -> String {
    let (ended, said) = dialog.end();
    assert_eq!(ended, code, "{said}");
    said
}

#[test]
fn a_person_without_an_account_joins_a_session_and_reads_it() {
    let owner = User::new(None);
    let (_up, _) = up(&owner, &["--no-runner"]);
    let session = session(&owner);
    owner.succeed(&["session", "send", &session, "Hello"]);
    let (showing, address) = invited(&owner, &session, &[]);
    let guest = User::new(None);
    ends(joins(&guest, &address), 0);
    ends(showing, 0);
    let read = guest.json_lines(&["session", "read", &session]);
    assert_eq!(read.len(), 1, "{read:?}");
    assert_eq!(guest.run(&["session", "send", &session, "x"]).code, 1, "the level is view");
    // Both know each other by key from now on.
    let shares = owner.json(&["share", "list", &session])["shares"].clone();
    assert_eq!(shares.as_array().map(Vec::len), Some(1));
    owner.succeed(&["share", "change", &session, "Bob", "--level", "edit"]);
    // The link works once.
    let late = User::new(None);
    let said = ends(joins(&late, &address), 1);
    assert!(said.contains("has used this invitation already"), "{said}");
}

#[test]
fn who_wants_to_write_is_let_in_by_the_owner() {
    let owner = User::new(None);
    let (_up, server) = up(&owner, &["--no-runner"]);
    let session = session(&owner);
    let guest = User::new(Some(&server));
    guest.succeed(&["login", "--name", "Robert"]);
    // Without a terminal to ask the owner at, the guest waits.
    let (showing, address) = invited(&owner, &session, &["--level", "edit"]);
    let joining = joins(&guest, &address);
    let said = ends(showing, 2);
    assert!(said.contains("Bob (joined by your link) wants to write to session"), "{said}");
    let waits = owner.json(&["share", "list", &session]);
    assert_eq!((&waits["shares"], &waits["invites"][0]["state"]), (&json!([]), &json!("claimed")));
    let mut asking = Dialog::in_terminal(&owner, &["share", "answer", &session]);
    asking.until("Allow it? [y/N]");
    asking.answer("n");
    assert!(ends(asking, 1).contains("Nothing was shared"));
    assert!(ends(joining, 1).contains("its maker ended it"));
    let listed = owner.json(&["share", "list", &session]);
    assert_eq!((&listed["shares"], &listed["invites"]), (&json!([]), &json!([])));

    // It ends while the question is open.
    let shown = Dialog::in_terminal(&owner, &["share", "add", &session, "--invite", "--level", "edit"]);
    let (mut showing, address) = shows(shown, "/join#v1.");
    let joining = joins(&guest, address.trim());
    showing.until("Allow it? [y/N]");
    owner.succeed(&["share", "remove", &session, "--invite"]);
    showing.answer("y");
    assert!(ends(showing, 1).contains("The invitation has ended"));
    assert!(ends(joining, 1).contains("its maker ended it"));

    let shown = Dialog::in_terminal(&owner, &["share", "add", &session, "--invite", "--level", "edit"]);
    let (mut showing, address) = shows(shown, "/join#v1.");
    let joining = joins(&guest, address.trim());
    showing.until("Bob (joined by your link) wants to write to session");
    // Another device answers meanwhile.
    let mut asking = Dialog::in_terminal(&owner, &["share", "answer", &session]);
    asking.until("Allow it? [y/N]");
    asking.answer("y");
    asking.until("Bob has joined session");
    ends(joining, 0);
    showing.answer("y");
    showing.until("Another of your devices has answered.");
    ends(showing, 0);
    guest.succeed(&["session", "send", &session, "Hi!"]);
    assert_eq!(owner.json(&["share", "list", &session])["invites"][0]["name"], "Bob");
    assert_eq!(owner.json(&["share", "answer", &session]), Value::Null, "no one waits");
}

#[test]
fn a_guest_does_not_take_the_name_of_someone_who_is_known() {
    let owner = User::new(None);
    let (_up, server) = up(&owner, &["--no-runner"]);
    let first = session(&owner);
    let bob = User::new(Some(&server));
    bob.succeed(&["login", "--name", "Bob"]);
    let id = bob.json(&["whoami"])["id"].as_str().unwrap().to_owned();
    owner.succeed(&["share", "add", &first, &id]);
    let (showing, address) = invited(&owner, &first, &[]);
    ends(joins(&User::new(None), &address), 0);
    ends(showing, 0);
    owner.succeed(&["share", "change", &first, "Bob", "--level", "edit"]);
    let shares = owner.json(&["share", "list", &first])["shares"].clone();
    let editor = shares.as_array().unwrap().iter().find(|share| share["accessLevel"] == "edit").unwrap();
    assert_eq!(editor["userId"], id.as_str());

    // A guest who came first has the name in the account. This computer then knows another one by it.
    let other = User::new(None);
    let (_up, server) = up(&other, &["--no-runner"]);
    let third = session(&other);
    let (showing, address) = invited(&other, &third, &[]);
    let guest = User::new(None);
    ends(joins(&guest, &address), 0);
    ends(showing, 0);
    let bob = User::new(Some(&server));
    bob.succeed(&["login", "--name", "Bob"]);
    let [guest, bob] = [guest, bob].map(|user| user.json(&["whoami"])["id"].as_str().unwrap().to_owned());
    other.succeed(&["share", "add", &third, &bob]);
    let said = other.fail(&["share", "change", &third, "Bob", "--level", "edit"]);
    assert!(said.contains(&guest) && said.contains(&bob), "{said}");
}

#[test]
fn an_invitation_leads_to_the_address_at_which_others_reach_the_server() {
    let owner = User::new(None);
    let (_up, _) = up(&owner, &["--no-runner", "--public-url", "https://ensemble.example"]);
    let session = session(&owner);
    let (showing, address) = invited(&owner, &session, &[]);
    assert!(address.contains("https://ensemble.example/join#v1."), "{address}");
    showing.interrupt();
    let said = ends(showing, 0);
    assert!(!said.contains("this computer only"), "{said}");
    assert_eq!(owner.json(&["share", "list", &session])["invites"][0]["isDead"], false);
}

#[test]
fn a_person_joins_in_a_browser() {
    let owner = User::new(None);
    let (_up, server) = up(&owner, &["--no-runner"]);
    let session = session(&owner);
    owner.succeed(&["session", "send", &session, "Hello, Bob"]);
    let (showing, address) = invited(&owner, &session, &[]);
    tell_with("invited", &server, &Place::new(), &[("INVITE", &address)]);
    ends(showing, 0);
}

#[test]
fn an_invitation_that_is_left_is_answered_by_the_page_of_the_owner() {
    let server = User::new(None);
    let (_up, url) = up(&server, &["--no-runner"]);
    tell_with("answers", &url, &Place::new(), &[]);
}

#[test]
fn a_claim_without_the_secret_ends_the_invitation_and_is_reported() {
    let owner = User::new(None);
    let (_up, server) = up(&owner, &["--no-runner"]);
    let session = session(&owner);
    let (showing, address) = invited(&owner, &session, &[]);
    showing.interrupt();
    ends(showing, 0);
    let guest = User::new(Some(&server));
    guest.succeed(&["login"]);
    let (head, _) = address.rsplit_once('.').unwrap();
    let mut joining = joins(&guest, &format!("{head}.{}", "A".repeat(43)));
    joining.until("the invitation is claimed for you");
    assert!(owner.fail(&["share", "answer", &session]).contains("without its secret"));
    assert!(ends(joining, 1).contains("its maker ended it"));
    assert!(owner.succeed(&["share", "answer", &session]).contains("No one waits"));
}

#[test]
fn an_invitation_that_was_ended_lets_no_one_in() {
    let owner = User::new(None);
    let (_up, _) = up(&owner, &["--no-runner"]);
    let session = session(&owner);
    let (showing, address) = invited(&owner, &session, &[]);
    showing.interrupt();
    ends(showing, 0);
    assert_eq!(owner.json(&["share", "list", &session])["invites"][0]["state"], "open");
    owner.succeed(&["share", "remove", &session, "--invite"]);
    assert_eq!(owner.json(&["share", "list", &session])["invites"], json!([]));
    let guest = User::new(None);
    assert!(ends(joins(&guest, &address), 1).contains("its maker ended it"));
    let (head, secret) = address.rsplit_once('.').unwrap();
    assert!(ends(joins(&guest, &format!("{head}.{}", &secret[1..])), 1).contains("not the address of an invitation"));
}

#[test]
fn a_server_that_wants_invitations_makes_its_first_account_by_one() {
    let owner = User::new(None).with_variable("REGISTRATION", "invite");
    let data = owner.files().join("served");
    let listen = format!("127.0.0.1:{}", ensemble_testkit::free_port());
    let (_up, _) =
        up_at(&owner, &["up", "--no-runner", "--json", "--listen", &listen, "--data", data.to_str().unwrap()]);
    // `up` has made the person's own account, which invites others.
    let session = session(&owner);
    let stranger = User::new(Some(&format!("http://{listen}")));
    assert!(stranger.fail(&["login"]).contains("invitation"));
    let (showing, address) = invited(&owner, &session, &[]);
    ends(joins(&stranger, &address), 0);
    ends(showing, 0);
}

#[test]
fn a_server_without_an_account_of_its_own_names_the_address_of_its_first_user() {
    let server = User::new(None);
    let data = server.files().join("served");
    let words = ["up", "--no-runner", "--no-account", "--json", "--listen", "127.0.0.1:0"];
    let (_up, printed) = up_at(&server, &[&words[..], &["--data", data.to_str().unwrap()]].concat());
    assert_eq!(printed["userId"], Value::Null);
    assert_eq!(fs::read_dir(server.files()).unwrap().count(), 1, "it has made data, and no key");
    let url = printed["url"].as_str().unwrap();
    let first = User::new(Some(url));
    assert!(first.fail(&["login"]).contains("invitation"), "the first to call is not the first user");
    let address = fs::read_to_string(data.join("first-account")).unwrap();
    ends(joins(&first, &address), 0);
    assert!(first.succeed(&["whoami"]).contains("primary"));
}

#[test]
fn the_service_of_the_package_names_its_first_user_the_public_address() {
    let unit = include_str!("../../../../deploy/systemd/ensemble.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/ensemble ")).unwrap();
    let server = User::new(None).with_variable("PUBLIC_BASE_URL", "https://ensemble.example.com");
    let data = server.files().join("served");
    let ours = |word| match word {
        "127.0.0.1:8080" => "127.0.0.1:0",
        "8088" => "0",
        "/var/lib/ensemble/data" => data.to_str().unwrap(),
        word => word,
    };
    let words: Vec<&str> = line.split(' ').map(ours).chain(["--json"]).collect();
    let (_up, printed) = up_at(&server, &words);
    let address = fs::read_to_string(data.join("first-account")).unwrap();
    assert!(address.starts_with("https://ensemble.example.com/join#"), "{address}");
    assert!(User::new(printed["url"].as_str()).fail(&["login"]).contains("invitation"));
}
