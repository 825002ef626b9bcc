//! Looks: answers to devices that read something on this machine.
//!
//! A look changes nothing and is remembered by nothing but the log of this machine. Whom it is answered to is decided by what is signed.

mod begin;
mod below;
mod bounds;
mod changes;
mod file;
mod log;
mod names;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ensemble_process::disk::on_disk;
use ensemble_protocol::seal::BoxPublicKey;
use ensemble_protocol::seal::look::{
    Answered, GitWhat, Look, Question, Refusal, SignedQuestion, Verdict, open_question, seal_answer,
};
use ensemble_protocol::transcript::rules::{Access, Right};
use ensemble_protocol::transcript::words::ReceiptCode;
use ensemble_types::devices::Role;
use ensemble_types::ids::{SessionId, unique};
use ensemble_types::looks::LookAsked;
use ensemble_types::text::Blob;
use serde::Serialize;

use self::begin::Begin;
use self::below::Below;
use self::bounds::{Bounds, Permit};
use self::changes::Changes;
use self::log::Log;
use self::names::Ignored;
use super::Host;
use super::account::Found;
use super::spool::Spool;
use crate::settings::Environment;
use crate::wake::wall_clock;
use ensemble_git::scratch::{Scratch, private_dir};
use ensemble_git::{Git, GitError};

/// How long the asker's list, and the session of a guest, are waited for.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// Between two removals of snapshots that are too old.
const SWEPT_EVERY: Duration = Duration::from_secs(3_600);

/// What looks need on this machine.
pub(crate) struct Looks {
    git: Git,
    /// Emptied when the host starts.
    scratch: PathBuf,
    closed: Vec<PathBuf>,
    bounds: Bounds,
    log: Log,
    within: Duration,
}

impl Looks {
    /// `folder` is the host's own, and `closed` what else belongs to this program.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn open(
        environment: &Environment,
        folder: &Path,
        closed: &[PathBuf],
        within: Duration,
    ) -> io::Result<Self> {
        let scratch = folder.join("looks");
        match fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => private_dir(&scratch)?,
        }
        Ok(Self {
            git: Git::new(environment, Some(scratch.join("gitconfig"))),
            closed: closed.iter().cloned().chain([folder.to_owned()]).collect(),
            bounds: Bounds::default(),
            log: Log::new(folder.join("looked")),
            scratch,
            within,
        })
    }

    /// Notes what is in the directory of a session that begins. `session` is the folder of the session. Without a note nothing is shown.
    pub(crate) async fn begin(&self, session: &Path, directory: &Path) {
        self.note(session, directory, false).await;
    }

    /// For a session of an earlier process: what is there now is not what was there at first, and never takes its place.
    pub(crate) async fn begin_again(&self, session: &Path, directory: &Path) {
        let (folder, path) = (session.to_owned(), directory.to_owned());
        match on_disk(move || Begin::find_again(&folder, &path)).await {
            Ok(true) => {}
            Ok(false) => self.note(session, directory, true).await,
            Err(error) => {
                tracing::error!(path = %directory.display(), "What a session has changed is not shown: {error}");
            }
        }
    }

    async fn note(&self, session: &Path, directory: &Path, is_late: bool) {
        if let Err(error) = Begin::note(self, session, directory, is_late).await {
            tracing::warn!(path = %directory.display(), "Files and changes of a session are not shown: {error}");
        }
    }

    async fn scratch(&self) -> io::Result<Scratch> {
        let path = self.scratch.join(unique().to_string());
        on_disk(move || Scratch::new(path)).await
    }
}

/// Removes what is too old, for as long as the host runs.
pub(crate) async fn watch(host: Arc<Host>) {
    loop {
        let sessions = host.sessions.clone();
        if let Err(error) = on_disk(move || begin::sweep(&sessions, wall_clock())).await {
            tracing::warn!("Old snapshots of sessions cannot be removed: {error}");
        }
        tokio::time::sleep(SWEPT_EVERY).await;
    }
}

/// Answers a question of the server.
pub(crate) async fn serve(host: Arc<Host>, asked: LookAsked) {
    let Some(answer) = answer(&host, asked.question.as_ref()).await else { return };
    let Ok(answer) = Blob::new(answer) else { return };
    // A device that gets no answer in time asks again.
    if let Err(error) = host.client.answer_look(asked.id, answer).await {
        tracing::debug!("A look was not answered: {error}");
    }
}

/// Who asks, by the newest lists.
struct Asker {
    found: Found,
    right: Right,
}

