//! The device lists of an account at a server that was restored from a backup.

use std::process::Command;

use ensemble_testkit::free_port;

use crate::ensemble::{Running, User, up_at};
use crate::linking::add;
use crate::live::until;

const BEHIND: &str = "The server has an old list of your devices (restored?). Open a primary device.";
const AGAIN: &str = "It has the newest one again.";
const REMOVED: &str = "removed from its account";

/// Another person's server, with its data in a folder of their home.
struct Server {
    operator: User,
    url: String,
    running: Option<Running>,
}

impl Server {
    fn start() -> Self {
        let url = format!("http://127.0.0.1:{}", free_port());
        let mut server = Self { operator: User::new(None), url, running: None };
        server.run();
        server
    }

    fn run(&mut self) {
        let listen = self.url.trim_start_matches("http://");
        let arguments = ["up", "--json", "--no-runner", "--listen", listen, "--data", "data"];
        self.running = Some(up_at(&self.operator, &arguments).0);
    }

    fn stop(&mut self) {
        assert_eq!(self.running.take().unwrap().interrupt(), 0);
    }

    fn copy(&self, from: &str, to: &str) {
        let copied = Command::new("cp").args(["-a", from, to]).current_dir(self.operator.home()).status().unwrap();
        assert!(copied.success());
    }

    fn back_up(&mut self) {
        self.stop();
        self.copy("data", "backup");
        self.run();
    }

    fn restore(&mut self) {
        self.stop();
        std::fs::remove_dir_all(self.operator.home().join("data")).unwrap();
        self.copy("backup", "data");
        self.run();
    }

    /// A person with a device there.
    fn owner(&self) -> User {
        let owner = User::new(Some(&self.url));
        owner.succeed(&["login"]);
        owner
    }
}

/// The public key of the device.
fn key_of(user: &User) -> String {
    let devices = user.json(&["devices"])["devices"].as_array().unwrap().clone();
    let own = devices.iter().find(|device| device["current"] == true).unwrap();
    own["publicKey"].as_str().unwrap().to_owned()
}

#[track_caller]
fn is_out(user: &User) {
    let refused = until("a removed device reads nothing", || {
        let ended = user.run(&["session", "list"]);
        (ended.code != 0).then_some(ended.err)
    });
    assert!(refused.contains(REMOVED), "{refused}");
}

/// Opens a primary device, which says that it has given the server its newest list.
#[track_caller]
fn repairs(user: &User) {
    let ended = user.run(&["session", "list"]);
    assert!(ended.code == 0 && ended.err.contains(AGAIN), "{}{}", ended.out, ended.err);
    let ended = user.run(&["session", "list"]);
    assert!(ended.code == 0 && !ended.err.contains(AGAIN), "once: {}", ended.err);
}

#[test]
fn a_device_that_was_removed_since_the_backup_is_out_again() {
    let mut server = Server::start();
    let (owner, lost) = (server.owner(), User::new(None));
    add(&owner, &lost, &[]);
    let key = key_of(&lost);
    server.back_up();
    owner.succeed(&["devices", "remove", &key, "--yes"]);
    is_out(&lost);
    server.restore();

    lost.succeed(&["session", "list"]);
    repairs(&owner);
    is_out(&lost);
    assert!(lost.fail(&["login"]).contains(REMOVED));
    assert_eq!(owner.json(&["devices"])["devices"].as_array().unwrap().len(), 1);
}

