//! Questions of the agent: what is shown, and what answers them.

use std::collections::BTreeMap;

use crossterm::event::KeyCode;
use ensemble_protocol::transcript::body::*;

use super::cards::card;
use super::session::Session;
use crate::Action;

fn answered(answers: &[(&str, &[&str])]) -> Option<Action> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let answers: BTreeMap<String, Vec<String>> =
        answers.iter().map(|(id, each)| ((*id).to_owned(), texts(each))).collect();
    let (request_id, digest) = ("q".to_owned(), "digest-1".to_owned());
    Some(Action::Answer { request_id, digest, option_id: None, answers: Some(answers), message: None })
}

fn question(id: &str, labels: &[&str], multiple: bool) -> QuestionItem {
    let options = labels.iter().map(|label| QuestionOption { label: (*label).to_owned(), description: None });
    let options = Some(options.collect::<Vec<_>>()).filter(|options| !options.is_empty());
    QuestionItem { id: id.to_owned(), text: format!("What is {id}?"), header: None, options, multiple }
}

fn asking(questions: Vec<QuestionItem>) -> Session {
    let mut session = Session::new(60, 20);
    session.host(Content::Question(Question { request_id: "q".to_owned(), tool_call_id: None, questions }));
    session.settle();
    session
}

#[test]
fn a_question_takes_a_number_the_arrows_or_a_text() {
    let one = || vec![question("a", &["Red", "Blue"], false)];
    let mut session = asking(one());
    let lines = [" What is a?", " › 1  Red", "   2  Blue", "   number or enter, or type an answer; 0: no answer"];
    assert_eq!(card(&mut session), lines);
    assert_eq!(session.key(KeyCode::Char('2')), answered(&[("a", &["Blue"])]));
    let mut session = asking(one());
    session.key(KeyCode::Down);
    assert!(card(&mut session).contains(&" › 2  Blue".to_owned()));
    assert_eq!(session.key(KeyCode::Enter), answered(&[("a", &["Blue"])]));
    let mut session = asking(one());
    session.types("green");
    assert!(card(&mut session).contains(&"   enter answers with your text".to_owned()));
    assert_eq!(session.key(KeyCode::Enter), answered(&[("a", &["green"])]));
    let mut session = asking(one());
    let Some(Action::Answer { option_id: None, answers: None, .. }) = session.key(KeyCode::Char('0')) else {
        panic!("0 does not answer")
    };
}

#[test]
fn several_questions_are_answered_one_after_the_other() {
    let questions =
        vec![question("a", &["Red", "Blue"], false), question("b", &["X", "Y", "Z"], true), question("c", &[], false)];
    let mut session = asking(questions);
    assert!(card(&mut session)[0].contains("1 of 3"));
    assert_eq!(session.key(KeyCode::Char('1')), None);
    assert_eq!(card(&mut session)[1..5], [" What is b?", " › 1  [ ] X", "   2  [ ] Y", "   3  [ ] Z"]);
    assert_eq!(session.key(KeyCode::Enter), None, "nothing is chosen");
    session.key(KeyCode::Char(' '));
    session.key(KeyCode::Char('3'));
    session.key(KeyCode::Char('2'));
    session.key(KeyCode::Char('2'));
    assert_eq!(card(&mut session)[2..5], ["   1  [x] X", " › 2  [ ] Y", "   3  [x] Z"]);
    assert_eq!(session.key(KeyCode::Enter), None);
    assert!(card(&mut session)[0].contains("3 of 3"));
    session.key(KeyCode::Left);
    assert!(card(&mut session)[0].contains("2 of 3"));
    session.key(KeyCode::Right);
    session.types("my own");
    let all: &[(&str, &[&str])] = &[("a", &["Red"]), ("b", &["X", "Z"]), ("c", &["my own"])];
    assert_eq!(session.key(KeyCode::Enter), answered(all));
}

#[test]
fn a_prompt_that_was_begun_before_a_question_is_no_answer() {
    let mut session = Session::new(60, 20);
    session.types("go on with");
    let questions = vec![question("a", &[], false)];
    session.host(Content::Question(Question { request_id: "q".to_owned(), tool_call_id: None, questions }));
    session.settle();
    assert!(session.text().contains("Your text is a prompt."));
    session.types(" it");
    assert_eq!(session.key(KeyCode::Enter), Some(Action::Prompt { text: "go on with it".to_owned(), now: false }));
    session.draw();
    session.types("an answer");
    assert_eq!(
        session.key(KeyCode::Enter),
        Some(Action::Answer {
            request_id: "q".to_owned(),
            digest: "digest-1".to_owned(),
            option_id: None,
            answers: Some(BTreeMap::from([("a".to_owned(), vec!["an answer".to_owned()])])),
            message: None,
        })
    );
}

#[test]
fn a_prompt_that_is_begun_as_a_question_appears_is_no_answer() {
    let mut session = Session::new(60, 20);
    let questions = vec![question("a", &[], false)];
    session.host(Content::Question(Question { request_id: "q".to_owned(), tool_call_id: None, questions }));
    session.draw();
    session.wait(999);
    session.types("go");
    session.wait(500);
    session.draw();
    assert_eq!(session.key(KeyCode::Enter), Some(Action::Prompt { text: "go".to_owned(), now: false }));
}
