//! The time that the voice gateway adds to a start. `voice-bench` drives it and stands in for LiveKit; this parses its
//! output.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::machine::{Machine, Options};
use crate::stats::Rounds;
use crate::table::{Report, Target};

pub(crate) fn starts(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let output = Command::new(machine.program("voice-bench"))
        .arg(machine.program("ensemble-voice-gateway"))
        .arg(options.rounds.to_string())
        .env("TEST_DATABASE_URL", machine.database("bench_voice")?)
        // Its files go with this run's, also when it is ended early.
        .env("TMPDIR", machine.scratch.path())
        .output()
        .context("voice-bench does not start; build it with `cargo build --release`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("voice-bench: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    for database in ["PostgreSQL", "SQLite"] {
        let rounds = |of: &str, label: &str| figures(&text, &format!("{of}, round "), label);
        let targets = || (Target::AtMost(6.0), Target::AtMost(25.0));
        let none = || (Target::None, Target::None);
        let loads = [
            ("16 at once", targets()),
            ("16 at once, 600 open", targets()),
            ("16 at once, two webhooks", none()),
            ("16 at once with keys", none()),
            ("2 at once", none()),
        ];
        for (load, (p50, p99)) in loads {
            let name = |figure: &str| format!("voice start, {load}, own time, {database}, {figure}");
            let of = format!("{database}, {load}");
            report.alone(&name("p50"), "ms", rounds(&of, "p50")?, p50);
            report.alone(&name("p99"), "ms", rounds(&of, "p99")?, p99);
        }
        let disk = rounds(&format!("Disk with {database}"), "p50")?;
        report.alone(&format!("a flush of this disk by itself, with {database}, p50"), "ms", disk, Target::None);
    }
    Ok(())
}

/// The values after `label` in the lines with this beginning.
fn figures(text: &str, beginning: &str, label: &str) -> Result<Rounds> {
    let figure = |line: &str| line.split_once(label)?.1.split_whitespace().next()?.parse::<f64>().ok();
    let mut all = Rounds::default();
    text.lines().filter(|line| line.starts_with(beginning)).filter_map(figure).for_each(|value| all.push(value));
    if all.median().is_nan() {
        bail!("voice-bench printed no {label} of {beginning:?}: {text}");
    }
    Ok(all)
}
