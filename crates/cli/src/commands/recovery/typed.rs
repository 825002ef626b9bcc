//! Recovery words as a person types them: what is wrong with them is asked for again, and nothing else.

use std::io::{self, BufRead, IsTerminal, Write};

use ensemble_client::seal::{BadWords, RecoveryWords};
use secrecy::zeroize::Zeroizing;

use crate::commands::join::without_echo;
use crate::failure::{Failure, Result};
use crate::print;

/// How often something is asked for again.
const MOST_TRIES: usize = 30;

/// A text that a person has typed, which is not shown.
type Typed = Zeroizing<String>;

/// Reads the words, in a terminal until they are right.
pub(super) fn words() -> Result<RecoveryWords> {
    if !io::stdin().is_terminal() {
        let mut line = Typed::default();
        io::stdin().lock().read_line(&mut line)?;
        return RecoveryWords::parse(&line).map_err(|error| not_words(&error, &split(&line)));
    }
    corrected(|question| {
        write!(io::stderr(), "{question}: ")?;
        let typed = without_echo()?;
        writeln!(io::stderr())?;
        Ok(typed)
    })
}

/// Asks for all words in one line, and then for those that are wrong. `ask` shows a question and returns what was typed.
fn corrected(mut ask: impl FnMut(&str) -> Result<Typed>) -> Result<RecoveryWords> {
    let mut words = split(&ask("Your 24 recovery words, in one line (they are not shown)")?);
    for _ in 0..MOST_TRIES {
        let line = Typed::new(words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" "));
        match RecoveryWords::parse(&line) {
            Ok(words) => return Ok(words),
            Err(BadWords::Count(_)) => {
                let count = words.len();
                words = split(&ask(&format!("There are {count} words, and recovery words are 24. Type them again"))?);
                if words.is_empty() {
                    break;
                }
            }
            Err(BadWords::Unknown(_)) if words.len() != 24 => {
                let (count, unknown) = (words.len(), unknown(&words));
                let question =
                    format!("There are {count} words, and recovery words are 24. {unknown}. Type them again");
                words = split(&ask(&question)?);
                if words.is_empty() {
                    break;
                }
            }
            Err(BadWords::Unknown(number)) => {
                let Some(word) = words.get_mut(number - 1) else { break };
                let near = RecoveryWords::near(word);
                let meant = near.map_or_else(String::new, |near| format!("; enter alone: {near}"));
                let typed =
                    ask(&format!("Word {number}, {:?}, is not in the list. Word {number}{meant}", word.as_str()))?;
                match (split(&typed).into_iter().next(), near) {
                    (Some(typed), _) => *word = typed,
                    (None, Some(near)) => *word = Typed::new(near.to_owned()),
                    (None, None) => break,
                }
            }
            Err(error @ BadWords::Checksum) => {
                print::note(format!("All words are in the list, but {error}."));
                let number = ask("The number of the word to type again (enter alone: none)")?;
                let Ok(number) = number.trim().parse::<usize>() else { break };
                let Some(word) = number.checked_sub(1).and_then(|at| words.get_mut(at)) else { continue };
                if let Some(typed) = split(&ask(&format!("Word {number}"))?).into_iter().next() {
                    *word = typed;
                }
            }
        }
    }
    Err(Failure::message("These are not recovery words. Nothing was sent."))
}

fn split(line: &str) -> Vec<Typed> {
    line.split_whitespace().map(|word| Typed::new(word.to_lowercase())).collect()
}

/// What is wrong, where it cannot be asked for again.
fn not_words(error: &BadWords, words: &[Typed]) -> Failure {
    let why = match error {
        BadWords::Unknown(_) => unknown(words),
        error => error.to_string().replacen("there", "There", 1).replacen("the words", "The words", 1),
    };
    Failure::message(format!("{why}. Nothing was sent."))
}

/// Which words are not in the list, and what was probably meant.
fn unknown(words: &[Typed]) -> String {
    let unknown = words.iter().enumerate().filter(|(_, word)| !RecoveryWords::has_word(word));
    let named: Vec<String> = unknown
        .map(|(at, word)| {
            let near = RecoveryWords::near(word).map_or_else(String::new, |near| format!(" (is it {near}?)"));
            format!("word {}{near}", at + 1)
        })
        .collect();
    match named.as_slice() {
        [only] => format!("{only} is not in the list of recovery words").replacen("word", "Word", 1),
        several => format!("{} are not in the list of recovery words", several.join(", ")).replacen("word", "Word", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<&'static str> {
        RecoveryWords::from_bits([7; 32]).words().unwrap()
    }

    /// What is asked when these texts are typed one after the other, and the words that come out.
    fn asked(typed: &[&str]) -> (Vec<String>, Result<Vec<&'static str>>) {
        let (mut questions, mut typed) = (Vec::new(), typed.iter());
        let words = corrected(|question| {
            questions.push(question.to_owned());
            Ok(Typed::new((*typed.next().unwrap()).to_owned()))
        });
        assert_eq!(typed.next(), None, "all were asked for: {questions:?}");
        (questions, words.map(|words| words.words().unwrap()))
    }

    #[test]
    fn only_the_words_that_are_wrong_are_typed_again() {
        let good = good();
        let mut wrong = good.clone();
        (wrong[4], wrong[9]) = ("xqzvwk", "yqzvwk");
        let (questions, words) = asked(&[&wrong.join(" "), good[4], good[9]]);
        assert_eq!(words.unwrap(), good);
        assert_eq!(questions[1], "Word 5, \"xqzvwk\", is not in the list. Word 5");
        assert!(questions[2].starts_with("Word 10, "), "{questions:?}");
    }

    #[test]
    fn a_near_word_is_taken_by_enter_alone() {
        let good = good();
        let mistyped = format!("{}x", good[2]);
        let mut wrong = good.clone();
        wrong[2] = &mistyped;
        let (questions, words) = asked(&[&wrong.join(" "), ""]);
        assert!(questions[1].ends_with(&format!("; enter alone: {}", good[2])), "{questions:?}");
        assert_eq!(words.unwrap(), good);
    }

    #[test]
    fn words_that_do_not_belong_together_are_corrected_by_their_numbers() {
        let good = good();
        let mut wrong = good.clone();
        wrong[11] = if good[11] == "zoo" { "web" } else { "zoo" };
        let (questions, words) = asked(&[&wrong.join(" "), "12", good[11]]);
        assert_eq!(words.unwrap(), good);
        assert_eq!(questions[2], "Word 12");
        let (_, words) = asked(&[&wrong.join(" "), ""]);
        assert!(words.is_err(), "none is typed again");
        let (questions, words) = asked(&[&good[..23].join(" "), &good.join(" ")]);
        assert!(words.is_ok() && questions[1].starts_with("There are 23 words"), "{questions:?}");
    }

    #[test]
    fn each_wrong_word_is_named_where_none_can_be_asked_for() {
        let good = good();
        let mistyped = format!("{}x", good[2]);
        let mut wrong = good.clone();
        (wrong[2], wrong[9]) = (&mistyped, "xqzvwk");
        let line = wrong.join(" ");
        let error = not_words(&RecoveryWords::parse(&line).unwrap_err(), &split(&line)).to_string();
        let said =
            format!("Word 3 (is it {}?), word 10 are not in the list of recovery words. Nothing was sent.", good[2]);
        assert_eq!(error, said);
    }
}
