//! The internal listener: MachineDirectory.

use ensemble_rpc::RpcError;
use ensemble_rpc::machines::{GetMachineRequest, MachineDirectory, MachineDirectoryClient};
use ensemble_testkit::on_both_databases;
use ensemble_testkit::peers::channel_to;
use serde_json::json;

use crate::{Fixture, draft};

on_both_databases! {
    async fn peers_can_look_up_a_machine(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ((alice, api), (bob, _)) = (fixture.user(), fixture.user());
        api.post("/v1/machines", &draft("m")).await.expect(201);
        let directory = MachineDirectoryClient::new(channel_to(&fixture.service.internal_url()));
        let get = |user: String, machine: &str| {
            directory.get(GetMachineRequest { user_id: user, machine_id: machine.to_owned() })
        };
        let found = get(alice.to_string(), "m").await.unwrap();
        assert_eq!((found.machine_id.as_str(), found.online), ("m", false));
        api.patch("/v1/machines/m", &json!({ "activity": {} })).await.expect(200);
        assert!(get(alice.to_string(), "m").await.unwrap().online);
        assert!(matches!(get(alice.to_string(), "n").await, Err(RpcError::NotFound(_))));
        assert!(matches!(get(bob.to_string(), "m").await, Err(RpcError::NotFound(_))));
        assert!(matches!(get("not an id".to_owned(), "m").await, Err(RpcError::Invalid(_))));
        assert!(matches!(get(alice.to_string(), "a b").await, Err(RpcError::Invalid(_))));
    }
}
