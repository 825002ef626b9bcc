//! The names of devices and machines: those that their owner's primary device has signed, whatever a server says.

use ensemble_protocol::seal::{self, Binding, KeyRing, Purpose};
use ensemble_types::ids::MachineId;
use ensemble_types::refs::Ref;
use serde_json::{Value, json};

use crate::ensemble::{User, up};
use crate::lies::content_key;
use crate::linking::{Dialog, add, link};
use crate::lying::LyingServer;
use crate::removed::Thief;

fn names(user: &User) -> Vec<Value> {
    user.json(&["devices"])["devices"].as_array().unwrap().iter().map(|device| device["name"].clone()).collect()
}

#[test]
fn a_primary_device_renames_each_and_no_two_have_one_name() {
    let (owner, second, third) = (User::new(None), User::new(None), User::new(None));
    let (_up, _url) = up(&owner, &["--no-runner"]);
    add(&owner, &second, &[]);
    add(&owner, &third, &["--role", "linked"]);
    let host = names(&owner)[0].as_str().unwrap().to_owned();
    let numbered = |number: u8| json!(format!("{host} {number}"));
    assert_eq!(names(&owner), [json!(host), numbered(2), numbered(3)], "all are on this computer");

    assert!(owner.succeed(&["devices", "rename", &format!("{host} 2"), "Büro"]).contains("Büro"));
    assert!(owner.fail(&["devices", "rename", &format!("{host} 3"), "BÜRO"]).contains("Another device"));
    for bad in [" ", "phone ", "pho\u{200b}ne", "phone\u{202e}", &"x".repeat(65)] {
        assert!(owner.fail(&["devices", "rename", &host, bad]).contains("1 to 64 bytes"), "{bad:?}");
    }
    assert!(third.fail(&["devices", "rename", "büro", "mine"]).contains("only a primary one"));
    second.succeed(&["devices", "rename", &format!("{host} 3"), "phone"]);
    for user in [&owner, &second, &third] {
        assert_eq!(names(user), [json!(host), json!("Büro"), json!("phone")]);
    }
    owner.succeed(&["devices", "remove", "PHONE", "--yes"]);
    assert_eq!(names(&second), [json!(host), json!("Büro")], "the others keep theirs");
}

#[test]
fn a_server_that_swaps_names_has_no_other_device_removed() {
    let server = LyingServer::start();
    let (user, phone) = (User::new(Some(&server.url)), User::new(None));
    user.succeed(&["login"]);
    add(&user, &phone, &["--role", "linked"]);
    user.succeed(&["devices", "rename", names(&user)[1].as_str().unwrap(), "phone"]);
    let truth = names(&user);
    server.lie(|line, answer| {
        if line == "GET /v1/devices" {
            let (one, other) = (answer["devices"][0].clone(), answer["devices"][1].clone());
            for field in ["name", "nameSalt"] {
                answer["devices"][0][field] = other[field].clone();
                answer["devices"][1][field] = one[field].clone();
            }
        }
    });
    assert_eq!(names(&user), truth, "they are remembered");
    std::fs::remove_file(user.files().join("device-names.json")).unwrap();
    assert!(user.succeed(&["devices"]).contains("the server gives another name"));
    assert_eq!(names(&user), [Value::Null, Value::Null]);
    let said = user.fail(&["devices", "remove", "phone", "--yes"]);
    assert!(said.contains("You have no device phone"), "{said}");
    server.tell_the_truth();
    assert_eq!(names(&user), truth);
    user.succeed(&["devices", "remove", "phone", "--yes"]);
    assert_eq!(names(&user).len(), 1);
}

/// The names of the machines, in the order of `machine list`.
fn machines(user: &User) -> Vec<Value> {
    user.json(&["machine", "list"])["machines"].as_array().unwrap().iter().map(|known| known["name"].clone()).collect()
}

fn of_ada() -> User {
    User::new(None).with_variable("USER", "ada")
}

