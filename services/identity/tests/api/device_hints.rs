//! The readers of an account's events get a hint when its devices change.

use ensemble_testkit::{Peers, SOON, eventually, on_both_databases};
use ensemble_types::devices::Role;

use crate::Fixture;
use crate::listing::{Keys, Owner};

on_both_databases! {
    async fn a_change_of_the_devices_is_a_hint(on: Backend) {
        let peers = Peers::start().await;
        let fixture = Fixture::with(on, &[("SESSION_STORE_RPC_URL", peers.url())]).await;
        let mut alice = Owner::new(&fixture).await;
        let user = alice.user.parse().unwrap();
        let hints = async |count: usize| {
            eventually(SOON, async || peers.hints(user).len() >= count).await;
            let hints = peers.hints(user);
            assert!(hints.iter().all(|(kind, id, _)| (kind.as_str(), id) == ("device", &user.to_string())), "{hints:?}");
            assert!(hints.is_sorted_by_key(|(_, _, revision)| *revision), "{hints:?}");
            hints.len()
        };
        let first = hints(1).await;
        let tablet = Keys::new();
        alice.link(&fixture, &tablet, Role::Linked).await;
        let linked = hints(first + 1).await;
        alice.put(alice.next()).await;
        let named = hints(linked + 1).await;
        alice.put(alice.without(&tablet)).await;
        hints(named + 1).await;
    }
}
