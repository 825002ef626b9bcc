//! What this program says of notices and failures of the account, with the command that helps.

use ensemble_account::{Account, Error, Notice};
use ensemble_plan::Error as PlanError;
use ensemble_protocol::transcript::words::May;
use ensemble_types::sessions::{AccessLevel, CannotWrite, Session, StatedReason};

use crate::{print, when};

/// Prints a notice, apart from the result.
pub(crate) fn notice(notice: &Notice) {
    print::note(of_notice(notice));
}

fn of_notice(notice: &Notice) -> String {
    match notice {
        Notice::AnotherAccount { account, origin } => format!("{account} was used here at {origin} until now."),
        Notice::NamesKeptBack => {
            "The server keeps back names of your devices, so this one gets none now. If it stays so, do not trust this server."
                .to_owned()
        }
        Notice::ComputerNotListed => {
            "This machine's computer is not a device of your account, so removing a device will not remove the machine."
                .to_owned()
        }
        Notice::WaitingForServices(time) => {
            format!("Waiting until no service accepts its tokens any more ({} s).", time.as_secs())
        }
        Notice::WaitingForProgram(what) => {
            format!("Waiting: another command of yours is {what}. If it was stopped (Ctrl-Z), let it continue or end it.")
        }
        Notice::SharedStateLost(why) => format!("{} They begin with an empty one.", error(why)),
        Notice::SharedStateNotKept(why) => format!("What your devices share was not kept: {}", error(why)),
        Notice::KeptListsLost { path, why } => format!(
            "{} cannot be read, so an empty one is begun. Until the next changes of your devices this one cannot give a server that was \
             restored from a backup the device lists that it lacks. ({})",
            path.display(),
            error(why)
        ),
        Notice::ListsRestored => {
            "The server had an old list of your devices, as after a restore. It has the newest one again.".to_owned()
        }
        Notice::MachineNotListed(why) => {
            format!("The entry of this machine in your device list stays as it is: {}", error(why))
        }
        Notice::ListFull { most } => format!(
            "Your account has {most} devices, so this machine gets a token and no key. Remove some with `ensemble devices \
             remove`."
        ),
        Notice::MachineForgotten(machine) => format!(
            "The server says that machine {machine} is new, but your device list has its key. It keeps the key. Do not delete the \
             machine: its sessions open with that key only."
        ),
        Notice::MachineKeyRemoved(kept) => format!(
            "The key of this machine was removed from your device list, so it gets another one. The old one is kept in {}.",
            kept.display()
        ),
        Notice::MachineStaysListed => {
            "The device list still has its key, so it keeps the keys of its sessions, until a primary device removes it."
                .to_owned()
        }
        Notice::KeyNotPassedOn(why) => {
            format!("Some people have not got the new key: {} The next command tries again.", error(why))
        }
        Notice::KeyNotGiven { user, why } => format!("{user} did not get the new key: {}", error(why)),
        Notice::LeftOut { user, session, why } => format!(
            "{user} does not get the new key: {} If they are to have it: `ensemble share add {session} {user}`.",
            error(why)
        ),
        Notice::NextKey { session, at } => format!(
            "The server asks for another key of session {session}. It gets one an hour in this way, because a session's keys are limited: \
             the next one at {}. `ensemble session rekey {session}` makes one now.",
            when::clock(*at)
        ),
        Notice::NextKeyOfGuest { user, session, at } => format!(
            "{user} has removed devices twice within an hour. The session gets its next key at {}, or now with `ensemble session rekey \
             {session}`.",
            at.map(when::clock).unwrap_or_default()
        ),
        Notice::AgentAsksLittle => {
            "The agent asks little in its mode, so you are asked before it does what they prompt.".to_owned()
        }
        Notice::MachineObeys(may) => match may {
            May::Approve => {
                "The machine takes prompts from them, and answers to what the agent asks: they can have it do anything."
            }
            May::Prompt => {
                "The machine takes prompts from them. What the agent asks is for you to answer, unless you share with --approve."
            }
            _ => "The machine takes no commands from them.",
        }
        .to_owned(),
        Notice::MachineAway => {
            "The machine has not confirmed yet what they may do: it is away. It does what it last knew until it is back."
                .to_owned()
        }
        Notice::RefusalRepeated { user, session } => {
            format!("The machine of session {session} is asked again to refuse commands of {user}.")
        }
        Notice::RightSettled { person, may, session, is_kept } => format!(
            "The removed device had let {person} {} in session {session}. {}",
            if *may == May::Approve { "prompt and approve" } else { "prompt" },
            if *is_kept { "The machine is asked to keep that." } else { "The machine is asked to end that." }
        ),
        Notice::RightsUnknown { session, why } => format!(
            "It is not known whether the device has let another person prompt in session {session}: {}",
            error(why)
        ),
        Notice::RightsNotSearched(count) => format!(
            "What the device has let people do in {count} older live sessions was not checked. Machines that know of its removal \
             allow none of that."
        ),
        Notice::ShareKept { person, level, session } => format!(
            "The removed device had shared session {session} with {person} ({}). They keep it.",
            level.as_str()
        ),
        Notice::FinishingRemoval => "Finishing the removal of a device: sessions get new keys.".to_owned(),
        Notice::RemovalUnfinished(why) => {
            format!("It could not be finished: {} The next command tries again.", error(why))
        }
        Notice::RevocationUnfinished(why) => format!(
            "A machine does not know yet who may not command it any more: {} The next command tries again.",
            error(why)
        ),
        Notice::KeysUnfinished(why) => {
            format!("Some people have not got the new key of a session: {} The next command tries again.", error(why))
        }
        Notice::GuestKeepsKey(why) => format!(
            "A person who was removed from a session still has its key, so nothing is written there until it has a new one: {} The next \
             command tries again.",
            error(why)
        ),
        Notice::KeysLost { session, lost, is_replaced } => format!(
            "The server has lost the newest {} of session {session} (restored from a backup?). What was written under {} does not open.{}",
            if *lost == 1 { "key".to_owned() } else { format!("{lost} keys") },
            if *lost == 1 { "it" } else { "them" },
            if *is_replaced { " The session has a new key." } else { " Nothing is written before the session has a new key." },
        ),
        Notice::SessionMissing(session) => format!(
            "The server says that session {session} is not there. Removing a person from it, or giving people its key, is unfinished and \
             stays noted. If the session was deleted, run `ensemble session delete {session}`."
        ),
        Notice::SessionWithoutNewKey { session, why } => format!("Session {session} has no new key: {}", error(why)),
        Notice::SessionsDone { done, of } => format!("{done} of {of} sessions are done."),
        Notice::SharesMayEnd { session, why } => {
            format!("The device's shares of session {session} may end: {}", error(why))
        }
        Notice::SharesEnd(count) => {
            format!("What the device has shared in the {count} oldest sessions ends with their next key.")
        }
        Notice::MachineWithoutNewKey { machine, why } => format!("Machine {machine} has no new key: {}", error(why)),
        Notice::MachinesWithoutNewKeys(why) => format!("Your machines have no new keys: {}", error(why)),
        Notice::TitlesMayBeLost(why) => {
            format!("Sessions may lose the titles that were given there: {}", error(why))
        }
        Notice::LastNotKept(why) => format!("`last` does not know of this: {}", error(why)),
        Notice::BypassOfLinked => {
            "This device is a linked one. A machine that takes signed tasks only lets an agent work in bypass where a primary device has \
             signed it, and will refuse this task."
                .to_owned()
        }
    }
}

