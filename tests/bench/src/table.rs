//! The table of results: which targets were met, and how the figures differ from those of the release before.

use std::fmt;

use crate::before::{Better, Change, Figure, Figures};
use crate::stats::Rounds;

/// The limit of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// For information only.
    None,
}

struct Line {
    name: String,
    unit: &'static str,
    ours: Rounds,
    baseline: Option<(String, Rounds)>,
    target: Target,
}

/// The whole table.
pub(crate) struct Report {
    rounds: usize,
    lines: Vec<Line>,
    failed: Vec<(String, String)>,
    /// Those of the release before, if they are compared.
    before: Option<Figures>,
}

impl Report {
    pub(crate) fn new(rounds: usize, before: Option<Figures>) -> Self {
        Self { rounds, lines: Vec::new(), failed: Vec::new(), before }
    }

    /// A figure with a baseline. The target is for the ratio.
    pub(crate) fn versus(
        &mut self,
        name: &str,
        unit: &'static str,
        ours: Rounds,
        baseline: (&str, Rounds),
        target: Target,
    ) {
        let baseline = Some((baseline.0.to_owned(), baseline.1));
        self.lines.push(Line { name: name.to_owned(), unit, ours, baseline, target });
    }

    /// A figure without a baseline. The target is for the figure.
    pub(crate) fn alone(&mut self, name: &str, unit: &'static str, ours: Rounds, target: Target) {
        self.lines.push(Line { name: name.to_owned(), unit, ours, baseline: None, target });
    }

    pub(crate) fn failed(&mut self, name: &str, error: &anyhow::Error) {
        eprintln!("{name} could not be measured: {error:#}");
        self.failed.push((name.to_owned(), format!("{error:#}")));
    }

    pub(crate) fn complete(&self) -> bool {
        self.failed.is_empty()
    }

    /// All figures by name. What cannot be among them is said below the table.
    pub(crate) fn figures(&mut self) -> Figures {
        let mut figures = Figures::default();
        for line in &self.lines {
            if let Err(error) = figures.add(&line.name, line.figure()) {
                self.failed.push((line.name.clone(), error.to_string()));
            }
        }
        figures
    }
}

impl Line {
    fn judged(&self) -> Rounds {
        match &self.baseline {
            Some((_, baseline)) => self.ours.ratio(baseline),
            None => self.ours.clone(),
        }
    }

    fn figure(&self) -> Figure {
        let ratio = self.baseline.is_some().then(|| self.judged().median());
        Figure { ours: self.ours.median(), unit: self.unit.to_owned(), ratio }
    }

    fn better(&self) -> Better {
        match self.target {
            Target::AtLeast(_) => Better::Higher,
            Target::AtMost(_) => Better::Lower,
            // Without a target the unit says it: rates are better high; times and sizes are better low.
            Target::None if self.unit.ends_with("/s") => Better::Higher,
            Target::None => Better::Lower,
        }
    }

    fn change(&self, before: &Figures) -> Change {
        before.change(&self.name, &self.figure(), self.better())
    }

    fn met(&self) -> Option<bool> {
        let value = self.judged().median();
        match self.target {
            Target::AtLeast(bound) => Some(value >= bound),
            Target::AtMost(bound) => Some(value <= bound),
            Target::None => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
            Self::None => f.write_str("–"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nMedians of {} rounds; in brackets the lowest and the highest.\n", self.rounds)?;
        let (names, rule) = if self.before.is_some() { (" before | change |", "---|---|") } else { ("", "") };
        writeln!(f, "| figure | ours | baseline | ratio | target | met |{names}")?;
        writeln!(f, "|---|---|---|---|---|---|{rule}")?;
        for line in &self.lines {
            let (baseline, ratio) = match &line.baseline {
                Some((name, rounds)) => {
                    let ratio = line.judged();
                    let spread = format!("{:.2} [{:.2}–{:.2}]", ratio.median(), ratio.lowest(), ratio.highest());
                    (format!("{} {name}", amount(rounds.median())), spread)
                }
                None => ("–".to_owned(), "–".to_owned()),
            };
            let ours = &line.ours;
            let spread = format!("[{}–{}]", amount(ours.lowest()), amount(ours.highest()));
            let met = match line.met() {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "–",
            };
            let (name, unit, target) = (&line.name, line.unit, line.target);
            write!(
                f,
                "| {name} | {} {unit} {spread} | {baseline} | {ratio} | {target} | {met} |",
                amount(ours.median())
            )?;
            if let Some(before) = &self.before {
                write!(f, " {} | {} |", past(before.get(name)), line.change(before))?;
            }
            writeln!(f)?;
        }
        let (met, missed): (Vec<&Line>, Vec<&Line>) =
            self.lines.iter().filter(|line| line.met().is_some()).partition(|line| line.met() == Some(true));
        writeln!(f, "\nTargets met: {}. Missed: {}.", met.len(), missed.len())?;
        for (verdict, lines) in [("met", met), ("missed", missed)] {
            for line in lines {
                let unit = if line.baseline.is_some() { "times the baseline" } else { line.unit };
                let judged = amount(line.judged().median());
                writeln!(f, "  {verdict}: {} ({judged}, target {} {unit})", line.name, line.target)?;
            }
        }
        for (name, error) in &self.failed {
            writeln!(f, "  not measured: {name}: {error}")?;
        }
        let Some(before) = &self.before else { return Ok(()) };
        let changes = self.lines.iter().map(|line| (line, line.change(before)));
        let slower: Vec<_> =
            changes.filter(|(_, change)| matches!(change, Change::By { is_slower: true, .. })).collect();
        writeln!(f, "\nSlower than in the release before by more than 15 %: {}.", slower.len())?;
        for (line, change) in slower {
            writeln!(f, "  {}: {} ({change})", line.name, amount(line.judged().median()))?;
        }
        Ok(())
    }
}

/// A figure of the release before.
fn past(figure: Option<&Figure>) -> String {
    match figure {
        Some(Figure { ours, unit, ratio: Some(ratio) }) => format!("{} {unit}, ratio {ratio:.2}", amount(*ours)),
        Some(Figure { ours, unit, ratio: None }) => format!("{} {unit}", amount(*ours)),
        None => "–".to_owned(),
    }
}

fn amount(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
