//! What a submitted run may say, what it gets where it says nothing, and what it counts for the quota.

use super::*;

/// Fields of a task in addition to its prompt and provider, such as `,"model":"x"`.
fn task(fields: &str) -> String {
    format!(r#"{{"prompt":"p","provider":"claude"{fields}}}"#)
}

fn run(tasks: &[String], fields: &str) -> Result<RunDraft, InvalidRun> {
    RunDraft::new(serde_json::from_str(&format!(r#"{{"tasks":[{}]{fields}}}"#, tasks.join(","))).unwrap())
}

/// The pointers of the errors.
fn pointers(run: Result<RunDraft, InvalidRun>) -> Vec<String> {
    match run {
        Ok(_) => Vec::new(),
        Err(InvalidRun::Fields(errors)) => errors.into_iter().map(|(pointer, _)| pointer).collect(),
        Err(InvalidRun::Graph(error)) => panic!("{error}"),
    }
}

#[test]
fn what_a_run_leaves_out_has_a_default() {
    let plain = run(&[task("")], "").unwrap();
    assert_eq!((plain.max_concurrency, plain.spread), (4, false));
    let only = plain.tasks.first().unwrap();
    assert_eq!((only.timeout, only.retry), (Duration::from_secs(3_600), Retry::default()));
    assert!(!only.templated);
    let retried = run(&[task(r#","retry":{"maxAttempts":3}"#)], "").unwrap();
    let expected = Retry { max_attempts: 3, backoff: Duration::from_secs(1), factor: 2.0 };
    assert_eq!(retried.tasks.first().unwrap().retry, expected);
}

#[test]
fn only_ids_that_no_client_has_chosen_are_drawn_again() {
    let ids = |run: &RunDraft| run.tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    let chosen = TaskId::generate();
    let of_task = run(&[task(&format!(r#","id":"{chosen}""#)), task("")], "");
    let of_run = run(&[task("")], &format!(r#","id":"{}""#, RunId::generate()));
    for mut run in [of_task.unwrap(), of_run.unwrap()] {
        let before = ids(&run);
        assert!(!run.draw_again());
        assert_eq!(ids(&run), before);
    }
    let mut drawn = run(&[task(""), task("")], "").unwrap();
    let before = ids(&drawn);
    assert!(drawn.draw_again() && before.iter().all(|id| !ids(&drawn).contains(id)));
}

#[test]
fn a_run_has_bounds() {
    assert!(run(&vec![task(""); 10_000], "").is_ok());
    assert_eq!(pointers(run(&vec![task(""); 10_001], "")), ["/tasks"]);
    assert_eq!(pointers(run(&[], "")), ["/tasks"]);
    for (concurrency, valid) in [(0, false), (1, true), (64, true), (65, false)] {
        let run = run(&[task("")], &format!(r#","maxConcurrency":{concurrency}"#));
        assert_eq!(pointers(run).is_empty(), valid, "{concurrency}");
    }
}

#[test]
fn all_tasks_together_name_at_most_100000_dependencies() {
    let names = |count: usize| {
        let names: Vec<String> = (0..count).map(|at| format!(r#""{at}""#)).collect();
        task(&format!(r#","dependsOn":[{}]"#, names.join(",")))
    };
    // 250 tasks, and 400 that depend on each of them.
    let mut tasks = vec![task(""); 250];
    tasks.extend(vec![names(250); 400]);
    assert!(run(&tasks, "").is_ok());
    tasks.push(names(1));
    assert_eq!(pointers(run(&tasks, "")), ["/tasks"]);
}

#[test]
fn each_field_of_a_task_has_bounds() {
    let key = |length: usize| format!(r#","taskKey":"{}""#, "k".repeat(length));
    let model = |length: usize| format!(r#","model":"{}""#, "m".repeat(length));
    for fields in [
        key(64),
        model(128),
        r#","workingDirectory":"/a""#.to_owned(),
        r#","timeoutMs":1000"#.to_owned(),
        r#","timeoutMs":86400000"#.to_owned(),
        r#","retry":{"maxAttempts":1}"#.to_owned(),
        r#","retry":{"maxAttempts":10,"backoffMs":3600000,"backoffFactor":10}"#.to_owned(),
        r#","retry":{"maxAttempts":2,"backoffMs":0,"backoffFactor":1}"#.to_owned(),
    ] {
        assert_eq!(pointers(run(&[task(&fields)], "")), [""; 0], "{fields}");
    }
    for (fields, pointer) in [
        (r#","taskKey":"1""#, "taskKey"),
        (r#","model":"-""#, "model"),
        (r#","workingDirectory":"a""#, "workingDirectory"),
        (r#","timeoutMs":999"#, "timeoutMs"),
        (r#","timeoutMs":86400001"#, "timeoutMs"),
        (r#","retry":{"maxAttempts":0}"#, "retry/maxAttempts"),
        (r#","retry":{"maxAttempts":11}"#, "retry/maxAttempts"),
        (r#","retry":{"maxAttempts":2,"backoffMs":3600001}"#, "retry/backoffMs"),
        (r#","retry":{"maxAttempts":2,"backoffFactor":0.9}"#, "retry/backoffFactor"),
        (r#","retry":{"maxAttempts":2,"backoffFactor":10.1}"#, "retry/backoffFactor"),
    ] {
        assert_eq!(pointers(run(&[task(""), task(fields)], "")), [format!("/tasks/1/{pointer}")], "{fields}");
    }
}

#[test]
fn a_task_names_at_most_256_others_in_at_most_64_characters() {
    let on = |names: &[String]| task(&format!(r#","dependsOn":["{}"]"#, names.join(r#"",""#)));
    let plan = |count: usize| {
        let mut tasks = vec![task(""); count];
        tasks.push(on(&(0..count).map(|at| at.to_string()).collect::<Vec<_>>()));
        pointers(run(&tasks, ""))
    };
    assert_eq!(plan(256), [""; 0]);
    assert_eq!(plan(257), ["/tasks/257/dependsOn"]);
    let long = "k".repeat(64);
    assert!(run(&[task(&format!(r#","taskKey":"{long}""#)), on(&[long])], "").is_ok());
    assert_eq!(pointers(run(&[task(""), on(&["k".repeat(65)])], "")), ["/tasks/1/dependsOn"]);
}

#[test]
fn at_most_twenty_errors_are_reported() {
    let errors = |count: usize| pointers(run(&vec![task(r#","timeoutMs":1"#); count], "")).len();
    assert_eq!((errors(20), errors(21)), (20, 20));
}

#[test]
fn a_prompt_uses_outputs_of_its_dependencies_only() {
    let asks = |on: &str| format!(r#"{{"prompt":"{{{{tasks.a.output}}}}","provider":"claude","dependsOn":[{on}]}}"#);
    let first = task(r#","taskKey":"a""#);
    let draft = run(&[first.clone(), asks(r#""a""#)], "").unwrap();
    assert_eq!(draft.tasks.iter().map(|task| task.templated).collect::<Vec<_>>(), [false, true]);
    assert!(run(&[first.clone(), asks(r#""0""#)], "").is_ok());
    assert_eq!(pointers(run(&[first.clone(), asks("")], "")), ["/tasks/1/prompt"]);
    let misspelt = r#"{"prompt":"{{task.a.output}}","provider":"claude","dependsOn":["a"]}"#.to_owned();
    assert_eq!(pointers(run(&[first, misspelt], "")), ["/tasks/1/prompt"]);
}

#[test]
fn each_pinned_machine_is_listed_once_with_its_first_task() {
    let on = |machine: &str| task(&format!(r#","machineId":"{machine}""#));
    let machines = run(&[task(""), on("a"), on("b"), on("a")], "").unwrap().machines();
    let named: Vec<(usize, String)> = machines.into_iter().map(|(at, machine)| (at, machine.to_string())).collect();
    assert_eq!(named, [(1, "a".to_owned()), (2, "b".to_owned())]);
}

#[test]
fn a_task_may_cost_more_than_nothing_and_at_most_a_million() {
    for (cost, is_valid) in [("-1", false), ("0", false), ("0.01", true), ("1000000", true), ("1000000.01", false)] {
        let field = format!(r#","maxCostUsd":{cost}"#);
        let errors = |wrong: &str| if is_valid { Vec::new() } else { vec![wrong.to_owned()] };
        assert_eq!(pointers(run(&[task(&field)], "")), errors("/tasks/0/maxCostUsd"), "{cost}");
        assert_eq!(pointers(run(&[task("")], &field)), errors("/maxCostUsd"), "{cost}");
    }
}

#[test]
fn an_agent_that_no_person_answers_cannot_have_ask() {
    for (permission, is_valid) in [("plan", true), ("edit", true), ("bypass", true), ("ask", false)] {
        let field = format!(r#","permission":"{permission}""#);
        let errors = |wrong: &str| if is_valid { Vec::new() } else { vec![wrong.to_owned()] };
        assert_eq!(pointers(run(&[task(&field)], "")), errors("/tasks/0/permission"), "{permission}");
        assert_eq!(pointers(run(&[task("")], &field)), errors("/permission"), "{permission}");
    }
}

#[test]
fn at_most_64_tools_in_printable_characters_are_allowed() {
    let tools = |count: usize| vec![r#""Bash""#; count].join(",");
    for (tools, is_valid) in [
        (String::new(), true),
        (tools(64), true),
        (tools(65), false),
        (r#""Bash(git add:*)","Lesen(ä)""#.to_owned(), true),
        (r#""Bash","Read\n""#.to_owned(), false),
    ] {
        let field = format!(r#","allowedTools":[{tools}]"#);
        let errors = |wrong: &str| if is_valid { Vec::new() } else { vec![wrong.to_owned()] };
        assert_eq!(pointers(run(&[task(&field)], "")), errors("/tasks/0/allowedTools"), "{tools}");
        assert_eq!(pointers(run(&[task("")], &field)), errors("/allowedTools"), "{tools}");
    }
}

#[test]
fn tasks_take_what_the_run_says_unless_they_say_it_or_are_sealed() {
    let sealed = r#"{"sealed":"s","session":"start","provider":"claude","machineId":"m"}"#.to_owned();
    let own = task(r#","permission":"plan","allowedTools":["Read"],"maxCostUsd":1,"machineId":"own""#);
    let fields = r#","permission":"edit","allowedTools":["Bash","Edit"],"maxCostUsd":9,"machineId":"m""#;
    let draft = run(&[task(""), own, sealed], fields).unwrap();
    let said = draft.tasks.iter().map(|task| {
        let tools: Vec<&str> = task.allowed_tools.iter().map(String::as_str).collect();
        (task.permission, tools, task.max_cost_usd, task.machine.as_ref().unwrap().to_string())
    });
    assert_eq!(
        said.collect::<Vec<_>>(),
        [
            (Some(Permission::Edit), vec!["Bash", "Edit"], Some(9.0), "m".to_owned()),
            (Some(Permission::Plan), vec!["Read"], Some(1.0), "own".to_owned()),
            (None, vec![], None, "m".to_owned()),
        ]
    );
}

/// The fields of a task that is signed with a body of this length, in bytes.
fn signed(length: usize) -> String {
    format!(r#","signature":{{"key":"k","sig":"s"}},"signedBody":"{}""#, "b".repeat(length))
}

#[test]
fn a_lease_with_more_than_32_kib_of_signed_task_is_a_large_one() {
    let draft = run(&[task(&signed(32_768)), task(&signed(32_769))], "").unwrap();
    assert_eq!(draft.tasks.iter().map(|task| task.templated).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_run_counts_its_texts_and_512_bytes_for_a_task_and_128_for_a_dependency() {
    let counted = |tasks: &[String], fields: &str| run(tasks, fields).unwrap().stored_bytes();
    assert_eq!(counted(&[task("")], ""), 512 + 1, "the prompt has one byte");
    assert_eq!(counted(&[task("")], r#","title":"four""#), 512 + 1 + 4);
    let sealed = |on: &str| {
        format!(r#"{{"sealed":"ten-bytes!","session":"start","provider":"claude","machineId":"m","dependsOn":[{on}]}}"#)
    };
    assert_eq!(counted(&[sealed("")], ""), 512 + 10);
    assert_eq!(counted(&[task(""), task(""), sealed(r#""0","1""#)], ""), 3 * 512 + 2 * 128 + 1 + 1 + 10);
    for (fields, bytes) in [
        (r#","taskKey":"abc""#.to_owned(), 3),
        (r#","title":"some""#.to_owned(), 4),
        (r#","model":"opus5""#.to_owned(), 5),
        (r#","workingDirectory":"/a/b/c""#.to_owned(), 6),
        (r#","isolation":"worktree","base":"develop""#.to_owned(), 7),
        (r#","allowedTools":["Bash","Read"]"#.to_owned(), 8),
        (signed(9), 9),
        (format!(r#"{},"model":"opus5","allowedTools":["Bash","Read"]"#, signed(9)), 22),
    ] {
        assert_eq!(counted(&[task(&fields)], ""), 512 + 1 + bytes, "{fields}");
    }
}
