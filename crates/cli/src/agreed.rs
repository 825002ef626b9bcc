//! What a person has agreed to in a directory: that a machine works for it, and that an agent there asks for nothing. It is asked once.

use std::io::{self, IsTerminal};

use ensemble_account::Account;
use ensemble_types::ids::MachineId;
use serde::{Deserialize, Serialize};

use crate::confirm;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::home::Home;
use crate::machines::Machines;

const FILE: &str = "agreed.json";
/// What is kept. Of what is older it is asked again.
const MOST: usize = 1_000;
/// This computer in the file. A person sits at it, so work in its directories is asked about only in `bypass`.
const HERE: &str = "this computer";
/// All machines in the file. A person who names none of them lets each of them do it.
const ANY: &str = "any machine";

/// An agreement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Agreed {
    directory: String,
    /// The key of the machine: one with another key is another machine.
    machine: String,
    /// The agent may do everything there.
    everything: bool,
}

/// Which machine an agent is to work on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Where<'a> {
    Here,
    On(&'a MachineId, &'a Machines),
    /// The first of all machines that takes it.
    Any,
}

impl<'a> Where<'a> {
    pub(crate) fn of(machine: Option<&'a MachineId>, machines: &'a Machines) -> Self {
        match machine {
            None => Self::Any,
            Some(id) if machines.this() == Some(id) => Self::Here,
            Some(id) => Self::On(id, machines),
        }
    }

    fn called(self) -> String {
        match self {
            Self::Here => HERE.to_owned(),
            Self::On(id, machines) => machines.called(id),
            Self::Any => "any of your machines".to_owned(),
        }
    }
}

/// What is to be agreed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    pub(crate) directory: &'a str,
    pub(crate) on: Where<'a>,
    /// The agent asks for nothing.
    pub(crate) is_bypass: bool,
    /// `--yes`, or the machine's id in full.
    pub(crate) is_said: bool,
    /// A program waits, and a person cannot be asked.
    pub(crate) is_quiet: bool,
}

/// Asks what was not agreed to yet, and remembers it.
///
/// # Errors
/// The person does not want it, or there is no terminal to ask at.
pub(crate) fn agree(context: &Context, me: &Account, work: Work<'_>) -> Result<()> {
    let key = match work.on {
        Where::Here => Some(HERE.to_owned()),
        Where::Any => Some(ANY.to_owned()),
        Where::On(id, _) => {
            let own = me.own();
            let entry = own.list.body().devices.iter().find(|device| device.machine_id.as_ref() == Some(id));
            entry.map(|device| device.key.clone())
        }
    };
    let agreed = key.as_deref().and_then(|key| context.home.agreed(work.directory, key));
    let Some(question) = question(&work, agreed) else { return Ok(()) };
    if !work.is_said {
        if work.is_quiet || !io::stdin().is_terminal() {
            let or_id = if matches!(work.on, Where::On(..)) { ", or name the machine by its id" } else { "" };
            return Err(Failure::NotAgreed(format!(
                "{question}? There is no terminal to ask this at. Add --yes if that is what you want{or_id}."
            )));
        }
        if !confirm::change(&question)? {
            return Err(Failure::message("Nothing was begun."));
        }
    }
    key.map_or(Ok(()), |key| context.home.note_agreed(work.directory, key, work.is_bypass))
}

/// What is to be asked, where something is. `agreed`: what was agreed to before.
fn question(work: &Work<'_>, agreed: Option<bool>) -> Option<String> {
    let (directory, called) = (work.directory, work.on.called());
    if work.is_bypass && agreed != Some(true) {
        return Some(format!("Let the agent do everything in {directory} on {called} without asking"));
    }
    let is_new = agreed.is_none() && matches!(work.on, Where::On(..));
    is_new.then(|| format!("Work in {directory} on {called}, which this device has not used there before"))
}

impl Home {
    /// Whether everything was agreed to, where something was. A file that cannot be read agrees to nothing, and the next answer
    /// replaces it.
    fn agreed(&self, directory: &str, machine: &str) -> Option<bool> {
        let all: Vec<Agreed> = self.read_json(FILE).ok().flatten().unwrap_or_default();
        all.iter().find(|one| one.directory == directory && one.machine == machine).map(|one| one.everything)
    }

    fn note_agreed(&self, directory: &str, machine: String, everything: bool) -> Result<()> {
        self.renew_json(FILE, |all: &mut Vec<Agreed>| {
            let is_it = |one: &Agreed| one.directory == directory && one.machine == machine;
            let everything = everything || all.iter().any(|one| is_it(one) && one.everything);
            all.retain(|one| !is_it(one));
            all.insert(0, Agreed { directory: directory.to_owned(), machine, everything });
            all.truncate(MOST);
            Ok(())
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::tests::machines;

    #[test]
    fn a_machine_is_asked_about_once_in_a_directory_and_bypass_too() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::find(Some(place.path().join("home"))).unwrap();
        let known = machines(&[("this", "desk"), ("other", "laptop")]);
        let other: MachineId = "other".parse().unwrap();
        let asked = |on, directory: &str, key: &str, is_bypass| {
            let work = Work { directory, on, is_bypass, is_said: false, is_quiet: false };
            question(&work, home.agreed(directory, key))
        };
        let on = || Where::of(Some(&other), &known);
        let first = asked(on(), "/a", "k1", false).unwrap();
        assert!(first.contains("/a") && first.contains("laptop"), "{first}");
        home.note_agreed("/a", "k1".to_owned(), false).unwrap();
        assert_eq!(asked(on(), "/a", "k1", false), None);
        assert!(asked(on(), "/a", "k1", true).unwrap().contains("without asking"), "bypass is another question");
        assert!(asked(on(), "/b", "k1", false).is_some(), "another directory");
        assert!(asked(on(), "/a", "k2", false).is_some(), "a machine with another key is a new one");
        home.note_agreed("/a", "k1".to_owned(), true).unwrap();
        home.note_agreed("/a", "k1".to_owned(), false).unwrap();
        assert_eq!(asked(on(), "/a", "k1", true), None, "it stays agreed to");

        let this: MachineId = "this".parse().unwrap();
        let here = || Where::of(Some(&this), &known);
        assert!(asked(here(), "/a", HERE, false).is_none() && asked(here(), "/a", HERE, true).is_some());
        assert!(asked(Where::Any, "/a", ANY, false).is_none() && asked(Where::Any, "/a", ANY, true).is_some());
    }
    #[test]
    fn a_damaged_file_agrees_to_nothing_and_a_full_one_forgets_the_oldest() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::find(Some(place.path().join("home"))).unwrap();
        home.note_agreed("/a", "k".to_owned(), true).unwrap();
        std::fs::write(home.path().join(FILE), "[{").unwrap();
        assert_eq!(home.agreed("/a", "k"), None);
        let one = |at: usize| Agreed { directory: format!("/{at}"), machine: "k".to_owned(), everything: true };
        home.write_json(FILE, &(0..MOST).map(one).collect::<Vec<_>>()).unwrap();
        home.note_agreed("/new", "k".to_owned(), false).unwrap();
        let last = format!("/{}", MOST - 1);
        assert_eq!((home.agreed("/new", "k"), home.agreed("/0", "k")), (Some(false), Some(true)));
        assert_eq!(home.agreed(&last, "k"), None);
    }
}
