//! Calls of tools: one line while folded, all that they produced otherwise.

use ensemble_protocol::transcript::body::{Block as Content, Terminal, ToolCall, ToolContent};
use ensemble_protocol::transcript::bounds::end;
use ensemble_protocol::transcript::words::ToolStatus;
use ratatui_core::style::Style;
use ratatui_core::text::{Line, Span};

use super::block::Setting;
use crate::clean::{line, output};
use crate::diff;
use crate::wrap::{Break, columns, fit, wrap};

/// The lines of the output of a running tool that are shown below it while it is folded.
const MOST_LIVE: usize = 3;
/// The lines of the output of one that has ended, while it is folded.
const MOST_FOLDED: usize = 3;
/// The bytes that are looked at for a running one.
const MOST_LIVE_BYTES: usize = 4 << 10;

/// The lines of a call. `allowed` says how and by whom.
pub(super) fn lines(call: &ToolCall, allowed: Option<String>, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let indent = if call.parent_tool_call_id.is_some() { "  " } else { "" };
    let (mark, mark_style) = paint.tool(call.status.as_ref());
    let kind = call.kind.as_ref().map_or("tool", |kind| kind.as_str());
    let title = call.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or(kind);
    let is_over = matches!(call.status, Some(ToolStatus::Completed | ToolStatus::Interrupted));
    let title_style = if is_over { paint.dim() } else { paint.plain() };
    let mut after = after(call, setting);
    after.extend(allowed.map(|how| Span::styled(how, paint.dim())));
    let after_columns: u16 = after.iter().map(|span| columns(&span.content)).sum();
    let room = setting.width.saturating_sub(2 + columns(indent) + after_columns).max(8);
    let mut spans = vec![
        Span::raw(indent),
        Span::styled(format!("{mark} "), mark_style),
        Span::styled(fit(&line(title, 1_000), room, paint.more()), title_style),
    ];
    spans.extend(after);
    let mut lines = vec![Line::from(spans)];
    if setting.unfolded {
        for content in call.content.iter().flatten() {
            lines.extend(content_lines(content, setting, &format!("{indent}  ")));
        }
    } else if call.status != Some(ToolStatus::InProgress) {
        lines.extend(first_lines(call, setting, &format!("{indent}  ")));
    }
    lines
}

/// The first lines of what a command has written, and how many more there are.
fn first_lines(call: &ToolCall, setting: &Setting<'_>, indent: &str) -> Vec<Line<'static>> {
    let written = call.content.iter().flatten().find_map(|content| match content {
        ToolContent::Terminal(terminal) => Some(output(terminal.output.trim())),
        _ => None,
    });
    let Some(written) = written.filter(|written| !written.is_empty()) else { return Vec::new() };
    let (style, paint) = (setting.paint.dim(), setting.paint);
    let room = setting.width.saturating_sub(columns(indent)).max(8);
    let shown = written.lines().take(MOST_FOLDED);
    let mut lines: Vec<_> =
        shown.map(|line| Line::styled(format!("{indent}{}", fit(line, room, paint.more())), style)).collect();
    let more = written.lines().count().saturating_sub(MOST_FOLDED);
    if more > 0 {
        let lines_of = if more == 1 { "line" } else { "lines" };
        lines.push(Line::styled(format!("{indent}{} {more} more {lines_of} (ctrl-o)", paint.more()), style));
    }
    lines
}

/// What a running call has written so far: its end, or all of it when it is unfolded.
pub(super) fn live_lines(text: &str, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let text = if setting.unfolded { text } else { end(text, MOST_LIVE_BYTES).0 };
    let lines = output_lines(&output(text.trim_end()), setting, "  ");
    let skipped = if setting.unfolded { 0 } else { lines.len().saturating_sub(MOST_LIVE) };
    lines.into_iter().skip(skipped).collect()
}

/// What stands after the title: the size of a change, and how a command ended.
fn after(call: &ToolCall, setting: &Setting<'_>) -> Vec<Span<'static>> {
    let paint = setting.paint;
    let (mut added, mut removed, mut spans) = (0, 0, Vec::new());
    let mut has_diff = false;
    for content in call.content.iter().flatten() {
        match content {
            ToolContent::Diff(change) => {
                let (more, less) = diff::counts(change);
                (added, removed, has_diff) = (added + more, removed + less, true);
            }
            ToolContent::Terminal(Terminal { exit_status: Some(exit), .. }) => {
                let how = match (exit.exit_code, exit.signal.as_deref()) {
                    (Some(0), None) => continue,
                    (_, Some(signal)) => line(signal, 16),
                    (code, None) => code.map(|code| format!("exit {code}")).unwrap_or_default(),
                };
                spans.push(Span::styled(format!("  {how}"), paint.bad()));
            }
            _ => {}
        }
    }
    if has_diff {
        spans.push(Span::styled(format!("  +{added}"), paint.good()));
        spans.push(Span::styled(format!(" -{removed}"), paint.bad()));
    }
    spans
}

/// The lines of one content.
pub(crate) fn content_lines(content: &ToolContent, setting: &Setting<'_>, indent: &str) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let (text, cut) = match content {
        ToolContent::Diff(change) => return diff::lines(change, setting.width, indent, paint),
        ToolContent::Content { content: Content::Text { text }, cut } => (text, *cut),
        ToolContent::Terminal(terminal) => (&terminal.output, terminal.cut),
        ToolContent::Content { .. } | ToolContent::Newer => {
            return vec![Line::styled(format!("{indent}something newer"), paint.dim())];
        }
    };
    let mut lines: Vec<_> = cut.map(|missing| diff::missing_bytes(missing, indent, paint)).into_iter().collect();
    lines.extend(output_lines(&output(text.trim_end()), setting, indent));
    lines
}

fn output_lines(text: &str, setting: &Setting<'_>, indent: &str) -> Vec<Line<'static>> {
    let style: Style = setting.paint.dim();
    let indent = Span::raw(indent.to_owned());
    text.split('\n')
        .filter(|line| text.contains('\n') || !line.is_empty())
        .flat_map(|line| wrap(&[Span::styled(line, style)], setting.width, Break::Anywhere, &indent, &indent))
        .collect()
}
