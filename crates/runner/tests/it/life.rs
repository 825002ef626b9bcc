//! The normal life of an attempt and of the runner.

use std::time::Duration;

use ensemble_host::Drain;
use ensemble_runner::RunError;
use ensemble_testkit::{eventually, eventually_some};
use ensemble_types::leases::{FinishStatus, Lease};
use ensemble_types::problem::Code;
use ensemble_types::runs::{Permission, Provider};

use crate::support::orchestrator::{code, completed, task};
use crate::support::{DONE, Orchestrator, Runner, SOON, ScriptAgent, config, processes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_runs_and_its_output_and_report_arrive() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let script = format!(
        r#"echo '{{"type":"system","subtype":"init","session_id":"s-1"}}'
        echo '{{"type":"assistant","message":{{"content":[{{"type":"text","text":"At work 😀"}}]}}}}'
        echo '{{"type":"result","subtype":"success","is_error":false,"result":"All done","total_cost_usd":0.5,"usage":{{"input_tokens":3,"cache_read_input_tokens":4,"output_tokens":5}}}}'
        # {DONE}"#
    );
    let lease = server.enqueue(task(script));
    let finish = server.finished(lease, SOON).await;
    completed(&finish);
    assert_eq!(finish.output_summary.as_deref(), Some("All done"));
    assert_eq!(finish.provider_session_id.as_deref(), Some("s-1"));
    assert_eq!(finish.exit_code, Some(0));
    let usage = finish.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cost_usd), (Some(7), Some(5), Some(0.5)));
    let recorded = server.recorded(lease);
    assert_eq!(recorded.output, "At work 😀\n");
    assert!(!recorded.heartbeats.is_empty());
    eventually_some(SOON, async || {
        let left = std::fs::read_dir(state.path().join("state/attempts")).ok()?.count();
        (left == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_are_sent_regularly() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let gate = state.path().join("gate");
    let lease = server.enqueue(task(format!("while [ ! -e {} ]; do sleep 0.05; done\n{DONE}", gate.display())));
    eventually(SOON, async || server.recorded(lease).heartbeats.len() >= 5).await;
    std::fs::write(&gate, "").unwrap();
    completed(&server.finished(lease, SOON).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_has_lost_its_sign_in_is_not_offered_any_more() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    let sign_in = state.path().join("sign-in");
    std::fs::write(&sign_in, r#"{"loggedIn":true}"#).unwrap();
    let claude = config.providers.get_mut(&Provider::Claude).unwrap();
    claude.env.insert("SIGN_IN".to_owned(), sign_in.to_str().unwrap().to_owned());
    config.timing.look_for_programs = Duration::from_secs(3_600);
    let _runner = Runner::start(config);
    let is_offered = |is_offered: bool| {
        let beats = server.machine_beats();
        let activity = beats.last()?;
        (activity["runner"]["providers"][0]["offered"] == is_offered).then_some(())
    };
    eventually_some(SOON, async || is_offered(true)).await;
    std::fs::write(&sign_in, r#"{"loggedIn":false}"#).unwrap();
    let refused =
        r#"{"type":"result","subtype":"success","is_error":true,"result":"Not logged in. Please run /login"}"#;
    let finish = server.finished(server.enqueue(task(format!("echo '{refused}'"))), SOON).await;
    assert_eq!(code(&finish), "PROVIDER_NOT_SIGNED_IN", "{finish:?}");
    eventually_some(SOON, async || is_offered(false)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_program_is_not_offered_and_the_reason_is_reported() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    let codex = config.providers.get_mut(&Provider::Codex).unwrap();
    codex.enabled = true;
    codex.program = "/nowhere/codex".into();
    config.timing.look_for_programs = Duration::from_millis(50);
    let _runner = Runner::start(config);
    // The first heartbeat does not wait until the programs have answered.
    let has_offers = |activity: &serde_json::Value| !activity["runner"]["providers"].as_array().unwrap().is_empty();
    let activity = eventually_some(SOON, async || server.machine_beats().into_iter().find(has_offers)).await;
    let providers = activity["runner"]["providers"].as_array().unwrap();
    assert_eq!((&providers[0]["provider"], &providers[0]["offered"]), (&"claude".into(), &true.into()));
    assert_eq!(providers[1]["offered"], false);
    assert!(providers[1]["reason"].as_str().unwrap().contains("/nowhere/codex: No such file"), "{activity}");
    assert!(providers[2]["reason"].as_str().unwrap().contains("switched off"), "{activity}");
    assert_eq!(activity["runner"]["worktrees"], serde_json::json!({ "kept": 0, "most": 32 }));
    let asked =
        eventually_some(SOON, async || server.lease_requests().into_iter().find(|asked| asked.capacity > 0)).await;
    assert_eq!(asked.providers, [Provider::Claude]);

    let unknown = Lease { provider: "pi".parse().unwrap(), ..task("echo never") };
    let refused = server.finished(server.enqueue(unknown), SOON).await;
    assert_eq!((refused.status, code(&refused)), (FinishStatus::Refused, "PROVIDER_NOT_AVAILABLE"), "{refused:?}");

    // The runner detects that the program is uninstalled.
    std::fs::remove_file(agent.program()).unwrap();
    eventually_some(SOON, async || {
        let activity = server.machine_beats().last().cloned()?;
        (activity["runner"]["providers"][0]["offered"] == false).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_attempts_run_than_the_capacity() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.capacity = 2;
    let gate = state.path().join("gate");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done\n{DONE}", gate.display());
    let leases: Vec<_> = (0..5).map(|_| server.enqueue(task(script.clone()))).collect();
    let _runner = Runner::start(config);
    eventually(SOON, async || server.queued() == 3).await;
    server.wait_for_heartbeat(leases[0]).await;
    server.wait_for_heartbeat(leases[1]).await;
    assert_eq!(server.queued(), 3);
    std::fs::write(&gate, "").unwrap();
    for lease in leases {
        completed(&server.finished(lease, SOON).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_do_not_get_the_token_or_other_variables() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    for (name, value) in
        [("ENSEMBLE_MACHINE_TOKEN", "canary-1"), ("DATABASE_URL", "canary-2"), ("ANTHROPIC_API_KEY", "key")]
    {
        config.environment.insert(name.to_owned(), value.to_owned());
    }
    let args = state.path().join("args");
    config.providers.get_mut(&Provider::Claude).unwrap().env.insert("ARGS_TO".to_owned(), args.display().to_string());
    let _runner = Runner::start(config);
    // The program's own environment and that of its parent, the guard.
    let script =
        format!("cat /proc/$$/environ /proc/$PPID/environ | tr '\\0' '\\n'\necho prompt-canary >/dev/null\n{DONE}");
    let lease = server.enqueue(task(script));
    completed(&server.finished(lease, SOON).await);
    let output = server.recorded(lease).output;
    assert!(output.contains("ANTHROPIC_API_KEY=key") && output.contains("LANG=C.UTF-8"), "{output}");
    assert!(!output.contains("canary") && !output.contains("machine-token"), "{output}");
    let args = std::fs::read_to_string(args).unwrap();
    assert!(args.contains("--output-format") && !args.contains("canary"), "{args}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_looks_like_an_option_or_a_command_starts_nothing() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    for model in ["--dangerously-skip-permissions", "a b", "$(touch owned)", "x;y"] {
        let mut lease = task(DONE);
        lease.model = Some(model.to_owned());
        let finish = server.finished(server.enqueue(lease), SOON).await;
        assert_eq!((finish.status, code(&finish)), (FinishStatus::Failed, "INVALID_MODEL"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_continues_soon_after_the_server_is_back() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    server.fail_with(Some(Code::Unavailable));
    let _runner = Runner::start(config(&server, &agent, state.path()));
    eventually(SOON, async || server.calls() > 6).await;
    server.fail_with(None);
    let lease = server.enqueue(task(DONE));
    completed(&server.finished(lease, SOON).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_runners_do_not_share_a_state_directory() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let wanted = config(&server, &agent, state.path());
    let _runner = Runner::start(wanted.clone());
    eventually(SOON, async || !server.machine_beats().is_empty()).await;
    let second = ensemble_runner::run_until(wanted, Drain::default()).await;
    assert!(second.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_session_is_replaced_by_a_new_one() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    let gone = r#"echo '{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found with session ID: s-0"]}'; exit 1"#;
    config.providers.get_mut(&Provider::Claude).unwrap().env.insert("ON_RESUME".to_owned(), gone.to_owned());
    let _runner = Runner::start(config);
    let mut lease = task(DONE);
    lease.resume = Some("s-0".to_owned());
    let id = server.enqueue(lease);
    completed(&server.finished(id, SOON).await);
    assert!(processes::of(id).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_session_does_not_get_the_task_again() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    let tells = format!("cat; echo; {DONE}");
    config.providers.get_mut(&Provider::Claude).unwrap().env.insert("ON_RESUME".to_owned(), tells);
    let _runner = Runner::start(config);
    let id = server.enqueue(Lease { resume: Some("s-0".to_owned()), ..task("the whole task") });
    completed(&server.finished(id, SOON).await);
    let output = server.recorded(id).output;
    assert!(output.contains("You were interrupted") && !output.contains("the whole task"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_learns_the_session_while_the_attempt_runs() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let _runner = Runner::start(config(&server, &agent, state.path()));
    let id = server.enqueue(task(r#"echo '{"type":"system","subtype":"init","session_id":"s-7"}'; exec sleep 600"#));
    eventually(SOON, async || server.recorded(id).session.as_deref() == Some("s-7")).await;
    server.cancel(id);
    server.finished(id, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_to_cancel_does_not_wait_for_a_heartbeat() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.capacity = 1;
    // No heartbeat is due while this test runs, except the one that answers the order.
    config.timing.lease_beat = Duration::from_secs(600);
    let _runner = Runner::start(config);
    let id = server.enqueue(task("echo ready; exec sleep 600"));
    server.wait_for_output(id, "ready").await;
    server.cancel(id);
    let finish = server.finished(id, SOON).await;
    assert_eq!(finish.status, FinishStatus::Cancelled);
    let next = server.enqueue(task(DONE));
    completed(&server.finished(next, SOON).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_gets_no_more_permission_than_the_configuration_allows() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    let claude = config.providers.get_mut(&Provider::Claude).unwrap();
    claude.allowed_tools = vec!["Bash(npm test:*)".to_owned()];
    let args = state.path().join("args");
    claude.env.insert("ARGS_TO".to_owned(), args.display().to_string());
    let _runner = Runner::start(config);
    for (asked, used, word) in [
        (None, Permission::Edit, "acceptEdits"),
        (Some(Permission::Plan), Permission::Plan, "plan"),
        (Some(Permission::Bypass), Permission::Edit, "acceptEdits"),
    ] {
        let allowed_tools = vec!["Bash(npm test:*)".to_owned()];
        let id = server.enqueue(Lease { permission: asked, allowed_tools, ..task(DONE) });
        let finish = server.finished(id, SOON).await;
        completed(&finish);
        assert_eq!(finish.permission, Some(used));
        let args = std::fs::read_to_string(&args).unwrap();
        assert!(args.contains(&format!("--permission-mode\n{word}")), "{args}");
        assert!(args.contains("--allowedTools=Bash(npm test:*)"), "{args}");
    }
    let id = server.enqueue(Lease { allowed_tools: vec!["Bash(rm:*)".to_owned()], ..task(DONE) });
    let finish = server.finished(id, SOON).await;
    assert_eq!((finish.status, code(&finish)), (FinishStatus::Refused, "TOOLS_NOT_ALLOWED"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_everything_is_allowed_less_is_allowed_too() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.providers.get_mut(&Provider::Claude).unwrap().permission_limit = Permission::Bypass;
    let _runner = Runner::start(config);
    let allowed_tools = vec!["Bash(npm test:*)".to_owned()];
    let id = server.enqueue(Lease { permission: Some(Permission::Edit), allowed_tools, ..task(DONE) });
    completed(&server.finished(id, SOON).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_is_not_accepted_any_more_ends_its_agents_and_itself() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    config.timing.refused_grace = Duration::from_millis(300);
    let running = tokio::spawn(ensemble_runner::run_until(config, Drain::default()));
    let lease = server.enqueue(task("sleep 600"));
    eventually(SOON, async || processes::program(lease).is_some()).await;
    server.fail_with(Some(Code::Unauthenticated));
    let ended = tokio::time::timeout(SOON, running).await.expect("the runner ends").unwrap();
    assert!(matches!(ended, Err(RunError::NotAccepted)), "{ended:?}");
    assert!(processes::of(lease).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_has_a_folder_for_temporary_files_that_goes_with_it() {
    let (server, agent, state) = (Orchestrator::start(), ScriptAgent::new(), tempfile::tempdir().unwrap());
    let mut config = config(&server, &agent, state.path());
    let temporary = state.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    config.environment.insert("TMPDIR".to_owned(), temporary.to_str().unwrap().to_owned());
    let _runner = Runner::start(config);
    let seen = state.path().join("seen");
    let script = format!("echo x > \"$TMPDIR/left\"; ls -ld \"$TMPDIR\" > {}\n{DONE}", seen.display());
    completed(&server.finished(server.enqueue(task(script)), SOON).await);
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.starts_with("drwx------") && seen.contains(temporary.to_str().unwrap()), "{seen}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "{seen}");
}
