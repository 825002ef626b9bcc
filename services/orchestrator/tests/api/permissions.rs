//! What agents may do without asking, and what they were refused.

use ensemble_testkit::on_both_databases;
use serde_json::{Value, json};

use crate::fixture::{Fixture, RUNS, task};

fn denied(count: usize) -> Value {
    let one = json!({ "tool": "Bash", "summary": "npm test" });
    json!({ "status": "completed", "permission": "edit",
        "permissionDenials": { "count": count, "denials": vec![one; count.min(32)] } })
}

on_both_databases! {
    async fn a_runner_gets_what_the_run_or_the_task_allows(on: Backend) {
        let fixture = Fixture::new(on).await;
        let own = json!({ "prompt": "b", "provider": "claude", "permission": "bypass", "allowedTools": [] });
        let run = fixture.submit_run(json!({ "tasks": [task("a"), own], "permission": "plan", "allowedTools": ["Bash(npm test:*)"] })).await;
        let runner = fixture.runner();
        let leases = runner.lease(2).await;
        assert_eq!((&leases[0]["permission"], &leases[0]["allowedTools"]), (&json!("plan"), &json!(["Bash(npm test:*)"])));
        assert_eq!((&leases[1]["permission"], &leases[1]["allowedTools"]), (&json!("bypass"), &json!([])));
        assert_eq!(run["tasks"][1]["permission"], "bypass");
        runner.report(&leases[1], "finish", json!({ "status": "completed", "permission": "edit" })).await.expect(200);
        assert_eq!(fixture.run(&run).await["tasks"][1]["permission"], "edit", "what the runner allowed");
    }

    async fn permissions_have_bounds(on: Backend) {
        let fixture = Fixture::new(on).await;
        let ask = json!({ "tasks": [{ "prompt": "a", "provider": "claude", "permission": "ask" }] });
        assert_eq!(fixture.api.post(RUNS, &ask).await.bad_fields(), ["/tasks/0/permission"]);
        let of_run = json!({ "tasks": [task("a")], "permission": "ask", "allowedTools": ["a\nb"] });
        assert_eq!(fixture.api.post(RUNS, &of_run).await.bad_fields(), ["/permission", "/allowedTools"]);
        let tools = json!({ "tasks": [{ "prompt": "a", "provider": "claude", "allowedTools": vec!["x"; 65] }] });
        assert_eq!(fixture.api.post(RUNS, &tools).await.bad_fields(), ["/tasks/0/allowedTools"]);
        for wrong in ["", &"x".repeat(257)] {
            let tools = json!({ "tasks": [{ "prompt": "a", "provider": "claude", "allowedTools": [wrong] }] });
            assert_eq!(fixture.api.post(RUNS, &tools).await.status, 400);
        }
    }

    async fn refusals_of_the_agent_are_shown(on: Backend) {
        let fixture = Fixture::new(on).await;
        let run = fixture.submit(json!([task("a"), { "prompt": "b", "provider": "claude", "failOnDenial": true }])).await;
        let runner = fixture.runner();
        let leases = runner.lease(2).await;
        let too_many = json!({ "status": "completed", "permissionDenials": { "count": 33, "denials": vec![json!({ "tool": "x", "summary": "" }); 33] } });
        assert_eq!(runner.report(&leases[0], "finish", too_many).await.bad_fields(), ["/permissionDenials/denials"]);
        assert_eq!(runner.report(&leases[0], "finish", denied(40)).await.expect(200)["taskStatus"], "completed");
        assert_eq!(runner.report(&leases[1], "finish", denied(1)).await.expect(200)["taskStatus"], "failed");
        let run = fixture.wait_for_end(&run).await;
        let denials = &run["tasks"][0]["permissionDenials"];
        assert_eq!((&denials["count"], denials["denials"].as_array().unwrap().len()), (&json!(40), 32));
        assert_eq!(denials["denials"][0], json!({ "tool": "Bash", "summary": "npm test" }));
        assert_eq!(run["tasks"][1]["error"]["code"], "PERMISSION_DENIED");
        assert_eq!(run["tasks"][1]["permissionDenials"]["count"], 1);
    }
}
