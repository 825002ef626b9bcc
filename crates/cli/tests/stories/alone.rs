//! Without a server: help, mistakes, and messages that say what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::ensemble::User;

/// Nothing listens on the discard port of this machine.
const UNREACHABLE: &str = "http://127.0.0.1:9";

#[test]
fn help_and_completions_contain_every_command() {
    let user = User::new(None);
    let help = user.succeed(&["--help"]);
    let commands = [
        "up",
        "demo",
        "do",
        "plan",
        "doctor",
        "login",
        "logout",
        "status",
        "whoami",
        "machine",
        "runner",
        "run",
        "runs",
        "show",
        "output",
        "diff",
        "apply",
        "discard",
        "cancel",
        "retry",
        "say",
        "usage",
        "session",
        "share",
        "config",
        "token",
        "phone",
        "open",
        "completions",
    ];
    for command in commands {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in {help}");
        assert_eq!(user.run(&[command, "--help"]).code, 0, "{command}");
    }
    assert!(!user.succeed(&["runner", "--help"]).contains("guard"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(user.succeed(&["completions", shell]).contains("COMPLETE"), "{shell}");
    }
    assert!(user.complete(&["who"]).contains("whoami"));
    let offered =
        user.command(&["--", "ensemble", ""]).env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "1").output();
    let offered = String::from_utf8(offered.unwrap().stdout).unwrap();
    let missing: Vec<_> = commands.iter().filter(|command| !offered.lines().any(|line| line == **command)).collect();
    assert!(missing.is_empty(), "{missing:?} in {offered}");
    assert!(user.complete(&["run", "--provider", ""]).contains("codex"));
    assert!(user.complete(&["do", "--permission", ""]).contains("bypass"));
    assert!(user.complete(&["run", "--machine", ""]).contains("any\t"));
    assert_eq!(
        user.complete(&["show", ""]).lines().filter(|line| !line.starts_with('-')).count(),
        0,
        "no account is signed in"
    );
    assert_eq!(user.run(&["dance"]).code, 2);
    assert_eq!(user.run(&[]).code, 2);
}

#[test]
fn commands_without_a_sign_in_say_how_to_sign_in() {
    let user = User::new(Some(UNREACHABLE));
    for arguments in [["whoami", "--json"].as_slice(), &["runs"], &["session", "list"], &["machine", "list"]] {
        let ended = user.run(arguments);
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains("ensemble login"), "{}", ended.err);
        assert!(ended.err.contains("Run `ensemble up --listen 127.0.0.1:9`"), "it signs in too: {}", ended.err);
        assert!(ended.out.is_empty());
    }
}

#[test]
fn an_unreachable_server_is_named_and_no_key_is_created() {
    let user = User::new(Some(UNREACHABLE));
    let ended = user.run(&["login"]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains(UNREACHABLE) && ended.err.contains("ensemble up"), "{}", ended.err);
    assert!(!user.home().join("ensemble/account.key").exists());
    let ended = user.run(&["login", "--server", "example.com"]);
    assert!(ended.err.contains("http://"), "{}", ended.err);
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    let user = User::new(Some(UNREACHABLE));
    let home = user.home().join("ensemble");
    fs::create_dir_all(&home).unwrap();
    let key = home.join("account.key");
    fs::write(&key, "ensemble-account-key-v1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let ended = user.run(&["whoami"]);
    assert!(ended.err.contains("chmod 600"), "{}", ended.err);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(user.run(&["login"]).err.contains("Nothing answers"));
    fs::write(&key, "something else").unwrap();
    assert!(user.run(&["whoami"]).err.contains("not an account key: one line, ensemble-account-key-v1:"));
}

#[test]
fn programs_get_every_error_as_one_json_object() {
    let user = User::new(Some(UNREACHABLE));
    for (arguments, code) in
        [(["show", "nope", "--json"], 2), (["dance", "--json", "x"], 2), (["runs", "-n1", "--json"], 1)]
    {
        let ended = user.run(&arguments);
        let error: serde_json::Value = serde_json::from_str(&ended.err).unwrap_or_else(|_| panic!("{}", ended.err));
        assert_eq!((ended.code, ended.out.as_str()), (code, ""), "{arguments:?}");
        assert!(error["error"]["detail"].as_str().is_some_and(|detail| !detail.starts_with("error")), "{error}");
    }
    assert!(user.succeed(&["do", "--json", "--help"]).contains("Usage"));
    assert!(user.run(&["show", "nope"]).err.starts_with("error: "));
}

#[test]
fn a_mistyped_command_gets_a_tip() {
    let user = User::new(None);
    for (word, tip) in [("sesion", "session"), ("statu", "status"), ("exec", "ensemble do"), ("ps", "ensemble runs")] {
        let ended = user.run(&[word]);
        assert_eq!(ended.code, 2);
        assert!(ended.err.contains("tip:") && ended.err.contains(tip), "{word}: {}", ended.err);
    }
}

#[test]
fn a_mistake_in_an_id_shows_the_form_of_the_id() {
    let user = User::new(None);
    for (arguments, form) in [
        (["session", "show", "abc"], "the ref (eight characters) or the id of a session"),
        (["do", "--timeout=0s", "x"], "'--timeout <TIMEOUT>': must be 1s to 24h"),
        (["do", "--model=bad/model!", "x"], "'--model <MODEL>': must be a letter"),
        (["up", "--listen", "18701"], "like 127.0.0.1:8080"),
    ] {
        let ended = user.run(&arguments);
        assert!(ended.code == 2 && ended.err.contains(form), "{arguments:?}: {}", ended.err);
    }
    assert!(user.succeed(&["run", "--help"]).contains("16 to 128 characters"));
}

#[test]
fn an_unknown_host_is_not_called_a_server_that_is_down() {
    let user = User::new(None);
    let error = user.fail(&["--server", "http://nosuch.invalid", "login"]);
    assert!(error.contains("nosuch.invalid was not found") && !error.contains("ensemble up"), "{error}");
}

#[test]
fn settings_are_shown_and_the_default_server_is_chosen() {
    let user = User::new(None);
    assert!(user.succeed(&["config"]).contains("http://127.0.0.1:8080"));
    assert!(!user.files().exists(), "showing the settings writes nothing");
    user.succeed(&["config", "server", "http://127.0.0.1:9/prefix/"]);
    let shown = user.succeed(&["config"]);
    assert!(shown.contains("http://127.0.0.1:9/prefix/") && shown.contains("account.key"), "{shown}");
    assert_eq!(user.succeed(&["open", "--docs"]), "http://127.0.0.1:9/prefix/docs\n");
    // There is no browser here.
    let opened = user.run(&["open"]);
    assert_eq!((opened.code, opened.out.as_str()), (0, "http://127.0.0.1:9/prefix\n"));
    assert!(opened.err.contains("ensemble link"), "{}", opened.err);
    assert!(user.fail(&["config", "server", "example.com"]).contains("http://"));
    assert!(user.succeed(&["config"]).contains("http://127.0.0.1:9/prefix/"));
}

#[test]
fn mistakes_in_a_plan_are_reported_before_it_is_sent() {
    let user = User::new(Some(UNREACHABLE));
    let plan = "tasks: [{prompt: x, provider: codex, dependson: [a]}]";
    let ended = user.run_with_input(&["run", "-"], plan);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("dependson"), "{}", ended.err);
    assert!(user.run(&["run", "missing.yaml"]).err.contains("missing.yaml"));
}

