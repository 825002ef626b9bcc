//! One session while it is hosted: everything that happens to it goes through one task, one after the other.

use std::sync::Arc;

use ensemble_process::disk::on_disk;
use ensemble_protocol::transcript::body::AccessGrant;
use ensemble_types::ids::SessionId;
use futures_util::future::OptionFuture;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Host;
use super::account::Found;
use super::behind::Behind;
use super::core::{Asked, Core, Effects};
use super::deadlines::Deadlines;
use super::deliver::{Delivered, Outbox};
use super::kept::Change;
use super::keys::Keys;
use super::leftovers::Leftovers;
use super::receive::{Received, What, reach};
use super::room::Permit;
use super::running::Running;
use super::served::Server;
use super::shown::Newest;
use super::spool::Spool;
use super::status::{self, Status};
use super::tasks::Ends;
use crate::agent::{Happened, WRITTEN_WITHIN};
use crate::drain::Phase;

/// While more waits to be sent, the agent's output is not read, and the agent has to wait.
const MOST_UNSENT: usize = 64 << 20;

/// A session with all that it needs.
pub(crate) struct Session {
    pub(super) host: Arc<Host>,
    pub(super) id: SessionId,
    pub(super) core: Core,
    /// `None` while a step is written.
    spool: Option<Spool>,
    pub(super) keys: Keys,
    pub(super) outbox: Outbox,
    pub(super) agent: Option<Running>,
    /// The server that has continued the turn.
    pub(super) follows: Option<Arc<Server>>,
    /// Of the agent that runs.
    pub(super) permit: Option<Permit>,
    /// Another session needs the room of this one's agent.
    pub(super) park: Arc<Notify>,
    pub(super) deadlines: Deadlines,
    pub(super) leftovers: Leftovers,
    pub(super) status: watch::Sender<Status>,
    pub(super) grants: watch::Sender<Vec<AccessGrant>>,
    /// The newest of the session's messages that the server was seen to have.
    pub(super) at_server: Newest,
    /// Of a server that was restored, as it is on disk.
    pub(super) behind: watch::Sender<Option<Behind>>,
    /// Whether the agent runs.
    pub(super) runs: watch::Sender<bool>,
    /// For the task that the session is.
    pub(super) task: Ends,
    /// The agent was ordered to end at once, because the host is to.
    is_hurried: bool,
    /// When the session rests, because it has ended and nothing was written to it.
    rests_at: Option<Instant>,
    /// Held while the session has not ended.
    unended: Option<Arc<()>>,
    /// Frames that are being sent. When one is done, the next may be sent.
    pub(super) frames: JoinSet<()>,
    /// Looks for the signer of a prompt whose turn has come.
    pub(super) judges: JoinSet<(Asked, Found)>,
    pub(super) next_frame: Instant,
}

/// Why a session ends here.
enum End {
    /// The host stops, and another one continues.
    Drained,
    /// The same, and the turn that runs continues meanwhile.
    Left,
    /// It was deleted.
    Gone,
    /// It has ended, and no one resumes it.
    Rests,
    /// Another host has it.
    Lost,
    /// Its log cannot be written.
    Unwritten(std::io::Error),
}

impl Session {
    pub(crate) fn new(host: Arc<Host>, core: Core, spool: Spool, keys: Keys) -> Self {
        let (outbox, grants) = (Outbox::default(), watch::Sender::new(core.kept.access.clone()));
        outbox.add(core.kept.unsent.iter().cloned());
        let task = host.hosted.add(core.kept.session, grants.subscribe());
        Self {
            host,
            id: core.kept.session,
            task,
            grants,
            at_server: Newest::default(),
            behind: watch::Sender::new(core.kept.behind.clone()),
            core,
            spool: Some(spool),
            keys,
            outbox,
            agent: None,
            follows: None,
            permit: None,
            park: Arc::new(Notify::new()),
            deadlines: Deadlines::default(),
            leftovers: Leftovers::default(),
            status: watch::Sender::default(),
            runs: watch::Sender::default(),
            is_hurried: false,
            rests_at: None,
            unended: None,
            frames: JoinSet::new(),
            judges: JoinSet::new(),
            next_frame: Instant::now(),
        }
    }

