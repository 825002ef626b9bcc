//! The conversations of codex. It is asked for them: its files have no form that it promises.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ensemble_agent::threads::{self, Thread};
use ensemble_agent::{Kind, Lines};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::Found;
use crate::agent::Known;
use crate::settings::Environment;
use crate::sign_in::Group;

/// It starts in a second, and in many times that on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// A list of 200 conversations has a few hundred KiB, unless people have pasted whole files into their first prompts.
const MOST_BYTES: usize = 16 << 20;

/// The conversations of a directory.
///
/// # Errors
/// codex does not say them. The text is for people.
pub(super) async fn list(
    known: &Known,
    env: &BTreeMap<String, String>,
    environment: &Environment,
    directory: &Path,
) -> Result<Vec<Found>, String> {
    let home = env.get("CODEX_HOME").map(PathBuf::from).or_else(|| Some(Path::new(env.get("HOME")?).join(".codex")));
    // Without a conversation it has no such folder, and need not be started.
    if !home.is_some_and(|home| home.join("sessions").is_dir()) {
        return Ok(Vec::new());
    }
    let threads = timeout(ANSWERS_WITHIN, asked(known, env, environment, directory));
    let threads = threads.await.map_err(|_| "codex does not answer.".to_owned())??;
    let found = |thread: Thread| {
        let Thread { id, first_prompt, changed, file } = thread;
        Found { id, first_prompt, changed, file }
    };
    Ok(threads.into_iter().map(found).collect())
}

async fn asked(
    known: &Known,
    env: &BTreeMap<String, String>,
    environment: &Environment,
    directory: &Path,
) -> Result<Vec<Thread>, String> {
    let said = |error: std::io::Error| format!("codex cannot be asked: {error}.");
    let program = known.find(environment, Some(directory))?;
    let launch = ensemble_agent::look(Kind::Codex).unwrap_or_default();
    let mut child = Command::new(program)
        .args(known.args.iter().chain(&launch.args).chain(&known.last_args))
        // What a repository says of the program counts for nothing here.
        .current_dir("/")
        .env_clear()
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(said)?;
    let _group = Group::of(&child);
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (mut stdin, stdout) = pipes.ok_or_else(|| "codex has no pipes.".to_owned())?;
    stdin.write_all(threads::ask(&directory.display().to_string()).as_bytes()).await.map_err(said)?;
    let (mut stdout, mut chunk) = (stdout.take(u64::try_from(MOST_BYTES).unwrap_or(u64::MAX)), vec![0; 64 << 10]);
    let (mut lines, mut answer) = (Lines::bounded(MOST_BYTES), None);
    while answer.is_none() {
        let read = stdout.read(&mut chunk).await.map_err(said)?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Err("codex has ended without an answer.".to_owned());
        };
        lines.feed(bytes, |line| answer = answer.take().or_else(|| threads::answer(&line)));
    }
    answer.unwrap_or_else(|| Ok(Vec::new()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn said(script: &str) -> Result<Vec<Found>, String> {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".codex/sessions")).unwrap();
        let program = home.path().join("codex");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
        let path = ("PATH".to_owned(), "/usr/bin:/bin".to_owned());
        let env = BTreeMap::from([path, ("HOME".to_owned(), home.path().display().to_string())]);
        let known = Known {
            kind: Kind::Codex,
            program,
            args: Vec::new(),
            last_args: Vec::new(),
            env: BTreeMap::new(),
            pass_env: Vec::new(),
        };
        list(&known, &env, &env, Path::new("/w")).await
    }

    #[tokio::test]
    async fn what_codex_lists_is_taken_and_what_it_does_else_is_an_error() {
        let lists = r#"read a; read b; read c; case "$c" in *'"cwd":"/w"'*) ;; *) exit 1 ;; esac
            echo 'no JSON'; echo '{"id":1,"result":{}}'; printf '{"id":2,"result":{"data":[{"id":"t",'
            printf '"preview":"Hello","updatedAt":7}]}}\n'; exec sleep 1000"#;
        let found = said(lists).await.unwrap();
        let found: Vec<_> = found.iter().map(|one| (one.id.as_str(), one.first_prompt.as_str())).collect();
        assert_eq!(found, [("t", "Hello")]);
        for (script, why) in [
            ("exit 0", "codex "),
            (r#"read a; echo '{"id":1,"error":{"message":"Not now"}}'; exec sleep 1000"#, "Not now"),
            ("exec cat /dev/zero", "codex has ended"),
            (r#"exec yes "{\"method\":\"$(printf %010000d 0)\"}""#, "codex has ended"),
        ] {
            let failed = said(script).await.err().unwrap_or_default();
            assert!(failed.starts_with(why), "{script}: {failed}");
        }
    }
}
