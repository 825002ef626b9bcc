//! The lines of one item, as wide as the screen is.

use std::rc::Rc;

use ensemble_protocol::transcript::body::{Answer, Attachment, Control, Prompt, TextPart};
use ensemble_protocol::transcript::view::{Asks, Author, Card, Growing, Item, Shown, Taken, View};
use ensemble_protocol::transcript::words::{Cause, Outcome, TurnState};
use ensemble_types::ids::UserId;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::{together, tool};
use crate::about::About;
use crate::clean::{line, readable};
use crate::paint::Paint;
use crate::wrap::{Break, fit, wrap};
use crate::{markdown, words};

/// The lines of a long prompt that are shown while it is folded.
const MOST_PROMPT_LINES: usize = 12;

const YOU: &str = "you";

/// Lines that belong together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    pub(crate) lines: Rc<[Line<'static>]>,
    /// Between two such blocks there is no empty line.
    pub(crate) is_tight: bool,
    /// It continues the block above.
    pub(crate) joins: bool,
}

/// What the lines of an item depend on, apart from the item.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) paint: Paint,
    pub(crate) width: u16,
    pub(crate) unfolded: bool,
    pub(crate) about: &'a About<'a>,
}

impl Setting<'_> {
    /// The name of a user, fit to be shown.
    pub(crate) fn name(&self, user: UserId) -> String {
        if user == self.about.me.user {
            return YOU.to_owned();
        }
        let name = line(&(self.about.name)(user), 32);
        if name.is_empty() { "someone".to_owned() } else { name }
    }

    pub(crate) fn author(&self, item: &Item) -> (String, Style) {
        match &item.author {
            // What the machine itself says has no name. Only the prompt of a task is under it.
            Author::Host => ("the task".to_owned(), self.paint.dim()),
            Author::Person { user, .. } => {
                let is_me = *user == self.about.me.user;
                let style = if is_me { self.paint.mine() } else { self.paint.others() };
                match item.unconfirmed {
                    Some(_) => (format!("{} (not confirmed)", self.name(*user)), self.paint.warning()),
                    None => (self.name(*user), style),
                }
            }
            Author::Unknown(_) => ("someone".to_owned(), self.paint.warning()),
        }
    }

    /// A line about what happened.
    fn event(&self, mark: &str, style: Style, text: &str) -> Vec<Line<'static>> {
        let first = Span::styled(format!("{mark} "), style);
        wrap(&[Span::styled(text, style)], self.width, Break::Words, &first, &Span::raw("  "))
    }
}

/// The lines of an item. It says nothing that another one says for it.
pub(crate) fn block(item: &Item, view: &View, setting: &Setting<'_>) -> Block {
    let paint = setting.paint;
    let tight = |lines: Vec<Line<'static>>| Block { lines: lines.into(), is_tight: true, joins: false };
    let loose = |lines: Vec<Line<'static>>| Block { lines: lines.into(), ..Block::default() };
    match &item.shown {
        Shown::Prompt(prompt, taken) => loose(prompt_lines(prompt, taken, item, setting)),
        Shown::Answer(answer, Taken::Done) if together::is_on_its_question(item, answer, view) => tight(Vec::new()),
        Shown::Answer(answer, taken) => tight(answer_lines(answer, taken, item, setting)),
        Shown::Control(Control::Interrupt, Taken::Done) if together::is_in_turn(item, view) => tight(Vec::new()),
        // The prompt says so.
        Shown::Control(Control::TakeBack(_), Taken::Done) => tight(Vec::new()),
        Shown::Control(control, taken) => {
            let (name, _) = setting.author(item);
            let did = words::control(control, |user| setting.name(user));
            tight(match (words::rejection(taken, &item.author, setting), words::taken(taken)) {
                (Some(why), _) => setting.event(paint.no(), paint.bad(), &format!("{name} {did}: not taken. {why}")),
                (None, Some(state)) => {
                    setting.event(paint.pick("·", "-"), paint.dim(), &format!("{name} {did} ({state})"))
                }
                (None, None) => setting.event(paint.pick("·", "-"), paint.dim(), &format!("{name} {did}")),
            })
        }
        Shown::Turn(turn) if turn.state == TurnState::Started => tight(match turn.cause {
            Cause::Background => {
                setting.event(paint.pick("·", "-"), paint.dim(), "continues by itself: work in the background is done")
            }
            _ => Vec::new(),
        }),
        Shown::Turn(turn) => tight(match words::stop(turn.stop_reason.as_ref()) {
            Some(why) => {
                let by =
                    together::interrupted_by(item, view).map(|user| format!("{}{}", paint.dot(), setting.name(user)));
                setting.event(paint.gone(), paint.warning(), &format!("{why}{}", by.unwrap_or_default()))
            }
            None => Vec::new(),
        }),
        Shown::Text(part) => {
            let joins = part.of.is_some();
            Block { lines: text_lines(part, setting).into(), is_tight: false, joins }
        }
        Shown::Thought(part) => tight(thought_lines(part, setting)),
        Shown::Tool(call) if together::is_question(item, call, view) => tight(Vec::new()),
        Shown::Tool(call) => {
            let allowed = together::allowed(item, call, view).map(|(option, by)| {
                let by = by.map(|user| format!("{}{}", paint.dot(), setting.name(user))).unwrap_or_default();
                format!("{}{}{by}", paint.dot(), line(&option.name, 40))
            });
            tight(tool::lines(call, allowed, setting))
        }
        Shown::Card(card) if together::is_on_its_call(item, card, view) => tight(Vec::new()),
        Shown::Card(card) => tight(card_lines(card, together::answers(item, card, view), setting)),
        Shown::Error(failure) => {
            loose(setting.event(paint.no(), paint.bad(), &words::failure(failure, setting.about.level)))
        }
        Shown::Moved => tight(Vec::new()),
        Shown::Note(note) => tight(setting.event("!", paint.warning(), &words::note(note, |user| setting.name(user)))),
        Shown::Newer(name) => {
            tight(setting.event(paint.pick("·", "-"), paint.dim(), &format!("something newer ({})", line(name, 60))))
        }
    }
}

