//! What the host itself asks people: whether a guest's prompt may be done, and whether the session may cost more.

use ensemble_protocol::transcript::body::{Content, Permission, PermissionOption};
use ensemble_protocol::transcript::rules::OpenRequest;
use ensemble_protocol::transcript::visible;
use ensemble_protocol::transcript::words::{OptionKind, ReceiptCode};
use ensemble_types::ids::unique;

use super::commands::Done;
use super::prompts::whole;
use super::{About, Core, Open};
use crate::kept::{Change, CostLimit, Queued};

/// Prompts of one guest that wait for the owner.
const MOST_ASKED: usize = 3;
const ALLOW: &str = "allow";
const DENY: &str = "deny";

fn option(id: &str, name: &str) -> PermissionOption {
    let kind = if id == ALLOW { OptionKind::AllowOnce } else { OptionKind::RejectOnce };
    PermissionOption { option_id: id.to_owned(), name: name.to_owned(), kind }
}

/// Amounts below a dime need more digits to differ.
fn dollars(usd: f64) -> String {
    if usd < 0.1 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

impl Core {
    /// In this mode the agent asks nothing, so the owner is asked whether this person's prompt may be done.
    pub(super) fn ask_owner(&mut self, prompt: Queued) -> Done {
        let is_same = |open: &Open| matches!(&open.about, About::Guest { prompt: other } if other.user == prompt.user);
        if self.open.values().filter(|open| is_same(open)).count() >= MOST_ASKED {
            let text = "The owner has not decided about your other prompts yet.".to_owned();
            return Done::Rejected(ReceiptCode::Busy, Some(text));
        }
        let (detail, cut) = ensemble_protocol::transcript::detail(&whole(&prompt));
        let mut options = vec![option(ALLOW, "Let the agent do it"), option(DENY, "Do not")];
        options.retain(|option| cut.is_none() || option.option_id == DENY);
        let permission = Permission {
            request_id: unique().to_string(),
            tool_call_id: None,
            title: format!("A prompt of the guest {} in the mode {}", prompt.user, visible(self.mode().as_str())),
            detail,
            cut,
            content: Vec::new(),
            options,
        };
        if !self.ask_people(permission, About::Guest { prompt }) {
            let text = "It is too long to be shown to the owner.".to_owned();
            return Done::Rejected(ReceiptCode::Unsupported, Some(text));
        }
        Done::Later
    }

    /// Shows a request of the host. False: it is too long to be shown.
    fn ask_people(&mut self, permission: Permission, about: About) -> bool {
        let (request_id, options) = (permission.request_id.clone(), permission.options.clone());
        let Some(digest) = self.say_whole(Content::Permission(Box::new(permission))) else { return false };
        self.change(Change::Ask(request_id.clone(), false));
        let asked = OpenRequest { digest, options: Some(options) };
        self.open.insert(request_id, Open { asked, about });
        true
    }

    pub(super) fn guest_is_answered(&mut self, prompt: Queued, answer: Option<&str>) {
        let (local_id, key) = (prompt.local_id.clone(), prompt.key.clone());
        let done = if answer == Some(ALLOW) {
            self.queue(Queued { is_approved: true, ..prompt })
        } else {
            Done::Rejected(ReceiptCode::NotAllowed, Some("The owner did not let the agent do it.".to_owned()))
        };
        self.receipt(local_id, key, done);
    }

    /// A guest's prompt without a decision is not done.
    pub(super) fn guest_is_refused(&mut self, open: Open, reason: &str) {
        if let About::Guest { prompt } = open.about {
            let why = format!("No one has decided about it: {reason}.");
            self.refuse(prompt, ReceiptCode::Superseded, why);
        }
    }

    /// Whether another turn may begin. At the limit of the cost people are asked, once.
    pub(super) fn may_cost_more(&mut self) -> bool {
        let Some(limit) = self.kept.limit.filter(|limit| self.cost() >= limit.until) else { return true };
        if self.open.values().any(|open| matches!(open.about, About::Cost)) {
            return false;
        }
        let (cost, next) = (self.cost(), self.cost() + limit.each);
        let permission = Permission {
            request_id: unique().to_string(),
            tool_call_id: None,
            title: format!("The session has cost {} of at most {}", dollars(cost), dollars(limit.until)),
            detail: "Your prompt waits until you say whether the session may cost more.".to_owned(),
            cut: None,
            content: Vec::new(),
            options: vec![option(ALLOW, &format!("Continue up to {}", dollars(next))), option(DENY, "Do not continue")],
        };
        self.ask_people(permission, About::Cost);
        false
    }

    pub(super) fn cost_is_answered(&mut self, answer: Option<&str>) {
        let Some(limit) = self.kept.limit else { return };
        if answer == Some(ALLOW) {
            return self.change(Change::Limit(CostLimit { until: self.cost() + limit.each, ..limit }));
        }
        for prompt in self.kept.queue.clone().into_iter().filter(|prompt| !prompt.is_given) {
            let why = format!("The session has cost {}, and it was not allowed to cost more.", dollars(self.cost()));
            self.refuse(prompt, ReceiptCode::NotAllowed, why);
        }
    }

    /// The turn that runs has cost `usd` so far.
    pub(super) fn turn_has_cost(&mut self, usd: f64) {
        let is_over = |limit: CostLimit| self.cost() + usd >= limit.until;
        if self.kept.limit.is_some_and(is_over) && self.has_turn() && !self.is_interrupting() {
            let text =
                format!("The session has cost {}, its limit, so the turn is interrupted.", dollars(self.cost() + usd));
            self.fail(ensemble_protocol::transcript::words::ErrorCode::Quota, &text);
            self.interrupt();
        }
    }

    fn cost(&self) -> f64 {
        self.kept.cost_usd.unwrap_or_default()
    }
}
