//! The lines that say how things stand: above the transcript, above the text, and the last one.

use ensemble_protocol::transcript::body::State;
use ensemble_protocol::transcript::view::View;
use ensemble_protocol::transcript::words::{Mode, Phase};
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use crate::about::{Connection, Level, below};
use crate::clean::line;
use crate::paint::Paint;
use crate::rule::rule;
use crate::transcript::block::Setting;
use crate::words;
use crate::wrap::{columns, fit};

/// A part of the last line. The highest number goes first when there is no room.
struct Part {
    text: String,
    style: Style,
    goes: u8,
}

/// What a part has that is left out before a key is.
const ALL_IS_WELL: u8 = 9;
const HELD_BACK: u8 = 3;
/// That of the model, and the columns of its name where there is little room.
const MODEL: u8 = 4;
const SHORT_MODEL: u16 = 14;

/// The first line: the title and where the agent works.
pub(crate) fn header(view: &View, setting: &Setting<'_>) -> Line<'static> {
    let paint = setting.paint;
    let title = line(setting.about.title, 200);
    let places = view.state().map(|state| places(state, setting)).unwrap_or_default();
    // Of a title that is long its beginning says enough, and of a path its end.
    let least = columns(&title).min(setting.width / 3 * 2);
    let place = places.into_iter().find(|place| columns(place) <= setting.width - least).unwrap_or_default();
    let title = fit(&title, setting.width.saturating_sub(columns(&place)), paint.more());
    Line::from(vec![Span::styled(title, paint.strong()), Span::styled(place, paint.dim())])
}

/// Where the agent works, from the longest text to the shortest.
fn places(state: &State, setting: &Setting<'_>) -> Vec<String> {
    let (dot, more) = (setting.paint.dot(), setting.paint.more());
    let path = line(&below(setting.about.home, &state.directory), 400);
    let branch = state.branch.as_ref().map(|branch| format!(" ({})", line(branch, 100))).unwrap_or_default();
    let ends: Vec<&str> = path.match_indices('/').filter_map(|(at, _)| path.get(at..)).collect();
    let ends = ends.iter().filter(|end| end.len() > 1 && **end != path);
    let mut places = vec![format!("{dot}{path}{branch}")];
    places.extend(ends.clone().map(|end| format!("{dot}{more}{end}{branch}")));
    places.push(format!("{dot}{path}"));
    places.extend(ends.map(|end| format!("{dot}{more}{end}")));
    places
}

/// Whether a turn can be interrupted.
pub(crate) fn is_busy(view: &View) -> bool {
    view.state().is_some_and(|state| matches!(state.phase, Phase::Working | Phase::Waiting | Phase::Starting))
}

/// Whether a command has outlived its turn.
pub(crate) fn still_runs(view: &View) -> bool {
    view.state().is_some_and(|state| !state.still_running.is_empty())
}

/// The rule above the text: what the session does.
pub(crate) fn phase(view: &View, below: Option<u64>, setting: &Setting<'_>) -> Line<'static> {
    let paint = setting.paint;
    let (state, level) = (view.state(), setting.about.level);
    let (text, style) = match state.map(|state| &state.phase) {
        None => (String::new(), paint.dim()),
        Some(Phase::Starting) => ("starting".to_owned(), paint.busy()),
        Some(Phase::Idle) => (String::new(), paint.dim()),
        Some(Phase::Working) => ("working".to_owned(), paint.busy()),
        Some(Phase::Waiting) => ("waits for an answer".to_owned(), paint.warning()),
        Some(Phase::Parked) if level < Level::Prompt => ("asleep".to_owned(), paint.dim()),
        Some(Phase::Parked) => ("asleep; a prompt wakes it".to_owned(), paint.dim()),
        Some(Phase::Ended) if level < Level::Owner => ("ended".to_owned(), paint.warning()),
        Some(Phase::Ended) => ("ended; /resume starts it again".to_owned(), paint.warning()),
        Some(Phase::Other(other)) => (line(other, 32), paint.dim()),
    };
    let queued = state.map_or(0, |state| state.queue.len());
    let text = match (text.is_empty(), queued) {
        (_, 0) => text,
        (true, queued) => format!("{queued} queued"),
        (false, queued) => format!("{text}{}{queued} queued", paint.dot()),
    };
    let right = match below {
        Some(0) => "pgdn: down".to_owned(),
        Some(count) => format!("{count} new{}pgdn: down", paint.dot()),
        None if is_busy(view) && setting.about.level >= Level::Prompt => "esc interrupts".to_owned(),
        None if still_runs(view) && setting.about.level >= Level::Prompt => "esc ends what still runs".to_owned(),
        None => String::new(),
    };
    rule(&text, style, &right, setting.width, paint)
}

/// The last line: model, mode, context, cost, connection, and the keys that matter now.
pub(crate) fn status(view: &View, wanted: Option<&Mode>, hints: &[&str], setting: &Setting<'_>) -> Line<'static> {
    let (paint, width) = (setting.paint, setting.width);
    let mut parts = view.state().map(|state| parts(state, wanted, paint)).unwrap_or_default();
    let connection = setting.about.connection;
    let (style, goes) = match connection {
        Connection::Online => (paint.dim(), ALL_IS_WELL),
        Connection::HeldBack => (paint.dim(), HELD_BACK),
        _ => (paint.asks(), 0),
    };
    let words = connection.words();
    let words = if paint.0.unicode { words.to_owned() } else { words.replace('…', "...") };
    parts.push(Part { text: words, style, goes });
    let dot = paint.dot();
    let used = |parts: &[Part]| -> u16 {
        let dots = u16::try_from(parts.len().saturating_sub(1)).unwrap_or(0).saturating_mul(columns(dot));
        parts.iter().map(|part| columns(&part.text)).fold(dots, u16::saturating_add)
    };
    let shortest = hints.last().map_or(0, |hint| columns(hint) + 3);
    if used(&parts).saturating_add(shortest) > width
        && let Some(model) = parts.first_mut().filter(|part| part.goes == MODEL)
    {
        model.text = fit(&model.text, SHORT_MODEL, paint.more());
    }
    if used(&parts).saturating_add(shortest) > width {
        // That all is well needs no words.
        parts.retain(|part| part.goes < ALL_IS_WELL);
    }
    while parts.len() > 1 && used(&parts) > width {
        let first = parts.iter().enumerate().max_by_key(|(_, part)| part.goes).map_or(0, |(at, _)| at);
        parts.remove(first);
    }
    let left = used(&parts);
    let mut spans = Vec::new();
    for (at, part) in parts.into_iter().enumerate() {
        if at > 0 {
            spans.push(Span::styled(dot, paint.dim()));
        }
        spans.push(Span::styled(part.text, part.style));
    }
    let room = width.saturating_sub(left + 3);
    if let Some(hint) = hints.iter().find(|hint| columns(hint) <= room) {
        spans.push(Span::raw(" ".repeat(usize::from(width - left - columns(hint)))));
        spans.push(Span::styled((*hint).to_owned(), paint.dim()));
    }
    Line::from(spans)
}

fn parts(state: &State, wanted: Option<&Mode>, paint: Paint) -> Vec<Part> {
    let mut parts = Vec::new();
    let model = state.model.as_deref().unwrap_or(&state.agent);
    let name = state.models.iter().find(|choice| choice.id == model).map_or(model, |choice| &choice.name);
    parts.push(Part { text: line(name, 24), style: paint.dim(), goes: MODEL });
    let mode = match wanted {
        Some(wanted) => format!("{} {} {}", words::mode(&state.mode), paint.pick("→", "->"), words::mode(wanted)),
        None => words::mode(&state.mode),
    };
    let style = match state.mode {
        Mode::Bypass => paint.asks(),
        Mode::Edit => paint.warning(),
        Mode::Plan => paint.mine(),
        _ => paint.plain(),
    };
    parts.push(Part { text: mode, style, goes: 0 });
    let left = state.still_running.len();
    if left > 0 {
        let text = if left == 1 { "1 command still runs".to_owned() } else { format!("{left} commands still run") };
        parts.push(Part { text, style: paint.warning(), goes: 2 });
    }
    if let Some(context) = state.context.filter(|context| context.size > 0) {
        let percent = context.used.saturating_mul(100) / context.size;
        let style = if percent >= 80 { paint.warning() } else { paint.dim() };
        parts.push(Part { text: format!("{percent}% context"), style, goes: 5 });
    }
    if let Some(cost) = state.cost_usd.filter(|cost| cost.is_finite() && *cost > 0.0) {
        parts.push(Part { text: format!("${cost:.2}"), style: paint.dim(), goes: 6 });
    }
    parts
}
