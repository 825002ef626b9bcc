//! What people find a session by: its title, its directory and its agent, signed by the machine that hosts it.
//!
//! The machine says where its agent works. Its owner and admins give the session a title; what they have signed counts.

use std::path::Path;

use ensemble_client::seal::{KeyRing, Metadata, SealError, SignedMetadata, open_metadata, seal_metadata};
use ensemble_client::{AccountKey, Client, Error, Known};
use ensemble_types::ids::{MachineId, SessionId, UserId};
use serde::{Deserialize, Serialize};

use super::account::Lists;

/// The metadata of a session, as its owner's programs read it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Card {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    path: String,
    host: String,
    agent: String,
}

/// What is read of the metadata of others.
#[derive(Deserialize)]
struct Titled {
    title: Option<String>,
}

impl Card {
    pub(crate) fn new(agent: &str, directory: &Path) -> Self {
        let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { title: None, path: directory.display().to_string(), host, agent: agent.to_owned() }
    }

    pub(crate) fn titled(self, title: Option<String>) -> Self {
        Self { title, ..self }
    }

    /// Signs it as this version of the session's metadata.
    pub(crate) fn seal(
        &self,
        ring: &KeyRing,
        of: (SessionId, i64),
        (owner, key): (UserId, &AccountKey),
    ) -> Result<String, SealError> {
        let body = serde_json::to_string(self).map_err(|_| SealError::Format)?;
        seal_metadata(ring, of, Metadata { body, user: owner, admin: None, of_machine: None }, key)
    }
}

/// The title in metadata that somebody has signed who may give one.
///
/// # Errors
/// Who has signed it cannot be found out now.
pub(crate) async fn title(
    (client, lists): (&Client, &Lists),
    (session, machine): (SessionId, &MachineId),
    (version, sealed): (i64, &str),
    ring: &KeyRing,
) -> Result<Option<String>, Error> {
    let Ok(signed) = open_metadata(ring, (session, version), sealed) else { return Ok(None) };
    let counts = match counts((client, lists), (session, machine), &signed).await {
        // The server has no list of that user, or shows one that is not good.
        Err(Error::OldDeviceList | Error::DeviceList(_)) => false,
        Err(error) if error.is_not_found() => false,
        counts => counts?,
    };
    Ok(serde_json::from_str::<Titled>(&signed.body).ok().filter(|_| counts).and_then(|titled| titled.title))
}

async fn counts(
    (client, lists): (&Client, &Lists),
    (session, machine): (SessionId, &MachineId),
    signed: &SignedMetadata,
) -> Result<bool, Error> {
    let (owner, list) = (lists.owner(), lists.refreshed().await?);
    let account = &list.body().account;
    if signed.user == owner {
        let is_listed = list.device(&signed.key).is_some_and(|device| device.makes_keys(Some(machine)));
        return Ok(is_listed || client.ever_made(owner, account, &signed.key, Some(machine)).await?);
    }
    // An admin of an earlier key may have lost that.
    let admin = signed.admin.as_ref().filter(|admin| admin.user == signed.user && admin.epoch() == signed.epoch);
    let Some((admin, granted)) = admin.and_then(|admin| Some((admin, admin.granted_by(session)?))) else {
        return Ok(false);
    };
    let is_listed = list.device(&granted).is_some_and(|device| device.role.shares_sessions());
    if !is_listed && !client.ever_shared(owner, account, &granted).await? {
        return Ok(false);
    }
    let account = admin.account();
    let theirs = client.newest_list(admin.user, Known::Account(&account)).await?;
    let device = theirs.as_ref().and_then(|list| list.device(&signed.key));
    let is_listed = device.is_some_and(|device| device.role.shares_sessions());
    Ok(is_listed || client.ever_shared(admin.user, &account, &signed.key).await?)
}
