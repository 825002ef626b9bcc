//! The MCP servers that an editor has for an agent (modelcontextprotocol.io), in the form of the Agent Client Protocol
//! (agentclientprotocol.com, "Session setup"), and in the forms in which agents take them.

use std::collections::BTreeSet;
use std::fmt;

use ensemble_protocol::transcript::visible;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::json::one_line;

/// Of one session.
const MOST_SERVERS: usize = 16;
/// Of all of them, as JSON.
const MOST_BYTES: usize = 64 << 10;
/// Shorter values are no secrets, and are in many a text by chance.
const SHORTEST_SECRET: usize = 8;
/// What stands in the place of a secret.
const HIDDEN: &str = "•••";

/// A server, and how an agent reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum McpServer {
    /// A program that the agent starts.
    Stdio {
        name: String,
        command: String,
        #[serde(default)]
        args: Vec<String>,
        #[serde(default)]
        env: Vec<Named>,
    },
    Http {
        name: String,
        url: String,
        #[serde(default)]
        headers: Vec<Named>,
    },
    Sse {
        name: String,
        url: String,
        #[serde(default)]
        headers: Vec<Named>,
    },
}

/// A variable or a header. Its value is a secret: nothing prints it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub name: String,
    pub value: String,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=…", self.name)
    }
}

impl McpServer {
    /// Reads the `mcpServers` of an editor. They may be missing.
    ///
    /// # Errors
    /// They have another form, or there are more than 16 of them or more than 64 KiB. The text is for the editor.
    pub fn read_all(servers: Option<&Value>) -> Result<Vec<Self>, String> {
        let listed = match servers {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(listed)) => listed,
            Some(_) => return Err("`mcpServers` is a list.".to_owned()),
        };
        let read = |(index, server): (usize, &Value)| {
            let mut server = server.clone();
            if let Some(fields) = server.as_object_mut() {
                fields.entry("type").or_insert_with(|| json!("stdio"));
            }
            serde_json::from_value(server).map_err(|error| format!("`mcpServers[{index}]`: {error}."))
        };
        let servers = listed.iter().take(MOST_SERVERS + 1).enumerate().map(read).collect::<Result<Vec<Self>, _>>()?;
        Self::check(&servers)?;
        Ok(servers)
    }

    /// # Errors
    /// A session does not take these servers. The text is for people.
    pub fn check(servers: &[Self]) -> Result<(), String> {
        if servers.len() > MOST_SERVERS {
            return Err(format!("A session takes at most {MOST_SERVERS} MCP servers."));
        }
        if serde_json::to_string(servers).map_or(usize::MAX, |text| text.len()) > MOST_BYTES {
            return Err(format!("The MCP servers of a session take at most {} KiB.", MOST_BYTES >> 10));
        }
        for server in servers {
            let name = visible(server.name());
            if server.texts().any(|text| text.contains('\0')) {
                return Err(format!("The MCP server {name} has a NUL in a text."));
            }
            match server {
                _ if name.is_empty() => return Err("An MCP server needs a name.".to_owned()),
                Self::Stdio { command, .. } if command.is_empty() => {
                    return Err(format!("The MCP server {name} needs a command."));
                }
                Self::Http { url, .. } | Self::Sse { url, .. } if origin(url).is_none() => {
                    return Err(format!("The address of the MCP server {name} begins with https:// or http://."));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Stdio { name, .. } | Self::Http { name, .. } | Self::Sse { name, .. } => name,
        }
    }

    /// The values of its variables and headers.
    fn values(&self) -> impl Iterator<Item = &str> {
        let (Self::Stdio { env: named, .. } | Self::Http { headers: named, .. } | Self::Sse { headers: named, .. }) =
            self;
        named.iter().map(|Named { value, .. }| value.as_str())
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        let (first, args, named) = match self {
            Self::Stdio { command, args, env, .. } => (command, args.as_slice(), env),
            Self::Http { url, headers, .. } | Self::Sse { url, headers, .. } => (url, [].as_slice(), headers),
        };
        [first].into_iter().chain(args).chain(named.iter().flat_map(|Named { name, value }| [name, value]))
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
            Self::Sse { .. } => "sse",
        }
    }

    /// Its name and its kind, for people.
    pub fn title(&self) -> String {
        let name = self.name().split_whitespace().collect::<Vec<_>>().join(" ");
        one_line(&format!("{name} ({})", self.kind()))
    }

    /// Its command, or the host that it is reached at, for people. Arguments, variables, headers and the rest of an address can be secrets.
    pub fn reached_by(&self) -> String {
        let how = match self {
            Self::Stdio { command, args, .. } => match args.len() {
                0 => command.clone(),
                1 => format!("{command} (with one argument)"),
                count => format!("{command} (with {count} arguments)"),
            },
            Self::Http { url, .. } | Self::Sse { url, .. } => origin(url).unwrap_or_default().to_owned(),
        };
        visible(&how).into_owned()
    }

    /// As the Agent Client Protocol has it.
    pub(crate) fn for_acp(&self) -> Value {
        let mut server = json!(self);
        if let (Self::Stdio { .. }, Some(fields)) = (self, server.as_object_mut()) {
            fields.remove("type");
        }
        server
    }
}

