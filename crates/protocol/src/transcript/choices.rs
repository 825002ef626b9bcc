//! Which options of a permission have a digit, on each screen and in plain text.

use crate::transcript::body::{Permission, PermissionOption};
use crate::transcript::words::OptionKind;

/// The options of a permission: 1 allows once, 2 denies, 3 denies and stops, whatever else a request offers. 4 lists what reaches further.
pub struct Choices<'p> {
    first: [Option<&'p PermissionOption>; 3],
    pub further: Vec<&'p PermissionOption>,
}

/// The options that are offered. Of a request that is cut only those that refuse.
fn offered(permission: &Permission) -> impl Iterator<Item = &PermissionOption> {
    let refuses = |kind: &OptionKind| matches!(kind, OptionKind::RejectOnce | OptionKind::RejectAlways);
    permission.options.iter().filter(move |option| permission.cut.is_none() || refuses(&option.kind))
}

impl<'p> Choices<'p> {
    pub fn of(permission: &'p Permission) -> Self {
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

    /// The option with this digit. A sentence that begins with "you" or "no" is no answer.
    pub fn option(&self, digit: char) -> Option<&'p PermissionOption> {
        *self.first.get(usize::try_from(digit.to_digit(10)?).ok()?.checked_sub(1)?)?
    }

    /// Whether a digit does something.
    pub fn has(&self, digit: char) -> bool {
        self.rows().contains(&digit)
    }

    /// The digits that do something, in the order of the card.
    pub fn rows(&self) -> Vec<char> {
        let first = ['1', '2', '3'].into_iter().filter(|digit| self.option(*digit).is_some());
        first.chain((!self.further.is_empty()).then_some('4')).collect()
    }
}

/// The options that have a digit, from 1 (allow once) to 3 (deny and stop). What reaches further than a request has none.
pub fn option_digits(permission: &Permission) -> Vec<(char, &PermissionOption)> {
    let choices = Choices::of(permission);
    ['1', '2', '3'].into_iter().filter_map(|digit| Some((digit, choices.option(digit)?))).collect()
}
