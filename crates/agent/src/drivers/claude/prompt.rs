//! A prompt as the program reads it: its text and its attachments.

use std::borrow::Cow;
use std::collections::BTreeSet;

use ensemble_protocol::transcript::body::Attachment;
use serde_json::{Value, json};

use crate::command::{Prompt, Refused};

/// The content of a message of the Anthropic API. `commands` are those that a prompt can be.
pub(super) fn content(prompt: &Prompt, commands: &BTreeSet<String>) -> Result<Value, Refused> {
    let said = protected(&prompt.text, commands);
    if prompt.attachments.is_empty() {
        return Ok(json!(said));
    }
    let mut content = vec![json!({"type": "text", "text": said})];
    for attachment in &prompt.attachments {
        content.push(match attachment {
            Attachment::Image { mime_type, data } => {
                let source = json!({"type": "base64", "media_type": mime_type, "data": data});
                json!({"type": "image", "source": source})
            }
            Attachment::Resource { resource } => {
                json!({"type": "text", "text": format!("{}:\n{}", resource.uri, resource.text)})
            }
            Attachment::Newer => return Err(Refused::Unsupported("the prompt has an attachment of an unknown kind")),
        });
    }
    Ok(json!(content))
}

/// The program takes a prompt that begins with a slash for one of its commands, even if it has none of this name, and asks no model
/// then. A line feed before it makes it a text.
fn protected<'p>(prompt: &'p str, commands: &BTreeSet<String>) -> Cow<'p, str> {
    match slash_word(prompt) {
        Some(word) if !commands.contains(word) => Cow::Owned(format!("\n{prompt}")),
        _ => Cow::Borrowed(prompt),
    }
}

/// The word after the slash with which a prompt begins.
fn slash_word(prompt: &str) -> Option<&str> {
    prompt.trim_start().strip_prefix('/')?.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_commands_of_the_program_are_left_as_they_are() {
        let commands = BTreeSet::from(["compact".to_owned(), "own:review".to_owned()]);
        for same in ["/compact", "/compact our logo", "/own:review 7", "fix /login", "/", "", "a/b"] {
            assert_eq!(protected(same, &commands), same);
        }
        for prompt in ["/login returns 500", "/help", "/etc/hosts is wrong", " /login fails"] {
            assert_eq!(protected(prompt, &commands), format!("\n{prompt}"));
        }
    }
}