/// What no text of an agent may repeat: an agent says with what it has tried to start a server.
#[derive(Debug, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    pub(crate) fn of(servers: &[McpServer]) -> Self {
        let values = servers.iter().flat_map(McpServer::values).filter(|value| value.len() >= SHORTEST_SECRET);
        let mut secrets: Vec<String> = values.map(str::to_owned).collect();
        // One can be the beginning of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    pub(crate) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), HIDDEN))
    }
}

/// As a file for claude's `--mcp-config` (code.claude.com/docs, "MCP").
pub(crate) fn for_claude(servers: &[McpServer]) -> String {
    let of = |server: &McpServer| match server {
        McpServer::Stdio { command, args, env, .. } => {
            json!({"type": "stdio", "command": command, "args": args, "env": values(env)})
        }
        McpServer::Http { url, headers, .. } | McpServer::Sse { url, headers, .. } => {
            json!({"type": server.kind(), "url": url, "headers": values(headers)})
        }
    };
    json!({"mcpServers": keyed(servers, "", of)}).to_string()
}

/// As settings of codex (`mcp_servers.NAME` in its config.toml). It knows no `sse`.
pub(crate) fn for_codex(servers: &[McpServer]) -> Map<String, Value> {
    keyed(servers, "mcp_servers.", |server| match server {
        McpServer::Stdio { command, args, env, .. } => json!({"command": command, "args": args, "env": values(env)}),
        McpServer::Http { url, headers, .. } | McpServer::Sse { url, headers, .. } => {
            json!({"url": url, "http_headers": values(headers)})
        }
    })
}

/// The part of an address that names the server alone.
fn origin(url: &str) -> Option<&str> {
    let scheme = ["https://", "http://"].into_iter().find(|scheme| url.starts_with(scheme))?;
    let rest = url.get(scheme.len()..)?;
    let host = rest.split(['/', '?', '#']).next().filter(|host| !host.is_empty())?;
    // A password can stand before the host.
    Some(if host.contains(['@', '\\']) { scheme } else { url.get(..scheme.len() + host.len())? })
}

fn values(named: &[Named]) -> Map<String, Value> {
    named.iter().map(|Named { name, value }| (name.clone(), json!(value))).collect()
}

