//! What the owner of this machine has it do, through a server that cannot change it: tasks and orders that a device of theirs has signed,
//! each once.

mod check;
mod clear;
#[cfg(test)]
mod clear_tests;
mod nonces;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ensemble_client::devices::List;
use ensemble_client::{Credential, Error};
use ensemble_host::{Drain, Folder, Host, Hosting, Settings, clock};
use ensemble_protocol::AccountKey;
use ensemble_protocol::seal::{SessionTask, open_task};
use ensemble_types::leases::{Lease, TaskOutput};
use ensemble_types::signatures::digest;
use tokio::sync::watch;

use crate::config::Config;
use crate::server;

pub(crate) use check::Refused;
use nonces::{Nonces, Once};

/// The owner, as the host of this machine knows them, and what it has taken from them.
pub(crate) struct Owner {
    config: Arc<Config>,
    pub(crate) host: Arc<Host>,
    nonces: Nonces,
}

/// Hosts sessions until the drain has ended them. A machine without a key, or without a known owner, hosts none. `owners` receives the
/// owner.
pub(crate) async fn run(
    config: Arc<Config>,
    settings: Arc<Settings>,
    drain: Drain,
    owners: watch::Sender<Option<Arc<Owner>>>,
) {
    let (Some(mut hosting), Credential::Device(key)) = (config.hosting.clone(), config.credential.clone()) else {
        return;
    };
    hosting.own.extend(config.own());
    if let Err(error) = host((config, settings), hosting, key, (drain, owners)).await {
        tracing::error!("This machine hosts no sessions: {error}");
    }
}

async fn host(
    (config, settings): (Arc<Config>, Arc<Settings>),
    hosting: Hosting,
    key: AccountKey,
    (drain, owners): (Drain, watch::Sender<Option<Arc<Owner>>>),
) -> Result<(), String> {
    let client = server::connect(&config).map_err(|error| error.to_string())?;
    let Some(folder) = Folder::take(&hosting, &drain).await? else { return Ok(()) };
    // While no other program has the folder, and before the host leaves anything in it.
    let nonces = Nonces::open(folder.path(), clock());
    let nonces = nonces.map_err(|error| format!("the tasks that were taken: {error}"))?;
    let ready = |host| drop(owners.send_replace(Some(Arc::new(Owner { config, host, nonces }))));
    ensemble_host::run(settings, hosting, folder, (client, key), (drain, ready)).await
}

/// Fills the outputs of other tasks into a prompt, marked as data. `None`: it would be too long.
pub(crate) fn filled(prompt: &str, outputs: &BTreeMap<String, TaskOutput>) -> Option<String> {
    clear::filled(prompt, outputs, &SessionTask::nonce())
}

impl Owner {
    /// What a sealed task has this machine do, if its owner has signed it. The task can be done only under its own id from now on.
    ///
    /// # Errors
    /// The outer error: the server cannot be asked for the owner's device list now.
    pub(crate) async fn signed(&self, lease: &Lease) -> Result<Result<SessionTask, Refused>, Error> {
        let sealed = lease.sealed.as_deref().unwrap_or_default();
        let opened = match open_task(sealed, self.host.box_key(), (self.host.owner(), &self.config.machine)) {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(Refused::not_signed(error.to_string()))),
        };
        let list = match self.newest_list().await? {
            Ok(list) => list,
            Err(refused) => return Ok(Err(refused)),
        };
        let now = self.host.now();
        let Some(session) = lease.session else {
            return Ok(Err(Refused::unsupported("the server says that it is no session")));
        };
        let task = match check::check(&opened, &list, (lease, session), now) {
            Ok(task) => task,
            Err(refused) => return Ok(Err(self.explained(refused))),
        };
        let digest = digest(sealed);
        let once = Once { nonce: &task.nonce, digest: &digest, at: task.at, expires: task.expires, is_order: false };
        Ok(self.nonces.take(&once, lease.task_id, now).await.map(|()| task))
    }

    fn explained(&self, refused: Refused) -> Refused {
        refused.with_clock(self.host.clock_ahead())
    }

    /// The list by which signers are judged.
    async fn newest_list(&self) -> Result<Result<List, Refused>, Error> {
        Ok(self.host.owner_list().await?.map_err(Refused::not_signed))
    }
}