/// A failure of the account, and what to do.
pub(crate) fn error(failure: &Error) -> String {
    error_at(failure, &|command| format!("ensemble {command}"))
}

/// The same where commands are typed so, for example with the server that they are for.
pub(crate) fn error_at(failure: &Error, typed: &dyn Fn(&str) -> String) -> String {
    match failure {
        Error::Client(error) => crate::failure::client_text(error),
        _ => match advice(failure, typed) {
            Some(advice) => format!("{failure} {advice}"),
            None => failure.to_string(),
        },
    }
}

fn advice(failure: &Error, typed: &dyn Fn(&str) -> String) -> Option<String> {
    Some(match failure {
        Error::Unwritable { .. } => "Set ENSEMBLE_HOME to a directory that you can write to.".to_owned(),
        Error::NoLast => "Name one: `ensemble session list` shows them.".to_owned(),
        Error::NoLastWithAgent => {
            "Name one: `ensemble sessions` shows them, `ensemble claude` starts one.".to_owned()
        }
        Error::NotSignedIn { .. } => format!("Run `{}`.", typed("login")),
        Error::NoAccount { .. } => format!("`{}` makes a new one with your key.", typed("login")),
        Error::SignInRefused { origin } => format!(
            "Use that one, or ask its operator to set PUBLIC_BASE_URL={origin} (with `ensemble up`: --public-url {origin})."
        ),
        Error::KeyLost { .. } => format!(
            "Restore it from your copy with `{}`. Without a copy, begin a new account with `{}`: it cannot read what the old one has \
             encrypted.",
            typed("login --key FILE"),
            typed("login --new"),
        ),
        Error::OtherKeyHere { .. } => format!(
            "Put the right key there, or sign in with the one that is there: `{}`.",
            typed("login --new")
        ),
        Error::NotTheKeyUsed { .. } => "To use it all the same, add --new.".to_owned(),
        Error::NotPrimary => {
            "Run the command on a primary device: `ensemble devices` shows them.".to_owned()
        }
        Error::NoLongerListed => "Run `ensemble devices` to see the list.".to_owned(),
        Error::CodeNotUsed | Error::LinkEnded => "Run `ensemble link` again.".to_owned(),
        Error::CodeUsed => "If it was not you, end `ensemble link` on the other device and begin again.".to_owned(),
        Error::AddedAsMachine => "Use `ensemble runner link` for that.".to_owned(),
        Error::AddedAsDevice => "Remove it there with `ensemble devices remove`.".to_owned(),
        Error::NotListed | Error::UnknownAccount(_) => "Link it again: `ensemble login --link`.".to_owned(),
        Error::NoUser(_) => "`ensemble whoami` shows users their own id.".to_owned(),
        Error::OtherKey(_) => {
            "Ask them for the fingerprint that `ensemble whoami` shows; if it has really changed, they have another account, and another \
             id."
            .to_owned()
        }
        Error::LacksKey(session) | Error::StaleKey { session, .. } => {
            format!("Ask its owner to run `ensemble session rekey {session}`.")
        }
        Error::KeyFitsNothing => "With --force it is sent all the same.".to_owned(),
        Error::TitleBehind(session) => format!(
            "The owner gives it a new key with `ensemble session rekey {session}`, then titles count again."
        ),
        Error::NotShared(_) => "`ensemble share add` does that.".to_owned(),
        Error::NotHosted(session) => format!("`ensemble session read {session}` shows it."),
        Error::NoMachines(_) => "`ensemble runner` registers the machine on which it runs.".to_owned(),
        Error::MachineWithoutKey(_) => {
            "Run `ensemble runner` there on a primary device, or `ensemble link` here and `ensemble runner link` there.".to_owned()
        }
        Error::TaskSealed { .. } => "Say it there: `ensemble prompt`.".to_owned(),
        Error::TaskNotSigned { .. } => "Or it was submitted without `ensemble`, which signs.".to_owned(),
        _ => return None,
    })
}