/// The answer to a question, sealed for its asker. `None`: it gets none.
pub(crate) async fn answer(host: &Arc<Host>, sealed: &str) -> Option<String> {
    let machine = &host.settings.machine;
    let asked = open_question(sealed, &host.boxed, (host.owner, machine)).ok()?;
    let question = Question::read(&asked.body).ok()?;
    // Anyone can name any user, so what is done before that user is known has a bound of its own.
    let _asks = if asked.user == host.owner { None } else { Some(host.looks.bounds.ask(asked.user)?) };
    let Asker { found, right } = tokio::time::timeout(KNOWN_WITHIN, asker(host, &asked, &question)).await.ok()??;
    let verdict = asked.judge(&question, (found.signer.role, right), found.list_is_withheld, host.now());
    let to = BoxPublicKey::from_text(found.box_key.as_deref()?).ok()?;
    // What is not answered is not counted: anyone can name any user.
    if verdict == Verdict::Silence {
        return None;
    }
    let body = match (verdict, host.looks.bounds.take(asked.user)) {
        (Verdict::Silence, _) | (_, None) => refused(too_much()),
        (Verdict::Refuse(code), _) => refused(not_allowed(code)),
        (Verdict::Answer, Some(permit)) => match note(host, &asked, &question).await {
            Ok(()) => look(host, &question, right >= Right::Linked, permit).await,
            Err(error) => {
                tracing::error!("Nothing is shown, because it cannot be written down who looks: {error}");
                refused(refusal(
                    ReceiptCode::Busy,
                    "The machine cannot write down who looks: its disk is full, or the file of this day.",
                ))
            }
        },
    };
    let body = if host.looks.bounds.may_send(body.len()) { body } else { refused(too_much()) };
    let seal = |body: &str| seal_answer(body, &to, (machine, &asked.digest()), &host.key);
    let too_long = || refused(refusal(ReceiptCode::Unsupported, "The answer is too long. Look at less."));
    seal(&body).or_else(|_| seal(&too_long())).ok()
}

/// `None`: the server cannot be asked for the list.
async fn asker(host: &Arc<Host>, asked: &SignedQuestion, question: &Question) -> Option<Asker> {
    let who = (asked.user, asked.key.as_str());
    if asked.user == host.owner {
        let found = host.lists.signer(who, None, &question.list).await.ok()?;
        let right = match found.signer.role {
            Some(Role::Primary) => Right::Primary,
            Some(Role::Linked) => Right::Linked,
            _ => Right::Nothing,
        };
        return Some(Asker { found, right });
    }
    let session = question.session?;
    let sessions = host.sessions.clone();
    let known = match host.hosted.grants(session) {
        Some(grants) => grants,
        None => on_disk(move || Spool::grants_of(&sessions, session)).await.ok()?,
    };
    // A session is not woken by who was never let in. It may rest with a grant that is void.
    known.iter().find(|grant| grant.user == asked.user)?;
    host.host_again(session).await;
    let grants = host.hosted.grants(session)?;
    let grant = grants.iter().find(|grant| grant.user == asked.user);
    let found = host.lists.signer(who, grant, &question.list).await.ok()?;
    let right = Access::of_grants(grants.iter().cloned()).of(asked.user, &found.signer.account);
    Some(Asker { found, right })
}

async fn note(host: &Arc<Host>, asked: &SignedQuestion, question: &Question) -> io::Result<()> {
    let (host, asked, question) = (host.clone(), asked.clone(), question.clone());
    on_disk(move || host.looks.log.write(host.now(), &asked, &question)).await
}

/// The body of the answer.
async fn look(host: &Arc<Host>, question: &Question, is_owner: bool, permit: Permit) -> String {
    // A disk that does not answer keeps its permit, so that no more threads wait for it than looks are allowed at once.
    let permit = Arc::new(permit);
    let shown = async {
        let session = question.session.ok_or_else(unsupported)?;
        let place = Place::open(host, session, permit.clone()).await?;
        match &question.look {
            Look::Names { below, depth } => {
                let ignored = place.ignored(is_owner).await?;
                let (at, depth) = (below.clone().unwrap_or_default(), *depth);
                let found = place.read(move |below| names::find(below, (&at, depth), &ignored, is_owner)).await?;
                Ok(body(found))
            }
            Look::File { path, from } => {
                let (asked, from) = (path.clone(), *from);
                let (file, real) = place.read(move |below| below.file(&asked)).await?;
                if !is_owner && !place.changes().await?.tracks(&real).await? {
                    let text = "git does not track this file. Only the owner of the session sees it.";
                    return Err(refusal(ReceiptCode::NotAllowed, text));
                }
                let is_svg = real.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg"));
                Ok(body(place.read(move |_| file::part(file, is_svg, from)).await?))
            }
            Look::Git { what, since, path, from } => {
                let mut changes = place.changes().await?;
                match (what, path) {
                    (GitWhat::State, _) => Ok(body(changes.state(since).await?)),
                    (GitWhat::Diff, Some(path)) => Ok(body(changes.diff(since, path, *from).await?)),
                    (GitWhat::Diff, None) => {
                        Err(refusal(ReceiptCode::Unsupported, "A diff is shown of one file. Name it."))
                    }
                    (GitWhat::Log, _) => Ok(body(changes.log(since).await?)),
                    (GitWhat::Other(_), _) => Err(unsupported()),
                }
            }
            _ => Err(unsupported()),
        }
    };
    match tokio::time::timeout(host.looks.within, shown).await {
        Ok(Ok(body)) => body,
        Ok(Err(refusal)) => refused(refusal),
        Err(_) => refused(refusal(
            ReceiptCode::Busy,
            "The machine takes too long for this. Look again, or on the machine itself.",
        )),
    }
}