/// Stands where the messages will be whose key has not come yet.
pub(crate) fn lacks_key(setting: &Setting<'_>) -> Block {
    let text =
        "What comes next is encrypted with a key that has not reached this device yet. It is shown when the key comes.";
    warning(text, setting)
}

/// Stands below the transcript while the server does not give this list of the owner, which the machine has named.
pub(crate) fn withheld(list: u32, setting: &Setting<'_>) -> Block {
    let text = format!(
        "The machine names version {list} of the owner's device list, and the server does not give it. What is not confirmed may be by a device that was removed. The server is asked again."
    );
    warning(&text, setting)
}

fn warning(text: &str, setting: &Setting<'_>) -> Block {
    let (text, nothing) = (Span::styled(text, setting.paint.warning()), Span::raw(""));
    Block { lines: wrap(&[text], setting.width, Break::Words, &nothing, &nothing).into(), ..Block::default() }
}

/// A text that is still being written.
pub(crate) fn growing(growing: &Growing, setting: &Setting<'_>) -> Block {
    let text = readable(&growing.text);
    if growing.is_thought && !setting.unfolded {
        let paint = setting.paint;
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let text = format!("{} {}", paint.pick("∴", ":"), line(last, 400));
        let style = paint.dim().patch(paint.slanted());
        return Block {
            lines: vec![Line::styled(fit(&text, setting.width, paint.more()), style)].into(),
            ..Block::default()
        };
    }
    let lines = markdown::lines(&text, setting.paint.plain(), setting.width, setting.paint);
    Block { lines: lines.into(), ..Block::default() }
}

fn prompt_lines(prompt: &Prompt, taken: &Taken, item: &Item, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let (name, style) = setting.author(item);
    let why = words::rejection(taken, &item.author, setting);
    let mut head = vec![Span::styled(name, style.patch(paint.strong()))];
    if let Some(state) = words::taken(taken) {
        let style = if why.is_some() { paint.bad() } else { paint.dim() };
        head.push(Span::styled(format!("{}{state}", paint.dot()), style));
    }
    let mut lines = vec![Line::from(head)];
    let bar = Span::styled(paint.bar(), style);
    let text = readable(prompt.text.trim_end());
    for (number, part) in text.split('\n').enumerate() {
        if number >= MOST_PROMPT_LINES && !setting.unfolded {
            let missing = text.split('\n').count() - number;
            let more = format!("{} {missing} more lines (ctrl-o)", paint.more());
            lines.push(Line::from(vec![bar.clone(), Span::styled(more, paint.dim())]));
            break;
        }
        lines.extend(wrap(&[Span::raw(part)], setting.width, Break::Words, &bar, &bar));
    }
    for attachment in &prompt.attachments {
        let what = match attachment {
            Attachment::Image { mime_type, data } => format!("{} ({} bytes)", line(mime_type, 40), data.len() / 4 * 3),
            Attachment::Resource { resource } => {
                format!("{} ({} bytes)", line(&resource.uri, 200), resource.text.len())
            }
            Attachment::Newer => "something newer".to_owned(),
        };
        lines.extend(wrap(&[Span::styled(format!("[{what}]"), paint.dim())], setting.width, Break::Words, &bar, &bar));
    }
    if let Some(why) = why {
        lines.extend(setting.event(paint.no(), paint.bad(), &why));
    }
    lines
}

