//! Who sees what.

use super::*;

#[tokio::test]
async fn a_guest_who_may_approve_sees_what_git_tracks_and_no_other_guest_sees_anything() {
    let machine = Machine::new().await;
    machine.write("secret", "hunter2");
    machine.write("new", "n\n");
    std::os::unix::fs::symlink("secret", machine.path("link")).unwrap();
    machine.git(&["add", "link"]);
    let names = machine.look_as_guest(May::Approve, json!({"look": "names", "depth": "all"})).await;
    assert_eq!(paths(&names), [".gitignore", "a", "folder", "folder/b", "link", "new"]);
    assert_eq!(machine.look_as_guest(May::Approve, file("a")).await["kind"], "text");
    for secret in ["secret", "link", "new"] {
        assert_eq!(machine.look_as_guest(May::Approve, file(secret)).await["error"], "not_allowed", "{secret}");
    }
    assert_eq!(machine.look_as_guest(May::Approve, state("begin")).await["fileCount"], 2);
    for may in [May::Prompt, May::Nothing] {
        for look in [file("a"), state("now"), json!({"look": "names", "depth": 1})] {
            assert_eq!(machine.look_as_guest(may.clone(), look).await["error"], "not_allowed");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_in_no_list_gets_no_answer() {
    let machine = Machine::new().await;
    let (host, stranger) = (&machine.double.host, AccountKey::generate());
    assert_eq!(machine.look_as(host.owner, &stranger, file("a")).await, None);
    let user = UserId::generate();
    assert_eq!(machine.look_as(user, &machine.double.primary, file("a")).await, None, "without a grant");
    assert_eq!(answer(host, "AAAA").await, None);
}

#[tokio::test]
async fn a_session_is_not_woken_by_who_was_never_let_in() {
    let machine = Machine::new().await;
    let (host, session) = (&machine.double.host, SessionId::generate());
    let directory = machine.path("").canonicalize().unwrap();
    let kept = Kept::new(session, "claude".to_owned(), directory, "key".to_owned());
    drop(Spool::create(&host.sessions, &kept).unwrap());
    let mut question = machine.question(file("a")).await;
    question.session = Some(session);
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    assert_eq!(machine.ask((UserId::generate(), &machine.double.primary), &question).await, None);
    assert!(before.elapsed() < Duration::from_millis(50), "it waited for the session");
}

#[tokio::test]
async fn nothing_is_shown_that_cannot_be_written_down() {
    let machine = Machine::new().await;
    assert_eq!(machine.look(file("a")).await["kind"], "text");
    for day in fs::read_dir(machine.double.host.sessions.with_file_name("looked")).unwrap() {
        fs::File::options().write(true).open(day.unwrap().path()).unwrap().set_len(16 << 20).unwrap();
    }
    let shown = machine.look(file("a")).await;
    assert!(shown["text"].as_str().is_some_and(|text| text.contains("write down who looks")), "{shown}");
}

#[tokio::test]
async fn nothing_is_answered_while_the_server_keeps_a_list_back() {
    let machine = Machine::new().await;
    let mut question = machine.question(file("a")).await;
    question.list.version += 1;
    let owner = (machine.double.host.owner, &machine.double.primary);
    assert_eq!(machine.ask(owner, &question).await, None);
}

#[tokio::test]
async fn an_old_question_and_one_that_is_not_known_are_refused() {
    let machine = Machine::new().await;
    let owner = (machine.double.host.owner, &machine.double.primary);
    let mut question = machine.question(file("a")).await;
    question.at = question.at.minus(Duration::from_secs(301));
    assert_eq!(machine.ask(owner, &question).await.unwrap()["error"], "stale");
    assert_eq!(machine.look(json!({"look": "weather"})).await["error"], "unsupported");
    question = machine.question(file("a")).await;
    question.session = Some(SessionId::generate());
    assert_eq!(machine.ask(owner, &question).await.unwrap()["error"], "superseded");
}

#[tokio::test]
async fn a_person_who_looks_too_often_waits() {
    let machine = Machine::new().await;
    let mut errors = Vec::new();
    for _ in 0..61 {
        errors.push(machine.look(file("gone")).await["error"].clone());
    }
    assert_eq!(errors.pop().unwrap(), "busy");
    assert!(errors.iter().all(|error| error == "superseded"));
}
