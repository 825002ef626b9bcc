//! What devices are called: what their owner's primary device has signed, and nothing that a server says.

use serde_json::{Value, json};

use crate::ensemble::{User, up};
use crate::linking::add;
use crate::lying::LyingServer;

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
    assert!(owner.fail(&["devices", "rename", &host, " "]).contains("1 to 64 bytes"));
    assert!(third.fail(&["devices", "rename", "büro", "mine"]).contains("only a primary one"));
    second.succeed(&["devices", "rename", &format!("{host} 3"), "  phone\u{202e} "]);
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
