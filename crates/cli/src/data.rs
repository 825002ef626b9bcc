//! Which data directory `ensemble up` uses. An account that was used at an address with one directory has nothing in another one:
//! its sessions seem lost, and its machine is forgotten. So other data is used only when a person says so.

use std::net::SocketAddr;
use std::path::Path;

use ensemble_account::Account;
use ensemble_account::settings::KnownData;
use ensemble_all_in_one::{data_id, dialled};

use crate::context::Context;
use crate::failure::{Failure, Result};

/// Fails when the account of this computer was used at this address with other data.
pub(crate) fn check(context: &Context, data: &Path, listen: SocketAddr) -> Result<()> {
    let Some(key) = context.home.key()? else { return Ok(()) };
    let (origin, key) = (format!("http://{}", dialled(listen)), key.public_key());
    let settings = context.home.settings()?;
    let id = id_of(data)?;
    let shown = data.display();
    let why = match settings.data.get(&origin).and_then(|known| known.get(&key)) {
        Some(known) if id.as_ref() == Some(&known.id) => return Ok(()),
        Some(known) if id_of(&known.path)?.as_ref() == Some(&known.id) => {
            let path = known.path.display();
            format!(
                "Your account was used at {origin} with the data in {path}. The data in {shown} is another: your sessions and machines are \
                 not in it. To use yours: `ensemble up --data {path}`."
            )
        }
        Some(known) => format!(
            "Your account was used at {origin} with data that was in {}, and is not there any more. Your sessions and machines are not in \
             {shown}. Where your data is now: `ensemble up --data DIR`.",
            known.path.display()
        ),
        None => {
            let was_used = settings.accounts.get(&origin).is_some_and(|account| account.public_key == key);
            let is_empty = !data.join("identity.db").exists();
            if !was_used || !is_empty {
                return Ok(());
            }
            format!(
                "Your account was used at {origin} with other data, or with another server. There is no data in {shown}. To use yours: \
                 `ensemble up --data DIR`."
            )
        }
    };
    Err(Failure::message(format!("{why} To begin with {shown} all the same, add --other-data.")))
}

/// Remembers what the account uses at this server.
pub(crate) fn remember(context: &Context, me: &Account, data: &Path) -> Result<()> {
    let Some(id) = id_of(data)? else { return Ok(()) };
    let path = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    context.home.change_settings(|settings| {
        let of_server = settings.data.entry(me.client.origin().to_owned()).or_default();
        of_server.insert(me.key.public_key(), KnownData { id, path });
    })?;
    Ok(())
}

/// Whether this computer's account was used with this data.
pub(crate) fn is_of(context: &Context, data: &Path) -> Result<bool> {
    let (Some(key), Some(id)) = (context.home.key()?, id_of(data)?) else { return Ok(false) };
    let settings = context.home.settings()?;
    Ok(settings.data.values().filter_map(|known| known.get(&key.public_key())).any(|known| known.id == id))
}

fn id_of(data: &Path) -> Result<Option<String>> {
    data_id(data).map_err(|error| Failure::message(format!("{} cannot be used as data: {error}.", data.display())))
}