#[test]
fn a_primary_device_names_machines_and_a_computers_device_has_another_name() {
    let (owner, second, third) = (of_ada(), of_ada(), of_ada());
    let (_up, _url) = up(&owner, &["--no-runner"]);
    owner.succeed(&["machine", "register", "--id", "one"]);
    let shown = owner.json(&["machine", "show", "one"]);
    let host = shown["name"].as_str().unwrap().to_owned();
    let device = format!("ada@{}", shown["metadata"]["host"].as_str().unwrap());
    add(&owner, &second, &[]);
    assert!(second.succeed(&["machine", "register", "--id", "two"]).contains(&format!("as {host}-2 (")));
    add(&owner, &third, &["--role", "linked"]);
    let named = |devices: &[&str]| devices.iter().map(|name| json!(name)).collect::<Vec<_>>();
    let (two, three, numbered) = (format!("{device} 2"), format!("{device} 3"), format!("{host}-2"));
    let mut all = names(&owner);
    all.sort_by_key(Value::to_string);
    let mut expected = named(&[&device, &two, &three, &host, &numbered]);
    expected.sort_by_key(Value::to_string);
    assert_eq!(all, expected);

    assert!(second.succeed(&["machine", "rename", &numbered, "box"]).contains("is called box"));
    for bad in ["Box", "my box", "-box", "büro", "", &"x".repeat(64)] {
        let said = owner.fail(&["machine", "rename", "two", "--", bad]);
        assert!(said.contains("1 to 63 of the characters a-z"), "{bad}: {said}");
    }
    assert!(owner.fail(&["machine", "rename", "two", &host]).contains("Another device or machine"));
    assert!(owner.fail(&["devices", "rename", &device, "BOX"]).contains("Another device or machine"));
    assert!(owner.fail(&["devices", "rename", "box", "x"]).contains("ensemble machine rename"));
    assert!(third.fail(&["machine", "rename", "box", "x"]).contains("a primary one names machines"));
    // A machine that has lost its key is still the same machine.
    second.succeed(&["machine", "register"]);
    let folder = std::fs::read_dir(second.files().join("machines")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(folder.join("two.key")).unwrap();
    second.succeed(&["machine", "register"]);
    for user in [&owner, &second, &third] {
        assert_eq!(user.json(&["machine", "show", "BOX"])["machine"]["id"], "two");
        assert!(machines(user).contains(&json!("box")) && !machines(user).contains(&json!(numbered)));
    }
}

#[test]
fn a_machine_that_was_linked_goes_with_the_device_of_its_computer() {
    let (owner, second) = (of_ada(), of_ada());
    let (_up, _url) = up(&owner, &["--no-runner"]);
    add(&owner, &second, &["--role", "linked"]);
    let (mut first, address) = link(&owner, &[]);
    let mut new = Dialog::start(&second, &["runner", "link"]);
    new.answer(&address);
    new.until("other device: ");
    let digits = new.until("\n").trim().to_owned();
    first.until("new device shows: ");
    first.answer(&digits);
    assert_eq!((first.end().0, new.end().0), (0, 0));
    let name = machines(&owner)[0].as_str().unwrap().to_owned();
    owner.succeed(&["machine", "register"]);
    let other = names(&owner)[1].as_str().unwrap().to_owned();
    let removed = owner.run(&["devices", "remove", &other, "--yes"]);
    assert_eq!(removed.code, 0, "{}", removed.err);
    let (gone, stays) = (format!("[x] {name} ("), format!("[ ] {name}-2 ("));
    assert!(removed.err.contains(&gone) && removed.err.contains(&stays), "{}", removed.err);
    assert_eq!(machines(&owner), [json!(format!("{name}-2"))]);
}

/// The server works with a removed device: together they have the account's keys, and can make up what they like.
#[test]
fn a_server_with_a_removed_device_gives_no_machine_the_name_of_another_one() {
    let server = LyingServer::start();
    let (user, second, phone) = (User::new(Some(&server.url)), User::new(None), User::new(None));
    user.succeed(&["login"]);
    for device in [&second, &phone] {
        add(&user, device, &[]);
    }
    for (owner, id, name) in [(&user, "one", "desk"), (&second, "two", "shed")] {
        owner.succeed(&["machine", "register", "--id", id]);
        owner.succeed(&["machine", "rename", id, name]);
    }
    let thief = Thief::of(&phone, &server.direct);
    user.succeed(&["devices", "remove", &thief.key.public_key(), "--yes"]);
    let ring = KeyRing::generate();
    let made_up = |id: &str, host: &str| {
        let machine: MachineId = id.parse().unwrap();
        let key = seal::seal_ring(&ring, &content_key(&user), Binding::Machine { machine: &machine }, &thief.key);
        let card = json!({"host": host, "os": "linux", "arch": "x86_64"});
        (key.unwrap(), seal::seal_json(&ring, Purpose::MachineMetadata(&machine), &card).unwrap())
    };
    // The two machines swap their names, and a third one has the name of a machine as its id.
    let cards = [("one", made_up("one", "shed")), ("two", made_up("two", "desk")), ("desk", made_up("desk", "desk"))];
    let swapped = move |line: &str, answer: &mut Value| {
        if line.starts_with("GET /v1/machines?") || line == "GET /v1/machines" {
            let all = answer["machines"].as_array_mut().unwrap();
            let mut more = all[0].clone();
            (more["id"], more["ref"]) = (json!("desk"), json!(Ref::of(&"desk")));
            all.push(more);
            for machine in all {
                let card = cards.iter().find(|(id, _)| machine["id"] == *id);
                if let Some((_, (key, metadata))) = card {
                    (machine["encryptionKey"], machine["metadata"]) = (json!(key), json!(metadata));
                }
            }
        }
        if line == "GET /v1/devices" {
            let at: Vec<usize> = (0..4).filter(|at| answer["devices"][at]["role"] == "machine").collect();
            let (one, other) = (answer["devices"][at[0]].clone(), answer["devices"][at[1]].clone());
            for field in ["name", "nameSalt"] {
                answer["devices"][at[0]][field] = other[field].clone();
                answer["devices"][at[1]][field] = one[field].clone();
            }
        }
    };
    server.lie(swapped);
    let named = |user: &User| -> Vec<(Value, Value)> {
        let listed = user.json(&["machine", "list"])["machines"].as_array().unwrap().clone();
        listed.iter().map(|known| (known["machine"]["id"].clone(), known["name"].clone())).collect()
    };
    let of = |all: &[(Value, Value)], id: &str| all.iter().find(|(known, _)| known == id).unwrap().1.clone();
    let all = named(&user);
    let found = ["one", "two", "desk"].map(|id| of(&all, id));
    assert_eq!(found, [json!("desk"), json!("shed"), Value::Null], "{all:?}");
    assert!(user.succeed(&["machine", "list"]).contains("not in your list"));
    assert_eq!(user.json(&["machine", "show", "desk"])["machine"]["id"], "one");
    user.succeed(&["do", "x", "--detach", "--provider", "claude", "--machine", "shed", "--yes", "-C", "/srv/a"]);
    assert_eq!(user.json(&["show", "last"])["machineId"], "two");

    // The names that were checked before are deleted, so the client asks the server for them.
    std::fs::remove_file(user.files().join("device-names.json")).unwrap();
    let all = named(&user);
    assert_eq!((of(&all, "one"), of(&all, "two")), (Value::Null, Value::Null));
    assert!(user.succeed(&["machine", "list"]).contains("the server gives another name"));
    assert!(user.fail(&["machine", "delete", "shed", "--yes"]).contains("You have no machine shed"));
    server.tell_the_truth();
    assert_eq!(of(&named(&user), "two"), "shed");
    user.succeed(&["machine", "delete", "shed", "--yes"]);
    assert_eq!(named(&user).len(), 1);
}
