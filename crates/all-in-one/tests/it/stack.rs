//! All services in one process: what the first start creates and what the second start finds.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ensemble_all_in_one::{Config, Stack};
use ensemble_client::{Client, Credential};
use ensemble_protocol::AccountKey;
use ensemble_types::machines::RegisterMachine;
use ensemble_types::text::Blob;

async fn up(data: &Path) -> Stack {
    Stack::start(Config::new(data, ([127, 0, 0, 1], 0).into())).await.unwrap()
}

fn client(stack: &Stack, key: &AccountKey) -> Client {
    Client::builder(stack.url()).credential(Credential::Account(key.clone())).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_start_finds_what_the_first_one_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let key = AccountKey::generate();
    let laptop = RegisterMachine {
        metadata: Blob::new("sealed").unwrap(),
        encryption_key: Blob::new("sealed").unwrap(),
        content_epoch: None,
        id: Some("laptop".parse().unwrap()),
    };

    let first = up(&data).await;
    let me = client(&first, &key);
    let token = me.sign_in().await.unwrap();
    let (machine, is_new) = me.register_machine(&laptop).await.unwrap();
    assert!(is_new);
    assert!(first.stop().await, "no request had to be cut off");
    assert!(reqwest::get(me.origin()).await.is_err(), "the listener is closed");
    for (file, mode) in [("key-encryption-key", 0o400), ("internal-token", 0o400), (".", 0o700)] {
        let found = std::fs::metadata(data.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{file}");
    }

    let second = up(&data).await;
    let bearing = |credential| Client::builder(second.url()).credential(credential).build().unwrap();
    let old_token = bearing(Credential::Bearer(token.token));
    assert_eq!(old_token.machine(&machine.id).await.unwrap().created_at, machine.created_at, "the keys are the same");
    assert_eq!(client(&second, &key).sign_in().await.unwrap().user_id, token.user_id);
    for entry in std::fs::read_dir(&data).unwrap().map(Result::unwrap) {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode & 0o077, 0, "{:?} {mode:o}", entry.file_name());
    }
    let third = Stack::start(Config::new(&data, ([127, 0, 0, 1], 0).into())).await;
    assert!(third.is_err(), "two processes cannot share one folder");
    assert!(second.stop().await);
}

/// The services behind the edge listen on ports of loopback, where a page whose name leads to this computer could look for them.
#[tokio::test(flavor = "multi_thread")]
async fn services_behind_the_edge_answer_to_this_computer_only() {
    let folder = tempfile::tempdir().unwrap();
    let stack = up(&folder.path().join("data")).await;
    let http = reqwest::Client::new();
    let status =
        async |url: String, host: &str| http.get(url).header("host", host).send().await.unwrap().status().as_u16();
    for name in ["identity", "machine-registry", "session-store", "orchestrator", "voice-gateway", "edge-proxy"] {
        let running = stack.service(name).unwrap();
        let internal = format!("{}/healthz", running.internal_url());
        assert_eq!(status(internal.clone(), "evil.example").await, 421, "{name}");
        assert_eq!(status(internal, "localhost").await, 200, "{name}");
        let public = format!("{}/v1/nothing", running.public_url());
        assert_eq!(status(public.clone(), "evil.example:80").await, 421, "{name}");
        assert_eq!(status(public, "127.0.0.1").await, 404, "{name}");
    }
    assert!(stack.stop().await);
}