#[test]
fn a_server_at_a_new_address_cannot_go_back_to_what_was_before() {
    let mut server = Server::start();
    let [owner, linked, lost] = [(); 3].map(|()| User::new(None));
    owner.succeed(&["--server", &server.url, "login"]);
    add(&owner, &linked, &["--role", "linked"]);
    add(&owner, &lost, &[]);
    let key = key_of(&lost);
    server.back_up();
    owner.succeed(&["devices", "remove", &key, "--yes"]);
    linked.succeed(&["session", "list"]);
    let (before, after) = (server.url.clone(), format!("http://127.0.0.1:{}", free_port()));
    server.url.clone_from(&after);
    server.restore();

    let nowhere = linked.fail(&["config", "server", &format!("http://127.0.0.1:{}", free_port())]);
    assert!(nowhere.contains("Nothing was changed"), "{nowhere}");
    let moves = ["config", "server", &after];
    for _ in 0..2 {
        assert!(linked.fail(&moves).contains(BEHIND));
        assert_eq!(linked.json(&["config"])["server"], before.as_str(), "it is not used");
    }
    let moved = owner.run(&moves);
    let said = format!("{}{}", moved.out, moved.err);
    assert!(said.contains(&format!("has moved there from {before}.")) && said.contains(AGAIN), "{said}");
    assert!(linked.succeed(&moves).contains("has moved"));
    assert!(!linked.succeed(&moves).contains("has moved"), "it is there already");
    let devices = linked.json(&["devices"])["devices"].as_array().unwrap().len();
    assert_eq!(devices, 2, "the device that was lost is out");
    // What is kept under the first address counts at the second one, and there is one of it.
    owner.succeed(&["session", "create", "--title", "After"]);
    assert!(linked.succeed(&["session", "list"]).contains("After"));
}

#[test]
fn a_linked_device_says_that_a_primary_one_is_needed() {
    let mut server = Server::start();
    let (owner, linked, lost) = (server.owner(), User::new(None), User::new(None));
    add(&owner, &linked, &["--role", "linked"]);
    add(&owner, &lost, &[]);
    let key = key_of(&lost);
    server.back_up();
    owner.succeed(&["devices", "remove", &key, "--yes"]);
    linked.succeed(&["session", "list"]);
    server.restore();

    for _ in 0..2 {
        let said = linked.fail(&["session", "list"]);
        assert!(said.contains(BEHIND), "{said}");
    }
    lost.succeed(&["session", "list"]);
    repairs(&owner);
    linked.succeed(&["session", "list"]);
    is_out(&lost);
}

#[test]
fn a_device_that_was_linked_since_the_backup_comes_back() {
    let mut server = Server::start();
    let (owner, linked) = (server.owner(), User::new(None));
    server.back_up();
    owner.succeed(&["machine", "register"]);
    add(&owner, &linked, &[]);
    server.restore();

    let said = linked.fail(&["session", "list"]);
    assert!(said.contains(BEHIND), "{said}");
    repairs(&owner);
    linked.succeed(&["session", "list"]);
    assert_eq!(owner.json(&["devices"])["devices"].as_array().unwrap().len(), 3, "with the machine");
}

#[test]
fn another_history_gets_nothing() {
    let mut server = Server::start();
    let (owner, second, lost) = (server.owner(), User::new(None), User::new(None));
    add(&owner, &second, &[]);
    add(&owner, &lost, &["--role", "linked"]);
    let key = key_of(&lost);
    second.succeed(&["session", "list"]);
    server.back_up();
    owner.succeed(&["machine", "register"]);
    owner.succeed(&["devices", "remove", &key, "--yes"]);
    server.restore();

    // This device has not seen the lists that are lost, and makes another one in their place.
    second.succeed(&["machine", "register"]);
    let said = owner.fail(&["session", "list"]);
    assert!(said.contains("an old device list, or another one"), "{said}");
    let said = second.succeed(&["whoami"]);
    assert!(said.contains("version 4"), "{said}");
}

#[test]
fn a_damaged_file_of_lists_is_replaced_and_said_once() {
    let server = Server::start();
    let owner = server.owner();
    let file = owner.files().join("own-lists.json");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    for is_said in [true, false] {
        let ended = owner.run(&["session", "list"]);
        assert!(ended.code == 0 && ended.err.contains("own-lists.json cannot be read") == is_said, "{}", ended.err);
    }
    serde_json::from_slice::<serde_json::Value>(&std::fs::read(&file).unwrap()).unwrap();
}
