//! The session of `ensemble demo`: its agent is a script of this program, and its directory is made for it and goes with it.

mod script;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ensemble_agent::Kind;
use ensemble_process::disk::on_disk;
use ensemble_protocol::transcript::words::Mode;
use ensemble_types::ids::SessionId;
use ensemble_types::refs::Ref;
use ensemble_types::runs::Provider;

use super::local::Start;
use super::{Host, Known, NotBegun};

pub use script::run_if_demo;

/// The arguments with which this program is the script.
const COMMAND: [&str; 2] = ["runner", "demo"];

/// The project has one mistake, which its test finds.
const PROJECT: [(&str, &str); 3] = [
    ("README.md", "# Sum\n\n`sh sum.sh 2 3` prints the sum of two numbers. `sh test.sh` tests it.\n"),
    (script::PROGRAM, "#!/bin/sh\n# Prints the sum of two numbers.\necho $(($1 - $2))\n"),
    (
        script::TEST,
        "#!/bin/sh\nfound=$(sh sum.sh 2 3)\nif [ \"$found\" = 5 ]; then\n  echo \"passed: 2 + 3 is 5\"\nelse\n  \
         echo \"failed: 2 + 3 is not $found\"\n  exit 1\nfi\n",
    ),
];

/// How the script is started: by the program that is the guard as well.
pub fn known(guard: &[String]) -> Known {
    Known {
        kind: Kind::Acp,
        program: guard.first().map(PathBuf::from).unwrap_or_default(),
        args: COMMAND.map(str::to_owned).into(),
        last_args: Vec::new(),
        env: BTreeMap::new(),
        pass_env: vec!["PATH".to_owned()],
    }
}

impl Host {
    /// Begins the session of `ensemble demo`, in a new directory.
    pub(crate) async fn demo(self: &Arc<Self>, id: SessionId) -> Result<SessionId, NotBegun> {
        if self.sessions.join(id.to_string()).exists() {
            return self.begun_before(id).await;
        }
        let made = on_disk(move || make(&std::env::temp_dir(), id)).await;
        let directory = made.map_err(|error| format!("The directory of the demo cannot be made: {error}."))?;
        let start = Start {
            agent: Provider::DEMO.to_owned(),
            directory: directory.clone(),
            mode: Mode::Ask,
            model: None,
            title: Some("Demo".to_owned()),
            resume: None,
            fork: false,
            max_cost_usd: None,
            environment: None,
            mcp_servers: Vec::new(),
        };
        let begun = self.begin_any(id, start).await;
        // Where the server may have the session all the same, its directory goes with it.
        if begun.is_err() && !self.sessions.join(id.to_string()).exists() {
            let removed = on_disk(move || remove(&directory, id)).await;
            removed.unwrap_or_else(|error| tracing::warn!(session.id = %id, "The directory of a demo stays: {error}"));
        }
        begun
    }
}

/// Why an agent with this name is not started otherwise.
pub(super) fn refuse(agent: &str) -> Result<(), String> {
    match agent {
        Provider::DEMO => {
            Err("The agent demo is a script. `ensemble demo` on this computer shows it, and so does the page."
                .to_owned())
        }
        _ => Ok(()),
    }
}

fn name(session: SessionId) -> String {
    format!("ensemble-demo-{}", Ref::of(&session))
}

/// Makes the directory. One that is there is another user's.
fn make(folder: &Path, session: SessionId) -> io::Result<PathBuf> {
    let directory = folder.join(name(session));
    DirBuilder::new().mode(0o700).create(&directory)?;
    PROJECT.iter().try_for_each(|(name, text)| fs::write(directory.join(name), text))?;
    Ok(directory)
}

/// Removes the directory of a session that was deleted, if it was made for it.
fn remove(directory: &Path, session: SessionId) -> io::Result<()> {
    if directory.file_name() != Some(name(session).as_ref()) {
        return Ok(());
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The same for a session of any agent.
pub(super) fn remove_of(agent: &str, directory: &Path, session: SessionId) -> io::Result<()> {
    if agent == Provider::DEMO { remove(directory, session) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_directory_is_this_users_and_only_one_that_was_made_is_removed() {
        let (folder, id) = (tempfile::tempdir().unwrap(), SessionId::generate());
        let directory = make(folder.path(), id).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(make(folder.path(), id).is_err(), "another user could have made it");
        remove(&directory, SessionId::generate()).unwrap();
        remove(folder.path(), id).unwrap();
        assert!(directory.join(script::PROGRAM).exists());
        remove(&directory, id).unwrap();
        assert!(!directory.exists());
        remove(&directory, id).unwrap();
    }

    #[test]
    fn no_other_way_leads_to_the_script() {
        assert!(refuse("demo").unwrap_err().contains("`ensemble demo`"));
        assert_eq!(refuse("claude"), Ok(()));
        let guard = ["/bin/ensemble", "runner", "guard"].map(str::to_owned);
        assert_eq!(
            (known(&guard).program, known(&guard).args),
            ("/bin/ensemble".into(), vec!["runner".into(), "demo".into()])
        );
    }
}
