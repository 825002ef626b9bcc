//! The last messages as a text, for an agent that has lost the conversation.

use ensemble_protocol::transcript::view::{Shown, View};

use crate::clean::readable;

/// The bytes of the messages, the oldest of which are left out first.
const MOST: usize = 8 << 10;
/// Of one message, its end.
const MOST_OF_ONE: usize = 2 << 10;

/// What people and the agent have said last, quoted. `None`: nothing.
pub(crate) fn messages(view: &View) -> Option<String> {
    let (mut said, mut bytes) = (Vec::new(), 0);
    for item in view.items().rev() {
        let (who, text) = match &item.shown {
            Shown::Prompt(prompt, _) => ("A person", &prompt.text),
            Shown::Text(part) if part.parent_tool_call_id.is_none() => ("You", &part.text),
            _ => continue,
        };
        let text = readable(end(text.trim()));
        let quoted = text.lines().map(|line| format!("> {line}\n")).collect::<String>();
        bytes += quoted.len();
        if bytes > MOST {
            break;
        }
        said.push(format!("{who}:\n{quoted}"));
    }
    said.reverse();
    (!said.is_empty())
        .then(|| format!("This is what was said last, before you lost the conversation:\n\n{}\n", said.join("\n")))
}

fn end(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(MOST_OF_ONE))..]
}
