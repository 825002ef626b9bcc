//! An agent that speaks claude's stream JSON and does at once what the prompt says, for stories in which the agent itself is of no
//! interest.

use tempfile::TempDir;

use crate::ensemble::User;
use crate::runs::program;

/// `many N` has it say N texts, `line 1` to `line N`; `write FILE` has it write a file; `hang` begins a turn that does not end. Anything else it says after the person.
const CLAUDE: &str = r#"#!/bin/sh
[ "$1" = "--version" ] && { echo "2.1.197 (scripted)"; exit 0; }
[ "$1" = "auth" ] && { echo '{"loggedIn":true}'; exit 0; }
value() { rest=${line#*\"$1\":\"}; printf '%s' "${rest%%\"*}"; }
while IFS= read -r line; do
  case "$line" in
    *'"type":"control_request"'*)
      printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":{"models":[],"commands":[]}}}\n' "$(value request_id)" ;;
    *'"type":"user"'*)
      text=$(value content)
      printf '{"type":"user","isReplay":true,"uuid":"%s","message":{"role":"user","content":"x"}}\n' "$(value uuid)"
      echo '{"type":"system","subtype":"init","session_id":"s","claude_code_version":"2.1.197","model":"m","permissionMode":"default"}'
      case "$text" in
        hang) continue ;;
        "write "*) echo written > "${text#write }"; echo '{"type":"assistant","message":{"content":[{"type":"text","text":"written"}]}}' ;;
        "many "*) seq -f '{"type":"assistant","message":{"content":[{"type":"text","text":"line %.0f"}]}}' 1 "${text#many }" ;;
        *) printf '{"type":"assistant","message":{"content":[{"type":"text","text":"said %s"}]}}\n' "$text" ;;
      esac
      echo '{"type":"result","subtype":"success","is_error":false,"result":"","total_cost_usd":0}' ;;
  esac
done
"#;

/// A user whose `claude` is the scripted one. The folder must live as long as the user's programs.
pub(crate) fn user() -> (User, TempDir) {
    let programs = tempfile::tempdir().unwrap();
    program(programs.path(), "claude", CLAUDE);
    (User::new(None).with_programs(programs.path()), programs)
}
