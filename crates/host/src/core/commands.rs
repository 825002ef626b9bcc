//! What people send becomes orders to the agent, and each command gets its receipt.

use std::time::Duration;

use ensemble_agent::{Command as Order, Prompt as ForAgent, Refused, Reply};
use ensemble_protocol::transcript::body::{
    Answer, Content, Control, Failure, Message, Permission, PermissionOption, Receipt, Resolved, SetMode,
};
use ensemble_protocol::transcript::rules::{Decision, Right, Signer, Situation, time_of};
use ensemble_protocol::transcript::words::{ErrorCode, OptionKind, Outcome, ReceiptCode, ReceiptOutcome, When};
use ensemble_types::ids::unique;
use ensemble_types::time::Timestamp;

use super::prompts::queued;
use super::{About, Asked, Core, MOST_OF_GUEST, MOST_QUEUED};
use crate::kept::{Change, Queued};

/// A message of a person whose signature is good.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) message: Message,
    pub(crate) signer: Signer,
    /// Of the key that it is sealed with.
    pub(crate) epoch: u32,
    /// The server does not show the newest device list of the owner.
    pub(crate) list_is_withheld: bool,
    /// A message before it waits for a key that this machine does not have.
    pub(crate) key_is_missing: bool,
}

/// What a command has become.
pub(super) enum Done {
    Now,
    Queued,
    /// The receipt comes when the owner has decided.
    Later,
    Rejected(ReceiptCode, Option<String>),
}

pub(super) const WITHHELD: &str = "The server does not show this machine the newest list of your devices, so the machine does nothing. If it \
                        stays so, do not trust the server.";

const WRONG_DIRECTORY: &str = "This session works in another directory than the one that you were shown, so nothing was done. If you did not \
                               choose another session yourself, do not trust the server.";

const NO_KEY: &str = "This machine does not have the newest key of the session yet, so it does nothing except stop. What was sent \
                      under that key is done when a program of the owner has given the machine the key.";

impl Core {
    /// Messages wait for a key that this machine does not have. It is said once in each session.
    pub(crate) fn lacks_key(&mut self) {
        if self.kept.has_said_no_key {
            return;
        }
        self.change(Change::SaidNoKey);
        self.say(Content::Error(Failure { code: ErrorCode::Unknown, text: NO_KEY.to_owned(), retry_at: None }));
    }

    /// The message with this `seq` was dealt with.
    pub(crate) fn seen(&mut self, seq: i64) {
        if seq > self.kept.seen {
            self.change(Change::Seen(seq));
        }
    }

