//! Voice in the page and in the terminal. With a LiveKit server at LIVEKIT_URL (and VOICE_AGENT_PYTHON, a Python with the libraries of
//! `deploy/voice-agent`) the page's story continues in a real room; `make test-livekit` sets these.

use crate::ensemble::{User, up};
use crate::page;
use crate::place::Place;

const KEY: &str = "voice-key-of-the-page-story";

/// The name of a story's voice agent, and of its rooms. Two stories may run at once.
fn own_name(story: &str) -> String {
    format!("{story}{}", std::process::id())
}

/// A server with voice: at the LiveKit of the environment, or at one that does not answer.
fn server(story: &str) -> User {
    let or = |name: &str, other: &str| -> &'static str {
        let set = std::env::var_os(name).and_then(|value| value.into_string().ok());
        set.unwrap_or_else(|| other.to_owned()).leak()
    };
    let own: &'static str = own_name(story).leak();
    User::new(None)
        .with_variable("VOICE_PUBLIC_KEY", KEY)
        .with_variable("LIVEKIT_URL", or("LIVEKIT_URL", "ws://127.0.0.1:9"))
        .with_variable("LIVEKIT_API_KEY", or("LIVEKIT_API_KEY", "devkey"))
        .with_variable("LIVEKIT_API_SECRET", or("LIVEKIT_API_SECRET", "a-secret-that-is-long-enough-for-livekit"))
        .with_variable("LIVEKIT_AGENT_NAME", own)
        // Rooms under the prefix of another gateway would be deleted.
        .with_variable("VOICE_ROOM_PREFIX", format!("{own}_").leak())
        .with_variable("VOICE_RECONCILE_SECONDS", "2")
}

#[test]
fn a_person_talks_about_a_session_in_the_page() {
    let server = server("talk");
    let (_up, url) = up(&server, &["--no-runner"]);
    page::tell_with("talk", &url, &Place::new(), &[("AGENT_NAME", &own_name("talk"))]);
}

#[test]
fn a_person_talks_about_a_session_by_voice() {
    if ["LIVEKIT_URL", "VOICE_AGENT_PYTHON"].iter().any(|name| std::env::var_os(name).is_none()) {
        println!("skipped: talking by voice needs LIVEKIT_URL; see `make test-livekit`");
        return;
    }
    let server = server("speak");
    let (_up, url) = up(&server, &["--no-runner"]);
    page::tell_with("speak", &url, &Place::new(), &[("AGENT_NAME", &own_name("speak"))]);
}

#[test]
fn the_terminal_leads_to_the_screen_where_one_talks() {
    let owner = server("address");
    let (_up, url) = up(&owner, &["--no-runner"]);
    let session =
        owner.json(&["session", "create", "--title", "Talk of it"])["session"]["id"].as_str().unwrap().to_owned();
    let address = format!("{url}/sessions/{session}/talk");
    assert_eq!(owner.succeed(&["talk", "last"]).trim(), address);
    assert_eq!(owner.json(&["talk", &session])["address"], *address);
}

#[test]
fn a_server_without_voice_says_so() {
    let owner = User::new(None);
    let (_up, _) = up(&owner, &["--no-runner"]);
    owner.succeed(&["session", "create", "--title", "Talk of it"]);
    let said = owner.fail(&["talk", "last"]);
    assert!(said.contains("has no voice") && said.contains("VOICE_PUBLIC_KEY"), "{said}");
}
