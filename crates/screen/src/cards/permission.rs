//! Options of a permission: what arrows and Enter do in their list.

use crossterm::event::KeyCode;
use ensemble_protocol::transcript::Choices;
use ensemble_protocol::transcript::body::PermissionOption;
use ensemble_protocol::transcript::words::OptionKind;

/// The options, while arrows move through them.
#[derive(Default)]
pub(super) struct Listed {
    /// These are the options that reach further than the request, in place of those with a digit.
    pub(super) reaches_further: bool,
    pub(super) mark: usize,
    /// Enter was pressed once. Another time chooses it.
    pub(super) is_confirmed: bool,
}

/// What a key of the list did.
pub(super) enum Step {
    Not,
    Stays,
    Closes,
    /// The id of an option.
    Chosen(String),
}

impl Listed {
    pub(super) fn first() -> Self {
        Self::default()
    }

    pub(super) fn further() -> Self {
        Self { reaches_further: true, ..Self::default() }
    }

    /// A key for the list. Nothing can be chosen before the card is ready. Some choices are for the owner alone.
    pub(super) fn key(&mut self, key: KeyCode, choices: &Choices<'_>, is_ready: bool, is_owner: bool) -> Step {
        let rows = choices.rows();
        let count = if self.reaches_further { choices.further.len() } else { rows.len() }.max(1);
        self.mark = self.mark.min(count - 1);
        match key {
            KeyCode::Up => *self = Self { mark: (self.mark + count - 1) % count, is_confirmed: false, ..*self },
            KeyCode::Down => *self = Self { mark: (self.mark + 1) % count, is_confirmed: false, ..*self },
            KeyCode::Char('4') if self.reaches_further => return Step::Closes,
            KeyCode::Enter if !is_ready => {}
            KeyCode::Enter if !self.reaches_further => match rows.get(self.mark) {
                Some('4') => *self = Self::further(),
                Some(digit) => return chosen(choices.option(*digit)),
                None => {}
            },
            KeyCode::Enter if !is_owner && !choices.further.get(self.mark).copied().is_some_and(is_for_once) => {}
            KeyCode::Enter if self.is_confirmed => return chosen(choices.further.get(self.mark).copied()),
            KeyCode::Enter => self.is_confirmed = true,
            _ => return Step::Not,
        }
        Step::Stays
    }
}

fn chosen(option: Option<&PermissionOption>) -> Step {
    option.map_or(Step::Stays, |option| Step::Chosen(option.option_id.clone()))
}

/// The machine takes any other option from the owner only.
pub(super) fn is_for_once(option: &PermissionOption) -> bool {
    matches!(option.kind, OptionKind::AllowOnce | OptionKind::RejectOnce)
}
