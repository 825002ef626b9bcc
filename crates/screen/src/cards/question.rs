//! Questions of the agent: what the person has chosen so far, one question after the other.

use std::collections::{BTreeMap, BTreeSet};

use crossterm::event::KeyCode;
use ensemble_protocol::transcript::body::{Question, QuestionItem};
use ensemble_protocol::transcript::view::{Asks, Card};

use super::MOST_KEYS;

/// The answers of a request, while they are being given.
pub(super) struct Choosing {
    questions: Vec<QuestionItem>,
    /// The question that is shown, and the option that the mark is at.
    pub(super) at: usize,
    pub(super) mark: usize,
    chosen: Vec<BTreeSet<usize>>,
    texts: Vec<Option<String>>,
}

/// What a key does.
pub(super) enum Step {
    Not,
    Stays,
    /// `None`: the person does not answer.
    Answered(Option<BTreeMap<String, Vec<String>>>),
}

impl Choosing {
    pub(super) fn of(card: &Card) -> Option<Self> {
        let Asks::Question(Question { questions, .. }) = &card.asks else { return None };
        let count = questions.len();
        Some(Self {
            questions: questions.clone(),
            at: 0,
            mark: 0,
            chosen: vec![BTreeSet::new(); count],
            texts: vec![None; count],
        })
    }

    pub(super) fn question(&self) -> Option<&QuestionItem> {
        self.questions.get(self.at)
    }

    pub(super) fn count(&self) -> usize {
        self.questions.len()
    }

    pub(super) fn is_chosen(&self, option: usize) -> bool {
        self.chosen.get(self.at).is_some_and(|chosen| chosen.contains(&option))
    }

    fn options(&self) -> usize {
        self.question().and_then(|question| question.options.as_ref()).map_or(0, Vec::len)
    }

    fn is_multiple(&self) -> bool {
        self.question().is_some_and(|question| question.multiple)
    }

    /// Whether a digit of the question that is shown does something.
    pub(super) fn has(&self, digit: char) -> bool {
        let option = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
        option.is_some_and(|option| option <= self.options().min(MOST_KEYS))
    }

    pub(super) fn key(&mut self, key: KeyCode) -> Step {
        let options = self.options();
        match key {
            KeyCode::Char('0') => return Step::Answered(None),
            KeyCode::Left if self.at > 0 => self.go(self.at - 1),
            KeyCode::Right if self.at + 1 < self.count() => self.go(self.at + 1),
            KeyCode::Up if options > 0 => self.mark = self.mark.saturating_sub(1),
            KeyCode::Down if options > 0 => self.mark = (self.mark + 1).min(options - 1),
            KeyCode::Char(' ') if options > 0 => return self.choose(self.mark),
            KeyCode::Char(digit @ '1'..='9') => {
                let option = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).unwrap_or(MOST_KEYS) - 1;
                if option >= options {
                    return Step::Not;
                }
                self.mark = option;
                return self.choose(option);
            }
            KeyCode::Enter if options > 0 => {
                if !self.is_multiple() {
                    return self.choose(self.mark);
                }
                if self.is_answered(self.at) {
                    return self.next();
                }
            }
            _ => return Step::Not,
        }
        Step::Stays
    }

    /// The person's own words for the question that is shown. The answers, when they were the last that was missing.
    pub(super) fn text(&mut self, text: String) -> Option<BTreeMap<String, Vec<String>>> {
        if !self.is_multiple() {
            self.chosen.get_mut(self.at)?.clear();
        }
        *self.texts.get_mut(self.at)? = Some(text);
        match self.next() {
            Step::Answered(answers) => answers,
            _ => None,
        }
    }

    fn choose(&mut self, option: usize) -> Step {
        let is_multiple = self.is_multiple();
        let Some(chosen) = self.chosen.get_mut(self.at) else { return Step::Not };
        if is_multiple {
            if !chosen.remove(&option) {
                chosen.insert(option);
            }
            return Step::Stays;
        }
        *chosen = BTreeSet::from([option]);
        if let Some(text) = self.texts.get_mut(self.at) {
            *text = None;
        }
        self.next()
    }

    fn go(&mut self, at: usize) {
        self.at = at;
        self.mark = self.chosen.get(at).and_then(|chosen| chosen.first().copied()).unwrap_or(0);
    }

    fn is_answered(&self, at: usize) -> bool {
        self.chosen.get(at).is_some_and(|chosen| !chosen.is_empty()) || self.texts.get(at).is_some_and(Option::is_some)
    }

    /// The next question without an answer, or all answers.
    fn next(&mut self) -> Step {
        let after = (self.at + 1..self.count()).chain(0..self.at).find(|at| !self.is_answered(*at));
        match after {
            Some(at) => {
                self.go(at);
                Step::Stays
            }
            None => Step::Answered(Some(self.answers())),
        }
    }

    fn answers(&self) -> BTreeMap<String, Vec<String>> {
        let each = self.questions.iter().zip(self.chosen.iter().zip(&self.texts));
        each.map(|(question, (chosen, text))| {
            let options = question.options.as_deref().unwrap_or_default();
            let labels = chosen.iter().filter_map(|at| options.get(*at)).map(|option| option.label.clone());
            (question.id.clone(), labels.chain(text.clone()).collect())
        })
        .collect()
    }
}
