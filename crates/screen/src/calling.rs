//! Calls a person who is looking elsewhere: the terminal's title shows the session's state, and a new request rings.

use std::collections::BTreeSet;

use ensemble_protocol::transcript::view::View;
use ensemble_protocol::transcript::words::Phase;

use crate::about::{About, Level};
use crate::clean::line;
use crate::paint::Paint;

/// The characters of a title that tabs have room for.
const MOST_TITLE: usize = 60;

/// What the terminal is to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The new title.
    pub title: Option<String>,
    /// A request that this person may answer has come, in a few words.
    pub ring: Option<String>,
}

/// What was said before.
#[derive(Default)]
pub(crate) struct Calling {
    title: String,
    rung: BTreeSet<String>,
}

impl Calling {
    /// What is new since the last call.
    pub(crate) fn next(&mut self, view: &View, about: &About<'_>, paint: Paint) -> Call {
        let may_answer = about.level >= Level::Approve;
        let open: BTreeSet<String> = view.open().map(|card| card.request_id.clone()).collect();
        let name = line(about.title, MOST_TITLE);
        let asks = may_answer && !open.is_empty();
        let title = match view.state().map(|state| &state.phase) {
            _ if asks => format!("{} {name} asks", paint.pick("◆", "!")),
            Some(Phase::Working) => format!("{} {name}", paint.pick("◐", "*")),
            _ => name.clone(),
        };
        let is_new = may_answer && open.iter().any(|id| !self.rung.contains(id));
        self.rung = open;
        let title = (title != self.title).then(|| {
            self.title.clone_from(&title);
            title
        });
        Call { title, ring: is_new.then(|| format!("{name} asks")) }
    }
}