/// The directory of a session, as it was when the session began.
struct Place<'a> {
    looks: &'a Looks,
    /// The folder of the session.
    session: PathBuf,
    begin: Begin,
    below: Arc<Below>,
    permit: Arc<Permit>,
}

impl<'a> Place<'a> {
    async fn open(host: &'a Host, session: SessionId, permit: Arc<Permit>) -> Result<Self, Refusal> {
        let gone = |_: io::Error| {
            refusal(ReceiptCode::Superseded, "This machine does not have that session. Read its list again.")
        };
        let (sessions, folder) = (host.sessions.clone(), host.sessions.join(session.to_string()));
        let path = folder.clone();
        let read = on_disk(move || Ok((Spool::card_of(&sessions, session)?.directory, Begin::read(&path)?)));
        let (directory, noted) = read.await.map_err(gone)?;
        // It was begun by a version that noted nothing, and has rested since.
        let begin = noted.ok_or_else(|| {
            let text = "Where this session began is not known yet. Write to the session, and look again.";
            refusal(ReceiptCode::Unsupported, text)
        })?;
        let (known, closed) = (begin.directory, host.looks.closed.clone());
        let below = read_with(permit.clone(), move || Below::open(&directory, known, &closed)).await?;
        Ok(Self { looks: &host.looks, session: folder, begin, below: Arc::new(below), permit })
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Below) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let below = self.below.clone();
        read_with(self.permit.clone(), move || read(&below)).await
    }

    async fn changes(&self) -> Result<Changes<'_>, Refusal> {
        let noted = self.begin.repository.as_ref().ok_or_else(|| {
            if self.begin.unknown {
                return unknown();
            }
            let text =
                "The directory was in no git repository when this session began, so there is nothing to compare.";
            refusal(ReceiptCode::Unsupported, text)
        })?;
        let scratch = self.looks.scratch().await.map_err(|error| of_git(error.into()))?;
        let repository = noted.open(&self.looks.git, &scratch).await?;
        let below = self.below.path().strip_prefix(&repository.top).map_err(|_| unsupported())?.to_owned();
        let (session, closed, unknown) = (&*self.session, self.below.closed(), self.begin.unknown);
        Ok(Changes { repository, noted, unknown, session, below, scratch, closed })
    }

    /// What git ignores. Where that is not known, the owner is warned of all that begins with a dot, and a guest sees nothing.
    async fn ignored(&self, is_owner: bool) -> Result<Ignored, Refusal> {
        if self.begin.repository.is_none() && !self.begin.unknown {
            return Ok(Ignored::Dots);
        }
        let found = match self.changes().await {
            Ok(changes) => changes.ignored().await,
            Err(refusal) => Err(refusal),
        };
        found.or_else(|refusal| if is_owner { Ok(Ignored::Dots) } else { Err(refusal) })
    }
}

/// Reads on a thread. The permit is held until it has ended.
async fn read_with<T: Send + 'static>(
    permit: Arc<Permit>,
    read: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let read = on_disk(move || {
        let found = read();
        drop(permit);
        Ok(found)
    });
    read.await.map_err(|error| refusal(ReceiptCode::Busy, &format!("It cannot be read now: {error}.")))?
}

fn body<T: Serialize>(found: T) -> String {
    serde_json::to_string(&Answered::With(found)).unwrap_or_else(|_| refused(unsupported()))
}

fn refused(refusal: Refusal) -> String {
    serde_json::to_string(&refusal).unwrap_or_default()
}

fn refusal(error: ReceiptCode, text: &str) -> Refusal {
    Refusal { error, text: text.to_owned() }
}

fn unsupported() -> Refusal {
    refusal(ReceiptCode::Unsupported, "This machine does not know this look. Update Ensemble there.")
}

fn unknown() -> Refusal {
    let text = "What was there when this session began is not known. Look at what differs from the last commit.";
    refusal(ReceiptCode::Unsupported, text)
}

fn too_much() -> Refusal {
    refusal(ReceiptCode::Busy, "This machine shows no more now. Try again in a minute.")
}

fn not_allowed(code: ReceiptCode) -> Refusal {
    let text = match code {
        ReceiptCode::Stale => {
            "The clocks of this device and of the machine differ by more than five minutes. Set them."
        }
        ReceiptCode::NotAllowed => "Files are shown to people who may approve. Ask the owner of the session.",
        _ => return unsupported(),
    };
    refusal(code, text)
}

fn of_git(error: GitError) -> Refusal {
    refusal(ReceiptCode::Unsupported, &format!("git does not say it: {error}."))
}
