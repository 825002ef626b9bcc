//! The screen of a conversation by voice.

use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use ensemble_protocol::transcript::view::View;
use ensemble_types::ids::UserId;
use ratatui_core::backend::TestBackend;
use ratatui_core::terminal::Terminal;

use super::session::{Session, asks};
use crate::{About, Action, Connection, Held, Level, Look, Me, Talk, TalkAction, Talking, Words};

struct Seen {
    talk: Talk,
    terminal: Terminal<TestBackend>,
    now: Instant,
    connection: Connection,
}

impl Seen {
    fn new(width: u16, height: u16) -> Self {
        let talk = Talk::new(Look { colour: false, unicode: false });
        let terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        Self { talk, terminal, now: Instant::now(), connection: Connection::Online }
    }

    fn about<T>(&mut self, call: impl FnOnce(&mut Talk, &mut Terminal<TestBackend>, &About<'_>) -> T) -> T {
        let me = Me { user: UserId::generate(), key: "mine".to_owned() };
        let name = |_| "Ben".to_owned();
        let (connection, level, now) = (self.connection, Level::Owner, self.now);
        let about = About { title: "Kettle", connection, level, me: &me, owner: me.user, name: &name, home: "", now };
        call(&mut self.talk, &mut self.terminal, &about)
    }

    fn lines(&mut self, view: &View, talking: &Talking<'_>) -> Vec<String> {
        self.about(|talk, terminal, about| {
            terminal.draw(|frame| talk.draw(frame, view, about, talking)).unwrap();
            let buffer = terminal.backend().buffer().clone();
            let rows = buffer.content().chunks(usize::from(buffer.area.width));
            rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
        })
    }

    fn key(&mut self, view: &View, code: KeyCode) -> Option<TalkAction> {
        let event = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        let wish = self.about(|talk, _, about| talk.event(&event, view, about));
        match self.talk.due_at() {
            None => wish,
            Some(_) => {
                self.now += Duration::from_millis(250);
                self.about(|talk, _, about| talk.due(view, about))
            }
        }
    }
}

fn talking<'a>() -> Talking<'a> {
    Talking { is_connected: true, agent: Some("listening"), tells_news: true, ..Talking::default() }
}

#[test]
fn it_shows_who_is_there_and_the_last_words() {
    let mut seen = Seen::new(70, 7);
    let said =
        [(true, "one"), (false, "two"), (true, "three"), (false, "four\u{1b}[2J"), (true, "five"), (false, "six")];
    let words = said.map(|(is_mine, text)| Words { is_mine, text }).to_vec();
    let lines =
        seen.lines(&View::default(), &Talking { words, calls: vec!["Read the session: read".to_owned()], ..talking() });
    let wanted = [
        " Kettle - your microphone is on - the voice listens",
        " You    three",
        " Voice  four\\u{1b}[2J",
        " You    five",
        " Voice  six",
        " Read the session: read",
        " m: mute  n: tell no news  q: end",
    ];
    assert_eq!(lines, wanted);
    let head = |seen: &mut Seen, talking: Talking<'_>| seen.lines(&View::default(), &talking)[0].clone();
    assert_eq!(head(&mut seen, Talking { is_connected: false, ..talking() }), " Kettle - connecting");
    assert_eq!(
        head(&mut seen, Talking { is_muted: true, agent: None, ..talking() }),
        " Kettle - you are muted - no voice agent is here yet"
    );
    assert_eq!(
        head(&mut seen, Talking { i_speak: true, agent_speaks: true, ..talking() }),
        " Kettle - you speak - the voice speaks"
    );
}

#[test]
fn a_message_that_is_shown_can_be_taken_back() {
    let mut seen = Seen::new(60, 12);
    let held = |seconds| Some(Held { text: "Run the tests.\nAll of them.", seconds });
    let text = seen.lines(&View::default(), &Talking { held: held(Some(3)), ..talking() }).join("\n");
    assert!(
        text.contains("is sent in your name in 3 s") && text.contains(" | Run the tests.\n | All of them."),
        "{text}"
    );
    assert!(text.contains("u: undo  m: mute"), "{text}");
    let text = seen.lines(&View::default(), &Talking { held: held(None), ..talking() }).join("\n");
    assert!(text.contains("is being sent") && !text.contains("undo"), "{text}");
    let keys = [('u', TalkAction::Undo), ('m', TalkAction::Mute), ('n', TalkAction::News), ('q', TalkAction::End)];
    for (key, action) in keys {
        assert_eq!(seen.key(&View::default(), KeyCode::Char(key)), Some(action), "{key}");
    }
    assert_eq!(seen.key(&View::default(), KeyCode::Esc), Some(TalkAction::Undo));
    assert_eq!(seen.key(&View::default(), KeyCode::Char('y')), None);
}

#[test]
fn a_request_is_answered_by_its_keys_once_it_was_seen() {
    let mut session = Session::new(60, 20);
    session.host(asks("first", "ls"));
    session.host(asks("second", "rm -r /"));
    let mut seen = Seen::new(60, 20);
    let lines = seen.lines(&session.view, &talking());
    assert!(
        lines.join("\n").contains("permission 1 of 2") && lines.iter().any(|line| line == "   1  Allow once"),
        "{lines:#?}"
    );
    assert_eq!(seen.key(&session.view, KeyCode::Char('1')), None, "it has just appeared");
    seen.talk.bring_up("second");
    assert!(seen.lines(&session.view, &talking()).join("\n").contains("rm -r /"));
    seen.now += Duration::from_millis(1_501);
    let answer = seen.key(&session.view, KeyCode::Char('2'));
    let Some(TalkAction::Answer(Action::Answer { request_id, option_id, .. })) = answer else { panic!("{answer:?}") };
    assert_eq!((request_id.as_str(), option_id.as_deref()), ("second", Some("no")));
    // On a screen of a few rows the notice goes, and not what is decided about.
    let mut small = Seen::new(60, 6);
    small.connection = Connection::MachineAway;
    let lines = small.lines(&session.view, &Talking { notice: Some("Something is not as it should be."), ..talking() });
    assert!(lines.iter().any(|line| line.contains("permission 1 of 2")), "{lines:#?}");
}
