//! Says which device list this machine obeys, so that the owner sees when a removal has reached it.

use std::sync::Arc;

use ensemble_client::Error;
use ensemble_client::devices::{List, seen_text};
use ensemble_types::machines::SeenList;
use ensemble_types::text::{Blob, OutOfBounds};

use super::{Host, Pause};

/// Says it when the host starts, whenever the list changes, and when the connection to the server is new, for as long as the host runs.
pub(crate) async fn run(host: Arc<Host>) {
    let mut versions = host.lists.versions();
    let mut pause = Pause::new(&host);
    loop {
        versions.borrow_and_update();
        match say(&host, &host.lists.list().await).await {
            Ok(()) => {
                pause.reset();
                if versions.changed().await.is_err() {
                    return;
                }
            }
            Err(error) => {
                pause.say(&format!("The server does not take which device list this machine obeys: {error}"));
                pause.wait().await;
            }
        }
    }
}

async fn say(host: &Host, list: &List) -> Result<(), Error> {
    let seen = seen(host, list).map_err(|error| Error::Argument(error.to_string()))?;
    host.client.say_seen(&host.settings.machine, seen).await.map(drop)
}

fn seen(host: &Host, list: &List) -> Result<SeenList, OutOfBounds> {
    let (version, digest) = (list.version(), list.digest_text());
    let sig = host.key.sign(&seen_text(&list.body().account, &host.settings.machine, version, &digest));
    Ok(SeenList { version, digest: Blob::new(digest)?, sig: Blob::new(sig)? })
}
