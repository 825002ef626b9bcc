//! The internal door: MachineDirectory.

use ensemble_rpc::RpcError;
use ensemble_rpc::machines::{GetMachineRequest, MachineDirectory, MachineDirectoryClient};
use ensemble_testkit::on_both_databases;
use ensemble_testkit::peers::channel_to;
use serde_json::json;

use crate::{Stage, draft};

on_both_databases! {
    async fn neighbours_ask_whose_machine_it_is(on: Backend) {
        let stage = Stage::new(on).await;
        let ((alice, api), (bob, _)) = (stage.user(), stage.user());
        api.post("/v1/machines", &draft("m")).await.expect(201);
        let directory = MachineDirectoryClient::new(channel_to(&stage.service.internal_url()));
        let ask = |user: String, machine: &str| {
            directory.get(GetMachineRequest { user_id: user, machine_id: machine.to_owned() })
        };
        let found = ask(alice.to_string(), "m").await.unwrap();
        assert_eq!((found.machine_id.as_str(), found.online), ("m", false));
        api.patch("/v1/machines/m", &json!({ "activity": {} })).await.expect(200);
        assert!(ask(alice.to_string(), "m").await.unwrap().online);
        assert!(matches!(ask(alice.to_string(), "n").await, Err(RpcError::NotFound(_))));
        assert!(matches!(ask(bob.to_string(), "m").await, Err(RpcError::NotFound(_))));
        assert!(matches!(ask("nobody".to_owned(), "m").await, Err(RpcError::Invalid(_))));
        assert!(matches!(ask(alice.to_string(), "a b").await, Err(RpcError::Invalid(_))));
    }
}
