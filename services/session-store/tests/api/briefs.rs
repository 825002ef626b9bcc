//! The internal listener: an owner's sessions in brief.

use ensemble_rpc::RpcError;
use ensemble_rpc::sessions::{ListSessionsRequest, SessionReader, SessionReaderClient};
use ensemble_testkit::on_both_databases;
use ensemble_testkit::peers::channel_to;
use serde_json::json;

use crate::fixture::Fixture;

on_both_databases! {
    async fn the_voice_of_an_owner_reads_what_is_not_sealed(on: Backend) {
        let fixture = Fixture::start(on).await;
        let (alice, bob) = (fixture.client(), fixture.client());
        let (first, second) = (alice.session().await, alice.session().await);
        let foreign = bob.session().await;
        bob.share(&foreign, &alice, "admin").await;
        alice.api.patch(&format!("/v1/sessions/{first}"), &json!({ "status": "ended" })).await.expect(200);
        alice.api.patch(&format!("/v1/sessions/{second}"), &json!({ "heartbeat": { "thinking": true } })).await.expect(200);
        let reader = SessionReaderClient::new(channel_to(&fixture.service.internal_url()));
        let list = |limit: u32, active_only: bool| {
            reader.list(ListSessionsRequest { user_id: alice.id.to_string(), limit, active_only })
        };
        let all = list(20, false).await.unwrap();
        let ids = |all: &[ensemble_rpc::sessions::SessionBrief]| -> Vec<String> { all.iter().map(|one| one.id.clone()).collect() };
        let mut found = ids(&all.sessions);
        found.sort_unstable();
        let mut own = vec![first.clone(), second.clone()];
        own.sort_unstable();
        assert_eq!((found, all.more), (own, false), "her own sessions only");
        let of = |id: &str| all.sessions.iter().find(|one| one.id == id).unwrap().clone();
        assert_eq!((of(&first).status.as_str(), of(&first).thinking), ("ended", false));
        let active = of(&second);
        assert_eq!((active.status.as_str(), active.online, active.thinking), ("active", true, true));
        assert_eq!((active.machine_id, active.attention.as_str()), (alice.machine.to_string(), "none"));
        let read = alice.api.get(&format!("/v1/sessions/{second}")).await.expect(200);
        assert_eq!(read["ref"], active.r#ref);
        assert_eq!(ids(&list(20, true).await.unwrap().sessions), [second]);
        let page = list(1, false).await.unwrap();
        assert_eq!((page.sessions.len(), page.more), (1, true));
        for limit in [0, 21] {
            assert!(matches!(list(limit, false).await, Err(RpcError::Invalid(_))));
        }
    }
}