/// What the program that joins the room of a conversation could not do, and what to do about it.
pub(crate) fn of_room(what: &str, why: &str) -> String {
    let why = print::inline(why.trim_end_matches('.'));
    let page = "`ensemble talk --page` leads to the page, where one talks in the browser.";
    match what {
        "library" => format!("LiveKit's library cannot be used: {why}. {page}"),
        "microphone" => format!("There is no microphone. Connect one, or give a file with --input. {page}"),
        "loudspeaker" => format!("There is no loudspeaker. Connect one. {page}"),
        "sound" => format!(
            "This machine's sound cannot be used ({why}): it has no sound devices, as a machine that one reaches by ssh, or another \
             program uses them. {page}"
        ),
        "file" => format!("The file cannot be used: {why}. It has to be a WAV file with samples of 16 bits."),
        "room" => format!(
            "The voice service cannot be reached: {why}. Check your network; if it stays so, tell the operator of the server."
        ),
        _ => format!("The program that joins the room failed: {why}. Begin again."),
    }
}

/// What is wrong with a plan, and what to do.
pub(crate) fn of_plan(failure: &PlanError) -> String {
    match failure {
        PlanError::Prose { .. } => format!(
            "{failure} To have it done as one prompt: `ensemble do \"…\"`, or `ensemble do -` to read it from standard input."
        ),
        PlanError::NoPlan { .. } => format!("{failure} {SMALL_PLAN}"),
        PlanError::Wrong(sentence) => sentence.clone(),
    }
}

