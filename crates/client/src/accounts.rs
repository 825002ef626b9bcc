//! The caller's account, other users, and machine tokens.

use ensemble_types::accounts::{
    Account, CreateMachineToken, CreatedMachineToken, MachineToken, MachineTokenPage, PublicUser, UpdateAccount,
};
use ensemble_types::ids::{TokenId, UserId};
use ensemble_types::text::Text;
use futures_util::Stream;

use crate::error::{Error, Result};
use crate::pages;
use crate::retry::Repeat;
use crate::transport::Client;

impl Client {
    pub async fn account(&self) -> Result<Account> {
        self.get(&["v1", "account"]).send().await
    }

    /// Changes the account. An update with an expected version is sent once.
    pub async fn update_account(&self, update: &UpdateAccount) -> Result<Account> {
        let repeat = if update.expected_version.is_some() { Repeat::Harmful } else { Repeat::Harmless };
        self.patch(&["v1", "account"], repeat).json(update).send().await
    }

    pub async fn set_display_name(&self, name: &str) -> Result<Account> {
        let name = Text::new(name).map_err(|error| Error::Argument(format!("the name {error}")))?;
        self.update_account(&UpdateAccount { display_name: Some(name), ..UpdateAccount::default() }).await
    }

    /// A user's public profile. Check it with `ensemble_protocol::seal::BoxPublicKey::of_user` before you seal anything to
    /// it.
    pub async fn user(&self, id: UserId) -> Result<PublicUser> {
        self.get(&["v1", "users", &id.to_string()]).send().await
    }

    /// Creates a token that can only act as the runner of one machine. The service shows it only in this response.
    pub async fn create_machine_token(&self, request: &CreateMachineToken) -> Result<CreatedMachineToken> {
        self.post(&["v1", "auth", "tokens"], Repeat::Harmful).json(request).send().await
    }

    pub async fn machine_token_page(&self, limit: Option<u32>, cursor: Option<&str>) -> Result<MachineTokenPage> {
        self.get(&["v1", "auth", "tokens"]).query("limit", limit).query("cursor", cursor).send().await
    }

    /// All machine tokens that have not been revoked.
    pub fn machine_tokens(&self) -> impl Stream<Item = Result<MachineToken>> + Send {
        let client = self.clone();
        pages::walk(move |cursor| {
            let client = client.clone();
            async move {
                let page = client.machine_token_page(None, cursor.as_deref()).await?;
                Ok((page.tokens, page.next_cursor))
            }
        })
    }

    /// Revokes a token; it stops working everywhere within ten seconds.
    pub async fn revoke_token(&self, id: TokenId) -> Result<()> {
        self.delete(&["v1", "auth", "tokens", &id.to_string()]).await
    }
}
