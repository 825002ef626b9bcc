//! The figures of the release before, in a file that each release writes, and how those of now compare with them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// A figure that got worse by more than this share is slower.
const TOLERATED: f64 = 0.15;
/// What to do about a file that cannot be used.
const RENEW: &str = "Restore it from git, or write it with `make bench-last`.";

/// One figure: its median, and that of its ratio to the baseline where it has one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) ours: f64,
    pub(crate) unit: String,
    pub(crate) ratio: Option<f64>,
}

/// All figures of a run, by name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Figures(BTreeMap<String, Figure>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// What has become of a figure.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    /// The release before had no such figure.
    New,
    /// By this percentage, up or down.
    By { percent: f64, is_slower: bool },
    /// It was 0, which nothing is a percentage of.
    FromNothing,
}

impl Figure {
    /// The figure that is compared: absolute figures depend on the machine and ratios do not.
    fn judged(&self) -> f64 {
        self.ratio.unwrap_or(self.ours)
    }

    fn is_comparable(&self, other: &Self) -> bool {
        self.unit == other.unit && self.ratio.is_some() == other.ratio.is_some()
    }
}

impl Figures {
    /// # Errors
    /// There are two figures of this name, or it was not measured.
    pub(crate) fn add(&mut self, name: &str, figure: Figure) -> Result<()> {
        ensure!(figure.ours.is_finite() && figure.judged().is_finite(), "{name} was not measured");
        ensure!(self.0.insert(name.to_owned(), figure).is_none(), "two figures are called {name:?}");
        Ok(())
    }

    /// Reads a file. `None`: there is no such file.
    ///
    /// # Errors
    /// It cannot be read or is no file of figures.
    pub(crate) fn read(file: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("{} cannot be read", file.display()))?,
        };
        let read = || {
            let all: BTreeMap<String, Value> = serde_json::from_str(&text)?;
            let figures = all.into_iter().map(|(name, value)| {
                let figure = figure(&value).with_context(|| format!("{name:?} is no figure"))?;
                Ok((name, figure))
            });
            figures.collect::<Result<BTreeMap<_, _>>>()
        };
        let all = read().with_context(|| format!("{} holds no figures of a release. {RENEW}", file.display()))?;
        Ok(Some(Self(all)))
    }

    /// Writes them, sorted by name. With `keeps_others` the figures that the file had under other names stay.
    ///
    /// # Errors
    /// The file cannot be written. With `keeps_others`: it cannot be read.
    pub(crate) fn write(self, file: &Path, keeps_others: bool) -> Result<()> {
        let mut all = if keeps_others { Self::read(file)?.unwrap_or_default() } else { Self::default() };
        all.0.extend(self.0);
        let all: BTreeMap<String, Value> = all.0.into_iter().map(|(name, figure)| (name, value(&figure))).collect();
        std::fs::write(file, serde_json::to_string_pretty(&all)? + "\n")
            .with_context(|| format!("{} cannot be written", file.display()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Figure> {
        self.0.get(name)
    }

    /// How a figure of now differs from that of the release before.
    pub(crate) fn change(&self, name: &str, now: &Figure, better: Better) -> Change {
        let Some(before) = self.get(name).filter(|before| before.is_comparable(now)) else { return Change::New };
        let (before, now) = (before.judged(), now.judged());
        if before == 0.0 {
            return if now == 0.0 { Change::By { percent: 0.0, is_slower: false } } else { Change::FromNothing };
        }
        let change = now / before - 1.0;
        let is_slower = match better {
            Better::Higher => change < -TOLERATED,
            Better::Lower => change > TOLERATED,
        };
        Change::By { percent: change * 100.0, is_slower }
    }
}

fn figure(value: &Value) -> Result<Figure> {
    let number = |name: &str| match value.get(name) {
        None => Ok(None),
        Some(number) => number.as_f64().map(Some).with_context(|| format!("{name} is no number")),
    };
    let Some(unit) = value.get("unit").and_then(Value::as_str) else { bail!("it has no unit") };
    Ok(Figure { ours: number("ours")?.context("it has no value")?, unit: unit.to_owned(), ratio: number("ratio")? })
}

fn value(figure: &Figure) -> Value {
    // More digits would only make the differences of the file longer.
    let short = |number: f64| (number * 1e3).round() / 1e3;
    let mut value = json!({ "ours": short(figure.ours), "unit": figure.unit });
    if let (Some(ratio), Some(fields)) = (figure.ratio, value.as_object_mut()) {
        fields.insert("ratio".to_owned(), json!(short(ratio)));
    }
    value
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("new"),
            Self::By { percent, is_slower } => {
                write!(f, "{percent:+.0} %{}", if *is_slower { ", *slower*" } else { "" })
            }
            Self::FromNothing => f.write_str("was 0"),
        }
    }
}

#[cfg(test)]
mod tests;