    /// Hosts the session until it is gone or the host stops. Returns its id if it is to be opened again.
    pub(crate) async fn run(mut self) -> Option<SessionId> {
        let (deliveries, mut delivered) = mpsc::channel(16);
        let mut tasks = JoinSet::new();
        tasks.spawn(self.deliver(deliveries));
        let beat = Arc::new(Notify::new());
        let (mut reading, mut received) = self.read(&mut tasks, &beat);
        let mut beats = tokio::spawn(self.beat(beat.clone()));
        let mut keys = self.keys.changes();
        let end = loop {
            if let Err(error) = self.perform().await {
                break End::Unwritten(error);
            }
            if self.host.drain.phase() > Phase::Serving && !self.core.runs() {
                break End::Drained;
            }
            if self.leaves() {
                match self.perform().await {
                    Ok(()) => break End::Left,
                    Err(error) => break End::Unwritten(error),
                }
            }
            self.rests_at = self.may_rest().then(|| self.rests_at.unwrap_or_else(|| self.rests_later()));
            let reads = self.core.kept.unsent_bytes() < MOST_UNSENT;
            let deadline = [self.deadlines.first(), self.leftovers.deadline()].into_iter().flatten().min();
            tokio::select! {
                happened = next(&mut self.agent, reads) => match happened {
                    Happened::Lines(lines) => {
                        self.tick();
                        lines.iter().for_each(|line| self.core.line(line));
                    }
                    Happened::Ended(exit) => {
                        self.tick();
                        (self.agent, self.permit) = (None, None);
                        self.core.exited(&exit);
                    }
                },
                Some(Received { what, done }) = received.recv() => {
                    self.tick();
                    self.rests_at = None;
                    match what {
                        What::Gone => break End::Gone,
                        What::Restored { after, last } => self.core.restored(after, last),
                        What::NoKey => self.core.lacks_key(),
                        What::Message { seq, upto, command } => {
                            self.core.set_list(self.host.lists.known().await);
                            if let Some(command) = command {
                                let (epoch, sealed) = keys.borrow_and_update().clone();
                                self.core.set_key(epoch, sealed);
                                self.core.key_is_by(self.keys.newest());
                                self.core.command(seq, *command);
                            }
                            self.core.seen(upto);
                        }
                    }
                    if let Err(error) = self.perform().await {
                        break End::Unwritten(error);
                    }
                    let _ = done.send(());
                }
                Some(what) = delivered.recv() => {
                    self.tick();
                    match what {
                        Delivered::Upto(n) => self.core.sent(n),
                        Delivered::Behind(lacks) => if self.core.lacks(&lacks) {
                            reading.abort();
                            (reading, received) = self.read(&mut tasks, &beat);
                        },
                        Delivered::Again(from) => self.core.sent_again(from),
                        Delivered::Gone => break End::Gone,
                    }
                }
                Ok(()) = keys.changed() => {
                    let (epoch, sealed) = keys.borrow_and_update().clone();
                    self.tick();
                    self.core.set_key(epoch, sealed);
                }
                Some(order) = self.task.orders.recv() => {
                    self.tick();
                    let taken = order.give(&mut self.core);
                    if let Err(error) = self.perform().await {
                        break End::Unwritten(error);
                    }
                    let _ = taken.map(|taken| taken.send(()));
                }
                () = sleep_until(self.next_frame), if self.core.has_frames() && self.frames.is_empty() => self.send_frames(),
                _ = self.frames.join_next(), if !self.frames.is_empty() => {}
                Some(Ok((asked, found))) = self.judges.join_next(), if !self.judges.is_empty() => {
                    self.tick();
                    self.core.judged(asked, found.signer, found.list_is_withheld);
                }
                () = reach(deadline) => self.late().await,
                () = reach(self.rests_at) => break End::Rests,
                () = self.park.notified() => {
                    self.tick();
                    self.core.park();
                }
                _ = &mut beats => break End::Lost,
                () = self.host.drain.reached(Phase::Draining), if !self.core.drains() => {
                    self.tick();
                    self.core.drain(self.agent.as_ref().is_some_and(|agent| agent.server().is_some()));
                    let timing = &self.host.settings.timing;
                    self.deadlines.interrupted = Some(Instant::now() + timing.turn_grace);
                    self.deadlines.killed = Some(Instant::now() + timing.turn_grace + timing.interrupted_within * 2);
                }
                () = self.host.drain.reached(Phase::HandingBack), if !self.is_hurried && self.agent.is_some() => {
                    self.is_hurried = true;
                    self.tick();
                    self.core.interrupt();
                    self.deadlines.killed = Some(Instant::now() + self.host.settings.process.term_grace);
                }
            }
        };
        beats.abort();
        if matches!(end, End::Rests) {
            tasks.shutdown().await;
            return self.rest().await;
        }
        self.host.wakers.forget(self.id);
        self.host.hosted.remove(self.id, &self.task);
        let (id, host, keys, has_turn) = (self.id, self.host.clone(), self.keys.clone(), self.core.has_turn());
        let problem = if let End::Unwritten(error) = &end { Some(error.to_string()) } else { None };
        let comes_again = (problem.is_some() || matches!(end, End::Lost)).then_some(id);
        let notice = problem.as_deref().map(|problem| status::unwritten(&host, &keys, id, (problem, has_turn)));
        // The agent does not wait for the server.
        tokio::join!(self.finish(end, tasks, delivered), OptionFuture::from(notice));
        comes_again
    }

    /// Leaves the turn to the agent's server while the host stops.
    fn leaves(&mut self) -> bool {
        let server = self.agent.as_ref().and_then(|agent| agent.server()).map(|server| server.id());
        let is_leaving = self.core.drains() && self.host.drain.phase() < Phase::HandingBack;
        server.filter(|_| is_leaving).is_some_and(|server| self.core.leave(server))
    }

    pub(super) fn tick(&mut self) {
        self.core.set_time(self.host.now());
    }

