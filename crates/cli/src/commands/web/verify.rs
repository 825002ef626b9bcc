//! `ensemble web verify`: whether a server serves the page that this program was built with.
//!
//! Every file is asked for in each coding, as a browser does, and decoded. It shows what this computer gets now: a server that lies can
//! give another browser something else.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ensemble_client::{Client, Sent, Version};
use ensemble_web::verify::{Answer, Check, Found, checks};
use futures_util::{StreamExt, stream};
use serde::Serialize;

use crate::commands::DONE;
use crate::context::{Context, anonymous};
use crate::failure::{Failure, Result};
use crate::print;

/// Compares every file of the web app that a server serves to this computer with what this program was built with, and says which
/// differ. It cannot see what the server gives to others, or later.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The address of the server [default: the server of all commands]
    #[arg(value_name = "URL")]
    url: Option<String>,
}

/// One answer must be complete within this time, and all within the other.
const FILE_WITHIN: Duration = Duration::from_secs(30);
const ALL_WITHIN: Duration = Duration::from_secs(300);
/// Requests at one time.
const AT_ONCE: usize = 4;
/// Compressed, a file may be a little longer than it is.
const MORE: usize = 64 << 10;

/// What was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    server: String,
    server_version: Version,
    /// The release of this program.
    version: &'static str,
    is_same: bool,
    /// How many files were compared, each in every coding.
    files: usize,
    differences: Vec<Difference>,
    /// Where the page may connect to apart from its server, as for voice.
    connects: BTreeSet<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    path: String,
    /// The `Accept-Encoding` of the request.
    coding: &'static str,
    what: String,
}

impl Verify {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let client = anonymous(self.url.map_or_else(|| context.server().map(|(server, _)| server), Ok)?)?;
        let server = client.origin().to_owned();
        let late = || Failure::message(format!("{server} did not send everything within {} s.", ALL_WITHIN.as_secs()));
        let report = tokio::time::timeout(ALL_WITHIN, verify(&client)).await.map_err(|_| late())??;
        if context.json {
            print::json(&report, false)?;
        } else {
            tell(&report)?;
        }
        Ok(if report.is_same { DONE } else { ExitCode::FAILURE })
    }
}

async fn verify(client: &Client) -> Result<Report> {
    let server_version = client.version().await?;
    let checks = checks();
    let files = checks.iter().map(|check| &check.path).collect::<BTreeSet<_>>().len();
    let answers: Vec<_> = stream::iter(checks).map(|check| one(client, check)).buffered(AT_ONCE).collect().await;
    let (mut differences, mut connects) = (Vec::new(), BTreeSet::new());
    for answer in answers {
        let (check, found) = answer?;
        connects.extend(found.connects);
        let difference = |what| Difference { path: format!("/{}", check.path), coding: check.coding, what };
        differences.extend(found.differences.into_iter().map(difference));
    }
    Ok(Report {
        server: client.origin().to_owned(),
        server_version,
        version: env!("CARGO_PKG_VERSION"),
        is_same: differences.is_empty(),
        files,
        differences,
        connects,
    })
}

async fn one(client: &Client, check: Check) -> Result<(Check, Found)> {
    let fields = [("accept", check.accept()), ("accept-encoding", check.coding)];
    let most = MORE + check.length();
    let Sent { status, fields, body } =
        client.file(&check.path, &fields, most, FILE_WITHIN).await.map_err(|error| {
            let Check { path, coding, .. } = &check;
            Failure::message(format!("/{path} ({coding}) could not be compared: {}", Failure::from(error)))
        })?;
    let found = check.compare(&Answer { status, fields, body });
    Ok((check, found))
}

fn tell(report: &Report) -> Result<()> {
    let Report { server, server_version, version, .. } = report;
    if report.is_same {
        let text =
            format!("{server} serves this computer the page of this program: {} files are the same.", report.files);
        print::line(text)?;
        for origin in &report.connects {
            print::line(format!("The page may connect to {} as well.", print::short(origin, 600)))?;
        }
        print::note(
            "What it gives to others, or later, cannot be seen from here. `ensemble web` needs no trust in it.",
        );
        return Ok(());
    }
    for Difference { path, coding, what } in &report.differences {
        print::line(format!("{path} ({coding}) {what}"))?;
    }
    let theirs = format!("{}{}", server_version.version, commit(server_version.commit.as_deref()));
    let mine = format!("{version}{}", commit(option_env!("BUILD_COMMIT")));
    if theirs == mine {
        print::line(format!(
            "{server} says that it is version {mine}, as this program, and does not serve the same page. Do not use it."
        ))
    } else {
        print::line(format!(
            "{server} is version {}, and this program {mine}, so the page differs in any case. Compare with a program of the same build, \
             or use `ensemble web`.",
            print::short(&theirs, 600)
        ))
    }
}

fn commit(commit: Option<&str>) -> String {
    commit.map_or(String::new(), |commit| format!(" ({commit})"))
}