    /// Decides about a command in the message with this `seq`, and carries it out. One that may come again, and is known, needs no second
    /// receipt; nor one from before a restore that was forgotten since.
    pub(crate) fn command(&mut self, seq: i64, command: Command) {
        let Command { mut message, signer, epoch, list_is_withheld, key_is_missing } = command;
        // Clients take back what a removed device has given.
        if let Content::Control(Control::Access(grant)) = &mut message.content {
            grant.key = Some(signer.key.clone());
        }
        let open = match &message.content {
            Content::Answer(answer) => self.open.get(&answer.request_id).map(|open| open.asked.clone()),
            _ => None,
        };
        let (mode, directory) = (self.mode().clone(), self.directory());
        let situation = Situation {
            mode: &mode,
            ended: self.kept.ended,
            epoch,
            newest_epoch: self.key_epoch,
            directory: &directory,
            open: open.as_ref(),
            list_is_withheld,
            key_is_missing,
        };
        let (decision, remembered) = self.rules.decide(&message, &signer, &situation, self.now);
        let is_known = remembered.is_none() && seq <= self.comes_again.max(self.opened_at);
        if let Some(command) = remembered {
            self.change(Change::Take(command.into()));
        }
        let is_late = matches!(decision, Decision::Reject(ReceiptCode::Stale)) && seq <= self.comes_again;
        if decision == Decision::Ignore || is_known || is_late {
            return;
        }
        if matches!((&decision, &message.content), (Decision::Take, Content::Prompt(_))) {
            self.judged(Asked::of(&signer, &message.local_id), signer.clone(), list_is_withheld);
        }
        let done = match (decision, message.content) {
            (Decision::Reject(ReceiptCode::Busy), _) if list_is_withheld => {
                Done::Rejected(ReceiptCode::Busy, Some(WITHHELD.to_owned()))
            }
            (Decision::Reject(ReceiptCode::Superseded), Content::Control(Control::Access(grant))) => {
                self.note_removed(&grant, epoch);
                Done::Rejected(ReceiptCode::Superseded, None)
            }
            (Decision::Reject(ReceiptCode::Superseded), Content::Prompt(_)) => {
                let text =
                    "The session has ended. Its owner can resume it with /resume in `ensemble attach`.".to_owned();
                Done::Rejected(ReceiptCode::Superseded, Some(text))
            }
            (Decision::Reject(ReceiptCode::Stale), content) => {
                let at = match content {
                    Content::Control(Control::Access(grant)) => message.at.max(time_of(&grant)),
                    _ => message.at,
                };
                Done::Rejected(ReceiptCode::Stale, early(at, self.now))
            }
            (Decision::Reject(code), _) => Done::Rejected(code, None),
            (Decision::AskOwner, Content::Prompt(prompt)) => match queued(prompt, message.local_id.clone(), &signer) {
                Ok((prompt, _)) => self.ask_owner(prompt),
                Err(done) => done,
            },
            (_, Content::Prompt(prompt)) => match queued(prompt, message.local_id.clone(), &signer) {
                Ok((prompt, when)) => self.prompt(prompt, &when),
                Err(done) => done,
            },
            (_, Content::Answer(answer)) => self.answer(answer, &signer),
            (_, Content::Control(Control::Access(grant))) => self.access(grant, epoch),
            (_, Content::Control(Control::TakeBack(prompt))) => self.take_back(&prompt, &signer),
            (_, Content::Control(control)) => self.control(control, self.rules.right(&signer)),
            _ => Done::Rejected(ReceiptCode::Unsupported, None),
        };
        self.receipt(message.local_id, signer.key, done);
    }

    pub(super) fn receipt(&mut self, command_id: String, key: String, done: Done) {
        let (outcome, code, text) = match done {
            Done::Now => (ReceiptOutcome::Done, None, None),
            Done::Queued => (ReceiptOutcome::Queued, None, None),
            Done::Later => return,
            Done::Rejected(code, text) => {
                let text = text.or_else(|| advice(&code).map(str::to_owned));
                (ReceiptOutcome::Rejected, Some(code), text)
            }
        };
        self.say(Content::Receipt(Receipt { command_id, key, outcome, code, text }));
    }

    fn prompt(&mut self, prompt: Queued, when: &When) -> Done {
        if self.kept.queue.len() >= MOST_QUEUED {
            let text = format!("{MOST_QUEUED} prompts wait already. Send it again when some of them are done.");
            return Done::Rejected(ReceiptCode::Busy, Some(text));
        }
        let of_guest = self.kept.queue.iter().filter(|waits| waits.user == prompt.user).count();
        if prompt.user != self.rules.owner() && of_guest >= MOST_OF_GUEST {
            let text =
                format!("{MOST_OF_GUEST} prompts of yours wait already. Send it again when some of them are done.");
            return Done::Rejected(ReceiptCode::Busy, Some(text));
        }
        // An agent may make a separate turn of it, which would cost more without a person's consent.
        let is_bounded = self.kept.limit.is_some() && self.abilities.is_some_and(|abilities| abilities.says_cost);
        let steers = self.abilities.is_some_and(|abilities| abilities.steers) && !is_bounded;
        if *when == When::Now && self.kept.turn.is_some() && steers {
            let id = unique().to_string();
            let order =
                ForAgent { id, text: prompt.text.clone(), attachments: prompt.attachments.clone(), steer: true };
            if self.order(Order::Prompt(order)) {
                return Done::Now;
            }
        }
        self.queue(prompt)
    }

