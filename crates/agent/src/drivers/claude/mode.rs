//! The words of claude for modes.

use ensemble_protocol::transcript::words::Mode;

pub(super) fn mode_word(mode: &Mode) -> &'static str {
    match mode {
        Mode::Edit => "acceptEdits",
        Mode::Plan => "plan",
        Mode::Bypass => "bypassPermissions",
        _ => "default",
    }
}

pub(super) fn mode_of(word: &str) -> Mode {
    match word {
        "default" => Mode::Ask,
        "acceptEdits" => Mode::Edit,
        "plan" => Mode::Plan,
        "bypassPermissions" => Mode::Bypass,
        other => Mode::of(other),
    }
}
