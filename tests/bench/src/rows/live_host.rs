//! The release `ensemble` with an account of its own: the host that it starts in the background, sessions of a scripted agent, and a
//! client of one session in this process.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ensemble_client::{Client, Credential, Known, SessionEvent, SessionFilter, idempotency_key};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{self, Binding, BoxKeyPair, ContentRing, KeyRing, Purpose};
use ensemble_protocol::transcript::body::{Content, KnownList, Message as Said, Prompt};
use ensemble_protocol::transcript::words::When;
use ensemble_protocol::transcript::{Envelope, Frame};
use ensemble_types::ids::{SessionId, UserId};
use ensemble_types::messages::AppendMessage;
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;
use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};

use super::live_agent::now;
use super::scripted_claude;
use crate::machine::Machine;

const SHOWS_WITHIN: Duration = Duration::from_secs(60);
/// The programs that start sessions at once.
const STARTS_AT_ONCE: usize = 8;

/// An account, and the computer on which its sessions work.
pub(super) struct Computer {
    program: PathBuf,
    edge: String,
    home: PathBuf,
    pub(super) client: Client,
    pub(super) key: AccountKey,
    pub(super) user: UserId,
}

/// What a client of one session holds.
pub(super) struct Attached<'a> {
    computer: &'a Computer,
    client: Client,
    id: SessionId,
    /// The session's last message when it was attached.
    last_seq: i64,
    ring: KeyRing,
    list: KnownList,
}

/// What a client gets.
pub(super) enum Arrived {
    /// With the digest of its body, which an answer names.
    Message(Box<Said>, String),
    Frame(Frame),
    Other,
}

impl Computer {
    /// Signs in. Its files are in a folder of this name. The host starts with the first session and runs `most` agents at once.
    pub(super) fn start(machine: &Machine, edge: &str, name: &str, most: usize) -> Result<Self> {
        let home = machine.scratch.path().join(name);
        let files = home.join("ensemble");
        std::fs::create_dir_all(&files)?;
        let claude = json!({ "program": std::env::current_exe()?, "env": { scripted_claude::SCRIPT: "1" } });
        let others = json!({ "enabled": false });
        let config = json!({
            "maxAgents": most, "providers": { "claude": claude, "codex": others, "gemini": others },
        });
        std::fs::write(files.join("runner.yaml"), config.to_string())?;
        let program = machine.program("ensemble");
        let (key, user) = (AccountKey::generate(), UserId::generate());
        let client = Client::builder(edge).build()?;
        let mut computer = Self { program, edge: edge.to_owned(), home, client, key, user };
        computer.ensemble(&["login"])?;
        let text = std::fs::read_to_string(files.join("account.key"))?;
        computer.key = AccountKey::from_text(&text).context("no account key")?;
        computer.client = computer.another_client()?;
        computer.user = machine.runtime.block_on(computer.client.sign_in())?.user_id;
        Ok(computer)
    }

    pub(super) fn ensemble(&self, arguments: &[&str]) -> Result<Output> {
        let output = self.command(arguments).output();
        let output = output.context("ensemble does not start; build it with `cargo build --release`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ensemble {arguments:?}: {said:.500}");
        Ok(output)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(&self.home)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.home)
            .env("ENSEMBLE_HOME", self.home.join("ensemble"))
            .env("ENSEMBLE_SERVER", &self.edge)
            // The folders of agents whose guards were killed go with this run.
            .env("TMPDIR", &self.home)
            .stdin(Stdio::null());
        command
    }

    /// How long `ensemble attach` needs from its start until it has shown this line, in milliseconds.
    pub(super) fn shows(&self, id: SessionId, wanted: &str) -> Result<f64> {
        let begun = Instant::now();
        let mut attach = self.command(&["attach", &id.to_string()]).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(attach.stdout.take().context("no output")?).lines();
        let (shown, is_shown) = mpsc::channel();
        let text = wanted.to_owned();
        std::thread::spawn(move || {
            if lines.any(|line| line.is_ok_and(|line| line.trim() == text)) {
                let _late = shown.send(begun.elapsed());
            }
        });
        let took = is_shown.recv_timeout(SHOWS_WITHIN);
        attach.kill()?;
        attach.wait()?;
        Ok(took.with_context(|| format!("attach does not show {wanted}"))?.as_secs_f64() * 1e3)
    }

    /// Starts sessions without a prompt.
    pub(super) fn sessions(&self, count: usize) -> Result<Vec<SessionId>> {
        let one = |_| {
            let output = self.ensemble(&["claude", "--detach", "--json"])?;
            let made: Value = serde_json::from_slice(&output.stdout)?;
            Ok(made.pointer("/session/id").and_then(Value::as_str).context("no session")?.parse()?)
        };
        (0..count).map(one).collect()
    }

    /// The same for many sessions.
    pub(super) fn many_sessions(&self, count: usize) -> Result<Vec<SessionId>> {
        // It starts the host.
        let mut all = self.sessions(1)?;
        let left = count.saturating_sub(1);
        let shares = (0..STARTS_AT_ONCE).map(|at| (left + at) / STARTS_AT_ONCE);
        std::thread::scope(|threads| {
            let begun: Vec<_> = shares.map(|share| threads.spawn(move || self.sessions(share))).collect();
            for thread in begun {
                all.extend(thread.join().map_err(|_| anyhow!("a thread panicked"))??);
            }
            Ok(all)
        })
    }

    /// A client with connections and a token of its own.
    pub(super) fn another_client(&self) -> Result<Client> {
        Ok(Client::builder(&self.edge).credential(Credential::Device(self.key.clone())).build()?)
    }

    /// How many sessions the account has that have not ended.
    pub(super) async fn active_sessions(&self) -> Result<usize> {
        let mut sessions = pin!(self.client.sessions(SessionFilter { active_only: true, shared: false }));
        let mut count = 0;
        while let Some(session) = sessions.next().await {
            session?;
            count += 1;
        }
        Ok(count)
    }

    /// The process id of the host.
    pub(super) fn host(&self) -> Result<u32> {
        Ok(std::fs::read_to_string(self.host_folder()?.join("pid"))?.trim().parse()?)
    }

    /// When the host has kept the newest device list of the account, in milliseconds since 1970.
    pub(super) fn listed_at(&self) -> Result<f64> {
        let kept = std::fs::metadata(self.host_folder()?.join("owner.json"))?.modified()?;
        Ok(kept.duration_since(UNIX_EPOCH)?.as_secs_f64() * 1e3)
    }

    fn host_folder(&self) -> Result<PathBuf> {
        let mut hosts = std::fs::read_dir(self.home.join("ensemble/hosts"))?;
        Ok(hosts.next().context("no host")??.path())
    }

    /// Reads and checks what a client of this session needs.
    pub(super) async fn attach(&self, id: SessionId) -> Result<Attached<'_>> {
        self.attach_with(id, &self.client).await
    }

    /// The same with another client of the account.
    pub(super) async fn attach_with(&self, id: SessionId, client: &Client) -> Result<Attached<'_>> {
        let account = self.key.public_key();
        let newest = client.newest_list(self.user, Known::Account(&account)).await?;
        let newest = newest.context("no device list")?;
        let sealed = client.content_ring().await?;
        let contents = ContentRing::open(&sealed.sealed, &BoxKeyPair::of_device(&self.key)?, &account, &newest)?;
        let session = client.session(id).await?;
        let machine = session.machine_id.as_ref().context("no machine")?;
        let binding = Binding::Hosted { session: id, owner: self.user, machine };
        let sealed = session.encryption_key.as_deref().context("no key")?;
        let ring = contents.open_with(|pair| seal::open_ring(sealed, pair, binding))?.ring;
        let list = KnownList { version: newest.version(), digest: newest.digest_text() };
        Ok(Attached { computer: self, client: client.clone(), id, last_seq: session.last_seq, ring, list })
    }
}

