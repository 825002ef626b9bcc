//! The form of names: people read a device's name, and also type a machine's name in commands.

use ensemble_types::devices::Role;
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use crate::hidden::is_hidden;

/// The most bytes of a name.
pub const MOST_NAME_BYTES: usize = 64;
/// The most bytes of a machine's name.
pub(super) const MOST_MACHINE_BYTES: usize = 63;
/// The name of a machine if no character of its host's name can be used.
const MACHINE: &str = "machine";

/// Whether a device may have this name.
pub fn is_name(text: &str) -> bool {
    (1..=MOST_NAME_BYTES).contains(&text.len()) && !text.chars().any(is_bad) && is_nfc(text) && text.trim() == text
}

/// Whether a machine may have this name.
pub fn is_machine_name(text: &str) -> bool {
    let mut letters = text.chars();
    let begins = letters.next().is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit());
    begins && text.len() <= MOST_MACHINE_BYTES && letters.all(is_of_machine)
}

fn is_of_machine(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '.' | '_' | '-')
}

fn is_bad(letter: char) -> bool {
    letter.is_control() || is_hidden(letter)
}

/// The valid name that is nearest to a typed text, a computer's name or what a person calls themselves. `None`: no character can be used.
pub fn nearest(text: &str, most: usize) -> Option<String> {
    let text: String = text.chars().filter(|c| !is_bad(*c)).nfc().collect();
    let mut name = String::new();
    for letter in text.trim().chars() {
        if name.len() + letter.len_utf8() > most {
            break;
        }
        name.push(letter);
    }
    let name = name.trim_end();
    (!name.is_empty()).then(|| name.to_owned())
}

/// The valid machine name that is nearest to the host's name.
pub(super) fn nearest_of_machine(text: &str, most: usize) -> String {
    let mut name = String::new();
    let mut is_in_run = false;
    for letter in text.to_lowercase().chars() {
        let is_other = !is_of_machine(letter);
        if !(is_other && is_in_run) {
            name.push(if is_other { '-' } else { letter });
        }
        is_in_run = is_other;
    }
    let mut name = name.trim_start_matches(['-', '.', '_']);
    name = name.get(..most).unwrap_or(name).trim_end_matches(['-', '.', '_']);
    if name.is_empty() { MACHINE.to_owned() } else { name.to_owned() }
}

/// The name for a device or a machine that asks for `wanted`, with this number.
pub(super) fn numbered(role: Role, wanted: &str, number: u32) -> Option<String> {
    match (role, number) {
        (Role::Machine, 1) => Some(nearest_of_machine(wanted, MOST_MACHINE_BYTES)),
        (Role::Machine, _) => {
            let number = format!("-{number}");
            Some(nearest_of_machine(wanted, MOST_MACHINE_BYTES.saturating_sub(number.len())) + &number)
        }
        (_, 1) => nearest(wanted, MOST_NAME_BYTES),
        _ => nearest(wanted, MOST_NAME_BYTES - 4).map(|name| format!("{name} {number}")),
    }
}

/// The form in which names are compared.
pub(super) fn folded(name: &str) -> String {
    name.to_lowercase()
}
