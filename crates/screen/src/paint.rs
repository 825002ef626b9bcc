//! Colours and marks. Everything can be distinguished without colour and without Unicode.

use ensemble_protocol::transcript::words::{PlanStatus, ToolStatus};
use ratatui_core::style::{Color, Modifier, Style};

use crate::about::Look;

/// How a part of the screen looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paint(pub(crate) Look);

impl Paint {
    fn coloured(self, colour: Color) -> Style {
        if self.0.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(crate) fn plain(self) -> Style {
        Style::new()
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn slanted(self) -> Style {
        Style::new().add_modifier(Modifier::ITALIC)
    }

    pub(crate) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(crate) fn bad(self) -> Style {
        self.coloured(Color::Red)
    }

    /// What wants the person's eye.
    pub(crate) fn asks(self) -> Style {
        self.coloured(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn warning(self) -> Style {
        self.coloured(Color::Yellow)
    }

    /// This person.
    pub(crate) fn mine(self) -> Style {
        self.coloured(Color::Cyan)
    }

    /// Other people.
    pub(crate) fn others(self) -> Style {
        self.coloured(Color::Magenta)
    }

    pub(crate) fn busy(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub(crate) fn code(self) -> Style {
        self.coloured(Color::Cyan)
    }

    pub(crate) fn pick(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        if self.0.unicode { unicode } else { ascii }
    }

    /// What stands before each line of a prompt.
    pub(crate) fn bar(self) -> &'static str {
        self.pick("│ ", "| ")
    }

    pub(crate) fn rule(self) -> &'static str {
        self.pick("─", "-")
    }

    pub(crate) fn dot(self) -> &'static str {
        self.pick(" · ", " - ")
    }

    pub(crate) fn more(self) -> &'static str {
        self.pick("…", "...")
    }

    pub(crate) fn bullet(self) -> &'static str {
        self.pick("• ", "* ")
    }

    pub(crate) fn tool(self, status: Option<&ToolStatus>) -> (&'static str, Style) {
        match status {
            None | Some(ToolStatus::Pending) => (self.pick("○", "o"), self.dim()),
            Some(ToolStatus::InProgress) => (self.pick("⋯", "~"), self.busy()),
            Some(ToolStatus::Completed) => (self.yes(), self.good()),
            Some(ToolStatus::Failed) => (self.no(), self.bad()),
            Some(ToolStatus::Interrupted) => (self.gone(), self.warning()),
            Some(ToolStatus::Other(_)) => ("?", self.dim()),
        }
    }

    pub(crate) fn plan(self, status: &PlanStatus) -> (&'static str, Style) {
        match status {
            PlanStatus::InProgress => (self.pick("⋯", "~"), self.strong()),
            PlanStatus::Completed => (self.yes(), self.dim()),
            _ => (self.pick("○", "o"), self.plain()),
        }
    }

    pub(crate) fn yes(self) -> &'static str {
        self.pick("✓", "v")
    }

    pub(crate) fn no(self) -> &'static str {
        self.pick("✗", "x")
    }

    pub(crate) fn gone(self) -> &'static str {
        self.pick("⊘", "/")
    }
}