#[test]
fn the_example_is_a_plan() {
    let user = User::new(Some(UNREACHABLE));
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/review.yaml");
    // Valid as far as it can be checked without a server.
    assert!(user.run(&["run", example]).err.contains("ensemble login"));
}

#[test]
fn a_check_lists_the_providers() {
    let user = User::new(None);
    let printed = user.run(&["runner", "check", "--json"]);
    let printed: serde_json::Value = serde_json::from_str(&printed.out).unwrap();
    let providers: Vec<_> =
        printed["providers"].as_array().unwrap().iter().map(|one| one["provider"].clone()).collect();
    assert_eq!(providers, ["claude", "codex", "gemini"]);
}

#[test]
fn a_check_names_the_variables_that_a_sign_in_lacks() {
    let user = User::new(None);
    std::fs::create_dir_all(user.files()).unwrap();
    std::fs::write(user.files().join("runner.yaml"), "providers: {gemini: {passEnv: [PATH, HOME]}}\n").unwrap();
    std::fs::create_dir_all(user.home().join(".codex")).unwrap();
    let codex = "model_provider = \"x\"\n[model_providers.x]\nname = \"x\"\nenv_key = \"X_KEY\"\n";
    std::fs::write(user.home().join(".codex/config.toml"), codex).unwrap();
    let check = |arguments: &[&str]| {
        let mut command = user.command(arguments);
        command.env_remove("CODEX_HOME").env("CLAUDE_CODE_USE_BEDROCK", "1").env("GEMINI_API_KEY", "hush-7c");
        let output = command.env_remove("AWS_REGION").env_remove("AWS_DEFAULT_REGION").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = check(&["runner", "check"]);
    for said in [
        "CLAUDE_CODE_USE_BEDROCK is set, and AWS_REGION is not",
        "model_providers.x.env_key is set, and X_KEY is not",
        "GEMINI_API_KEY is set, and gemini does not get it: add it to providers.gemini.passEnv",
    ] {
        assert!(printed.contains(said), "{printed}");
    }
    assert!(!printed.contains("hush-7c"), "{printed}");
    let printed: serde_json::Value = serde_json::from_str(&check(&["runner", "check", "--json"])).unwrap();
    let missing: Vec<_> = printed["providers"].as_array().unwrap().iter().map(|one| one["missing"].clone()).collect();
    assert_eq!(
        missing,
        [serde_json::json!(["AWS_REGION"]), serde_json::json!(["X_KEY"]), serde_json::json!(["GEMINI_API_KEY"])]
    );
}

#[cfg(feature = "up")]
#[test]
fn logs_are_json_when_asked() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let user = User::new(None);
    let mut up = user
        .command(&["up", "--listen", "127.0.0.1:0", "--no-runner"])
        .env("LOG_FORMAT", "json")
        .env("RUST_LOG", "info")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(up.stderr.take().unwrap()).read_line(&mut line).unwrap();
    up.kill().unwrap();
    up.wait().unwrap();
    let printed: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(printed["message"].is_string() && printed["level"].is_string(), "{printed}");
}

#[test]
fn a_directory_that_is_not_writable_is_named_before_an_account_is_created() {
    let user = User::new(Some(UNREACHABLE));
    let ended = user.command(&["login"]).env("ENSEMBLE_HOME", "/proc/nowhere").output().unwrap();
    let printed = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        printed.contains("/proc/nowhere") && printed.contains("ENSEMBLE_HOME") && !printed.contains(UNREACHABLE),
        "{printed}"
    );
}
