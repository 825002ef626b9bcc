//! `ensemble whoami`: shows the account, and the fingerprint that others compare.

use clap::Args;
use ensemble_types::accounts::Account;

use super::DONE;
use crate::context::Context;
use crate::failure::Result;
use crate::print;
use crate::says;

/// Shows your user id, which others need to share with you, and the fingerprint of your key, which they should compare.
#[derive(Debug, Args)]
pub(crate) struct Whoami {}

impl Whoami {
    pub(crate) async fn run(self, context: &Context) -> Result {
        let me = context.me().await?;
        let own = me.own();
        let account = me.client.account().await?;
        if context.json {
            let (list, key) = (&own.list, me.key.public_key());
            let role = list.device(&key).map(|device| device.role);
            #[derive(serde::Serialize)]
            struct Report<'a> {
                #[serde(flatten)]
                account: &'a Account,
                fingerprint: Option<String>,
                device: serde_json::Value,
                devices: serde_json::Value,
            }
            let report = Report {
                account: &account,
                fingerprint: me.fingerprint().ok(),
                device: serde_json::json!({ "publicKey": key, "role": role }),
                devices: serde_json::json!({
                    "version": list.version(), "digest": list.digest_text(), "count": list.body().devices.len(),
                }),
            };
            print::json(&report, false)?;
            return Ok(DONE);
        }
        print::line(format!("user         {}", account.id))?;
        if let Some(name) = &account.display_name {
            print::line(format!("name         {}", print::inline(name)))?;
        }
        if let Ok(fingerprint) = me.fingerprint() {
            print::line(format!("fingerprint  {fingerprint}"))?;
        }
        let role = own.list.device(&me.key.public_key()).map_or("", |device| device.role.as_str());
        let device: String = me.key.public_key().chars().take(8).collect();
        print::line(format!("device       {device}, {role}"))?;
        let digest: String = own.list.digest_text().chars().take(4).collect();
        print::line(format!(
            "devices      version {} ({digest}), {} in it",
            own.list.version(),
            own.list.body().devices.len()
        ))?;
        print::line(format!("server       {}", me.client.origin()))?;
        print::line(format!("key          {}", context.home.key_path().display()))?;
        if let Some(advice) = says::single_signer(&me) {
            print::note(advice);
        }
        Ok(DONE)
    }
}
