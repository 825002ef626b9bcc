//! What the bodies of all services may have.

use std::collections::BTreeSet;

use ensemble_all_in_one::api;
use ensemble_chassis::Routes;
use ensemble_chassis::http::strict_json;
use ensemble_chassis::openapi::SchemaRef;

const MISSPELT: &str = "misspelt-member";

/// The text of a body that has only an unknown member, at this place.
fn body_with_misspelt(place: &[String]) -> String {
    let inner = format!("{{\"{MISSPELT}\":1}}");
    place.iter().rev().fold(inner, |value, name| match name.as_str() {
        "0" => format!("[{value}]"),
        name => format!("{{\"{name}\":{value}}}"),
    })
}

#[test]
fn a_misspelt_member_of_any_object_is_found() {
    let tables = api::tables();
    let mut objects = 0;
    // The parameters of a stream are checked as those of a query are.
    let has_members = |body: &SchemaRef| body.name != "StreamParameters";
    for row in tables.iter().flat_map(Routes::rows).filter(|row| row.doc.body.as_ref().is_some_and(has_members)) {
        let members = row.members();
        let places = members.objects();
        assert!(!places.is_empty(), "{} {} knows no member of its body", row.method, row.path);
        for place in places {
            let text = body_with_misspelt(&place);
            let unknown = strict_json::check(text.as_bytes(), &members).unwrap();
            let pointers: Vec<&str> = unknown.iter().map(|member| member.pointer.as_str()).collect();
            let expected: String =
                place.iter().map(String::as_str).chain([MISSPELT]).map(|name| format!("/{name}")).collect();
            assert_eq!(pointers, [expected], "{} {}: {text}", row.method, row.path);
            objects += 1;
        }
    }
    assert!(objects > 40, "only {objects} objects");
}

/// The bodies in which a member may be a limit, a right or an expiry. The others only name what they ignore.
#[test]
fn bodies_with_limits_rights_and_expiries_are_closed() {
    let tables = api::tables();
    let rows = || tables.iter().flat_map(Routes::rows);
    let of = |closed: bool| -> BTreeSet<&str> {
        let bodies = rows().filter(|row| row.closed == closed).filter_map(|row| row.doc.body.as_ref());
        bodies.map(|body| body.name.as_str()).collect()
    };
    let expected = [
        "AnswerInvite",
        "AnswerLook",
        "AskLook",
        "CancelRun",
        "ChangeDevices",
        "ChangesOrder",
        "ClaimInvite",
        "CreateInvite",
        "CreateLink",
        "CreateMachineToken",
        "CreateRun",
        "CreateShare",
        "DeviceLinkRequest",
        "Pend",
        "RegisterMachine",
        "SignIn",
        "TaskMessage",
        "UpdateDevice",
        "UpdateShare",
    ];
    assert_eq!(of(true), expected.into());
    assert_eq!(of(true).intersection(&of(false)).count(), 0);
}

#[test]
fn the_document_says_which_bodies_are_closed() {
    let document: serde_json::Value = serde_json::from_str(&api::as_text().unwrap()).unwrap();
    let schemas = &document["components"]["schemas"];
    for name in ["CreateLink", "CreateRun", "CreateTask", "RetryPolicy", "CreateShare"] {
        assert_eq!(schemas[name]["additionalProperties"], false, "{name}");
    }
    for name in ["Run", "Link", "CreateSession", "UpdateAccount"] {
        assert!(schemas[name]["additionalProperties"].is_null(), "{name}");
    }
}