    pub(super) fn queue(&mut self, prompt: Queued) -> Done {
        let (key, local_id) = (prompt.key.clone(), prompt.local_id.clone());
        self.crashes = 0;
        self.change(Change::Queue(prompt));
        self.refused = None;
        self.pump();
        let waits =
            self.kept.queue.iter().any(|prompt| prompt.key == key && prompt.local_id == local_id && !prompt.is_given);
        // Its receipt has been written then, and says why.
        let is_refused = self.refused.take().is_some_and(|refused| refused == (key, local_id));
        match (waits, is_refused) {
            (_, true) => Done::Later,
            (true, false) => Done::Queued,
            (false, false) => Done::Now,
        }
    }

    fn answer(&mut self, answer: Answer, signer: &Signer) -> Done {
        let Some(open) = self.open.remove(&answer.request_id) else {
            return Done::Rejected(ReceiptCode::Superseded, None);
        };
        let Answer { request_id, option_id, answers, message, .. } = answer;
        let reply = match (&option_id, answers) {
            (Some(id), _) => Reply::Option { id: id.clone(), message },
            (None, Some(answers)) => Reply::Answers(answers),
            (None, None) => Reply::Refuse { message },
        };
        let outcome = if option_id.is_some() { Outcome::Selected } else { Outcome::Answered };
        let resolved = Resolved {
            request_id: request_id.clone(),
            outcome,
            option_id: option_id.clone(),
            by: Some(signer.user),
            reason: None,
        };
        let request = match &open.about {
            About::Guest { prompt } => {
                let prompt = prompt.clone();
                self.resolve(resolved);
                self.guest_is_answered(prompt, option_id.as_deref());
                return Done::Now;
            }
            About::Cost => {
                self.resolve(resolved);
                self.cost_is_answered(option_id.as_deref());
                return Done::Now;
            }
            About::Agent { request, change, permission } => {
                if let Some(now) = change.as_ref().and_then(super::diffs::Proposed::changed) {
                    // What would be done is not what was shown, so it is shown again.
                    let (request, permission) = (request.clone(), Permission::clone(permission));
                    self.withdraw(request_id, "the file has changed since");
                    let content = vec![ensemble_protocol::transcript::body::ToolContent::Diff(now.diff.clone())];
                    let again = Permission { request_id: unique().to_string(), content, ..permission };
                    self.show(again, request, Some(now));
                    let text = "The file has changed since. Look at the request again.".to_owned();
                    return Done::Rejected(ReceiptCode::Superseded, Some(text));
                }
                request.clone()
            }
            About::Question { request } => request.clone(),
        };
        let refuses = |option: &PermissionOption| {
            Some(&option.option_id) == option_id.as_ref()
                && matches!(option.kind, OptionKind::RejectOnce | OptionKind::RejectAlways)
        };
        let is_denied = open.asked.options.iter().flatten().any(refuses);
        let Some(driver) = &mut self.driver else { return Done::Rejected(ReceiptCode::Superseded, None) };
        match driver.command(Order::Answer { request, reply }) {
            Ok(output) => {
                self.denials = self.denials.saturating_add(u32::from(is_denied));
                // Before what the agent does next.
                self.resolve(resolved);
                self.take_output(output);
                Done::Now
            }
            Err(refused) => {
                let is_closed = refused == Refused::Closed;
                if is_closed {
                    self.withdraw(request_id, "the agent does not ask any more");
                } else {
                    self.open.insert(request_id, open);
                }
                rejected(&refused)
            }
        }
    }

    /// A prompt is not done.
    pub(super) fn refuse(&mut self, prompt: Queued, code: ReceiptCode, why: String) {
        self.refused = Some((prompt.key.clone(), prompt.local_id.clone()));
        self.change(Change::Unqueue(prompt.key.clone(), prompt.local_id.clone()));
        if prompt.is_task {
            // No one waits for its receipt.
            return self.fail(ErrorCode::Crashed, &why);
        }
        self.receipt(prompt.local_id, prompt.key, Done::Rejected(code, Some(why)));
    }

