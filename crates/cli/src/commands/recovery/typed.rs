//! Recovery words as a person types them: what is wrong with them is asked for again, and nothing else.

use std::io::{self, BufRead, IsTerminal};

use ensemble_account::devices::{BadWords, RecoveryWords};
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
        let words = split(&line);
        return RecoveryWords::parse(&joined(&words)).map_err(|error| not_words(&error, &words));
    }
    corrected(|question| {
        print::ask(format!("{question}:"))?;
        let typed = without_echo()?;
        print::note("");
        Ok(typed)
    })
}

/// Asks for all words in one line, and then for those that are wrong. `ask` shows a question and returns what was typed.
fn corrected(mut ask: impl FnMut(&str) -> Result<Typed>) -> Result<RecoveryWords> {
    let mut words = split(&ask("Your 24 recovery words, in one line (they are not shown)")?);
    for _ in 0..MOST_TRIES {
        match RecoveryWords::parse(&joined(&words)) {
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
                let typed = ask(&format!("Word {number} is not in the list. Word {number}"))?;
                let Some(typed) = split(&typed).into_iter().next() else { break };
                *word = typed;
            }
            Err(error @ BadWords::Checksum) => {
                print::note(format!("All words are in the list, but {error}."));
                let number = ask("The number of the word to type again (enter alone: none)")?;
                if number.trim().is_empty() {
                    break;
                }
                let number: usize = number.trim().trim_end_matches('.').parse().unwrap_or(0);
                let Some(word) = number.checked_sub(1).and_then(|at| words.get_mut(at)) else { continue };
                if let Some(typed) = split(&ask(&format!("Word {number}"))?).into_iter().next() {
                    *word = typed;
                }
            }
        }
    }
    Err(Failure::message("These are not recovery words. Nothing was sent."))
}

/// The words of a line, without the numbers of a list.
fn split(line: &str) -> Vec<Typed> {
    let letters =
        |word: &str| word.chars().filter(|c| c.is_alphabetic()).flat_map(char::to_lowercase).collect::<String>();
    let words = line.split_whitespace().map(|word| Typed::new(letters(word)));
    words.filter(|word| !word.is_empty()).collect()
}

fn joined(words: &[Typed]) -> Typed {
    Typed::new(words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" "))
}

/// What is wrong, where it cannot be asked for again.
fn not_words(error: &BadWords, words: &[Typed]) -> Failure {
    let why = match error {
        BadWords::Unknown(_) => unknown(words),
        error => error.to_string().replacen("there", "There", 1).replacen("the words", "The words", 1),
    };
    Failure::message(format!("{why}. Nothing was sent."))
}

/// Which words are not in the list, by their numbers: they may be the right ones but for a letter, and a terminal keeps what it shows.
fn unknown(words: &[Typed]) -> String {
    let unknown = words.iter().enumerate().filter(|(_, word)| !RecoveryWords::has_word(word));
    let named: Vec<String> = unknown.map(|(at, _)| format!("word {}", at + 1)).collect();
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
        assert_eq!(questions[1], "Word 5 is not in the list. Word 5");
        assert!(questions[2].starts_with("Word 10 "), "{questions:?}");
    }

    #[test]
    fn a_numbered_list_is_taken() {
        let good = good();
        let list: Vec<String> = good.iter().enumerate().map(|(at, word)| format!("{}. {word}", at + 1)).collect();
        assert_eq!(asked(&[&list.join(" ")]).1.unwrap(), good);
        assert_eq!(asked(&[&list.join(" ").replace(". ", ".")]).1.unwrap(), good);
    }

    #[test]
    fn words_that_do_not_belong_together_are_corrected_by_their_numbers() {
        let good = good();
        let mut wrong = good.clone();
        wrong[11] = if good[11] == "zoo" { "web" } else { "zoo" };
        let (questions, words) = asked(&[&wrong.join(" "), "x", "12.", good[11]]);
        assert_eq!(words.unwrap(), good);
        assert_eq!(questions[3], "Word 12");
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
        assert_eq!(error, "Word 3, word 10 are not in the list of recovery words. Nothing was sent.");
    }
}
