//! Says which device list this machine obeys, so that the owner sees when a removal has reached it, and what it can do.

use std::sync::Arc;

use ensemble_client::Error;
use ensemble_client::devices::{List, seen_text};
use ensemble_types::machines::{Machine, SeenList};
use ensemble_types::text::{Blob, OutOfBounds};

use super::{Host, Pause, abilities};

/// Says it when the host starts, whenever the list changes, and when the connection to the server is new, for as long as the host runs.
pub(crate) async fn run(host: Arc<Host>) {
    let mut versions = host.lists.versions();
    let mut pause = Pause::new(&host);
    loop {
        versions.borrow_and_update();
        let list = host.lists.list().await;
        let said = async {
            let machine = say(&host, &list).await?;
            // Another program of this machine takes its tasks.
            if host.sessions_only { Ok(()) } else { abilities::say(&host, &list, machine.daemon_state_version).await }
        };
        match said.await {
            Ok(()) => {
                pause.reset();
                if versions.changed().await.is_err() {
                    return;
                }
            }
            Err(error) => {
                pause.say(&format!(
                    "The server does not take which device list this machine obeys, or what it can do: {error}"
                ));
                pause.wait().await;
            }
        }
    }
}

async fn say(host: &Host, list: &List) -> Result<Machine, Error> {
    let seen = seen(host, list).map_err(|error| Error::Argument(error.to_string()))?;
    host.client.say_seen(&host.settings.machine, seen).await
}

fn seen(host: &Host, list: &List) -> Result<SeenList, OutOfBounds> {
    let (version, digest) = (list.version(), list.digest_text());
    let sig = host.key.sign(&seen_text(&list.body().account, &host.settings.machine, version, &digest));
    Ok(SeenList { version, digest: Blob::new(digest)?, sig: Blob::new(sig)? })
}