    fn control(&mut self, control: Control, right: Right) -> Done {
        match control {
            Control::Interrupt => {
                if !self.has_turn() && !self.still_running.is_empty() {
                    if self.is_looked_at() {
                        self.effects.end_commands = true;
                        return Done::Now;
                    }
                    return self.carry_out(Order::Interrupt);
                }
                if !self.has_turn() {
                    let text = "No turn runs, so nothing was interrupted.".to_owned();
                    return Done::Rejected(ReceiptCode::Superseded, Some(text));
                }
                self.is_interrupted_by_person = true;
                self.interrupt();
                Done::Now
            }
            Control::SetMode(set) => self.set_mode(set, right),
            Control::SetModel(set) => {
                if set.model.is_empty() || set.model.starts_with('-') {
                    return Done::Rejected(ReceiptCode::Unsupported, Some("There is no such model.".to_owned()));
                }
                if self.driver.is_none() {
                    self.change(Change::Model(set.model));
                    return Done::Now;
                }
                self.carry_out(Order::SetModel(set.model))
            }
            Control::Stop => {
                self.close_open("the session was stopped");
                for prompt in self.kept.queue.clone() {
                    self.change(Change::Unqueue(prompt.key, prompt.local_id));
                }
                self.change(Change::Ended(true));
                if self.driver.is_some() {
                    self.stop_agent();
                }
                Done::Now
            }
            Control::Resume(_) => {
                self.change(Change::Ended(false));
                self.crashes = 0;
                self.seen_end = None;
                self.start();
                Done::Now
            }
            Control::Access(_) | Control::TakeBack(_) | Control::Newer(_) => {
                Done::Rejected(ReceiptCode::Unsupported, None)
            }
        }
    }

    fn set_mode(&mut self, set: SetMode, right: Right) -> Done {
        // In bypass the agent asks no one, so only a primary device can choose it. The rules say so too.
        if set.mode == ensemble_protocol::transcript::words::Mode::Bypass && right != Right::Primary {
            return Done::Rejected(ReceiptCode::NotAllowed, None);
        }
        if self.driver.is_none() {
            self.change(Change::Mode(set.mode));
            return Done::Now;
        }
        // The mode is another one when the agent says so.
        self.carry_out(Order::SetMode(set.mode))
    }

    /// Gives the agent an order, if it runs.
    fn carry_out(&mut self, order: Order) -> Done {
        let Some(driver) = self.driver.as_mut() else { return Done::Now };
        match driver.command(order) {
            Ok(output) => {
                self.take_output(output);
                Done::Now
            }
            Err(refused) => rejected(&refused),
        }
    }
}

fn rejected(refused: &Refused) -> Done {
    let code = match refused {
        Refused::Busy | Refused::NotReady => ReceiptCode::Busy,
        Refused::Closed => ReceiptCode::Superseded,
        Refused::NoSuchOption | Refused::Unsupported(_) => ReceiptCode::Unsupported,
    };
    Done::Rejected(code, Some(format!("The agent cannot do it now: {refused}.")))
}

/// What to do after a rejection.
fn advice(code: &ReceiptCode) -> Option<&'static str> {
    Some(match code {
        ReceiptCode::NotAllowed => "The owner has not allowed this to you.",
        ReceiptCode::UnknownKey => "This device is not registered to anyone who may command the agent.",
        ReceiptCode::Stale => {
            "It came too late. Send it again. If it is sent again and still late, look at the clocks."
        }
        ReceiptCode::Repeated => "It came before. What became of it then holds.",
        ReceiptCode::Superseded => "What it was for has changed or is over.",
        ReceiptCode::OldKey => "The session has a newer key. Send it again.",
        ReceiptCode::WrongDirectory => WRONG_DIRECTORY,
        ReceiptCode::Busy => "Too many at once. Send it again in a minute.",
        ReceiptCode::Unsupported => "The machine cannot do this.",
        ReceiptCode::TakenBack => "It was taken back before the agent had it.",
        _ => return None,
    })
}

/// The text for a person whose command is from the future, by the clock of this machine.
fn early(at: Timestamp, now: Timestamp) -> Option<String> {
    let by = at.since(now);
    (by > Duration::ZERO).then(|| {
        format!(
            "By the clock of the machine it was sent {} min in the future: that clock is behind, or the clock of the device that sent it is ahead. \
             Set it, and send it again.",
            (by.as_secs() + 30) / 60
        )
    })
}
