//! `ensemble demo`: a live session whose agent is a script.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use ensemble_account::Account;
use ensemble_host::local::Request;
use ensemble_protocol::transcript::body::{Content, Prompt};
use ensemble_protocol::transcript::words::When;
use ensemble_types::ids::SessionId;

use super::DONE;
use super::agent::has_terminal;
use super::session::change::forget;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::live::{self, host, show};
use crate::print;

/// In the directory of this program: a file for each demo, which the program that shows it has locked.
const FOLDER: &str = "demos";

/// A host that was asked for a session has made it by then.
const MADE_WITHIN: Duration = Duration::from_secs(10 * 60);

const PROMPT: &str = "The test of this project fails. Find out why.";

/// Shows a live session whose agent is a script. It needs no key and no network, works in a new directory, and can be shared with no one.
/// When you leave it, the session and its directory are deleted.
#[derive(Debug, Args)]
pub(crate) struct Demo {}

impl Demo {
    pub(crate) async fn run(self, context: &Context) -> Result {
        if context.json || !has_terminal() {
            return Err(Failure::message(
                "`ensemble demo` shows a session on a screen, so it needs a terminal and takes no --json.",
            ));
        }
        let me = context.me().await?;
        remove_left(context, &me).await;
        let held = Held::new(context, &me)?;
        let shown = shown(context, &me, held.session).await;
        let removed = match delete(context, &me, held.session).await {
            Ok(was_there) if was_there || shown.is_ok() => held.end(),
            // The host may still make it. Then the next start deletes it.
            ended => ended.map(drop),
        };
        if removed.is_err() {
            print::note(
                "The session of the demo and its directory stay until the next `ensemble up` or `ensemble demo`.",
            );
        }
        shown.and(removed)?;
        print::note("The demo has ended. Its session and its directory are deleted.");
        Ok(DONE)
    }
}

/// Begins the session and shows it until the person leaves.
async fn shown(context: &Context, me: &Account, session: SessionId) -> Result<()> {
    host::start(context, me, Request::Demo { session }).await?;
    // This machine may have become one of the account's devices just now.
    let me = context.me().await?;
    let mut live = live::open(context, &me, session).await?;
    let (text, directory) = (PROMPT.to_owned(), live.directory());
    live.send(Content::Prompt(Prompt { text, attachments: Vec::new(), when: When::Next, directory })).await?;
    show::until_left(context, &mut live).await.map(drop)
}

/// `false`: it was not there.
async fn delete(context: &Context, me: &Account, session: SessionId) -> Result<bool> {
    let deleted = me.client.delete_session(session).await;
    match deleted {
        Err(error) if !error.is_not_found() => Err(error.into()),
        deleted => forget(context, me, session).map(|()| deleted.is_ok()),
    }
}

/// A demo while its program runs. A program that is killed leaves the file, without its lock.
struct Held {
    session: SessionId,
    path: PathBuf,
    _lock: File,
}

impl Held {
    fn new(context: &Context, me: &Account) -> Result<Self> {
        let (folder, session) = (context.home.path().join(FOLDER), SessionId::generate());
        let path = folder.join(session.to_string());
        let made = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            // Under another name until it is locked and written: to other programs a file without a lock is left over.
            let new = path.with_extension("new");
            let mut file = File::options().create_new(true).write(true).mode(0o600).open(&new)?;
            file.lock()?;
            file.write_all(of(me).as_bytes())?;
            fs::rename(new, &path)?;
            Ok::<_, io::Error>(file)
        };
        let lock = made().map_err(|error| Failure::message(format!("Cannot write {}: {error}.", path.display())))?;
        Ok(Self { session, path, _lock: lock })
    }

    fn end(self) -> Result<()> {
        Ok(fs::remove_file(&self.path)?)
    }
}

/// Whose demo it is.
fn of(me: &Account) -> String {
    format!("{} {}", me.place(), me.id)
}

/// Deletes the demos whose programs were killed.
pub(crate) async fn remove_left(context: &Context, me: &Account) {
    for (session, path) in left(&context.home.path().join(FOLDER), &of(me)) {
        let is_old = fs::metadata(&path)
            .and_then(|found| found.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > MADE_WITHIN));
        let removed = match delete(context, me, session).await {
            Ok(was_there) if was_there || is_old => match fs::remove_file(path) {
                // Another program has done the same.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.map_err(Failure::from),
            },
            ended => ended.map(drop),
        };
        if let Err(failure) = removed {
            print::note(format!("An earlier demo, session {session}, is not deleted yet: {failure}"));
        }
    }
}

/// The demos in this folder that are of this account and that no program shows.
fn left(folder: &Path, of: &str) -> Vec<(SessionId, PathBuf)> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_left = |path: &PathBuf| {
        File::open(path).is_ok_and(|file| file.try_lock().is_ok())
            && fs::read_to_string(path).is_ok_and(|text| text == of)
    };
    let found = files.filter_map(|file| Some((file.file_name().to_str()?.parse().ok()?, file.path())));
    found.filter(|(_, path)| is_left(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_is_left_over_when_no_program_has_its_file_and_it_is_of_this_account() {
        let folder = tempfile::tempdir().unwrap();
        assert!(left(&folder.path().join("none"), "http://s u").is_empty());
        let [ours, shown, other] = [(); 3].map(|()| SessionId::generate());
        for (id, text) in [(ours, "http://s u"), (shown, "http://s u"), (other, "http://s v")] {
            fs::write(folder.path().join(id.to_string()), text).unwrap();
        }
        fs::write(folder.path().join("x.new"), "http://s u").unwrap();
        let lock = File::open(folder.path().join(shown.to_string())).unwrap();
        lock.lock().unwrap();
        let found = || left(folder.path(), "http://s u").into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(found(), [ours]);
        drop(lock);
        assert_eq!(found().len(), 2);
    }
}
