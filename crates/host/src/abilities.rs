//! Says what this machine can do, sealed for its owner: the server learns none of it.

use ensemble_agent::known;
use ensemble_client::Error;
use ensemble_client::devices::List;
use ensemble_process::disk::on_disk;
use ensemble_protocol::seal::{BoxPublicKey, DaemonState, InstalledAgent, SealError};
use ensemble_types::machines::UpdateMachine;
use ensemble_types::text::Blob;

use super::Host;

/// Says it under the content key of this list, which is the newest, as the version after this one.
pub(crate) async fn say(host: &Host, list: &List, version: i64) -> Result<(), Error> {
    let (machine, next) = (&host.settings.machine, version.saturating_add(1));
    let state = DaemonState { does: vec![DaemonState::DEMO.to_owned()], agents: installed(host).await };
    let sealed = BoxPublicKey::from_text(&list.body().content_public_key)
        .and_then(|to| state.seal(&to, (machine, next), &host.key))
        .and_then(|sealed| Blob::new(sealed).map_err(|_| SealError::TooLong))
        .map_err(|error| Error::Argument(format!("what this machine can do cannot be sealed: {error}")))?;
    let update = UpdateMachine {
        daemon_state: Some(sealed),
        expected_daemon_state_version: Some(version),
        ..UpdateMachine::default()
    };
    host.client.update_machine(machine, &update).await.map(drop)
}

/// The agents that can be started here, and where they are.
async fn installed(host: &Host) -> Vec<InstalledAgent> {
    let settings = host.settings.clone();
    let look = move || {
        let path =
            |name| settings.agent(name).ok()?.find(&settings.environment, None).ok()?.to_str().map(str::to_owned);
        let startable = known::ALL.iter().filter(|known| known.starts.is_some());
        Ok(startable
            .filter_map(|known| Some(InstalledAgent { name: known.name.to_owned(), path: path(known.name)? }))
            .collect())
    };
    on_disk(look).await.unwrap_or_default()
}