/// By names that every agent takes, each of them once.
fn keyed(servers: &[McpServer], prefix: &str, of: impl Fn(&McpServer) -> Value) -> Map<String, Value> {
    let mut taken = BTreeSet::new();
    let mut key = |name: &str| {
        let is_plain = |character: &char| character.is_ascii_alphanumeric() || ['-', '_'].contains(character);
        let plain: String = name.chars().map(|character| if is_plain(&character) { character } else { '_' }).collect();
        let numbered = (2..).map(|number| format!("{plain}_{number}"));
        let free = std::iter::once(plain.clone()).chain(numbered).find(|key| !taken.contains(key)).unwrap_or_default();
        taken.insert(free.clone());
        free
    };
    servers.iter().map(|server| (format!("{prefix}{}", key(server.name())), of(server))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_an_editor_sends_them() {
        let variable = json!({"name": "KEY", "value": "hush"});
        let sent = json!([
            {"name": "my notes", "command": "node", "args": ["n.mjs"], "env": [variable]},
            {"type": "http", "name": "my.notes", "url": "https://h.example:8/secret?key=hush", "headers": [variable]},
            {"type": "sse", "name": "s", "url": "http://ann:hush@h.example/", "headers": []},
        ]);
        let read = McpServer::read_all(Some(&sent)).unwrap();
        let shown: Vec<String> = read.iter().map(|one| format!("{}: {}", one.title(), one.reached_by())).collect();
        assert_eq!(
            shown,
            ["my notes (stdio): node (with one argument)", "my.notes (http): https://h.example:8", "s (sse): http://"]
        );
        assert!(!format!("{read:?}").contains("KEY=hush"), "{read:?}");
        assert_eq!(Value::from_iter(read.iter().map(McpServer::for_acp)), sent, "an agent gets what the editor sent");
        let claude: Value = serde_json::from_str(&for_claude(&read)).unwrap();
        assert_eq!(claude["mcpServers"]["my_notes"]["env"], json!({"KEY": "hush"}), "{claude:#}");
        assert_eq!(claude["mcpServers"]["my_notes_2"]["headers"], json!({"KEY": "hush"}), "{claude:#}");
        let codex = for_codex(&read[..2]);
        assert_eq!(codex["mcp_servers.my_notes_2"]["http_headers"], json!({"KEY": "hush"}), "{codex:#?}");
        // The host reads what it has written.
        assert_eq!(serde_json::from_value::<Vec<McpServer>>(json!(read)).unwrap(), read);
        assert_eq!(McpServer::read_all(None), Ok(Vec::new()));
        let odd = json!([{"name": " my\nnotes\t", "command": "node"}]);
        assert_eq!(McpServer::read_all(Some(&odd)).unwrap()[0].title(), "my notes (stdio)");
        assert_eq!(origin("https://ann:hush\\h.example/"), Some("https://"));
    }

    #[test]
    fn what_an_agent_says_of_its_start_has_no_secrets() {
        let servers = McpServer::read_all(Some(&json!([
            {"name": "a", "command": "x", "env": [{"name": "KEY", "value": "hush-hush"}, {"name": "DEBUG", "value": "1"}]},
            {"type": "http", "name": "b", "url": "https://h.example", "headers": [{"name": "X", "value": "hush-hush-hush"}]},
        ])));
        let secrets = Secrets::of(&servers.unwrap());
        let said = "KEY=hush-hush DEBUG=1 x failed, X: hush-hush-hush";
        assert_eq!(secrets.hide(said), "KEY=••• DEBUG=1 x failed, X: •••");
    }

    #[test]
    fn other_shapes_and_too_many_servers_are_refused() {
        let long = "x".repeat(64 << 10);
        let one = json!({"name": "x", "command": "/x", "args": [], "env": []});
        for odd in [
            json!({}),
            json!(["x"]),
            json!([{"name": "x"}]),
            json!([{"name": "", "command": "/x"}]),
            json!([{"name": "x", "command": ""}]),
            json!([{"name": "x", "command": "/x", "args": "y"}]),
            json!([{"name": "x", "command": "/x", "env": {"KEY": "hush"}}]),
            json!([{"type": "http", "name": "x", "url": "file:///etc/passwd"}]),
            json!([{"type": "http", "name": "x", "url": "https:///"}]),
            json!([{"type": "pigeon", "name": "x", "url": "https://h.example"}]),
            json!([{"name": "x", "command": "/x", "args": [long]}]),
            json!([{"name": "x", "command": "/x", "args": ["\0"]}]),
            json!([{"name": "x", "command": "/x", "env": [{"name": "KEY", "value": "\0"}]}]),
            json!(vec![one.clone(); 17]),
        ] {
            assert!(McpServer::read_all(Some(&odd)).is_err(), "{odd}");
        }
        assert_eq!(McpServer::read_all(Some(&json!(vec![one; 16]))).unwrap().len(), 16);
    }
}
