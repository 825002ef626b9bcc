//! The plan: one line with what is being done, or all of it.

use ensemble_protocol::transcript::body::Plan;
use ensemble_protocol::transcript::words::PlanStatus;
use ratatui_core::text::{Line, Span};

use crate::clean::line;
use crate::transcript::block::Setting;
use crate::wrap::fit;

/// The lines of a plan, at most `most`. A plan that is done has none while it is folded.
pub(crate) fn lines(plan: &Plan, is_shown: bool, most: usize, setting: &Setting<'_>) -> Vec<Line<'static>> {
    let paint = setting.paint;
    let count = plan.entries.len();
    let done = plan.entries.iter().filter(|entry| entry.status == PlanStatus::Completed).count();
    let now = plan.entries.iter().position(|entry| entry.status == PlanStatus::InProgress);
    let now = now.or_else(|| plan.entries.iter().position(|entry| entry.status != PlanStatus::Completed));
    if count == 0 || most == 0 || (!is_shown && done == count) {
        return Vec::new();
    }
    let head = format!("plan {done}/{count}");
    if !is_shown || most < 3 {
        let entry = now.and_then(|at| plan.entries.get(at)).map(|entry| line(&entry.content, 300)).unwrap_or_default();
        let text = fit(&format!("{head}{}{entry}", paint.dot()), setting.width, paint.more());
        return vec![Line::styled(text, paint.dim())];
    }
    let rows = most - 1;
    let from = now.unwrap_or(0).saturating_sub(rows / 2).min(count.saturating_sub(rows));
    let mut lines = vec![Line::styled(head, paint.dim())];
    for entry in plan.entries.iter().skip(from).take(rows) {
        let (mark, style) = paint.plan(&entry.status);
        let text = fit(&line(&entry.content, 300), setting.width.saturating_sub(2), paint.more());
        lines.push(Line::from(vec![Span::styled(format!("{mark} "), style), Span::styled(text, style)]));
    }
    lines
}