const SMALL_PLAN: &str = "`ensemble plan schema` prints all fields. A small plan:\n\
    \x20 defaults: {provider: claude}\n\
    \x20 tasks:\n\
    \x20   - {key: look, prompt: What is this project?}\n\
    \x20   - {key: improve, dependsOn: [look], prompt: \"Improve it: {{tasks.look.output}}\"}";

/// Why the machine of a session cannot write in it, and what to do. The server's word is all that there is of it.
pub(crate) fn cannot_write(session: &Session) -> Option<String> {
    let stated = session.cannot_write.as_ref()?;
    let why = match stated {
        StatedReason::Known(CannotWrite::KeyRefused) => {
            "a device or a person was removed, and the server did not take the new key that the machine made"
        }
        StatedReason::Known(CannotWrite::KeyNotGiven) => "the machine was not given the session's newest key",
        StatedReason::Known(CannotWrite::KeyOfStranger) => {
            "the session's newest key was not made by a device of its owner"
        }
        StatedReason::Known(CannotWrite::ListUnread) => "the machine cannot use the device list of its owner",
        StatedReason::Other(why) => why.as_str(),
    };
    let (reference, is_of_list) = (&session.reference, *stated == StatedReason::Known(CannotWrite::ListUnread));
    let todo = match session.access_level {
        _ if matches!(stated, StatedReason::Other(_)) => {
            "A newer version of this program may know what to do.".to_owned()
        }
        AccessLevel::Owner if is_of_list => {
            "Run `ensemble devices` on a primary device: it checks the list.".to_owned()
        }
        AccessLevel::Owner => format!("`ensemble session rekey {reference}` makes a new key for it."),
        _ => "Its owner has to make a new key for it.".to_owned(),
    };
    let why = print::inline(why);
    Some(format!("The server says that the machine keeps what the agent does and cannot send it: {why}. {todo}"))
}

/// What to do against the loss of the only device that can add and remove others.
pub(crate) fn single_signer(me: &Account) -> Option<&'static str> {
    let own = me.own();
    let signers = own.list.body().devices.iter().filter(|device| device.role.signs_lists()).count();
    (signers < 2).then_some(
        "If you lose this device, the account is lost. Make recovery words with `ensemble recovery`, or add another computer with \
         `ensemble link`.",
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ensemble_plan::{Draft, Overrides, PromptFiles, Variables, read};

    use super::*;

    fn draft(text: &str) -> Result<Draft, PlanError> {
        let (files, here) = (PromptFiles::new(Path::new("/plans"), false), Path::new("/home/me"));
        read(text, "plan.yaml", &files, here, Overrides::default(), &Variables::default())
    }

    #[test]
    fn the_plan_in_an_error_is_one() {
        let failure = of_plan(&draft("title: x").unwrap_err());
        assert!(failure.contains("`ensemble plan schema`"), "{failure}");
        let (_, example) = failure.split_once("A small plan:\n").unwrap();
        assert_eq!(draft(example).unwrap().steps.len(), 2, "{example}");
    }

    #[test]
    fn a_text_is_no_plan_but_can_be_done() {
        let failure = of_plan(&draft("fix the tests").unwrap_err());
        assert!(failure.contains("`ensemble do -`"), "{failure}");
    }
}