impl Drop for Computer {
    fn drop(&mut self) {
        if let Ok(pid) = self.host().and_then(|pid| Ok(i32::try_from(pid)?)) {
            // Its guards end the agents.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }
}

impl Attached<'_> {
    /// The whole session, and what comes.
    pub(super) fn events(&self) -> impl Stream<Item = ensemble_client::Result<SessionEvent>> + Send + use<> {
        self.client.follow_session(self.id, Some(0))
    }

    /// What comes after it was attached.
    pub(super) fn new_events(&self) -> impl Stream<Item = ensemble_client::Result<SessionEvent>> + Send + use<> {
        self.client.follow_session(self.id, Some(self.last_seq))
    }

    /// Follows the session until there is a message of which this is true.
    pub(super) async fn until(
        &self,
        events: &mut (impl Stream<Item = ensemble_client::Result<SessionEvent>> + Unpin),
        is_wanted: impl Fn(&Content) -> bool,
    ) -> Result<()> {
        while let Some(event) = events.next().await {
            if let Arrived::Message(message, _) = self.open(&event?)?
                && is_wanted(&message.content)
            {
                return Ok(());
            }
        }
        bail!("the stream has ended")
    }

    /// Opens a message and checks its signature, as every client does.
    pub(super) fn open(&self, event: &SessionEvent) -> Result<Arrived> {
        match event {
            SessionEvent::Message(message) => {
                let opened = seal::open(&self.ring, Purpose::Message(self.id), &message.content)?;
                let envelope = Envelope::open(self.id, &opened)?;
                Ok(Arrived::Message(Box::new(envelope.message()?), envelope.digest()))
            }
            SessionEvent::Live(live) => {
                let opened = seal::open(&self.ring, Purpose::LiveFrame(self.id), &live.content)?;
                Ok(Arrived::Frame(Frame::read(&opened).context("no frame")?))
            }
            SessionEvent::Changed(_) => Ok(Arrived::Other),
        }
    }

    /// Whether it is a message of the machine under a newer key than this client has.
    pub(super) fn is_under_newer_key(&self, event: &SessionEvent) -> bool {
        let SessionEvent::Message(message) = event else { return false };
        message.sender_machine_id.is_some() && message.key_epoch > Some(self.ring.epoch().into())
    }

    pub(super) async fn prompt(&self, text: String) -> Result<()> {
        self.send(Content::Prompt(Prompt { text, attachments: Vec::new(), when: When::Next, directory: None })).await
    }

    /// Signs, seals and sends a command.
    pub(super) async fn send(&self, content: Content) -> Result<()> {
        let (local_id, key) = (idempotency_key(), &self.computer.key);
        let at = Timestamp::from_micros((now() * 1e3) as i64);
        let said = Said { local_id: local_id.clone(), at, list: self.list.clone(), n: None, content };
        let signed = Envelope::sign(self.id, self.computer.user, said.write()?, key.signing_key())?.write()?;
        let message = AppendMessage {
            content: Blob::new(seal::seal(&self.ring, Purpose::Message(self.id), &signed)?)?,
            local_id: Text::new(local_id)?,
            key_epoch: Some(self.ring.epoch().into()),
        };
        self.client.append_message(self.id, &message).await?;
        Ok(())
    }
}
