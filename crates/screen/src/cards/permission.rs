//! Options of a permission: which digit each has, and what arrows and Enter do in their list.

use crossterm::event::KeyCode;
use ensemble_protocol::transcript::body::{Permission, PermissionOption};
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
    pub(super) fn key(&mut self, key: KeyCode, keys: &Keys<'_>, is_ready: bool, is_owner: bool) -> Step {
        let rows = keys.rows();
        let count = if self.reaches_further { keys.further.len() } else { rows.len() }.max(1);
        self.mark = self.mark.min(count - 1);
        match key {
            KeyCode::Up => *self = Self { mark: (self.mark + count - 1) % count, is_confirmed: false, ..*self },
            KeyCode::Down => *self = Self { mark: (self.mark + 1) % count, is_confirmed: false, ..*self },
            KeyCode::Char('4') if self.reaches_further => return Step::Closes,
            KeyCode::Enter if !is_ready => {}
            KeyCode::Enter if !self.reaches_further => match rows.get(self.mark) {
                Some('4') => *self = Self::further(),
                Some(digit) => return chosen(keys.option(KeyCode::Char(*digit))),
                None => {}
            },
            KeyCode::Enter if !is_owner && !keys.further.get(self.mark).copied().is_some_and(is_for_once) => {}
            KeyCode::Enter if self.is_confirmed => return chosen(keys.further.get(self.mark).copied()),
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

/// The options that this screen offers. Of a request that is cut only those that refuse.
fn offered(permission: &Permission) -> impl Iterator<Item = &PermissionOption> {
    let refuses = |kind: &OptionKind| matches!(kind, OptionKind::RejectOnce | OptionKind::RejectAlways);
    permission.options.iter().filter(move |option| permission.cut.is_none() || refuses(&option.kind))
}

/// The keys of a permission: 1 allows once, 2 denies, 3 denies and stops, whatever else a request offers. 4 lists what reaches further.
pub(super) struct Keys<'p> {
    first: [Option<&'p PermissionOption>; 3],
    pub(super) further: Vec<&'p PermissionOption>,
}

impl<'p> Keys<'p> {
    pub(super) fn of(permission: &'p Permission) -> Self {
        let (mut allow, mut denies, mut further) = (None, [None, None], Vec::new());
        for option in offered(permission) {
            match (&option.kind, &mut denies) {
                (OptionKind::AllowOnce, _) if allow.is_none() => allow = Some(option),
                (OptionKind::RejectOnce, [deny @ None, _]) => *deny = Some(option),
                (OptionKind::RejectOnce, [_, stop @ None]) => *stop = Some(option),
                _ => further.push(option),
            }
        }
        let [deny, stop] = denies;
        Self { first: [allow, deny, stop], further }
    }

    /// The option with this key. Digits only: a sentence that begins with "you" or "no" is no answer.
    pub(super) fn option(&self, key: KeyCode) -> Option<&'p PermissionOption> {
        let KeyCode::Char(digit @ '1'..='3') = key else { return None };
        *self.first.get(usize::try_from(digit.to_digit(10)?).ok()?.checked_sub(1)?)?
    }
    /// Whether a digit of a permission does something.
    pub(super) fn has(&self, digit: char) -> bool {
        self.rows().contains(&digit)
    }

    /// The digits that do something, in the order of the card.
    pub(super) fn rows(&self) -> Vec<char> {
        let first = ['1', '2', '3'].into_iter().filter(|digit| self.option(KeyCode::Char(*digit)).is_some());
        first.chain((!self.further.is_empty()).then_some('4')).collect()
    }
}

/// The options that have a digit, from 1 (allow once) to 3 (deny and stop). What reaches further than a request has none.
pub fn option_digits(permission: &Permission) -> Vec<(char, &PermissionOption)> {
    let keys = Keys::of(permission);
    ['1', '2', '3'].into_iter().filter_map(|digit| Some((digit, keys.option(KeyCode::Char(digit))?))).collect()
}
