//! `ensemble prompt`, `answer`, `interrupt` and `stop`: one command to a live session, without its screen.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ensemble_account::live::Live;
use ensemble_account::sessions::Named;
use ensemble_protocol::transcript::body::{Answer as Reply, Content, Control, Prompt as Text};
use ensemble_protocol::transcript::option_digits;
use ensemble_protocol::transcript::plain::{question_of, rejection};
use ensemble_protocol::transcript::view::{Asks, Card, Shown, Taken};
use ensemble_protocol::transcript::words::{OptionKind, Outcome, When};
use ensemble_types::sessions::{SessionStatus, UpdateSession};
use serde_json::json;

use super::DONE;
use crate::complete;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::live::{self, text};
use crate::piped;
use crate::print;

/// Several requests are open, and none was named.
const WHICH: u8 = 2;

/// The reasons of a host for a request that ends with its agent or with itself.
const RESTARTS: [&str; 2] = ["agent restarted", "the program on the machine is ending"];

/// Gives the agent of a live session something to do.
#[derive(Debug, Args)]
pub(crate) struct Prompt {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// What to do (`-`: standard input)
    #[arg(required = true, num_args = 1..)]
    text: Vec<String>,
    /// Send it into the turn that is running, where the agent can be steered
    #[arg(long)]
    now: bool,
    /// An image or a text file to send with it; can be repeated, at most 512 KiB in all
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
}

/// Answers what the agent of a live session asks.
#[derive(Debug, Args)]
pub(crate) struct Answer {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
    /// `allow` or `deny` this once, or the answer to a question
    answer: Vec<String>,
    /// Which request; needed without a terminal
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// One of its options
    #[arg(long, value_name = "ID", conflicts_with = "answer")]
    option: Option<String>,
}

/// Interrupts the turn of a live session, or ends the session.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The session's ref or id, or `last`
    #[arg(add = complete::sessions())]
    session: Named,
}

impl Prompt {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let text = match self.text.as_slice() {
            [dash] if dash == "-" => piped::prompt()?,
            words => words.join(" "),
        };
        if text.trim().is_empty() {
            return Err(Failure::message("The prompt is empty, so it was not sent."));
        }
        let attachments = ensemble_account::attachments(&self.attach)?;
        let when = if self.now { When::Now } else { When::Next };
        let me = context.me().await?;
        let mut live = live::open(context, &me, self.session.with_agent(&me).await?).await?;
        let taken = live.command(Content::Prompt(Text { text, attachments, when, directory: None })).await?;
        done(context, &live, taken, "The agent has it.")
    }
}

impl Answer {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let mut live = live::open(context, &me, self.session.with_agent(&me).await?).await?;
        live.load().await?;
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let card = match self.chosen(context, &live, is_terminal)? {
            Ok(card) => card,
            Err(code) => return Ok(code),
        };
        let words = self.answer.join(" ");
        let is_asked = words.is_empty() && self.option.is_none();
        if is_asked {
            print::line(question_of(&card))?;
            if !is_terminal {
                return Ok(DONE);
            }
        }
        let words = if is_asked { asked(&card)? } else { words };
        let answer = reply(&card, &words, self.option)?;
        let taken = live.command(Content::Answer(answer)).await?;
        done(context, &live, taken, "The agent has the answer.")
    }

    /// The request that is meant, or the exit code if there is not exactly one.
    fn chosen(&self, context: &Context, live: &Live, is_terminal: bool) -> Result<std::result::Result<Card, ExitCode>> {
        let open: Vec<&Card> = live.view.open().collect();
        if let Some(request) = &self.request {
            let found = open.iter().find(|card| card.request_id == *request);
            let found = found.ok_or_else(|| Failure::message(closed(live, request)))?;
            return Ok(Ok(Card::clone(found)));
        }
        match open.as_slice() {
            [] => Err(Failure::message("The agent does not ask anything now.")),
            [only] if is_terminal => Ok(Ok(Card::clone(only))),
            several => {
                if context.json {
                    let requests: Vec<&str> = several.iter().map(|card| card.request_id.as_str()).collect();
                    print::json(&json!({ "requests": requests }), false)?;
                } else {
                    for card in several {
                        print::line(text::card(card))?;
                    }
                    print::note(match several {
                        [only] => format!(
                            "Another request may be open by the time that a program answers. Name this one: --request {}.",
                            print::inline(&only.request_id)
                        ),
                        _ => "Say which one is meant: --request ID.".to_owned(),
                    });
                }
                Ok(Err(ExitCode::from(WHICH)))
            }
        }
    }
}

