//! What the terminal says to a person who is looking elsewhere.

use ensemble_protocol::transcript::words::Phase;

use super::session::{Session, asks, is_in, resolved};
use crate::{Call, Level};

fn call(title: Option<&str>, ring: Option<&str>) -> Call {
    Call { title: title.map(str::to_owned), ring: ring.map(str::to_owned) }
}

#[test]
fn the_title_says_how_the_session_is_and_a_request_rings_once() {
    let mut session = Session::new(60, 20);
    session.title = "Kettle".to_owned();
    session.host(is_in(Phase::Idle));
    assert_eq!(session.call(), call(Some("Kettle"), None));
    assert_eq!(session.call(), Call::default(), "nothing is new");
    session.host(is_in(Phase::Working));
    assert_eq!(session.call(), call(Some("◐ Kettle"), None));
    session.host(asks("r1", "ls"));
    assert_eq!(session.call(), call(Some("◆ Kettle asks"), Some("Kettle asks")));
    assert_eq!(session.call(), Call::default());
    session.host(asks("r2", "ls"));
    assert_eq!(session.call(), call(None, Some("Kettle asks")), "another one rings, too");
    let ben = session.ben;
    session.host(resolved("r1", "no", ben));
    session.host(resolved("r2", "no", ben));
    assert_eq!(session.call(), call(Some("◐ Kettle"), None));
}

#[test]
fn who_may_not_answer_is_not_called_and_titles_steer_nothing() {
    let mut session = Session::new(60, 20);
    session.title = "a\u{1b}]0;evil\u{7}b\u{202e}c".to_owned();
    session.level = Level::Prompt;
    session.host(asks("r", "ls"));
    let Call { title: Some(title), ring: None } = session.call() else { panic!("it rings") };
    assert!(!title.contains(['\u{1b}', '\u{7}', '\u{202e}']) && !title.contains("asks"), "{title:?}");
}
