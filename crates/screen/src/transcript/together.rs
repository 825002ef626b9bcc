//! What several items say together, so that it is shown once: a question and its answer, a call and its permission, a turn and its
//! interrupt.

use ensemble_protocol::transcript::body::{Answer, Control, PermissionOption, Resolved, ToolCall};
use ensemble_protocol::transcript::view::{Asks, Author, Card, Item, Shown, Taken, View};
use ensemble_protocol::transcript::words::{Outcome, StopReason, TurnState};
use ensemble_types::ids::UserId;

/// The items that are looked through.
const MOST_LOOKED_AT: u64 = 200;

fn after<'v>(item: &Item, view: &'v View) -> impl Iterator<Item = &'v Item> {
    (item.id + 1..=item.id + MOST_LOOKED_AT).map_while(|id| view.item(id))
}

fn before<'v>(item: &Item, view: &'v View) -> impl Iterator<Item = &'v Item> {
    (item.id.saturating_sub(MOST_LOOKED_AT)..item.id).rev().map_while(|id| view.item(id))
}

/// What was answered to a question.
pub(super) fn answers(item: &Item, card: &Card, view: &View) -> Vec<String> {
    let by = card.resolved.as_ref().and_then(|resolved| resolved.by);
    let found = after(item, view).find_map(|one| match (&one.shown, &one.author) {
        (Shown::Answer(answer, taken), Author::Person { user, .. })
            if answer.request_id == card.request_id
                && !matches!(taken, Taken::Rejected { .. })
                && by.is_none_or(|by| by == *user) =>
        {
            answer.answers.as_ref()
        }
        _ => None,
    });
    found.into_iter().flatten().flat_map(|(_, texts)| texts.clone()).collect()
}

/// Whether the question that is answered says the answer itself.
pub(super) fn is_on_its_question(item: &Item, answer: &Answer, view: &View) -> bool {
    let is_it = |one: &Item| matches!(&one.shown, Shown::Card(card) if card.request_id == answer.request_id);
    answer.answers.is_some() && before(item, view).any(is_it)
}

/// Whether a card asks the question that the call is.
pub(super) fn is_question(item: &Item, call: &ToolCall, view: &View) -> bool {
    after(item, view).any(|one| match &one.shown {
        Shown::Card(card) => match &card.asks {
            Asks::Question(question) => question.tool_call_id.as_ref() == Some(&call.tool_call_id),
            Asks::Permission(_) => false,
        },
        _ => false,
    })
}

/// How a call was allowed, and by whom.
pub(super) fn allowed<'v>(
    item: &Item,
    call: &ToolCall,
    view: &'v View,
) -> Option<(&'v PermissionOption, Option<UserId>)> {
    after(item, view).find_map(|one| {
        let Shown::Card(card) = &one.shown else { return None };
        let (of_call, option, resolved) = allows(card)?;
        (*of_call == call.tool_call_id).then_some((option, resolved.by))
    })
}

/// Whether the call that the card allows says so itself.
pub(super) fn is_on_its_call(item: &Item, card: &Card, view: &View) -> bool {
    let Some((of_call, ..)) = allows(card) else { return false };
    before(item, view).any(|one| matches!(&one.shown, Shown::Tool(call) if call.tool_call_id == *of_call))
}

fn allows(card: &Card) -> Option<(&String, &PermissionOption, &Resolved)> {
    let (Asks::Permission(permission), Some(resolved)) = (&card.asks, &card.resolved) else { return None };
    let option = permission.options.iter().find(|one| Some(&one.option_id) == resolved.option_id.as_ref())?;
    let is_allowed = resolved.outcome == Outcome::Selected && option.kind.as_str().starts_with("allow");
    is_allowed.then_some((permission.tool_call_id.as_ref()?, option, resolved))
}

/// Whether a turn ran when the item came. The end of a turn says who has interrupted it.
pub(super) fn is_in_turn(item: &Item, view: &View) -> bool {
    let turn = before(item, view).find_map(|one| match &one.shown {
        Shown::Turn(turn) => Some(&turn.state),
        _ => None,
    });
    turn == Some(&TurnState::Started)
}

/// Who has interrupted the turn that has ended.
pub(super) fn interrupted_by(item: &Item, view: &View) -> Option<UserId> {
    let Shown::Turn(turn) = &item.shown else { return None };
    if turn.stop_reason != Some(StopReason::Cancelled) {
        return None;
    }
    let of_turn = before(item, view).take_while(|one| !matches!(one.shown, Shown::Turn(_)));
    of_turn.into_iter().find_map(|one| match (&one.shown, &one.author) {
        (Shown::Control(Control::Interrupt, Taken::Done), Author::Person { user, .. }) => Some(*user),
        _ => None,
    })
}