/// Why a request is not open.
fn closed(live: &Live, request: &str) -> String {
    let mut cards = live.view.items().filter_map(|item| match &item.shown {
        Shown::Card(card) if card.request_id == request => card.resolved.as_ref(),
        _ => None,
    });
    let withdrawn = cards.next_back().filter(|resolved| resolved.outcome == Outcome::Withdrawn);
    match withdrawn.and_then(|resolved| resolved.reason.as_deref()) {
        Some(reason) if RESTARTS.contains(&reason) => {
            format!(
                "The request {request} is not open any more: the program on the machine has started again. Prompt the agent again."
            )
        }
        Some(reason) => format!("The request {request} is not open any more: {}.", print::inline(reason)),
        None => format!("The request {request} is not open. It was answered or withdrawn."),
    }
}

/// Asks the person at the terminal.
fn asked(card: &Card) -> Result<String> {
    print::ask(format!("Your answer ({}):", may_be_typed(card)))?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let line = line.trim().to_owned();
    if line.is_empty() { Err(Failure::message("Nothing was answered.")) } else { Ok(line) }
}

fn may_be_typed(card: &Card) -> String {
    let Asks::Permission(permission) = &card.asks else { return "one of the answers, or your own words".to_owned() };
    let digits = option_digits(permission);
    let digits = digits.iter().map(|(digit, _)| digit.to_string());
    let others = (permission.options.len() > digits.len()).then(|| "the id of an option".to_owned());
    print::inline(&digits.chain(others).collect::<Vec<_>>().join(", "))
}

fn reply(card: &Card, words: &str, option: Option<String>) -> Result<Reply> {
    let (request_id, digest) = (card.request_id.clone(), card.digest.clone());
    let empty = Reply { request_id, digest, option_id: None, answers: None, message: None };
    match &card.asks {
        Asks::Permission(permission) => {
            let kind = match words {
                "allow" | "yes" | "y" => Some(OptionKind::AllowOnce),
                "deny" | "no" | "n" => Some(OptionKind::RejectOnce),
                _ => None,
            };
            let by_id = |id: &str| permission.options.iter().find(|one| one.option_id == id);
            // An agent chooses the ids. The digits are those of the screen, whatever ids there are.
            let by_digit = || option_digits(permission).into_iter().find(|(digit, _)| words == digit.to_string());
            let found = match (&option, kind) {
                (Some(id), _) => by_id(id),
                (None, Some(kind)) => permission.options.iter().find(|one| one.kind == kind),
                (None, None) => by_digit().map(|(_, option)| option).or_else(|| by_id(words)),
            };
            let found = found.ok_or_else(|| {
                let ids: Vec<&str> = permission.options.iter().map(|one| one.option_id.as_str()).collect();
                Failure::message(format!(
                    "The request has no such option. It has: {}. `allow` and `deny` are for this once.",
                    print::inline(&ids.join(", "))
                ))
            })?;
            Ok(Reply { option_id: Some(found.option_id.clone()), ..empty })
        }
        Asks::Question(question) => match question.questions.as_slice() {
            [only] => {
                let text = option.unwrap_or_else(|| words.to_owned());
                let answers = BTreeMap::from([(only.id.clone(), vec![text])]);
                Ok(Reply { answers: Some(answers), ..empty })
            }
            _ => Err(Failure::message("The agent asks several questions at once. `ensemble attach` shows them all.")),
        },
    }
}

