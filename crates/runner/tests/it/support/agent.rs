//! A stand-in for `claude` that takes a prompt over its wire, and becomes a shell that runs it as a script. When it resumes a session
//! it runs `$ON_RESUME` instead, with the prompt as its input.
//! Asked about its sign-in it prints the file `$SIGN_IN`. With `$NEVER_READY` it answers nothing.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// The line that ends a script with success.
pub(crate) const DONE: &str = r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"done"}'"#;

/// The prompt is a text in JSON, whose escapes `printf` knows. What stands after it depends on how JSON is written.
const CLAUDE: &str = r#"#!/bin/bash
[ "$1" = auth ] && { [ -n "$SIGN_IN" ] && cat "$SIGN_IN"; exit 0; }
[ -n "$ARGS_TO" ] && printf '%s\n' "$@" > "$ARGS_TO"
[ -n "$NEVER_READY" ] && [ "$1" != --version ] && exec sleep 600
read -r order
[[ $order == *'"subtype":"initialize"'* ]] || exit 64
echo '{"type":"control_response","response":{"subtype":"success","request_id":"host-1","response":{}}}'
read -r prompt
prompt=${prompt#*'"content":"'}
prompt=${prompt%%'","role":"user"}'*}
prompt=${prompt%%'"},"parent_tool_use_id"'*}
printf -v prompt %b "${prompt//'\"'/'"'}"
case " $* " in *' --resume '*) [ -n "$ON_RESUME" ] && exec /bin/bash -c "$ON_RESUME" <<< "$prompt" ;; esac
exec /bin/bash -c "$prompt"
"#;

pub(crate) struct ScriptAgent {
    folder: TempDir,
}

impl ScriptAgent {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let agent = Self { folder };
        std::fs::set_permissions(agent.folder(), PermissionsExt::from_mode(0o755)).unwrap();
        agent.install(CLAUDE);
        agent
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.folder().join("claude")
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn install(&self, text: &str) {
        // A file that is open for writing cannot be executed. Another test may fork while this one writes, so a
        // separate process writes the file.
        let program = self.program();
        let written = std::process::Command::new("/bin/sh")
            .args(["-c", "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh", text])
            .arg(&program)
            .status()
            .unwrap();
        assert!(written.success());
    }
}