/// What an answer says in addition to the option that its request shows, and its result.
fn answer_lines(answer: &Answer, taken: &Taken, item: &Item, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let (name, _) = setting.author(item);
    if let Some(why) = words::rejection(taken, &item.author, setting) {
        let whose = if name == YOU { "your".to_owned() } else { format!("{name}'s") };
        return setting.event(paint.no(), paint.bad(), &format!("{whose} answer was not taken: {why}"));
    }
    let answers = answer.answers.iter().flatten().flat_map(|(_, texts)| texts);
    let texts: Vec<String> = answers.chain(&answer.message).map(|text| line(text, 2_000)).collect();
    let said = if texts.is_empty() { String::new() } else { format!(": {}", texts.join("; ")) };
    let state = words::taken(taken).map(|state| format!(" ({state})")).unwrap_or_default();
    if said.is_empty() && state.is_empty() {
        return Vec::new();
    }
    setting.event(paint.pick("·", "-"), paint.dim(), &format!("{name} answered{said}{state}"))
}

fn text_lines(part: &TextPart, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let text = readable(&part.text);
    let is_of_helper = part.parent_tool_call_id.is_some();
    let width = if is_of_helper { setting.width.saturating_sub(2) } else { setting.width };
    let mut lines = markdown::lines(&text, paint.plain(), width, paint);
    if is_of_helper {
        for line in &mut lines {
            line.spans.insert(0, Span::raw("  "));
        }
    }
    if part.interrupted {
        lines.push(Line::styled(format!("{} interrupted", paint.gone()), paint.warning()));
    }
    lines
}

fn thought_lines(part: &TextPart, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let style = paint.dim().patch(paint.slanted());
    if setting.unfolded {
        let indent = Span::raw("  ");
        let text = readable(part.text.trim());
        return text
            .split('\n')
            .flat_map(|line| wrap(&[Span::styled(line, style)], setting.width, Break::Words, &indent, &indent))
            .collect();
    }
    let Some(first) = part.text.lines().find(|line| !line.trim().is_empty()) else { return Vec::new() };
    let first = first.trim_start_matches(['#', ' ']).replace("**", "");
    let text = format!("{} {}", paint.pick("∴", ":"), line(&first, 400));
    vec![Line::styled(fit(&text, setting.width, paint.more()), style)]
}

/// A request that is closed. An open one is shown as a card, below the transcript.
fn card_lines(card: &Card, answers: Vec<String>, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let title = match &card.asks {
        Asks::Permission(permission) => line(&permission.title, 400),
        Asks::Question(question) => question.questions.first().map(|one| line(&one.text, 400)).unwrap_or_default(),
    };
    let Some(resolved) = &card.resolved else { return Vec::new() };
    let by = resolved.by.map(|user| setting.name(user));
    let (mark, style, what) = match (&resolved.outcome, &card.asks) {
        (Outcome::Selected, Asks::Permission(permission)) => {
            let option = permission.options.iter().find(|one| Some(&one.option_id) == resolved.option_id.as_ref());
            let refuses = option.is_some_and(|one| one.kind.as_str().starts_with("reject"));
            let name = option.map(|one| line(&one.name, 200)).unwrap_or_else(|| "answered".to_owned());
            if refuses { (paint.no(), paint.bad(), name) } else { (paint.yes(), paint.good(), name) }
        }
        (Outcome::Withdrawn, _) => {
            let reason = resolved.reason.as_deref().map(|why| format!(" ({})", line(why, 200))).unwrap_or_default();
            (paint.gone(), paint.dim(), format!("withdrawn{reason}"))
        }
        _ if answers.is_empty() => (paint.yes(), paint.good(), "answered".to_owned()),
        _ => (paint.yes(), paint.good(), line(&answers.join("; "), 2_000)),
    };
    let dot = paint.dot();
    let by = by.map(|name| format!("{dot}{name}")).unwrap_or_default();
    let parts = [Span::styled(title, paint.dim()), Span::raw(format!("{dot}{what}{by}"))];
    wrap(&parts, setting.width, Break::Words, &Span::styled(format!("{mark} "), style), &Span::raw("  "))
}
