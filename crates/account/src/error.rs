//! Why something of an account could not be done.

use std::io;
use std::path::{Path, PathBuf};

use ensemble_client::devices::NameError;
use ensemble_protocol::seal::SealError;
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::line::inline;
use ensemble_types::refs::Ref;
use thiserror::Error;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every text is a sentence. A program adds how its users can help themselves.
#[derive(Debug, Error)]
pub enum Error {
    /// A call to the server failed.
    #[error(transparent)]
    Client(Box<ensemble_client::Error>),
    /// The first part names the data.
    #[error("{0} cannot be decrypted or encrypted: {1}.")]
    Seal(String, SealError),

    #[error("Cannot write {}: {why}.", .path.display())]
    Unwritable { path: PathBuf, why: io::Error },
    #[error("Cannot read {}: {why}.", .path.display())]
    Unreadable { path: PathBuf, why: io::Error },
    #[error("{} is damaged ({why}). Move it away and log in again.", .path.display())]
    Damaged { path: PathBuf, why: serde_json::Error },
    #[error(
        "{0} It holds the device lists that were checked here. Restore it from a backup; without it this computer relies on what the \
         server shows first."
    )]
    DamagedLists(Box<Error>),
    #[error(
        "{} is damaged ({why}). It says which keys of sessions were used here. Restore it from a backup, or move it away: without it this \
         computer relies on the keys that the server shows first.",
        .path.display()
    )]
    DamagedSessions { path: PathBuf, why: serde_json::Error },
    #[error("{} is not {what}: one line, {KEY_FORM}. Replace it with your backup.", .path.display())]
    NotAKey { path: PathBuf, what: &'static str },
    #[error(
        "Other users of this machine can write to {path}, so they could replace a key there. Run `chmod 700 {path}`.", path = .0.display()
    )]
    WritableByOthers(PathBuf),
    #[error(
        "Other users of this machine can read {}. Run `chmod 600` on it. If another user may have read it, create a new account.",
        .0.display()
    )]
    ReadableByOthers(PathBuf),
    #[error("There is an account key in {} that was not there a moment ago. Nothing was changed. Run the command again.", .0.display())]
    KeyAppeared(PathBuf),
    #[error("Another program of yours has been {0} for two minutes. End it, or try again later.")]
    Locked(&'static str),
    #[error("The server does not know what the task changed. Update the server.")]
    ChangesNotKnown,
    #[error("No session was used on this device yet, so there is no `last`.")]
    NoLast,
    #[error("No session in which an agent works was used on this device yet, so there is no `last`.")]
    NoLastWithAgent,
    #[error("{0}")]
    NotAttached(String),
    /// A value of this program has no JSON form, or no form that fits.
    #[error("{0}")]
    Form(String),

    #[error("You are not signed in at {origin}.")]
    NotSignedIn { origin: String },
    #[error("{origin} no longer has your account {user}.")]
    NoAccount { origin: String, user: UserId },
    #[error(
        "{origin} says that your key belongs to another account now, and not to {user}. Nothing was done. Ask its operator."
    )]
    AnotherAccount { origin: String, user: UserId },
    #[error("The server did not accept the sign-in. It may know itself by another address than {origin}.")]
    SignInRefused { origin: String },
    /// `account` begins a sentence.
    #[error("{account} was used here at {origin}, but its key is not in {} any more.", .path.display())]
    KeyLost { account: String, origin: String, path: PathBuf },
    #[error("{account} was used here at {origin}, but {} is the key of another account.", .path.display())]
    OtherKeyHere { account: String, origin: String, path: PathBuf },
    #[error("This is not the key of the account that was used here at {origin}: {account}. Nothing was changed.")]
    NotTheKeyUsed { origin: String, account: String },
    #[error(
        "The key of your account is in {}. For another account move it to a safe place first: without it the account cannot be restored.",
        .0.display()
    )]
    KeyHere(PathBuf),
    #[error(
        "{} is the key of another account. Move it to a safe place first: without it that account cannot be restored.", .0.display()
    )]
    OtherKeyKept(PathBuf),
    #[error(
        "There is a key of an account already, in {}. Move it to a safe place first, if this computer is to have another account.",
        .0.display()
    )]
    HasKey(PathBuf),

    #[error("This is a linked device, and only a primary one can add and remove devices.")]
    NotPrimary,
    #[error(
        "The server shows other devices than the list that you signed. Run the command again; if it stays so, do not trust this server."
    )]
    DevicesNotSigned,
    #[error("It is no longer in your device list.")]
    NoLongerListed,
    #[error("{}", of_name(.0))]
    Name(#[from] NameError),

    #[error("The code was not used within ten minutes.")]
    CodeNotUsed,
    #[error(
        "A device that had not seen the code answered, or changed what the new device sent. Nothing was added. If it happens again, do not \
         trust the server."
    )]
    CodeNotSeen,
    #[error("The linking has ended.")]
    LinkEnded,
    #[error("This code was used already.")]
    CodeUsed,
    #[error("The server does not know this code: it is wrong, or older than ten minutes.")]
    CodeUnknown,
    #[error("The other device refused this one.")]
    LinkRefused,
    #[error("The linking was not finished within ten minutes. Begin it again.")]
    LinkNotFinished,
    #[error(
        "The server shows other devices than the device that added this one. Nothing was kept. Do not trust this server."
    )]
    OtherDevicesThanAdded,
    #[error("The other device has added this one as a machine.")]
    AddedAsMachine,
    #[error("The other device has added this one as a device and not as a machine.")]
    AddedAsDevice,

    #[error(
        "Someone claimed the invitation without its secret, or the server changed what they sent. The invitation was ended, and nothing \
         was shared."
    )]
    ClaimForged,
    #[error("The invitation has ended: {0}. Ask for a new one.")]
    InviteOver(&'static str),
    #[error("No one claimed the invitation in time.")]
    InviteNotUsed,
    #[error(
        "The server does not show the account that was in the answer. Nothing was kept. Do not trust this server, or ask for a new \
         invitation."
    )]
    OtherAccountThanInvited,
    /// `why` is a sentence or a part of one.
    #[error("Your account at {from} cannot move to {to}: {}. Nothing was changed.", .why.trim_end_matches('.'))]
    NotMoved { from: String, to: String, why: String },
    #[error("No account has these recovery words. Newer words replace the ones from before.")]
    NoAccountOfWords,
    #[error("The server shows no devices of this account.")]
    NoDevicesShown,
    #[error("The server shows devices without these words. Nothing was changed. Do not trust it.")]
    WordsNotListed,

    #[error("This device is not in your account's list of devices.")]
    NotListed,
    #[error("This device was linked to an account, but {} no longer says to which.", .0.display())]
    UnknownAccount(PathBuf),
    #[error("Other programs of yours change {0} at the same time. Try again.")]
    Overtaken(&'static str),
    #[error("The server has an old list of your devices (restored?). Open a primary device.")]
    ServerBehind,
    #[error(
        "The server has an old list of your devices (restored?), and does not take the newer ones: a device in them belongs to another \
         account there by now. Ask the operator of the server to delete that account, or to restore a newer backup: \
         docs/OPERATIONS.md, \"Backup and restore\", says how. Then run the command again."
    )]
    ServerBehindForeignDevice,
    #[error(
        "The server has an old list of your devices (restored?), and does not take the newer ones from this device: {0}. Open the \
         primary device that has added a device last."
    )]
    ServerBehindRefused(String),
    #[error("Devices were removed from this account too often; no further removal is possible.")]
    RemovedTooOften,

    #[error("The devices of {0} cannot be read now. Try again.")]
    DevicesUnreadable(UserId),
    #[error("{0} has no devices yet: they have not signed in with a client that creates them.")]
    NoDevices(UserId),
    #[error("There is no user {0}.")]
    NoUser(UserId),
    #[error("The account key of user {0} is not the one that was seen before. Nothing was shared.")]
    OtherKey(UserId),
    #[error("The account key of {0} cannot be read. The machine was not notified.")]
    KeyUnreadable(UserId),

    #[error("Session {0} has used all of its 170 keys. Start a new session.")]
    NoKeyLeft(Ref),
    #[error(
        "The server says that session {0} now belongs to another user. Nothing was done. Do not trust this server."
    )]
    OtherOwner(Ref),
    #[error(
        "The server gave you an older key of session {0} than this device has used, or another one in its place, so it was not \
         used. After a restore from a backup its owner makes new ones, at most once an hour. If this stays so, do not trust this \
         server."
    )]
    OlderKey(Ref),
    #[error(
        "The key of session {0} was not made by one of your devices, so it was not used. Do not trust this server."
    )]
    KeyOfStranger(Ref),
    #[error(
        "The key of session {0} was not given to you by a device of its owner, so it was not used. Do not trust this server."
    )]
    KeyFromStranger(Ref),
    #[error("The key of this session was changed, and you have not been given the new one yet.")]
    LacksKey(SessionId),
    #[error(
        "A device was removed since you got the key of session {reference}, and it may have that key. Nothing was written."
    )]
    StaleKey { reference: Ref, session: SessionId },
    #[error(
        "The machine of session {0} no longer belongs to its owner, so what you write would not be read. Nothing was written."
    )]
    MachineGone(Ref),
    #[error(
        "None of the newest messages opens with the key that the server gave for this session, so nothing was sent. Either other \
         programs wrote them, or the server gave you the wrong key."
    )]
    KeyFitsNothing,
    #[error("The {what} is too long: encrypted it has more than {most} bytes. Shorten or split it.")]
    TooLong { what: String, most: usize },
    #[error("The title is too long. Shorten it.")]
    TitleTooLong,
    #[error("The server has a much older state of this session than this computer has seen.")]
    TitleBehind(Ref),
    #[error("The server shows a version that cannot be.")]
    ImpossibleVersion,
    /// Why a person does not get the next key of a session.
    #[error("{0}")]
    NotGranted(&'static str),
    #[error("No device of yours has shared this session with {0}.")]
    NotShared(UserId),

    #[error("No agent works in session {0}: people write to each other in it.")]
    NotHosted(Ref),
    #[error(
        "Session {0} is a demo: it is on this computer only, and it is deleted when it is left. It can be shared with no one."
    )]
    Demo(Ref),
    #[error("It was not sent: {0}.")]
    NotSent(String),
    #[error("It is too long to be sent.")]
    TooLongToSend,
    #[error("The session's key changes all the time, so it was not sent. Try again.")]
    KeyChanges,
    #[error("You have no access to this session any more: it was taken back.")]
    AccessEnded,
    #[error("The session can be followed no longer: it was deleted.")]
    SessionDeleted,
    #[error("The newest {0} messages do not say what its people may do.")]
    StateTooOld(u32),
    #[error("The server made another session than the one that was asked for. Do not trust it.")]
    OtherSession,

    #[error("This link was created without a key, so the session cannot be decrypted. Ask for a new link.")]
    LinkWithoutKey,
    #[error("The link was deleted while it was being read.")]
    LinkDeleted,
    #[error("The server says that no machine hosts this session, but the link names one. Do not trust it.")]
    LinkOfMachine,
    #[error(
        "This link does not say which machine hosts the session, so what it has said cannot be checked. Ask for a new link."
    )]
    LinkOfNoMachine,

    #[error("The server does not show your machine {0}. Do not trust it if that stays so.")]
    MachineHidden(String),
    #[error("You have no machine {0}, and no other one.")]
    NoMachines(String),
    #[error("You have no machine {named}. You have: {have}.")]
    NoMachine { named: String, have: String },
    #[error("{0} has no key in your list of devices, so nothing can be sealed for it.")]
    MachineWithoutKey(String),
    #[error(
        "This device is a linked one, and only a primary one starts a session in bypass. Take another mode, or do it on a primary device."
    )]
    BypassOfLinked,
    #[error("What a session is to do is too long: with its directory and title, the prompt may have about 48 KB.")]
    TaskTooLong,
    #[error(
        "{task} of run {run} is a live session, as the server says. It is sealed for its machine and cannot be checked here, so nothing \
         was done with it."
    )]
    TaskSealed { task: String, run: Ref },
    #[error(
        "{task} of run {run} is not signed by your devices, so nothing was done with it. The server may have answered with another run: do \
         not trust it."
    )]
    TaskNotSigned { task: String, run: Ref },
}

/// The form of an account key, for error messages.
pub const KEY_FORM: &str = "ensemble-account-key-v1: and 43 characters";

/// Why a device does not get a name.
fn of_name(error: &NameError) -> String {
    match error {
        NameError::MachineForm(_) => "The name of a machine has 1 to 63 of the characters a-z, 0-9, '.', '_' and '-', and begins with a \
                                      letter or a digit."
            .to_owned(),
        NameError::Twice(name) => format!(
            "Another device or machine is called {}. Upper and lower case are the same. Choose another name.",
            inline(name)
        ),
        NameError::Unknown => "The server keeps back names of your devices, so none is given now. Try again. If it stays so, do not trust \
                               this server."
            .to_owned(),
        _ => "The name of a device has 1 to 64 bytes, no character that cannot be seen, and no space at its begin or end."
            .to_owned(),
    }
}

impl Error {
    pub(crate) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::Unwritable { path: path.to_owned(), why }
    }

    pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::Unreadable { path: path.to_owned(), why }
    }
}

impl From<ensemble_client::Error> for Error {
    fn from(error: ensemble_client::Error) -> Self {
        Self::Client(Box::new(error))
    }
}
