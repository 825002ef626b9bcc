//! `ensemble usage`: tokens and costs of the last days.

use std::time::Duration;

use clap::{Args, ValueEnum};
use ensemble_screen::lines::{Column, Table, Tone, cost};
use ensemble_types::runs::Usage as Spent;
use ensemble_types::usage::{UsageBy, UsageItem, UsageSum};

use super::DONE;
use crate::context::{Context, now};
use crate::failure::Result;
use crate::machines::Machines;
use crate::print;
use crate::watching::named;

/// Shows what your tasks cost, as far as their providers report it. Days are those of UTC.
#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// What to add up
    #[arg(long, value_enum, default_value = "day")]
    by: By,
    /// How many days, today included
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Day,
    Machine,
    Provider,
}

impl From<By> for UsageBy {
    fn from(by: By) -> Self {
        match by {
            By::Day => Self::Day,
            By::Machine => Self::Machine,
            By::Provider => Self::Provider,
        }
    }
}

impl Usage {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let to = now();
        let from = to.minus(Duration::from_secs((self.days - 1) * 86_400));
        let report = me.client.usage(from, to, self.by.into()).await?;
        let machines = Machines::if_available(&me).await;
        if context.json {
            print::json(&named(&machines, &report), false)?;
            return Ok(DONE);
        }
        if report.items.is_empty() {
            print::line("Nothing was reported in this time.")?;
            return Ok(DONE);
        }
        let head = match self.by {
            By::Day => "DAY",
            By::Machine => "MACHINE",
            By::Provider => "PROVIDER",
        };
        let mut table = Table::new([
            Column::text(head, 0, 10),
            Column::fixed("ATTEMPTS", 2),
            Column::fixed("IN", 1),
            Column::fixed("OUT", 1),
            Column::fixed("COST", 0),
        ]);
        for item in &report.items {
            table.row(row(called(item, &machines), &item.sum));
        }
        table.row(row("total".to_owned(), &report.total));
        print::table(&table)?;
        Ok(DONE)
    }
}

fn called(item: &UsageItem, machines: &Machines) -> String {
    let machine = item.machine_id.as_ref().map(|id| machines.called(id));
    let provider = item.provider.map(|provider| provider.as_str().to_owned());
    item.day.clone().or(machine).or(provider).unwrap_or_default()
}

fn row(name: String, sum: &UsageSum) -> [(Tone, String); 5] {
    // Not every provider reports costs.
    let spent = Spent { cost_usd: Some(sum.cost_usd).filter(|cost| *cost > 0.0), ..Spent::default() };
    [
        name,
        sum.attempts.to_string(),
        cost::short(sum.input_tokens),
        cost::short(sum.output_tokens),
        cost::dollars(&spent),
    ]
    .map(|cell| (Tone::Plain, cell))
}