impl Which {
    pub(crate) async fn interrupt(self, context: &Context) -> Result {
        let me = context.me().await?;
        let mut live = live::open(context, &me, self.session.with_agent(&me).await?).await?;
        let taken = live.command(Content::Control(Control::Interrupt)).await?;
        done(context, &live, taken, "What runs is interrupted.")
    }

    pub(crate) async fn stop(self, context: &Context) -> Result {
        let me = context.me().await?;
        let mut live = live::open(context, &me, self.session.with_agent(&me).await?).await?;
        let taken = live.command(Content::Control(Control::Stop)).await?;
        if taken == Taken::Done {
            let update = UpdateSession { status: Some(SessionStatus::Ended), ..UpdateSession::default() };
            me.client.update_session(live.session.id, &update).await?;
        }
        done(context, &live, taken, "The agent has ended. What was said can still be read.")
    }
}

/// Says what happened to a command.
fn done(context: &Context, live: &Live, taken: Taken, text: &str) -> Result {
    let (word, failure) = match &taken {
        Taken::Done => ("done", None),
        Taken::Queued => ("queued", None),
        Taken::NotYet => ("notTaken", None),
        Taken::Rejected { code, text } => ("rejected", Some(rejection(code.as_ref(), text.as_deref()))),
    };
    if let Some(why) = failure {
        return Err(Failure::message(format!("The machine did not do it: {why}")));
    }
    if context.json {
        print::json(&json!({ "session": live.session.reference, "outcome": word }), false)?;
    } else {
        print::line(match (taken, live.problem()) {
            (Taken::Queued, _) => "Taken. The agent does it when it is ready, after what waits already.".to_owned(),
            (Taken::NotYet, Some(why)) => {
                format!(
                    "Sent. The machine has not taken it yet: {}. It takes it when that is over.",
                    print::inline(&why)
                )
            }
            (Taken::NotYet, None) => {
                "Sent. The machine has not taken it yet: it is away, and takes it when it is back.".to_owned()
            }
            _ => text.to_owned(),
        })?;
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use ensemble_protocol::transcript::body::{Permission, PermissionOption};

    use super::*;

    fn card(options: &[(&str, OptionKind)]) -> Card {
        let option = |(id, kind): &(&str, OptionKind)| PermissionOption {
            option_id: (*id).to_owned(),
            name: format!("name of {id}"),
            kind: kind.clone(),
        };
        let permission = Permission {
            request_id: "r".to_owned(),
            tool_call_id: None,
            title: "Run a command".to_owned(),
            detail: "rm -rf build".to_owned(),
            cut: None,
            content: Vec::new(),
            options: options.iter().map(option).collect(),
        };
        let (request_id, digest) = (permission.request_id.clone(), "d".to_owned());
        Card { request_id, digest, asks: Asks::Permission(permission), resolved: None }
    }

    #[test]
    fn a_number_is_the_one_of_the_screen() {
        use OptionKind::{AllowAlways, AllowOnce, RejectOnce};
        let card = card(&[
            ("once", AllowOnce),
            ("2", AllowAlways),
            ("rule", AllowAlways),
            ("no", RejectOnce),
            ("stop", RejectOnce),
        ]);
        for (words, chosen) in
            [("1", "once"), ("2", "no"), ("3", "stop"), ("allow", "once"), ("n", "no"), ("rule", "rule")]
        {
            assert_eq!(reply(&card, words, None).unwrap().option_id.as_deref(), Some(chosen), "{words}");
        }
        assert_eq!(reply(&card, "", Some("2".to_owned())).unwrap().option_id.as_deref(), Some("2"));
        for words in ["4", "0", "12", "maybe"] {
            assert!(reply(&card, words, None).is_err(), "{words}");
        }
        assert_eq!(may_be_typed(&card), "1, 2, 3, the id of an option");
        let lines = [
            "?? Run a command",
            "    rm -rf build",
            "    1  name of once",
            "    --option 2  name of 2",
            "    --option rule  name of rule",
            "    2  name of no",
            "    3  name of stop",
        ];
        assert_eq!(question_of(&card).lines().collect::<Vec<_>>(), lines);
    }
}
