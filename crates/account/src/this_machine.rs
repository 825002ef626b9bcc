//! This computer as a machine of the account: registered, with a key or a token for its runner.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ensemble_client::Credential;
use ensemble_types::accounts::CreateMachineToken;
use ensemble_types::ids::MachineId;
use ensemble_types::line::inline;
use ensemble_types::machines::Machine;
use rand::Rng as _;
use rand::distributions::Alphanumeric;

use crate::account::Account;
use crate::error::{Error, Result};
use crate::home::Home;
use crate::machine_key;
use crate::machines::{Card, registration};
use crate::removal::{Finished, begin_removal};
use crate::settings::Settings;

/// A registered machine, and the file with what its runner signs in with.
pub struct Registered {
    pub machine: Machine,
    pub credential: Secret,
}

/// Where it is. A home without a directory has no such file: a runner cannot be started with it.
pub enum Secret {
    Key(PathBuf),
    Token(PathBuf),
}

impl Account {
    /// Registers this machine unless it is registered, and makes sure that its runner can sign in. Without an id it is the one that it had
    /// before, or a new one.
    pub async fn register_this(&self, id: Option<MachineId>) -> Result<Registered> {
        let id = match id {
            Some(id) => id,
            None => known_here(self)?.map_or_else(new_id, Ok)?,
        };
        let card = Card {
            host: self.home.computer().host().to_owned(),
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            by: Some(self.key.public_key()),
        };
        let (machine, is_new) = self.client.register_machine(&registration(self, &id, &card)?).await?;
        let credential = match machine_key::listed(self, &id, is_new).await? {
            Some(path) => Secret::Key(path),
            None => Secret::Token(with_token(self, &id).await?),
        };
        self.home.change_settings(|settings| {
            settings.account_machines.insert(self.id, id.clone());
            settings.machines.insert(self.client.origin().to_owned(), id);
        })?;
        Ok(Registered { machine, credential })
    }

    /// This machine's id, also where the account was moved to another address since it was registered. `None`: it never was.
    pub fn this_machine(&self) -> Result<Option<MachineId>> {
        Ok(self.home.settings()?.machine(self.client.origin()).cloned())
    }

    /// Registers a machine that is about to be linked, with what it says of its host.
    pub(crate) async fn register_linked(&self, name: &str) -> Result<MachineId> {
        let id = new_id()?;
        let card = Card { host: inline(name), ..Card::default() };
        self.client.register_machine(&registration(self, &id, &card)?).await?;
        Ok(id)
    }

    /// Deletes a machine, and takes its key from the list. Sessions whose keys it has get new ones.
    pub async fn delete_machine(&self, id: &MachineId) -> Result<Finished> {
        self.see_all_titles().await;
        begin_removal(&self.home, self.place(), self.own().list.version())?;
        // A program that is killed in between is started again: a machine that is in no list has no key given.
        machine_key::unlist(self, &[id]).await?;
        match self.client.delete_machine(id).await {
            Err(error) if error.is_not_found() => {}
            deleted => deleted?,
        }
        forget(self, id)?;
        // It has the keys of the sessions that it hosted, and others may write there.
        self.refresh_own(Duration::ZERO).await?;
        self.finish_removal().await?.whole()
    }
}

fn forget(me: &Account, id: &MachineId) -> Result<()> {
    for path in [me.home.machine_token_path(me.owner(), id), me.home.machine_key_path(me.owner(), id)] {
        me.home.remove(me.home.name_of(&path)?)?;
    }
    me.home.change_settings(|settings| {
        settings.machines.retain(|_, known| known != id);
        settings.account_machines.retain(|_, known| known != id);
    })
}

/// The file with a token for this machine's runner that is valid now.
async fn with_token(me: &Account, id: &MachineId) -> Result<PathBuf> {
    let path = me.home.machine_token_path(me.owner(), id);
    if !works(me, &path, id).await {
        let request = CreateMachineToken { machine_id: id.clone(), expires_in_seconds: None };
        let created = me.client.create_machine_token(&request).await?;
        me.home.write_secret(&path, created.token.as_bytes())?;
    }
    Ok(path)
}

/// This machine's id for this account, at whichever address of its server it was used before.
fn known_here(me: &Account) -> Result<Option<MachineId>> {
    let Settings { machines, mut account_machines, accounts, .. } = me.home.settings()?;
    // Earlier versions knew it by address only.
    let is_own = |origin: &str| accounts.get(origin).is_some_and(|account| account.user_id == me.id);
    let known = account_machines
        .remove(&me.id)
        .or_else(|| machines.get(me.client.origin()).cloned())
        .or_else(|| machines.iter().find(|(origin, _)| is_own(origin)).map(|(_, id)| id.clone()));
    if let Some(known) = &known {
        for (origin, _) in machines.iter().filter(|(_, id)| *id == known) {
            me.home.adopt_machine(origin, me.owner(), known)?;
        }
    }
    Ok(known)
}

/// Whether the stored token of this machine is still valid. It may have expired or been revoked.
async fn works(me: &Account, path: &Path, id: &MachineId) -> bool {
    let Some(token) = stored_token(&me.home, path) else { return false };
    let answer = me.client.with_credential(Credential::Bearer(token.trim().into())).machine(id).await;
    answer.is_ok_and(|machine| machine.id == *id)
}

fn stored_token(home: &Home, path: &Path) -> Option<String> {
    let stored = home.store().get(home.name_of(path).ok()?).ok()??;
    String::from_utf8(stored).ok()
}

/// The id of a new machine. It reveals nothing about the host.
fn new_id() -> Result<MachineId> {
    let random = rand::rngs::OsRng.sample_iter(Alphanumeric).map(|letter| char::from(letter).to_ascii_lowercase());
    let id: String = "m-".chars().chain(random.take(10)).collect();
    id.parse().map_err(|error| Error::Form(format!("The new id of this machine {error}.")))
}

#[cfg(test)]
mod tests {
    use ensemble_types::ids::UserId;

    use super::*;
    use crate::home::Owner;

    #[test]
    fn a_token_is_found_where_it_was_kept() {
        let place = tempfile::tempdir().unwrap();
        for home in [Home::of_test(place.path().join("home")), Home::of_test_in_memory()] {
            let owner = Owner { user: UserId::generate(), account: "abc" };
            let path = home.machine_token_path(owner, &"laptop".parse().unwrap());
            assert_eq!(stored_token(&home, &path), None);
            home.write_secret(&path, b"token").unwrap();
            assert_eq!(stored_token(&home, &path).as_deref(), Some("token"));
        }
    }
}