    /// Writes down what has changed, and then does what is to be done.
    async fn perform(&mut self) -> std::io::Result<()> {
        loop {
            let effects = self.core.take_effects();
            let Effects { changes, start, lines, close, end_commands, wants, judge } = effects;
            let has_written = !changes.is_empty();
            if has_written {
                self.write(&changes).await?;
                self.keys.note_old(self.core.kept.old_key, &changes);
                self.outbox.add(changes.iter().filter_map(|change| match change {
                    Change::Say(message) => Some(message.clone()),
                    _ => None,
                }));
                self.show(&changes);
            }
            judge.into_iter().for_each(|asked| self.judge(asked));
            self.tell_task();
            let (works, has_ended) = (self.core.has_turn(), self.core.kept.ended && !self.core.runs());
            self.status.send_if_modified(|status| {
                let still_running = self.core.still_running();
                let has_written = status.has_written || has_written;
                let new = Status { wants: wants.unwrap_or(status.wants), works, has_ended, still_running, has_written };
                *status != new && {
                    *status = new;
                    true
                }
            });
            if self.core.kept.ended == self.unended.is_some() {
                self.unended = if self.core.kept.ended { None } else { Some(self.host.unended.clone()) };
                self.host.used.notify_one();
            }
            let runs = self.core.runs();
            self.runs.send_if_modified(|known| std::mem::replace(known, runs) != runs);
            if let Some(start) = start
                && let Err(why) = self.start(start).await?
            {
                self.permit = None;
                self.core.not_started(&why);
                continue;
            }
            if let Some(agent) = &mut self.agent {
                if tokio::time::timeout(WRITTEN_WITHIN, agent.write(&lines)).await.is_err() {
                    tracing::error!(session.id = %self.id, "The guard of an agent does not answer, so both are ended");
                    agent.kill();
                }
                if close {
                    agent.close_input().await;
                    let grace = self.host.settings.process.term_grace;
                    self.deadlines.killed.get_or_insert(Instant::now() + grace);
                }
            }
            if end_commands {
                self.end_leftovers().await;
            }
            self.set_deadlines();
            self.watch_leftovers().await;
            return Ok(());
        }
    }

    /// Reports the progress of the session's task.
    fn tell_task(&self) {
        let Some(prompt_id) = self.core.kept.task.as_ref().map(|task| task.prompt_id.clone()) else { return };
        let progress = self.core.task_state(&prompt_id).map(|state| (prompt_id, state));
        self.task.progress.send_if_modified(|known| std::mem::replace(known, progress.clone()) != progress);
    }

    /// A step is on disk before anything else.
    pub(super) async fn write(&mut self, changes: &[Change]) -> std::io::Result<()> {
        let Some(mut spool) = self.spool.take() else { return Err(std::io::Error::other("the log is closed")) };
        let step = changes.to_vec();
        let folded = spool.is_long().then(|| self.core.kept.clone());
        let (spool, written) = on_disk(move || {
            let written = spool.write(&step).and_then(|()| folded.map_or(Ok(()), |kept| spool.fold(&kept)));
            Ok((spool, written))
        })
        .await?;
        self.spool = Some(spool);
        written
    }

    async fn finish(mut self, end: End, mut tasks: JoinSet<()>, mut delivered: mpsc::Receiver<Delivered>) {
        let (timing, grace) = (self.host.settings.timing, self.host.settings.process.term_grace);
        match self.agent.take() {
            Some(Running::Served(mut connection)) => {
                if matches!(end, End::Left) {
                    self.host.servers.leave_to(connection.server()).await;
                } else {
                    self.core.interrupt();
                    let lines = self.core.take_effects().lines;
                    let _ = tokio::time::timeout(WRITTEN_WITHIN, connection.write(&lines)).await;
                }
                let _ = tokio::time::timeout(WRITTEN_WITHIN, connection.close()).await;
            }
            Some(mut agent) => {
                if tokio::time::timeout(WRITTEN_WITHIN, agent.stop(grace)).await.is_err() {
                    agent.kill();
                }
                while let Happened::Lines(_) = agent.next(true).await {}
            }
            None => {}
        }
        match end {
            End::Drained | End::Left => {
                let deadline = Instant::now() + timing.deliver_grace;
                while !self.outbox.is_empty() {
                    let Ok(Some(Delivered::Upto(n))) = tokio::time::timeout_at(deadline, delivered.recv()).await else {
                        break;
                    };
                    self.core.sent(n);
                    let changes = self.core.take_changes();
                    if self.write(&changes).await.is_err() {
                        break;
                    }
                }
            }
            End::Gone => {
                self.host.forget_environment(self.id);
                let (folder, id) = (self.host.sessions.clone(), self.id);
                if let Err(error) = on_disk(move || Spool::delete(&folder, id)).await {
                    tracing::error!(session.id = %self.id, "Cannot remove a deleted session: {error}");
                }
            }
            End::Lost | End::Unwritten(_) | End::Rests => {}
        }
        tasks.shutdown().await;
    }
}

async fn next(agent: &mut Option<Running>, reads: bool) -> Happened {
    match agent {
        Some(agent) => agent.next(reads).await,
        None => std::future::pending().await,
    }
}
