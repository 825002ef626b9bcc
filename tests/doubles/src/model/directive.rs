//! The behaviour of the model, given in the prompt in double brackets.

use serde_json::Value;

/// One behaviour of the model. The README lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directive {
    Say(String),
    Repeat(usize, String),
    Refuse,
    RefuseLate,
    Fail(u16),
    /// The usage limit is reached, for this many seconds.
    Limit(u64),
    Hang,
    Drop,
    Run(String),
    /// A call of the tool with this name and this input, as JSON.
    Tool(String, Value),
}

/// The directive of a conversation: that of the last message which has one.
pub(crate) fn of(messages: &[String]) -> (Directive, bool) {
    match messages.iter().rev().find(|message| is_in(message)) {
        Some(message) => read(message),
        None => read(&messages.join("\n")),
    }
}

pub(crate) fn is_in(message: &str) -> bool {
    bracketed(message).next().is_some()
}

/// The directive of a prompt, and whether the answer is sent in pieces of three bytes.
fn read(prompt: &str) -> (Directive, bool) {
    let mut wanted = None;
    let mut split = false;
    for text in bracketed(prompt) {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let found = match verb {
            "split" => {
                split = true;
                None
            }
            "say" => Some(Directive::Say(rest.to_owned())),
            "repeat" => repeat(rest),
            "refuse" => Some(Directive::Refuse),
            "refuse-late" => Some(Directive::RefuseLate),
            "fail" => rest.parse().ok().map(Directive::Fail),
            "limit" => rest.parse().ok().map(Directive::Limit),
            "hang" => Some(Directive::Hang),
            "drop" => Some(Directive::Drop),
            "run" => Some(Directive::Run(rest.to_owned())),
            "tool" => tool(rest),
            _ => None,
        };
        wanted = wanted.or(found);
    }
    let default = || Directive::Say(format!("The stand-in received {} characters.", prompt.chars().count()));
    (wanted.unwrap_or_else(default), split)
}

fn repeat(rest: &str) -> Option<Directive> {
    let (times, text) = rest.split_once(' ')?;
    Some(Directive::Repeat(times.parse().ok()?, text.to_owned()))
}

fn tool(rest: &str) -> Option<Directive> {
    let (name, input) = rest.split_once(' ')?;
    Some(Directive::Tool(name.to_owned(), serde_json::from_str(input).ok()?))
}

fn bracketed(prompt: &str) -> impl Iterator<Item = &str> {
    prompt.split("[[").skip(1).filter_map(|rest| rest.split_once("]]").map(|(inside, _)| inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_directive_counts() {
        assert_eq!(read("x [[say a b]] [[hang]] [[split]]"), (Directive::Say("a b".to_owned()), true));
        assert_eq!(read("[[fail 400]]"), (Directive::Fail(400), false));
        let input = serde_json::json!({"path": "a"});
        assert_eq!(read(r#"[[tool Read {"path":"a"}]]"#).0, Directive::Tool("Read".to_owned(), input));
        assert_eq!(read("[[limit 60]]"), (Directive::Limit(60), false));
        assert_eq!(read("[[repeat 3 ab ]]").0, Directive::Repeat(3, "ab ".to_owned()));
        let messages = ["[[say a]]", "[[say b]] [[say c]]", "go on"].map(str::to_owned);
        assert_eq!(of(&messages).0, Directive::Say("b".to_owned()), "of the last message that has one");
        assert_eq!(read("äö").0, Directive::Say("The stand-in received 2 characters.".to_owned()));
    }
}
